//go:build bench

package oltp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/faultlab/faultlab/lab/workload"
)

// What the comparison needs, and a reason to skip it.
var (
	errNoServer   = errors.New("no server to measure: set FAULTLAB_BENCH_ADDR, FAULTLAB_BENCH_USER and FAULTLAB_BENCH_PASSWORD")
	errNoSysbench = errors.New("sysbench is not installed")
)

// bench is what to compare, and how: all of it can be set in the environment.
type bench struct {
	target    workload.Target
	host      string
	port      string
	tables    int           // FAULTLAB_BENCH_TABLES
	rows      int           // FAULTLAB_BENCH_ROWS
	pairs     int           // FAULTLAB_BENCH_PAIRS
	length    time.Duration // FAULTLAB_BENCH_SECONDS, of one run
	workloads []string      // FAULTLAB_BENCH_WORKLOADS, separated by commas
	threads   []string      // FAULTLAB_BENCH_THREADS, the same
}

func benchFromEnvironment() (bench, error) {
	b := bench{target: workload.Target{
		Addr:     os.Getenv("FAULTLAB_BENCH_ADDR"),
		User:     os.Getenv("FAULTLAB_BENCH_USER"),
		Password: os.Getenv("FAULTLAB_BENCH_PASSWORD"),
		Database: workload.DefaultDatabase,
	}}
	if b.target.Addr == "" {
		return b, errNoServer
	}
	if _, err := exec.LookPath("sysbench"); err != nil {
		return b, fmt.Errorf("%w: %w", errNoSysbench, err)
	}
	var err error
	b.host, b.port, err = net.SplitHostPort(b.target.Addr)
	number := func(name string, otherwise int) int {
		n, e := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
		err = cmp.Or(err, e)
		return n
	}
	b.tables = number("FAULTLAB_BENCH_TABLES", 4)
	b.rows = number("FAULTLAB_BENCH_ROWS", 20_000)
	b.pairs = number("FAULTLAB_BENCH_PAIRS", 5)
	b.length = time.Duration(number("FAULTLAB_BENCH_SECONDS", 3)) * time.Second
	b.workloads = strings.Split(cmp.Or(os.Getenv("FAULTLAB_BENCH_WORKLOADS"), "oltp_read_write,oltp_write_only,oltp_point_select"), ",")
	b.threads = strings.Split(cmp.Or(os.Getenv("FAULTLAB_BENCH_THREADS"), "16,1,64"), ",")
	return b, err
}

// run is what one program did in one run.
type run struct {
	tps float64
	cpu float64 // microseconds of client CPU a transaction
}

func TestLoadIsAsFastAsSysbenchOnTheSameServer(t *testing.T) {
	b, err := benchFromEnvironment()
	if errors.Is(err, errNoServer) || errors.Is(err, errNoSysbench) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "workload\tthreads\tTPS faultlab\tTPS sysbench\tratio\t(range)\tCPU us/tx faultlab\tsysbench\t")
	for _, name := range b.workloads {
		d, err := New(Config{Workload: name, Tables: b.tables, Rows: b.rows})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Prepare(t.Context(), b.target, nil); err != nil {
			t.Fatal(err)
		}
		for _, threads := range b.threads {
			n, err := strconv.Atoi(threads)
			if err != nil {
				t.Fatal(err)
			}
			var ours, theirs []run
			var ratios []float64
			for pair := range b.pairs + 1 {
				both := []func(*testing.T, workload.Driver, int) run{b.faultlab, b.sysbench}
				first := rand.IntN(2)
				var got [2]run
				for _, i := range []int{first, 1 - first} {
					got[i] = both[i](t, d, n)
				}
				if pair == 0 {
					continue // warms the server up
				}
				ours, theirs = append(ours, got[0]), append(theirs, got[1])
				ratios = append(ratios, got[0].tps/got[1].tps)
			}
			tps := func(r run) float64 { return r.tps }
			cpu := func(r run) float64 { return r.cpu }
			fmt.Fprintf(out, "%s\t%d\t%.0f\t%.0f\t%.3f\t(%.3f-%.3f)\t%.1f\t%.1f\t\n", name, n,
				median(ours, tps), median(theirs, tps),
				median(ratios, func(r float64) float64 { return r }), slices.Min(ratios), slices.Max(ratios),
				median(ours, cpu), median(theirs, cpu))
			out.Flush()
		}
	}
}

// faultlab runs this program's load. Opening the sessions is in its CPU time,
// as it is in sysbench's.
func (b bench) faultlab(t *testing.T, d workload.Driver, threads int) run {
	before := cpuTime(t)
	r, err := workload.Start(t.Context(), d, b.target, workload.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	w, err := r.Measure(t.Context(), b.length)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Errors) > 0 {
		t.Errorf("%s, %d threads: errors %v", d.Name(), threads, w.Errors)
	}
	r.Stop()
	return run{w.TPS(), (cpuTime(t) - before).Seconds() * 1e6 / float64(w.Transactions)}
}

// cpuTime is what this process has used.
func cpuTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var transactionsLine = regexp.MustCompile(`transactions: +(\d+) +\(([0-9.]+) per sec`)

// sysbench runs the real one. The account is in a file of its own: what is on a
// command line is for all to read.
func (b bench) sysbench(t *testing.T, d workload.Driver, threads int) run {
	config := t.TempDir() + "/sysbench.conf"
	account := fmt.Sprintf("mysql-user=%s\nmysql-password=%s\n", b.target.User, b.target.Password)
	if err := os.WriteFile(config, []byte(account), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), b.length+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sysbench", "--config-file="+config,
		"--mysql-host="+b.host, "--mysql-port="+b.port, "--mysql-db="+b.target.Database,
		fmt.Sprintf("--tables=%d", b.tables), fmt.Sprintf("--table-size=%d", b.rows),
		fmt.Sprintf("--threads=%d", threads), fmt.Sprintf("--time=%.0f", b.length.Seconds()),
		d.Name(), "run")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	m := transactionsLine.FindSubmatch(text)
	if m == nil {
		t.Fatalf("no transactions in sysbench's output:\n%s", text)
	}
	n, _ := strconv.ParseFloat(string(m[1]), 64)
	tps, _ := strconv.ParseFloat(string(m[2]), 64)
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return run{tps, cpu.Seconds() * 1e6 / n}
}

func median[T any](all []T, value func(T) float64) float64 {
	var v []float64
	for _, x := range all {
		v = append(v, value(x))
	}
	slices.Sort(v)
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}
