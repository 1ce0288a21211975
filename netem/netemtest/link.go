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
					if f.P50 < c.want-early || f.P50 > c.want+15*ms {
						e.Errorf("IPv6 %v, to %s port %d: delay %v, want %v", v6, f.To, c.port, f.P50, c.want)
					}
				}
				e.clear()
			}
		}},
		{"a network can be a link's target", 3, func(e *env) {
			l := e.link(0, 1, "delay 30ms")
			l.Match = []netem.Selector{{Prefix: netip.MustParsePrefix("198.18.0.2/31")}} // nodes 1 and 2
			e.apply(l)
			for _, to := range []int{1, 2} {
				if f := e.flowOf(probe.Pair{From: e.nodes[0], To: e.nodes[to]}, probe.Stream{Count: 10, Interval: ms}); f.Min < 30*ms-early {
					e.Errorf("to %s: delay %v, want 30ms", f.To, f.Min)
				}
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
