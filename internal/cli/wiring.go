package cli

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/process"
	"github.com/faultlab/faultlab/lab/server"
	"github.com/faultlab/faultlab/lab/topology"
	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/lab/workload/oltp"
	"github.com/faultlab/faultlab/lab/workload/tpcc"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/probe"
	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/scenarios"
	"github.com/faultlab/faultlab/scenarios/engine"
)

// version is the program's own, from the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 && (v == "" || v == "(devel)") {
			v = s.Value[:12]
		}
	}
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	return v
}

// Flags that several commands share.
var (
	jsonFlag     = &cli.BoolFlag{Name: "json", Usage: "print one JSON document on standard output"}
	providerFlag = &cli.StringFlag{Name: "provider", Value: "auto", Usage: "what nodes are: `auto|process|docker`"}
	emulatorFlag = &cli.StringFlag{Name: "emulator", Value: "auto", Usage: "what shapes links: `auto|kernel|user`"}
	rootFlag     = &cli.StringSliceFlag{Name: "server-root", Usage: "take servers from this folder tree, made of a distribution's packages, before any other: `DIR` (repeatable)"}
)

// provider chooses what builds labs.
func provider(ctx *cli.Context, report func(string)) (lab.Provider, error) {
	switch name := ctx.String("provider"); name {
	case "auto", "process":
		if err := withoutDocker(ctx); err != nil {
			return nil, err
		}
		return &process.Provider{Servers: servers(ctx), Report: report}, nil
	case "docker":
		return dockerProvider(ctx, report)
	default:
		return nil, usage("provider %q is not auto, process or docker", name)
	}
}

func servers(ctx *cli.Context) server.Store {
	return server.Store{Roots: ctx.StringSlice("server-root")}
}

// driver makes a scenario's workload.
func driver(w scenarios.Workload) (workload.Driver, error) {
	if w.Name == tpcc.Name {
		return tpcc.New(tpcc.Config{Warehouses: w.Warehouses, Scale: w.Scale})
	}
	return oltp.New(oltp.Config{Workload: w.Name, Tables: w.Tables, Rows: w.Rows, Distribution: oltp.Distribution(w.Distribution)})
}

// prober adapts netem/probe to what the engine needs.
type prober struct{ *probe.Prober }

func openProber(pairs [][2]netem.Endpoint) (engine.Prober, error) {
	var ps []probe.Pair
	for _, p := range pairs {
		ps = append(ps, probe.Pair{From: p[0], To: p[1]})
	}
	p, err := probe.Open(ps, 0)
	if err != nil {
		return nil, err
	}
	return prober{p}, nil
}

func (p prober) Take(cuts ...time.Time) [][]engine.RTT {
	out := make([][]engine.RTT, len(cuts)+1)
	for _, all := range p.Prober.Take() {
		for i := range out {
			s := all
			if len(cuts) > 0 {
				from, to := time.Time{}, time.Now().Add(time.Hour)
				if i > 0 {
					from = cuts[i-1]
				}
				if i < len(cuts) {
					to = cuts[i]
				}
				s = all.Between(from, to)
			}
			low, high := s.MedianInterval()
			out[i] = append(out[i], engine.RTT{From: s.From, To: s.To, Sent: int64(s.Sent), Lost: int64(s.Lost),
				P50: s.P50, P99: s.P99, P50Low: low, P50High: high})
		}
	}
	return out
}

// newEngine wires an engine from a command's flags.
func newEngine(ctx *cli.Context, report func(string)) (*engine.Engine, error) {
	p, err := provider(ctx, report)
	if err != nil {
		return nil, err
	}
	em, err := emulator(ctx)
	if err != nil {
		return nil, err
	}
	return &engine.Engine{
		Provider: p, Topologies: topology.All(), Emulator: em, Prober: openProber, Driver: driver,
	}, nil
}

// environment describes this machine.
func environment() results.Environment {
	env := results.Environment{CPUs: runtime.NumCPU(), Faultlab: version(), Servers: map[string]string{}}
	if d, err := lab.FlushTime(lab.StateDir()); err == nil {
		env.FlushMS = float64(d) / float64(time.Millisecond)
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		env.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		env.MemoryBytes = kilobytes(string(b), "MemTotal:")
	}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				env.CPUModel = strings.TrimSpace(v)
				break
			}
		}
	}
	return env
}

// kilobytes reads one line of /proc/meminfo, in bytes.
func kilobytes(meminfo, key string) int64 {
	for line := range strings.Lines(meminfo) {
		if v, ok := strings.CutPrefix(line, key); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}

// findScenario takes the name of a scenario that ships, or a file.
func findScenario(name string) (*scenarios.Scenario, error) {
	if strings.ContainsRune(name, '/') || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, &exit{exitUsage, fmt.Errorf("scenario file: %w", err)}
		}
		return scenarios.Load(name, b)
	}
	s, err := scenarios.Builtin(name)
	if err != nil {
		return nil, &exit{exitUsage, err}
	}
	return s, nil
}
