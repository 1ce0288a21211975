package netemtest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/probe"
)

const (
	ms = time.Millisecond
	// early is how far before its time a packet may come: emulators gather
	// wake-ups, and ask for them early by as much as they come late.
	early = 200 * time.Microsecond
)

func delayCases() []contract {
	return []contract{
		{"the added round trip is what was asked", 2, func(e *env) {
			bare := e.rtt(0, 1, 60).P50
			for _, asked := range []time.Duration{100 * time.Microsecond, 600 * time.Microsecond, ms, 10 * ms, 100 * ms} {
				e.apply(Both(e.nodes[0], e.nodes[1], asked)...)
				e.added(bare, asked)
			}
		}},
		{"ReportedFault01 durations in every unit are exact", 2, func(e *env) {
			bare := e.rtt(0, 1, 60).P50
			for text, want := range map[string]time.Duration{"250us": 250 * time.Microsecond, "0.5ms": 500 * time.Microsecond, "0.5s": 500 * ms} {
				e.set("delay " + text)
				e.holds(0, 1, netem.Impairment{Delay: want})
				e.added(bare, want)
			}
			// The longest: nothing arrives while anybody waits, and that is no error.
			e.set("delay 300s")
			e.holds(0, 1, netem.Impairment{Delay: 300 * time.Second})
			if f := e.flow(probe.Stream{Count: 20, Interval: 5 * ms, Wait: 500 * ms}); f.Received > 0 {
				e.Errorf("%d of %d packets arrived within a second of 300s, the first after %v", f.Received, f.Sent, f.Min)
			}
		}},
		{"ReportedFault02 a delay is of one direction, an rtt of both together", 2, func(e *env) {
			e.set("delay 30ms")
			there, back := e.flow(probe.Stream{Count: 20, Interval: 5 * ms}), e.flowOf(probe.Pair{From: e.nodes[1], To: e.nodes[0]}, probe.Stream{Count: 20, Interval: 5 * ms})
			if !about(there.Min, 30*ms) || !about(back.Min, 0) {
				e.Errorf("one-way delays %v there and %v back, asked 30ms there and none back", there.Min, back.Min)
			}
			for _, s := range []probe.Stat{e.rtt(0, 1, 10), e.rtt(1, 0, 10)} {
				if !about(s.Min, 30*ms) {
					e.Errorf("round trip %s to %s %v, want 30ms either way round", s.From, s.To, s.Min)
				}
			}
			e.apply(e.link(0, 1, "rtt 40ms"), e.link(1, 0, "rtt 40ms"))
			if s := e.rtt(0, 1, 10); !about(s.Min, 40*ms) {
				e.Errorf("round trip %v, asked rtt 40ms", s.Min)
			}
		}},
		{"no packet is early", 2, func(e *env) {
			e.set("delay 5ms")
			f := e.flow(probe.Stream{Count: 3000, Interval: 200 * time.Microsecond})
			e.nothingElse(f)
			if f.Min < 5*ms-early {
				e.Errorf("shortest delay %v of asked 5ms", f.Min)
			}
		}},
		{"a delay is the same for both kinds of addresses", 2, func(e *env) {
			e.set("delay 20ms")
			p := probe.Pair{From: e.nodes[0], To: e.nodes[1]}
			four, six := e.flowOf(p, probe.Stream{Count: 30, Interval: 3 * ms}), e.flowOf(p.V6(), probe.Stream{Count: 30, Interval: 3 * ms})
			for _, f := range []probe.Flow{four, six} {
				e.nothingElse(f)
				if !about(f.Min, 20*ms) {
					e.Errorf("delay %v by IPv4 and %v by IPv6, asked 20ms", four.Min, six.Min)
				}
			}
		}},
		{"packets marked by TOS are delayed like others", 2, func(e *env) {
			e.set("delay 20ms")
			for _, tos := range []uint8{0x08, 0x10, 0x18, 0x1c, 0xb8, 0xc0, 0xff &^ 3} {
				if f := e.flow(probe.Stream{Count: 10, Interval: ms, TOS: tos}); f.Received != f.Sent || !about(f.Min, 20*ms) {
					e.Errorf("TOS %#x: %d of %d arrived, the first after %v, asked 20ms", tos, f.Received, f.Sent, f.Min)
				}
			}
		}},
		{"jitter has the spread that was asked, and keeps packets in order", 2, func(e *env) {
			// Packets further apart than delays differ, so that none holds up
			// the next: their delays are the distribution. A standard
			// deviation of uniform jitter is 1/sqrt(3) of it.
			for _, c := range []struct {
				text      string
				sd        float64 // in jitters
				low, high time.Duration
			}{
				{"delay 10ms jitter 3ms", 1 / math.Sqrt(3), 7 * ms, 13 * ms},
				{"delay 20ms jitter 2ms distribution normal", 1, 12 * ms, 28 * ms},
			} {
				e.set(c.text)
				i := e.link(0, 1, c.text).Impairment
				e.once(func() error {
					f := e.flow(probe.Stream{Count: 300, Interval: 7 * ms})
					e.nothingElse(f)
					mean, sd := moments(f.Delays)
					wanted, most := c.sd*float64(i.Jitter), probe.Quantile(f.Delays, 0.95)
					e.Logf("%s: mean %v, standard deviation %v, %v to %v", c.text, mean, time.Duration(sd), f.Min, f.Max)
					// Four standard errors of 300, and lateness.
					const late = 500 * time.Microsecond
					if (mean-i.Delay).Abs() > time.Duration(wanted/4)+late || sd < 0.8*wanted || sd > 1.2*wanted+float64(late) || f.Min < c.low-early || most > c.high+ms {
						return fmt.Errorf("%s: mean %v, standard deviation %v, from %v, 95%% up to %v; want %v, %v, %v to %v",
							c.text, mean, time.Duration(sd), f.Min, most, i.Delay, time.Duration(wanted), c.low, c.high)
					}
					return nil
				})
			}
			e.set("delay 10ms jitter 3ms")
			e.nothingElse(e.flow(probe.Stream{Count: 2000, Interval: 100 * time.Microsecond}))
		}},
	}
}

