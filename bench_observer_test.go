//go:build bench

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/lab/workload/oltp"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/probe"
	"github.com/faultlab/faultlab/netem/wire"
	"github.com/faultlab/faultlab/results/stats"
)

// state is one state of the links between nodes, with what was measured in it.
type state struct {
	name     string
	emulated bool
	rtt      time.Duration // what the emulator adds

	tps      []float64
	measured []float64 // median round trip under load, ms
	cpu      []float64 // share of one processor
	wakeups  []float64 // for one packet
}

// BenchmarkObserver tells what the emulator costs a cluster by being there, by
// the LAN preset beside no emulator, and what is left for latency to cost.
func BenchmarkObserver(b *testing.B) {
	for _, name := range []string{"galera", "semisync"} {
		b.Run(name, func(b *testing.B) {
			ctx, rounds, length, threads := uninterrupted(), size(b, "ROUNDS", 6), seconds(b, 5), size(b, "THREADS", 16)
			d, err := oltp.New(oltpConfig(b, "oltp_write_only"))
			if err != nil {
				b.Fatal(err)
			}
			out := newFigures(fmt.Sprintf("Cost of the emulator: %s, %s, %d threads; rounds: %d of %v windows", name, d.Name(), threads, rounds, length),
				"links", "\nTPS", "TPS ratio to\nthe line above", "95%\ninterval", "RTT p50\nloaded, ms", "emulator\nCPU", "wake-ups\na packet")
			o := newObserver(ctx, b, name, d, threads)

			none := &state{name: "no emulator"}
			lan := &state{name: "LAN, 0.1 ms", emulated: true, rtt: 100 * time.Microsecond}
			far := &state{name: "+0.6 ms", emulated: true, rtt: 700 * time.Microsecond}
			states := []*state{none, lan, far}
			o.window(ctx, b, &state{emulated: true, rtt: lan.rtt}, length) // warms all up
			for range rounds {
				for _, i := range rand.Perm(len(states)) {
					o.window(ctx, b, states[i], length)
				}
			}

			observer, latency := stats.Compare(none.tps, lan.tps, 0), stats.Compare(lan.tps, far.tps, 0)
			for _, s := range states {
				row := []any{s.name, fmt.Sprintf("%.0f", stats.Median(s.tps)), "", "", fmt.Sprintf("%.3f", stats.Median(s.measured)), "", ""}
				switch s {
				case lan:
					row[2], row[3] = ratio(observer)
				case far:
					row[2], row[3] = ratio(latency)
				}
				if s.emulated {
					row[5], row[6] = fmt.Sprintf("%.0f%%", 100*stats.Median(s.cpu)), fmt.Sprintf("%.2f", stats.Median(s.wakeups))
				}
				out.AppendRow(row)
			}
			out.show()
			b.ReportMetric(observer.Ratio, "lan/none")
			b.ReportMetric(latency.Ratio, "0.6ms/lan")
			b.ReportMetric(100*stats.Median(lan.cpu), "lan-cpu-%")
			noTime(b)
		})
	}
}

// observer is a cluster under load whose links can be put in a state.
type observer struct {
	cluster  *lab.Cluster
	topology lab.Topology
	load     *workload.Runner
	wire     *wire.Backend
	probes   *probe.Prober
	links    []netem.Link // between all nodes, both directions
}

func newObserver(ctx context.Context, b *testing.B, name string, d workload.Driver, threads int) *observer {
	b.Helper()
	o := &observer{}
	o.cluster, o.topology = startLab(ctx, b, name)
	to := target(o.cluster, o.topology)
	if err := d.Prepare(ctx, to, nil); err != nil {
		b.Fatal(err)
	}
	var pairs []probe.Pair
	for i, from := range o.cluster.Nodes() {
		for j, to := range o.cluster.Nodes() {
			if i == j {
				continue
			}
			o.links = append(o.links, netem.Link{From: from.Endpoint(), To: to.Endpoint()})
			if i < j {
				pairs = append(pairs, probe.Pair{From: from.Endpoint(), To: to.Endpoint()})
			}
		}
	}
	var err error
	if o.wire, err = wire.Open(ctx, wire.Options{}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := o.wire.Close(); err != nil {
			b.Error(err)
		}
	})
	if o.probes, err = probe.Open(pairs, 0); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { o.probes.Close() })
	if o.load, err = workload.Start(ctx, d, to, workload.Options{Threads: threads}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(o.load.Stop)
	return o
}

// window measures one window in a state. As in a run, the links change while
// the load rests and the cluster has caught up.
func (o *observer) window(ctx context.Context, b *testing.B, s *state, length time.Duration) {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	must(o.load.Pause(ctx))
	settle(ctx, b, o.cluster, o.topology)
	if s.emulated {
		for i := range o.links {
			o.links[i].Impairment.Delay = s.rtt / 2
		}
		must(o.wire.Apply(ctx, o.links))
	} else {
		must(o.wire.Clear(ctx))
	}
	o.load.Resume()
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}

	was := o.topology.Counters(ctx, o.cluster)
	before, err := o.wire.Counters(ctx)
	must(err)
	o.probes.Take()
	w, err := o.load.Measure(ctx, length)
	must(err)
	seen := o.probes.Take()
	after, err := o.wire.Counters(ctx)
	must(err)

	problems := append(o.topology.Health(ctx, o.cluster).Problems(), o.topology.Judge(was, o.topology.Counters(ctx, o.cluster))...)
	if len(w.Errors) > 0 {
		problems = append(problems, fmt.Sprintf("errors %v", w.Errors))
	}
	if n := after.Overrun - before.Overrun; n > 0 {
		problems = append(problems, fmt.Sprintf("the emulator lost %d packets", n))
	}
	for _, p := range problems {
		b.Errorf("%s, %s: %s", o.topology.Name(), s.name, p)
	}
	s.tps = append(s.tps, w.TPS())
	var rtts []float64
	for _, p := range seen {
		rtts = append(rtts, float64(p.P50)/float64(time.Millisecond))
	}
	s.measured = append(s.measured, stats.Median(rtts))
	if s.emulated {
		s.cpu = append(s.cpu, (after.CPU-before.CPU).Seconds()/w.End.Sub(w.Start).Seconds())
		s.wakeups = append(s.wakeups, float64(after.Wakeups-before.Wakeups)/float64(max(1, after.Packets-before.Packets)))
	}
}
