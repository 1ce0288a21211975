package netemtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/probe"
)

func rateCases() []contract {
	return []contract{
		{"a rate is what was asked", 2, func(e *env) {
			// Large packets, so that a slow machine can fill the link.
			large := network(e, 2, 9000)
			for _, c := range []struct {
				text string
				n    []netem.Endpoint
				size int
			}{{"rate 10mbit", e.nodes, 1500}, {"delay 10ms rate 10mbit burst 32kb", e.nodes, 1500}, {"rate 100mbit", large, 9000}, {"delay 10ms rate 100mbit burst 256kb", large, 9000}} {
				i := e.link(0, 1, c.text).Impairment
				e.apply(netem.Link{From: c.n[0], To: c.n[1], Impairment: i})
				e.atRate(c.text, i.Rate, probe.Pair{From: c.n[0], To: c.n[1]}, probe.Blast{Size: c.size, Pace: 2 * i.Rate})
			}
		}},
		{"a rate is of both kinds of addresses together", 2, func(e *env) {
			e.set("rate 10mbit")
			p := probe.Pair{From: e.nodes[0], To: e.nodes[1]}
			b := probe.Blast{For: 2 * time.Second, Pace: 10_000_000}
			e.once(func() error {
				second := make(chan probe.Throughput)
				go func() {
					t, err := probe.Rate(e.ctx, p.V6(), b)
					if err != nil {
						e.Error(err)
					}
					second <- t
				}()
				four := e.blast(p, b)
				six := <-second
				first, last := min(four.First, six.First), max(four.Last, six.Last)
				got := float64(four.Bytes+six.Bytes) * 8 / (last - first).Seconds()
				e.Logf("%.2f Mbit/s, of which IPv4 %.2f and IPv6 %.2f", got/1e6, four.BitsPerSecond/1e6, six.BitsPerSecond/1e6)
				if got < 9e6 || got > 11e6 || four.Packets < 100 || six.Packets < 100 {
					return fmt.Errorf("%.2f of 10 Mbit/s together, IPv4 %d packets, IPv6 %d", got/1e6, four.Packets, six.Packets)
				}
				return nil
			})
		}},
		{"a packet takes its time at a rate", 2, func(e *env) {
			// 1,014 bytes at 1 Mbit/s.
			const each = 1014 * 8 * time.Microsecond
			e.set("delay 10ms rate 1mbit")
			e.once(func() error {
				f := e.flow(probe.Stream{Count: 50, Size: 1000})
				e.nothingElse(f)
				if n := f.Arrivals; len(n) == 50 {
					span := n[49].At.Sub(n[0].At)
					if !about(f.Min, 10*ms+each) || span < 49*each-5*ms || span > 49*each+20*ms {
						return fmt.Errorf("first packet after %v, last of 50 %v behind it; want %v and %v", f.Min, span, 10*ms+each, 49*each)
					}
				}
				return nil
			})
		}},
		{"a burst passes at once, and then the rate holds", 2, func(e *env) {
			// Packets of 1,014 bytes on the wire, 64 of them at once and 8.112
			// ms each then.
			const each = 1014 * 8 * time.Microsecond
			e.set("rate 1mbit burst 64kb")
			e.once(func() error {
				time.Sleep(700 * ms) // the bucket fills
				f := e.flow(probe.Stream{Count: 100, Size: 1000, Wait: 5 * time.Second})
				e.nothingElse(f)
				if len(f.Arrivals) != 100 {
					return nil
				}
				at := func(n int) time.Duration { return f.Arrivals[n].At.Sub(f.Arrivals[0].At) }
				if want := (100 - 64) * each; at(55) > 50*ms || at(99) < want-5*each || at(99) > want+50*ms {
					return fmt.Errorf("packet 56 is %v behind the first and packet 100 %v, want at once and %v", at(55), at(99), want)
				}
				return nil
			})
		}},
		{"a queue is as long as asked", 2, func(e *env) {
			e.set("rate 1mbit limit 20")
			f := e.overflow(probe.Pair{From: e.nodes[0], To: e.nodes[1]}, probe.Stream{Count: 100, Size: 1000, Wait: 3 * time.Second})
			sending := time.Duration(0)
			if n := len(f.Arrivals); n > 0 {
				first, last := f.Arrivals[0], f.Arrivals[n-1]
				sending = last.At.Add(-last.Delay).Sub(first.At.Add(-first.Delay))
			}
			// Meanwhile one leaves every 8 ms.
			if most := 25 + int(sending/(8*ms)); f.Received < 15 || f.Received > most {
				e.Errorf("%d of 100 packets at once passed a queue of 20", f.Received)
			}
			if c := e.counters(); int(c.Dropped) != f.Lost || c.Overrun != 0 {
				e.Errorf("the emulator counts %d dropped and %d overrun, the receiver lacks %d", c.Dropped, c.Overrun, f.Lost)
			}
		}},
		{"packets wait for their slot and leave together", 2, func(e *env) {
			e.set("slot 40ms")
			e.once(func() error {
				f := e.flow(probe.Stream{Count: 400, Interval: 2 * ms})
				e.nothingElse(f)
				starts := clumps(f, 15*ms)
				var apart []time.Duration
				for i := 1; i < len(starts); i++ {
					apart = append(apart, starts[i]-starts[i-1])
				}
				slices.Sort(apart)
				median := probe.Quantile(apart, 0.5)
				e.Logf("%d clumps, %v apart in the median, delays up to %v", len(starts), median, f.Max)
				if len(starts) < 8 || median < 35*ms || median > 50*ms || f.P50 > 60*ms {
					return fmt.Errorf("%d clumps, %v apart, median delay %v; want 20, 40ms apart, 20ms", len(starts), median, f.P50)
				}
				return nil
			})
			e.set("slot 40ms packets 4")
			e.once(func() error {
				f := e.flow(probe.Stream{Count: 40, Interval: ms / 2})
				e.nothingElse(f)
				if n := f.Arrivals; len(n) == 40 {
					if span := n[39].At.Sub(n[0].At); span < 320*ms || span > 500*ms {
						return fmt.Errorf("40 packets in slots of 4 came over %v, want 360ms", span)
					}
				}
				return nil
			})
		}},
		{"ReportedFault05 a long fast transfer over 100ms loses nothing", 2, func(e *env) {
			e.apply(e.link(0, 1, "delay 100ms"))
			before := e.counters()
			// 2,500 packets under way, and netem's default is a limit of 1,000.
			e.nothingElse(e.flow(probe.Stream{Count: 10000, Interval: dense, Size: 1000}))
			begun := time.Now()
			s := startStream(e, e.nodes[0], e.nodes[1], streamOptions{buffer: 16 << 20, pace: 25_000_000, control: "reno"})
			i := s.info(e, s.conn)
			for patience := begun.Add(30 * time.Second); time.Since(begun) < 5*time.Second || i.Snd_cwnd < 1500 && time.Now().Before(patience); i = s.info(e, s.conn) {
				time.Sleep(100 * ms)
			}
			took := time.Since(begun)
			bytes := s.check(e)
			after := e.counters()
			e.Logf("%.0f Mbit/s, window %d segments", float64(bytes)*8/1e6/took.Seconds(), i.Snd_cwnd)
			if i.Total_retrans > 0 || after.Overrun != before.Overrun || after.Dropped != before.Dropped {
				e.Errorf("%d segments sent again, the emulator counts %d dropped and %d overrun", i.Total_retrans, after.Dropped-before.Dropped, after.Overrun-before.Overrun)
			}
			if i.Snd_cwnd < 1500 {
				e.Errorf("a window of %d segments, want one that fills 100ms", i.Snd_cwnd)
			}
		}},
		{"a bulk transfer keeps its large packets where only delay is asked", 2, func(e *env) {
			e.apply(Both(e.nodes[0], e.nodes[1], 600*time.Microsecond)...)
			s := startStream(e, e.nodes[0], e.nodes[1], streamOptions{})
			time.Sleep(time.Second)
			bytes := s.check(e)
			c := e.counters()
			e.Logf("%.2f Gbit/s, %d bytes a packet", float64(bytes)*8/1e9, c.Bytes/max(c.Packets, 1))
			if bytes < 1<<20 {
				e.Errorf("%d bytes in a second", bytes)
			}
			if c.Overrun != 0 {
				e.Errorf("overrun %d", c.Overrun)
			}
		}},
		{"large UDP packets that the kernel cuts pass", 2, func(e *env) {
			p := probe.Pair{From: e.nodes[0], To: e.nodes[1]}
			for _, text := range []string{"delay 5ms", "delay 5ms duplicate 1%"} {
				e.set(text)
				for _, p := range []probe.Pair{p, p.V6()} {
					if t := e.blast(p, probe.Blast{Pace: 10_000_000}); t.BitsPerSecond < 0.9*t.OfferedBits {
						e.Errorf("%s: %.1f of %.1f Mbit/s arrived", text, t.BitsPerSecond/1e6, t.OfferedBits/1e6)
					}
				}
			}
		}},
	}
}