// added judges the median round trip beside a bare one, within a tenth and 250
// microseconds: under user-mode-linux each timer rings 80 to 100 late.
func (e *env) added(bare, asked time.Duration) {
	e.Helper()
	e.once(func() error {
		added := e.rtt(0, 1, 40).P50 - bare
		e.Logf("asked %v, added %v", asked, added)
		if (added - asked).Abs() > asked/10+250*time.Microsecond {
			return fmt.Errorf("asked %v, added %v (bare %v)", asked, added, bare)
		}
		return nil
	})
}

// once wants one of five attempts to be right. On a shared machine anything may
// be late for a while; an emulator that is wrong is so every time. The
// benchmark has the real figures.
func (e *env) once(attempt func() error) {
	e.Helper()
	var all []error
	for range 5 {
		err := attempt()
		if err == nil || e.Failed() {
			return
		}
		all = append(all, err)
	}
	e.Errorf("five attempts, none right:\n%v", errors.Join(all...))
}

// about tells whether a delay is what was asked, to ten milliseconds. It is for
// the shortest of several: a busy machine makes packets late, and never all
// of them.
func about(got, want time.Duration) bool { return got >= want-early && got <= want+10*ms }

// holds judges what the emulator reads back for a link.
func (e *env) holds(from, to int, want netem.Impairment) {
	e.Helper()
	all, err := e.b.Show(e.ctx)
	if err != nil {
		e.Fatalf("Show: %v", err)
	}
	at := slices.IndexFunc(all, func(s netem.LinkState) bool {
		return s.From.Name == e.nodes[from].Name && s.To.Name == e.nodes[to].Name
	})
	switch {
	case at < 0:
		e.Errorf("Show has no link %s to %s", e.nodes[from].Name, e.nodes[to].Name)
	case all[at].Impairment.String() != want.String():
		e.Errorf("Show has %s, want %s", all[at].Impairment, want)
	}
}

// moments are mean and standard deviation, in nanoseconds.
func moments(all []time.Duration) (mean time.Duration, sd float64) {
	var sum, squares float64
	for _, d := range all {
		sum += float64(d)
	}
	m := sum / float64(len(all))
	for _, d := range all {
		squares += (float64(d) - m) * (float64(d) - m)
	}
	return time.Duration(m), math.Sqrt(squares / float64(len(all)))
}
