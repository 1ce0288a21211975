package netemtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/probe"
)

// dense is between packets of a stream that is to be over soon: light enough
// for an emulator on one slow processor.
const dense = 40 * time.Microsecond

func lossCases() []contract {
	return []contract{
		{"loss is what was asked, as the receiver sees it", 2, func(e *env) {
			for _, c := range []struct {
				loss  string
				count int
			}{{"0.1%", 20000}, {"1%", 20000}, {"10%", 5000}, {"50%", 3000}} {
				e.set("loss " + c.loss)
				before := e.counters()
				f := e.flow(probe.Stream{Count: c.count, Interval: dense, Wait: 300 * ms})
				e.within("loss "+c.loss, f.Lost, f.Sent, e.link(0, 1, "loss "+c.loss).Impairment.LossRate())
				after := e.counters()
				if dropped := after.Dropped - before.Dropped; int(dropped) != f.Lost || after.Overrun != before.Overrun {
					e.Errorf("loss %s: the emulator counts %d dropped and %d overrun, the receiver lacks %d", c.loss, dropped, after.Overrun-before.Overrun, f.Lost)
				}
			}
		}},
		{"ReportedFault06 loss meets segments of wire size, though the sender's are large", 2, func(e *env) {
			for _, v6 := range []bool{false, true} {
				e.apply(e.link(0, 1, "delay 0.2ms"), e.link(1, 0, "delay 0.2ms"))
				s := startStream(e, e.nodes[0], e.nodes[1], streamOptions{v6: v6})
				time.Sleep(300 * ms) // large packets by now
				for _, c := range []struct {
					loss string
					time time.Duration
				}{{"0.1%", time.Second}, {"1%", 2 * time.Second}, {"10%", 3 * time.Second}} { // at 50% TCP hardly sends
					s.pause(e)
					text := "delay 0.2ms loss " + c.loss
					e.set(text)
					out, in := s.segments(e)
					holes := watchHoles(e, e.nodes[1], s.peer)
					s.resume()
					time.Sleep(c.time)
					s.pause(e)
					gaps := holes()
					outNow, inNow := s.segments(e)
					out, in = outNow-out, inNow-in
					if out < 100 {
						e.Errorf("%s: TCP sent only %d segments in %v", text, out, c.time)
					}
					e.within(fmt.Sprintf("TCP, IPv6 %v, %s", v6, text), out-in, out, e.link(0, 1, text).Impairment.LossRate())
					// Of packets lost apart at 10%, ten in a row are one of ten
					// thousand million; a large packet is 20 to 44.
					if len(gaps) > 0 && slices.Max(gaps) > 10 {
						e.Errorf("%s: %d segments were lost in a row: large packets are lost whole", text, slices.Max(gaps))
					}
				}
				e.apply(e.link(0, 1, "none"), e.link(1, 0, "none"))
				s.resume()
				s.check(e)
			}
		}},
		{"losses come in the bursts that were asked", 2, func(e *env) {
			for _, c := range []struct {
				text  string
				burst float64 // mean
			}{
				{"loss gemodel 2% 25%", 4},
				{"loss gemodel 1% 10% 50% 0%", 0},
				{"loss state 1% 20%", 5},
			} {
				e.set(c.text)
				f := e.flow(probe.Stream{Count: 10000, Interval: dense, Wait: 300 * ms})
				i := e.link(0, 1, c.text).Impairment
				asked := i.LossRate()
				low, high := f.LossInterval(confidence, i.LossSpread())
				e.Logf("%s: %.2f%% lost, asked %.2f%%, mean burst %.2f of %d", c.text, 100*float64(f.Lost)/float64(f.Sent), 100*asked, f.MeanBurst(), len(f.Bursts))
				if asked < low || asked > high {
					e.Errorf("%s: between %.2f%% and %.2f%% lost, asked %.2f%%", c.text, 100*low, 100*high, 100*asked)
				}
				// At least 80 bursts of geometric length: a standard error of at most 10%.
				if got := f.MeanBurst(); c.burst > 0 && (got < 0.6*c.burst || got > 1.5*c.burst) {
					e.Errorf("%s: mean burst of %.2f packets, want %.1f", c.text, got, c.burst)
				}
			}
		}},
		{"correlated loss is netem's", 2, func(e *env) {
			const text = "loss 30% 25%"
			e.set(text)
			f := e.flow(probe.Stream{Count: 5000, Interval: dense, Wait: 300 * ms})
			i := e.link(0, 1, text).Impairment
			low, high := f.LossInterval(confidence, i.LossSpread())
			if asked := i.LossRate(); asked < low || asked > high {
				e.Errorf("%s: between %.2f%% and %.2f%% lost, want %.2f%%", text, 100*low, 100*high, 100*asked)
			}
		}},
		{"a seed repeats the same fates", 2, func(e *env) {
			fates := func(seed int) []string {
				e.set(fmt.Sprintf("delay 2ms loss 10%% duplicate 10%% corrupt 10%% seed %d", seed))
				f := e.flow(probe.Stream{Count: 1000, Interval: 100 * time.Microsecond, Wait: 300 * ms})
				got := make([]string, f.Sent)
				for _, a := range f.Arrivals {
					got[a.Seq] += "."
					if a.Corrupted {
						got[a.Seq] += "x"
					}
				}
				return got
			}
			differ := func(a, b []string) (n int) {
				for i := range a {
					if a[i] != b[i] {
						n++
					}
				}
				return n
			}
			first, again, other := fates(7), fates(7), fates(8)
			// Which bit a corrupted packet has changed is not the seed's with
			// kernel netem, and where it is one of an address it may be lost.
			if n := differ(first, again); n > 2 {
				e.Errorf("%d packets met different fates with the same seed:\n%q\n%q", n, first, again)
			}
			if n := differ(first, other); n < 100 {
				e.Errorf("only %d packets met different fates with two seeds", n)
			}
		}},
	}
}

