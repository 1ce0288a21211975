package netemtest

import (
	"net/netip"
	"time"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/probe"
)

func linkCases() []contract {
	return []contract{
		{"ReportedFault10 address and port together mean both", 3, func(e *env) {
			const port = 7001
			for _, v6 := range []bool{false, true} {
				l := e.link(0, 1, "delay 30ms")
				addr := l.To.Addr
				if v6 {
					addr = l.To.Addr6
				}
				l.Match = []netem.Selector{{Prefix: netip.PrefixFrom(addr, addr.BitLen()), Port: port}}
				e.apply(l)
				for _, c := range []struct {
					to   int
					port uint16
					want time.Duration
				}{{1, port, 30 * ms}, {1, port + 1, 0}, {2, port, 0}} {
					p := probe.Pair{From: e.nodes[0], To: e.nodes[c.to]}
					if v6 {
						p = p.V6()
					}
					f := e.flowOf(p, probe.Stream{Count: 20, Interval: ms, Port: c.port})
					e.nothingElse(f)
					if !about(f.Min, c.want) {
						e.Errorf("IPv6 %v, to %s port %d: delay %v, want %v", v6, f.To, c.port, f.Min, c.want)
					}
				}
				e.clear()
			}
		}},
		{"ReportedFault07 the interface that was named is shaped, also when it is made anew", 2, func(e *env) {
			second := newSwitch(e)
			var aside []netem.Endpoint
			for i, n := range e.nodes {
				other := endpoint(1, i+1, n.Name, n.Netns)
				join(e, second, other)
				aside = append(aside, other)
			}
			delays := func(first, second time.Duration) {
				e.Helper()
				for _, c := range []struct {
					of   probe.Pair
					want time.Duration
				}{{probe.Pair{From: e.nodes[0], To: e.nodes[1]}, first}, {probe.Pair{From: aside[0], To: aside[1]}, second}} {
					f := e.flowOf(c.of, probe.Stream{Count: 10, Interval: ms})
					e.nothingElse(f)
					if !about(f.Min, c.want) {
						e.Errorf("delay of %s is %v, want %v", c.of.From.Interface, f.Min, c.want)
					}
				}
			}
			e.set("delay 30ms")
			delays(30*ms, 0)
			e.apply(netem.Link{From: aside[0], To: aside[1], Impairment: netem.Impairment{Delay: 60 * ms}})
			delays(30*ms, 60*ms)

			// As when a container starts again: another interface of the same name.
			h, _ := e.netlink(0)
			l, err := h.LinkByName(aside[0].Interface)
			if err != nil {
				e.Fatal(err)
			}
			if err := h.LinkDel(l); err != nil {
				e.Fatal(err)
			}
			join(e, second, aside[0])
			delays(30*ms, 0)
			e.apply(netem.Link{From: aside[0], To: aside[1], Impairment: netem.Impairment{Delay: 60 * ms}})
			delays(30*ms, 60*ms)
		}},
		{"a network can be a link's target", 3, func(e *env) {
			l := e.link(0, 1, "delay 30ms")
			l.Match = []netem.Selector{{Prefix: netip.MustParsePrefix("198.18.0.2/31")}} // nodes 1 and 2
			e.apply(l)
			for _, to := range []int{1, 2} {
				if f := e.flowOf(probe.Pair{From: e.nodes[0], To: e.nodes[to]}, probe.Stream{Count: 10, Interval: ms}); !about(f.Min, 30*ms) {
					e.Errorf("to %s: delay %v, want 30ms", f.To, f.Min)
				}
			}
		}},
		{"the proof finds a link as it was asked to be, and finds out one that is not", 2, func(e *env) {
			pair := probe.Pair{From: e.nodes[0], To: e.nodes[1]}
			bare := e.rtt(0, 1, 60).P50
			for _, c := range []struct {
				text string
				of   probe.Pair
			}{
				{"none", pair}, {"rtt 10ms", pair.V6()}, {"delay 20ms loss 5%", pair}, {"delay 20ms duplicate 5% reorder 10% corrupt 5%", pair},
				{"loss gemodel 2% 25%", pair}, {"delay 10ms jitter 2ms", pair.V6()}, {"rate 20mbit", pair}, {"partition", pair},
			} {
				there, back := e.link(0, 1, c.text), e.link(1, 0, "delay 1ms")
				e.apply(there, back)
				check := probe.Check{Pair: c.of, There: there.Impairment, Back: back.Impairment, Bare: bare, Slack: 2 * ms}
				lines, err := check.Run(e.ctx)
				if err != nil {
					e.Fatal(err)
				}
				e.Logf("%s: %v", c.text, lines)
				if err := probe.Wrong(lines); err != nil {
					e.Errorf("%s: as measured wrong:\n%v", c.text, err)
				}
			}
			// The link is cut: whatever else was asked for is not there.
			other := probe.Check{Pair: pair, There: e.link(0, 1, "delay 60ms loss 20%").Impairment, Back: e.link(1, 0, "delay 1ms").Impairment, Bare: bare}
			lines, err := other.Run(e.ctx)
			if err != nil {
				e.Fatal(err)
			}
			if probe.Wrong(lines) == nil {
				e.Errorf("a partition passes for delay 60ms loss 20%%:\n%v", lines)
			}
		}},
		{"ReportedFault12 packets of the interface's MTU pass", 2, func(e *env) {
			for _, text := range []string{"none", "delay 1ms", "delay 1ms loss 1%", "rate 100mbit", "delay 1ms duplicate 10%"} {
				e.apply(e.link(0, 1, text), e.link(1, 0, text))
				p := probe.Pair{From: e.nodes[0], To: e.nodes[1]}
				for _, p := range []probe.Pair{p, p.V6()} {
					m, err := probe.MTU(e.ctx, p)
					if err != nil {
						e.Fatal(err)
					}
					if m.Passes != m.Interface {
						e.Errorf("%s: packets of %d bytes pass, the interface has an MTU of %d", text, m.Passes, m.Interface)
					}
				}
			}
		}},
	}
}
