//go:build integration

package wire_test

import (
	"context"
	"fmt"
	"runtime"
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