func (e *env) blast(p probe.Pair, b probe.Blast) probe.Throughput {
	e.Helper()
	t, err := probe.Rate(e.ctx, p, b)
	if err != nil {
		e.Fatal(err)
	}
	if t.Missed > 0 {
		e.Fatalf("the measurement missed %d packets", t.Missed)
	}
	return t
}

// atRate judges a rate within 3%.
func (e *env) atRate(text string, asked netem.Rate, p probe.Pair, b probe.Blast) {
	e.Helper()
	e.once(func() error {
		t := e.blast(p, b)
		e.Logf("%s: %.3f Mbit/s, %d packets, %.0f Mbit/s offered", text, t.BitsPerSecond/1e6, t.Packets, t.OfferedBits/1e6)
		if off := t.BitsPerSecond/float64(asked) - 1; off < -0.03 || off > 0.03 {
			return fmt.Errorf("%s: %.3f Mbit/s arrived of %.0f Mbit/s offered", text, t.BitsPerSecond/1e6, t.OfferedBits/1e6)
		}
		return nil
	})
}

// clumps are when arrivals came that have at least a gap before them, from the
// first on.
func clumps(f probe.Flow, gap time.Duration) (starts []time.Duration) {
	for i, a := range f.Arrivals {
		if i == 0 || a.At.Sub(f.Arrivals[i-1].At) > gap {
			starts = append(starts, a.At.Sub(f.Arrivals[0].At))
		}
	}
	return starts
}
