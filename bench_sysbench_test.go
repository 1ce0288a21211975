//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/lab/workload/oltp"
	"github.com/faultlab/faultlab/netem/netns"
	"github.com/faultlab/faultlab/results/stats"
)

// comparison sets this program's load beside sysbench's: both from the same
// lab's client, with the same tables of the same server.
type comparison struct {
	cluster  *lab.Cluster
	topology lab.Topology
	threads  int
	length   time.Duration // of one run
}

// run is what one program did in one run.
type run struct {
	tps float64
	cpu float64 // microseconds of client CPU a transaction, opening the sessions included
}

// BenchmarkLoad compares this program's load with the real sysbench, in pairs
// of runs in random order.
func BenchmarkLoad(b *testing.B) {
	if _, err := exec.LookPath("sysbench"); errors.Is(err, exec.ErrNotFound) {
		b.Skip(err)
	}
	for _, name := range []string{"single", "galera"} {
		b.Run(name, func(b *testing.B) {
			ctx, rounds := uninterrupted(), size(b, "ROUNDS", 5)
			c := comparison{threads: size(b, "THREADS", 16), length: seconds(b, 4)}
			out := newFigures(fmt.Sprintf("Load of faultlab beside sysbench: %s, %d threads; pairs: %d of %v each", name, c.threads, rounds, c.length),
				"workload", "faultlab\nTPS", "sysbench\nTPS", "\nratio", "\nrange", "faultlab\nCPU us/tx", "sysbench\nCPU us/tx")
			c.cluster, c.topology = startLab(ctx, b, name)
			for _, w := range []string{"oltp_read_write", "oltp_write_only", "oltp_point_select"} {
				b.Run(w, func(b *testing.B) {
					cfg := oltpConfig(b, w)
					d, err := oltp.New(cfg)
					if err != nil {
						b.Fatal(err)
					}
					if err := d.Prepare(ctx, target(c.cluster, c.topology), nil); err != nil {
						b.Fatal(err)
					}
					var tps, cpu [2][]float64
					var ratios []float64
					for pair := range rounds + 1 {
						var got [2]run
						for _, i := range rand.Perm(2) {
							settle(ctx, b, c.cluster, c.topology)
							if i == 0 {
								got[i] = c.faultlab(ctx, b, d)
							} else {
								got[i] = c.sysbench(ctx, b, cfg)
							}
						}
						if pair == 0 {
							continue // warms the server up
						}
						for i, r := range got {
							tps[i], cpu[i] = append(tps[i], r.tps), append(cpu[i], r.cpu)
						}
						ratios = append(ratios, got[0].tps/got[1].tps)
					}
					out.AppendRow([]any{w,
						fmt.Sprintf("%.0f", stats.Median(tps[0])), fmt.Sprintf("%.0f", stats.Median(tps[1])),
						fmt.Sprintf("%.3f", stats.Median(ratios)), extent("%.3f", ratios),
						fmt.Sprintf("%.0f", stats.Median(cpu[0])), fmt.Sprintf("%.0f", stats.Median(cpu[1]))})
					b.ReportMetric(stats.Median(tps[0]), "tps")
					b.ReportMetric(stats.Median(ratios), "vs-sysbench")
					b.ReportMetric(stats.Median(cpu[0]), "cpu-us/tx")
					noTime(b)
				})
			}
			out.show()
		})
	}
}

// faultlab runs this program's load.
func (c comparison) faultlab(ctx context.Context, b *testing.B, d workload.Driver) run {
	b.Helper()
	before := cpuTime(b)
	r, err := workload.Start(ctx, d, target(c.cluster, c.topology), workload.Options{Threads: c.threads})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Stop()
	w, err := r.Measure(ctx, c.length)
	if err != nil {
		b.Fatal(err)
	}
	if len(w.Errors) > 0 {
		b.Errorf("%s: errors %v", d.Name(), w.Errors)
	}
	r.Stop()
	return run{w.TPS(), (cpuTime(b) - before).Seconds() * 1e6 / float64(w.Transactions)}
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var transactionsLine = regexp.MustCompile(`transactions: +(\d+) +\(([0-9.]+) per sec`)

// sysbench runs the real one in the network namespace of the lab's client. The
// account is in a file of its own: what is on a command line is for all to
// read.
func (c comparison) sysbench(ctx context.Context, b *testing.B, cfg oltp.Config) run {
	b.Helper()
	to := target(c.cluster, c.topology)
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		b.Fatal(err)
	}
	account := filepath.Join(b.TempDir(), "sysbench.conf")
	if err := os.WriteFile(account, fmt.Appendf(nil, "mysql-user=%s\nmysql-password=%s\n", to.User, to.Password), 0o600); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.length+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sysbench", "--config-file="+account,
		"--mysql-host="+host, "--mysql-port="+port, "--mysql-db="+to.Database,
		fmt.Sprintf("--tables=%d", cfg.Tables), fmt.Sprintf("--table-size=%d", cfg.Rows),
		fmt.Sprintf("--threads=%d", c.threads), fmt.Sprintf("--time=%.0f", c.length.Seconds()),
		cfg.Workload, "run")
	var said []byte
	err = netns.Do(c.cluster.Client().Endpoint().Netns, func() (err error) {
		said, err = cmd.CombinedOutput()
		return err
	})
	m := transactionsLine.FindSubmatch(said)
	if err != nil || m == nil {
		b.Fatalf("sysbench %s: %v\n%s", cfg.Workload, err, said)
	}
	n, _ := strconv.ParseFloat(string(m[1]), 64)
	tps, _ := strconv.ParseFloat(string(m[2]), 64)
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return run{tps, cpu.Seconds() * 1e6 / n}
}