func fateCases() []contract {
	return []contract{
		{"packets are doubled as often as asked", 2, func(e *env) {
			for _, c := range []struct {
				text  string
				count int
				share float64
			}{{"duplicate 100%", 500, 1}, {"duplicate 10%", 5000, 0.1}, {"delay 5ms duplicate 1%", 10000, 0.01}} {
				e.set(c.text)
				f := e.flow(probe.Stream{Count: c.count, Interval: 2 * dense, Wait: 300 * ms})
				e.within(c.text, f.Duplicates, f.Sent, c.share)
				if f.Received != f.Sent || f.Corrupted > 0 {
					e.Errorf("%s: %d lost, %d corrupted, want none", c.text, f.Lost, f.Corrupted)
				}
			}
		}},
		{"packets are corrupted as often as asked, by one bit", 2, func(e *env) {
			for _, c := range []struct {
				text  string
				count int
				share float64
			}{{"corrupt 100%", 500, 1}, {"corrupt 10%", 5000, 0.1}} {
				e.set(c.text)
				// Large, so that what a changed bit in an address does to the
				// packet's way is rare.
				f := e.flow(probe.Stream{Count: c.count, Interval: 2 * dense, Size: 1400, Wait: 300 * ms})
				if f.Lost > f.Sent/100 {
					e.Errorf("%s: %d of %d lost", c.text, f.Lost, f.Sent)
				}
				// Those whose way was changed were corrupted too.
				e.within(c.text, f.Corrupted+f.Lost, f.Sent, c.share)
			}
		}},
		{"packets go ahead of others as often as asked", 2, func(e *env) {
			for _, c := range []struct {
				text  string
				share float64
			}{{"delay 20ms reorder 25%", 0.25}, {"delay 20ms reorder 100% gap 5", 0.2}} {
				e.set(c.text)
				f := e.flow(probe.Stream{Count: 1000, Interval: 500 * time.Microsecond, Wait: 300 * ms})
				early := 0
				for _, d := range f.Delays {
					if d < 10*ms {
						early++
					}
				}
				e.within(c.text+", ahead", early, f.Sent, c.share)
				if f.Received != f.Sent || f.Duplicates+f.Corrupted > 0 || f.Reordered < f.Sent/3 {
					e.Errorf("%s: %d lost, %d doubled, %d corrupted and %d reordered of %d", c.text, f.Lost, f.Duplicates, f.Corrupted, f.Reordered, f.Sent)
				}
			}
		}},
		{"what is not asked for any more is over", 2, func(e *env) {
			for _, text := range []string{
				"delay 5ms loss 50%", "delay 5ms loss 50% 50%", "delay 5ms loss gemodel 50% 50%", "delay 5ms loss state 50% 50%",
				"delay 5ms duplicate 50%", "delay 5ms corrupt 50%", "delay 5ms reorder 50%", "delay 5ms reorder 50% gap 3", "delay 5ms jitter 4ms 50%",
				"delay 5ms jitter 2ms distribution pareto", "delay 5ms rate 500kbit", "delay 5ms rate 500kbit burst 2kb", "delay 5ms limit 1", "delay 5ms slot 50ms", "partition",
			} {
				e.set(text)
				e.overflow(probe.Pair{From: e.nodes[0], To: e.nodes[1]}, probe.Stream{Count: 50, Interval: ms, Wait: 50 * ms})
				time.Sleep(60 * ms) // for those under way
				e.set("delay 5ms")
				time.Sleep(200 * ms)
				f := e.flow(probe.Stream{Count: 100, Interval: ms, Wait: 500 * ms})
				if f.Received != f.Sent || f.Duplicates+f.Reordered+f.Corrupted > 0 || !about(f.Min, 5*ms) {
					e.Errorf("%s, then delay 5ms: %d lost, %d doubled, %d reordered, %d corrupted, delays from %v", text, f.Lost, f.Duplicates, f.Reordered, f.Corrupted, f.Min)
				}
				e.holds(0, 1, netem.Impairment{Delay: 5 * ms})
			}
		}},
	}
}
