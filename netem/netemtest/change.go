package netemtest

import (
	"fmt"
	"time"

	"github.com/faultlab/faultlab/netem"
	netnsof "github.com/faultlab/faultlab/netem/netns"
	"github.com/faultlab/faultlab/netem/probe"
)

func changeCases() []contract {
	return []contract{
		{"ReportedFault04 changes under traffic lose no packet and let none pass undelayed", 3, func(e *env) {
			e.apply(e.link(0, 1, "delay 20ms"), e.link(1, 0, "delay 20ms"), e.link(0, 2, "delay 20ms"))
			flows := make(chan probe.Flow)
			pairs := []probe.Pair{{From: e.nodes[0], To: e.nodes[1]}, probe.Pair{From: e.nodes[0], To: e.nodes[1]}.V6(), {From: e.nodes[0], To: e.nodes[2]}}
			for _, p := range pairs {
				go func() {
					f, err := probe.OneWay(e.ctx, p, probe.Stream{Count: 4000, Interval: 500 * time.Microsecond})
					if err != nil {
						e.Error(err)
					}
					flows <- f
				}()
			}
			begun := time.Now()
			time.Sleep(100 * ms)
			changes := 0
			for time.Since(begun) < 1900*ms {
				for _, text := range []string{"delay 30ms", "delay 20ms", "delay 25ms duplicate 5%", "delay 25ms jitter 2ms", "delay 21ms rate 1gbit", "delay 20ms"} {
					e.apply(e.link(0, 1, text), e.link(1, 0, text))
					changes++
					time.Sleep(20 * ms)
				}
			}
			e.Logf("%d changes", changes)
			for range pairs {
				f := <-flows
				// Those under way may keep their jitter when the delay changes.
				if f.Sent != 4000 || f.Received != f.Sent || f.Missed > 0 || f.Refused > 0 || f.Min < 18*ms-early {
					e.Errorf("%s to %s: %d of %d packets lost, %d refused, %d missed by the measurement, shortest delay %v, want none and 18ms", f.From, f.To, f.Lost, f.Sent, f.Refused, f.Missed, f.Min)
				}
			}
			if c := e.counters(); c.Overrun != 0 || c.Dropped != 0 {
				e.Errorf("counters %+v, want nothing dropped", c)
			}
		}},
		{"changes under a transfer spoil nothing", 2, func(e *env) {
			e.apply(Both(e.nodes[0], e.nodes[1], 2*ms)...)
			s := startStream(e, e.nodes[0], e.nodes[1], streamOptions{})
			for i := range 20 {
				e.apply(Both(e.nodes[0], e.nodes[1], []time.Duration{20, 1, 5, 0}[i%4]*ms)...)
				time.Sleep(20 * ms)
				if i%7 == 3 {
					e.clear()
					time.Sleep(20 * ms)
				}
			}
			s.check(e)
			if c := e.counters(); c.Packets == 0 || c.Overrun != 0 {
				e.Errorf("counters %+v, want packets and no overrun", c)
			}
		}},
		{"ReportedFault04 nothing at all is asked for and nothing is done", 2, func(e *env) {
			e.set("delay 40ms loss 50% duplicate 50%")
			e.flow(probe.Stream{Count: 20, Interval: ms, Wait: 100 * ms})
			e.set("none")
			time.Sleep(100 * ms)
			f := e.flow(probe.Stream{Count: 100, Interval: ms})
			e.nothingElse(f)
			if !about(f.Min, 0) {
				e.Errorf("delay %v, want none", f.Min)
			}
			e.holds(0, 1, netem.Impairment{})
		}},
		{"links that are not named are left alone", 3, func(e *env) {
			aside := probe.Pair{From: e.nodes[0], To: e.nodes[2]}
			for _, text := range []string{"delay 40ms", "partition", "loss 50%", "rate 100kbit", "delay 40ms jitter 10ms"} {
				e.set(text)
				for _, p := range []probe.Pair{aside, aside.V6()} {
					f := e.flowOf(p, probe.Stream{Count: 50, Interval: ms})
					e.nothingElse(f)
					if !about(f.Min, 0) {
						e.Errorf("bystander's delay %v while another link has %s", f.Min, text)
					}
				}
			}
			e.set("delay 40ms")
			e.apply(e.link(0, 2, "delay 80ms"))
			if f := e.flow(probe.Stream{Count: 10, Interval: ms}); !about(f.Min, 40*ms) {
				e.Errorf("first link's delay %v after a second got 80ms, want still 40ms", f.Min)
			}
		}},
		{"after Clear packets pass as without it, and Apply brings it back", 2, func(e *env) {
			for range 3 {
				e.apply(Both(e.nodes[0], e.nodes[1], 40*ms)...)
				if s := e.rtt(0, 1, 5); !about(s.Min, 40*ms) {
					e.Errorf("round trip %v after Apply of 40ms", s.Min)
				}
				e.clear()
				if all, err := e.b.Show(e.ctx); err != nil || len(all) > 0 {
					e.Errorf("Show after Clear: %v, %v, want no link", all, err)
				}
				before := e.counters()
				if s := e.rtt(0, 1, 20); !about(s.Min, 0) {
					e.Errorf("round trip %v after Clear", s.Min)
				}
				if after := e.counters(); after.Packets != before.Packets {
					e.Errorf("%d packets took the emulator's path after Clear", after.Packets-before.Packets)
				}
			}
		}},
		{"impossible links are refused and change nothing", 2, func(e *env) {
			e.apply(Both(e.nodes[0], e.nodes[1], 30*ms)...)
			nowhere, nothing := e.nodes[0], e.nodes[0]
			nowhere.Netns, nothing.Interface = netnsof.Path("does-not-exist"), "eth9"
			bad := e.link(0, 1, "delay 90ms")
			bad.Impairment.Loss.Chance = netem.Whole + 1
			for _, l := range []netem.Link{Link(e.nodes[0], e.nodes[1], -1), Link(e.nodes[0], e.nodes[1], netem.MaxDelay+1), Link(nowhere, e.nodes[1], 0), Link(nothing, e.nodes[1], 0), bad} {
				// Behind one that is possible.
				if err := e.b.Apply(e.ctx, []netem.Link{e.link(0, 1, "delay 90ms"), l}); err == nil {
					e.Errorf("Apply(%v) succeeded", l)
				}
			}
			if s := e.rtt(0, 1, 5); !about(s.Min, 30*ms) {
				e.Errorf("round trip %v, want still 30ms", s.Min)
			}
			e.holds(0, 1, netem.Impairment{Delay: 15 * ms})
		}},
		{"Close twice is no error, and the links are free", 2, func(e *env) {
			e.apply(Both(e.nodes[0], e.nodes[1], 40*ms)...)
			for range 2 {
				if err := e.b.Close(); err != nil {
					e.Errorf("Close: %v", err)
				}
			}
			if s := e.rtt(0, 1, 5); !about(s.Min, 0) {
				e.Errorf("round trip %v after Close", s.Min)
			}
		}},
		{"Show tells what was done to each link", 3, func(e *env) {
			e.apply(e.link(0, 1, "delay 1ms"), e.link(0, 2, "delay 2ms loss 100%"))
			e.flow(probe.Stream{Count: 30, Interval: ms})
			e.flowOf(probe.Pair{From: e.nodes[0], To: e.nodes[2]}, probe.Stream{Count: 20, Interval: ms, Wait: 100 * ms})
			all, err := e.b.Show(e.ctx)
			if err != nil {
				e.Fatal(err)
			}
			got := map[string]string{}
			for _, s := range all {
				got[s.From.Name+" to "+s.To.Name] = fmt.Sprintf("%s: %d sent on, %d dropped", s.Impairment, s.Packets, s.Dropped)
			}
			for link, want := range map[string]string{"n1 to n2": "delay 1ms: 30 sent on, 0 dropped", "n1 to n3": "delay 2ms loss 100%: 0 sent on, 20 dropped"} {
				if got[link] != want {
					e.Errorf("%s: got %q, want %q", link, got[link], want)
				}
			}
		}},
	}
}
