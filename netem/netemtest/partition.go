package netemtest

import (
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/probe"
)

func partitionCases() []contract {
	return []contract{
		{"ReportedFault09 a partition is silence, in its direction, for both kinds of addresses", 3, func(e *env) {
			there := probe.Pair{From: e.nodes[0], To: e.nodes[1]}
			back := probe.Pair{From: e.nodes[1], To: e.nodes[0]}
			aside := probe.Pair{From: e.nodes[0], To: e.nodes[2]}
			passes := func(what string, p probe.Pair, want bool) {
				e.Helper()
				for _, p := range []probe.Pair{p, p.V6()} {
					// That the sender gets no error is flowOf's to judge.
					f := e.flowOf(p, probe.Stream{Count: 50, Interval: ms, Wait: 200 * ms})
					if wanted := map[bool]int{true: f.Sent}[want]; f.Received != wanted {
						e.Errorf("%s: %d of %d packets from %s to %s passed (IPv6: %v), want %d", what, f.Received, f.Sent, f.From, f.To, !p.To.Addr.IsValid(), wanted)
					}
				}
			}
			e.apply(e.link(0, 1, "partition"))
			passes("one way", there, false)
			passes("one way", back, true)
			passes("one way", aside, true)
			e.apply(e.link(1, 0, "partition"))
			passes("both ways", there, false)
			passes("both ways", back, false)
			passes("both ways", aside, true)
			e.apply(e.link(0, 1, "none"))
			passes("healed one way", there, true)
			passes("healed one way", back, false)
			e.clear()
			passes("cleared", there, true)
			passes("cleared", back, true)
		}},
		{"a partition stalls an established connection, which goes on when it heals", 2, func(e *env) {
			for _, v6 := range []bool{false, true} {
				e.apply(e.link(0, 1, "delay 1ms"), e.link(1, 0, "delay 1ms"))
				s := startStream(e, e.nodes[0], e.nodes[1], streamOptions{v6: v6, pace: 5_000_000})
				for _, cut := range [][]netem.Link{{e.link(0, 1, "partition"), e.link(1, 0, "partition")}, {e.link(0, 1, "partition")}, {e.link(1, 0, "partition")}} {
					s.moves(e, true)
					e.apply(cut...)
					time.Sleep(200 * ms) // what was under way
					s.moves(e, false)
					e.apply(e.link(0, 1, "delay 1ms"), e.link(1, 0, "delay 1ms"))
					s.moves(e, true)
				}
				s.check(e)
			}
		}},
		{"address resolution passes whatever is done to a link", 2, func(e *env) {
			p := probe.Pair{From: e.nodes[0], To: e.nodes[1]}
			for _, text := range []string{"partition", "loss 100%", "delay 2s"} {
				e.apply(e.link(0, 1, text), e.link(1, 0, text))
				for _, p := range []probe.Pair{p, p.V6()} {
					e.forgetNeighbours(0)
					if f := e.flowOf(p, probe.Stream{Count: 5, Interval: 10 * ms, Wait: 50 * ms}); f.Received > 0 {
						e.Errorf("%s: %d packets passed", text, f.Received)
					}
					known := false
					for deadline := time.Now().Add(5 * time.Second); !known && time.Now().Before(deadline); time.Sleep(10 * ms) {
						known = e.knowsNeighbour(p)
					}
					if !known {
						e.Errorf("%s: %s cannot find %s's link address (IPv6: %v)", text, p.From.Name, p.To.Name, !p.To.Addr.IsValid())
					}
				}
			}
		}},
	}
}

// moves judges whether new bytes arrive. After a silence TCP waits for up to
// twice as long again.
func (s *stream) moves(e *env, want bool) {
	e.Helper()
	before, patience := s.received.Load(), 600*ms
	if want {
		patience = 10 * time.Second
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * ms) {
		if n := s.received.Load(); n > before {
			if !want {
				e.Errorf("%d bytes came through a partition", n-before)
			}
			return
		}
	}
	if want {
		e.Errorf("no bytes came for %v", patience)
	}
}

func (e *env) netlink(node int) (h *netlink.Handle, index int) {
	e.Helper()
	h = handle(e, e.nodes[node].Netns)
	l, err := h.LinkByName(e.nodes[node].Interface)
	if err != nil {
		e.Fatal(err)
	}
	return h, l.Attrs().Index
}

func (e *env) forgetNeighbours(node int) {
	e.Helper()
	h, index := e.netlink(node)
	all, err := h.NeighList(index, 0)
	if err != nil {
		e.Fatal(err)
	}
	for _, n := range all {
		if n.State&unix.NUD_NOARP == 0 {
			if err := h.NeighDel(&n); err != nil {
				e.Fatal(err)
			}
		}
	}
}

func (e *env) knowsNeighbour(p probe.Pair) bool {
	e.Helper()
	to := p.To.Addr
	if !to.IsValid() {
		to = p.To.Addr6
	}
	h, index := e.netlink(0)
	all, err := h.NeighList(index, 0)
	if err != nil {
		e.Fatal(err)
	}
	for _, n := range all {
		if n.IP.Equal(to.AsSlice()) && n.State&(unix.NUD_REACHABLE|unix.NUD_DELAY|unix.NUD_STALE|unix.NUD_PROBE) != 0 {
			return true
		}
	}
	return false
}
