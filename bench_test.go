//go:build bench

// The benchmarks of `make bench` measure real servers in labs. Each prints a
// table for people, and its main figures in Go's form for benchstat. Figures
// are printed and never asserted: what fails is a cluster that is not what it
// should be.
//
// Sizes have defaults of each benchmark's own and are set in the environment:
//
//	FAULTLAB_BENCH_ROUNDS   how often everything is measured
//	FAULTLAB_BENCH_SECONDS  length of one measurement
//	FAULTLAB_BENCH_THREADS  sessions of the load
//	FAULTLAB_BENCH_TABLES, FAULTLAB_BENCH_ROWS

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/process"
	"github.com/faultlab/faultlab/lab/topology"
	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/lab/workload/oltp"
	"github.com/faultlab/faultlab/results/stats"
	"github.com/faultlab/faultlab/scenarios/engine"
)

// size reads a size from the environment.
func size(b *testing.B, name string, otherwise int) int {
	b.Helper()
	s := os.Getenv("FAULTLAB_BENCH_" + name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		b.Fatalf("FAULTLAB_BENCH_%s: %q is not a number from 1", name, s)
	}
	return n
}

func seconds(b *testing.B, otherwise int) time.Duration {
	return time.Duration(size(b, "SECONDS", otherwise)) * time.Second
}

func oltpConfig(b *testing.B, name string) oltp.Config {
	return oltp.Config{Workload: name, Tables: size(b, "TABLES", 4), Rows: size(b, "ROWS", 20_000)}
}

// uninterrupted ends with Ctrl-C, for all benchmarks: the one that runs takes
// its lab down and the others fail at once.
var uninterrupted = sync.OnceValue(func() context.Context {
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	return ctx
})

const (
	readyTimeout = 3 * time.Minute
	downTimeout  = 30 * time.Second
)

// openLab makes a topology's lab without starting its servers. What happens to
// it is the caller's, who may close it early: at the end of the benchmark it is
// closed in any case. Should this process be killed, `faultlab clean` knows of
// it.
func openLab(ctx context.Context, b *testing.B, t lab.Topology) *lab.Cluster {
	b.Helper()
	spec := lab.Spec{Name: fmt.Sprintf("bench-%s-%d", t.Name(), os.Getpid())}
	for i := range t.NodeCount() {
		spec.Nodes = append(spec.Nodes, lab.NodeSpec{Name: fmt.Sprintf("n%d", i+1), Flavor: t.Flavor()})
	}
	provider := process.Provider{}
	if err := provider.Preflight(ctx, spec); errors.Is(err, lab.ErrCannot) {
		b.Skip(err)
	} else if err != nil {
		b.Fatal(err)
	}
	l, err := provider.Open(ctx, spec)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { closeLab(b, l) })
	return &lab.Cluster{Lab: l, Topology: t.Name(), Credentials: engine.NewCredentials()}
}

func closeLab(b *testing.B, l lab.Lab) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		b.Error(err)
	}
}

// startLab makes a topology's lab and waits until its cluster is healthy.
func startLab(ctx context.Context, b *testing.B, name string) (*lab.Cluster, lab.Topology) {
	b.Helper()
	t, ok := topology.All()[name]
	if !ok {
		b.Fatalf("there is no topology %q", name)
	}
	c := openLab(ctx, b, t)
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := t.Bootstrap(ctx, c, func(string) {}); err != nil {
		b.Fatal(err)
	}
	return c, t
}

// target is the node of a cluster that takes the load, from its client.
func target(c *lab.Cluster, t lab.Topology) workload.Target {
	return workload.Target{Addr: t.Writer(c).Addr(), User: c.Credentials.User, Password: c.Credentials.Password,
		Database: workload.DefaultDatabase, Dial: c.Client().Dial}
}

// settle waits until every node has applied all there is, so that nothing
// measured inherits work from what was measured before it.
func settle(ctx context.Context, b *testing.B, c *lab.Cluster, t lab.Topology) {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		h := t.Health(ctx, c)
		switch {
		case ctx.Err() != nil:
			b.Fatal(ctx.Err())
		case len(h.Problems()) > 0:
			b.Fatalf("%s: %s", t.Name(), strings.Join(h.Problems(), "; "))
		case h.CaughtUp(0):
			return
		case time.Now().After(deadline):
			b.Fatalf("%s: nodes did not catch up: %+v", t.Name(), h.Nodes)
		}
	}
}

// figures is a table for people under a title.
type figures struct {
	table.Writer
	title string
}

// newFigures makes a table of which all columns but the first hold numbers. Its
// title tells how busy the machine was before.
func newFigures(title string, header ...any) figures {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options = table.Options{SeparateHeader: true}
	t.SetStyle(style)
	t.AppendHeader(header)
	var columns []table.ColumnConfig
	for n := 2; n <= len(header); n++ {
		columns = append(columns, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return figures{t, fmt.Sprintf("%s\n%d processors, %.0f%% busy before", title, runtime.NumCPU(), 100*busy())}
}

// busy is the share of all processors' time that the machine is at work for
// others, looked at for half a second. The load average would tell of the
// benchmark before.
func busy() float64 {
	read := func() (all, idle float64) {
		b, _ := os.ReadFile("/proc/stat")
		line, _, _ := strings.Cut(string(b), "\n")
		for i, s := range strings.Fields(line) {
			n, _ := strconv.ParseFloat(s, 64) // 0 for the name in front
			if i > 8 {
				break // a guest's time is in its host's too
			}
			all += n
			if i == 4 || i == 5 { // idle, waiting for a disk
				idle += n
			}
		}
		return all, idle
	}
	all, idle := read()
	time.Sleep(500 * time.Millisecond)
	allNow, idleNow := read()
	return 1 - (idleNow-idle)/(allNow-all)
}

func (f figures) show() { fmt.Printf("\n%s\n\n%s\n\n", f.title, f.Render()) }

// extent is the range of values.
func extent(format string, xs []float64) string {
	if len(xs) == 0 {
		return ""
	}
	return fmt.Sprintf(format+" to "+format, slices.Min(xs), slices.Max(xs))
}

// ratio is a comparison with its interval, if there are windows enough.
func ratio(c stats.Comparison) (value, interval string) {
	if c.HasCI {
		interval = fmt.Sprintf("%.3f to %.3f", c.CI[0], c.CI[1])
	}
	return fmt.Sprintf("%.3f", c.Ratio), interval
}

// noTime leaves Go's own figure out, which means nothing here.
func noTime(b *testing.B) { b.ReportMetric(0, "ns/op") }
