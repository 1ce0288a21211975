//go:build integration

package wire_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faultlab/faultlab/netem/netemtest"
	"github.com/faultlab/faultlab/netem/probe"
)

// BenchmarkAccuracy reports, per round trip asked, by how many microseconds the
// median is off and how far the 99th percentile lies above it, on a machine at
// rest and with every processor busy.
func BenchmarkAccuracy(b *testing.B) {
	for _, load := range []string{"idle", "busy"} {
		for _, asked := range []time.Duration{100 * time.Microsecond, 600 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
			b.Run(fmt.Sprintf("%s/rtt=%v", load, asked), func(b *testing.B) {
				n := netemtest.Network(b, 2)
				w := open(b)
				if load == "busy" {
					stop := make(chan struct{})
					defer close(stop)
					for range 2 * runtime.NumCPU() {
						go spin(stop)
					}
				}
				probes := min(1000, int(3*time.Second/(asked+2*time.Millisecond)))
				measure := func() probe.Stat {
					s, err := probe.Measure(context.Background(), probe.Pair{From: n[0], To: n[1]}, probes, 2*time.Millisecond)
					if err != nil {
						b.Fatal(err)
					}
					return s
				}
				bare := measure()
				if err := w.Apply(context.Background(), netemtest.Both(n[0], n[1], asked)); err != nil {
					b.Fatal(err)
				}
				before, err := w.Counters(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					s := measure()
					b.ReportMetric(us(s.P50-bare.P50-asked), "p50-error-us")
					b.ReportMetric(us(s.P99-s.P50), "p99-p50-us")
				}
				c, err := w.Counters(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(us(bare.P50), "bare-us")
				b.ReportMetric(us(c.LateP50), "late-p50-us")
				b.ReportMetric(us(c.CPU-before.CPU)/float64(c.Packets-before.Packets), "cpu-us/packet")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func spin(stop <-chan struct{}) {
	for i := 0; ; i++ {
		if i%1000 == 0 {
			select {
			case <-stop:
				return
			default:
			}
		}
	}
}

// BenchmarkMesh reports, of full meshes in which every link has a delay of its
// own: how long it takes to make and to change all links; by how much the
// medians of links are off while up to 200 are probed, in the middle and at
// worst; the processor time for a packet; and the emulator's memory.
func BenchmarkMesh(b *testing.B) {
	for _, nodes := range []int{3, 10, 30} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			n := netemtest.Network(b, nodes)
			w := open(b)
			var pairs []probe.Pair
			for i := range n {
				for j := range n {
					if i != j && (len(pairs) < 200) {
						pairs = append(pairs, probe.Pair{From: n[i], To: n[j]})
					}
				}
			}
			measure := func() []probe.Stat {
				p, err := probe.Open(pairs, max(100*time.Millisecond, time.Duration(len(pairs))*time.Millisecond))
				if err != nil {
					b.Fatal(err)
				}
				defer p.Close()
				time.Sleep(5 * time.Second)
				return p.Take()
			}
			bare := measure()
			apply(b, w, mesh(n, 2*time.Millisecond)...)
			if err := w.Clear(context.Background()); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				start := time.Now()
				apply(b, w, mesh(n, 2*time.Millisecond)...)
				made := time.Since(start)
				links := mesh(n, 100*time.Microsecond)
				start = time.Now()
				apply(b, w, links...)
				changed := time.Since(start)
				asked := map[string]time.Duration{}
				for _, l := range links {
					asked[l.From.Name+" "+l.To.Name] = l.Impairment.Delay
				}
				before := counters(b, w)
				var off []time.Duration
				for i, s := range measure() {
					off = append(off, (s.P50 - bare[i].P50 - asked[s.From+" "+s.To] - asked[s.To+" "+s.From]).Abs())
				}
				after := counters(b, w)
				slices.Sort(off)
				b.ReportMetric(float64(made.Milliseconds()), "made-ms")
				b.ReportMetric(float64(changed.Milliseconds()), "changed-ms")
				b.ReportMetric(us(off[len(off)/2]), "p50-error-us")
				b.ReportMetric(us(off[len(off)-1]), "worst-p50-error-us")
				b.ReportMetric(us(after.CPU-before.CPU)/float64(after.Packets-before.Packets), "cpu-us/packet")
				b.ReportMetric(resident(b, w.Pid()), "resident-MB")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// resident is a process's memory, rings included.
func resident(b *testing.B, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	var kb float64
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			fmt.Sscan(v, &kb)
		}
	}
	return kb / 1024
}
