//go:build integration

package wire_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netemtest"
	"github.com/faultlab/faultlab/netem/netns"
	"github.com/faultlab/faultlab/netem/wire"
)

// inside runs f with netlink in the node's namespace and the node's interface.
func inside(t testing.TB, node netem.Endpoint, f func(h *netlink.Handle, eth netlink.Link) error) {
	t.Helper()
	err := netns.Do(node.Netns, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		eth, err := h.LinkByName(node.Interface)
		if err != nil {
			return err
		}
		return f(h, eth)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func addAddress(t testing.TB, node netem.Endpoint, p netip.Prefix) {
	t.Helper()
	inside(t, node, func(h *netlink.Handle, eth netlink.Link) error {
		return h.AddrAdd(eth, &netlink.Addr{
			IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
			Flags: unix.IFA_F_NODAD,
		})
	})
}

// leftovers lists what is the emulator's in a node, or was made for it.
func leftovers(t testing.TB, node netem.Endpoint) (all []string) {
	t.Helper()
	inside(t, node, func(h *netlink.Handle, eth netlink.Link) error {
		links, err := h.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Name, "faultlab") {
				all = append(all, l.Attrs().Name)
			}
		}
		filters, err := h.FilterList(eth, netlink.HANDLE_MIN_EGRESS)
		for _, f := range filters {
			all = append(all, fmt.Sprintf("filter of priority %d", f.Attrs().Priority))
		}
		if err != nil {
			return err
		}
		qdiscs, err := h.QdiscList(eth)
		for _, q := range qdiscs {
			if q.Type() == "clsact" {
				all = append(all, "clsact")
			}
		}
		return err
	})
	return all
}

// passes tells how many of ten datagrams came through.
func passes(in *sink, out *source) int {
	in.t.Helper()
	out.send(10, 1, time.Millisecond)
	return len(in.take(150 * time.Millisecond))
}

func TestAPartitionLetsArriveWhatIsUnderWay(t *testing.T) {
	n := netemtest.Network(t, 2)
	b := open(t)
	in := newSink(t, n[1], n[1].Addr, 7000)
	out := newSource(t, n[0], in.addr, 64)
	meet(t, in, out)
	apply(t, b, link(t, n[0], n[1], "delay 200ms"))
	out.send(20, 0, 0)
	time.Sleep(20 * time.Millisecond)
	apply(t, b, link(t, n[0], n[1], "partition"))
	out.send(20, 0, 0)
	got := in.take(500 * time.Millisecond)
	if len(got) != 20 {
		t.Fatalf("%d datagrams came, want the 20 that were under way", len(got))
	}
	for _, a := range got {
		if a.n >= 20 || a.took < 199*time.Millisecond {
			t.Errorf("datagram %d came after %v, want one of the first 20 after 200ms", a.n, a.took)
		}
	}
}

func TestNeighbourDiscoveryPassesAPartition(t *testing.T) {
	n := netemtest.Network(t, 2)
	b := open(t)
	in := newSink(t, n[1], n[1].Addr6, 7000)
	out := newSource(t, n[0], in.addr, 64)
	apply(t, b, link(t, n[0], n[1], "partition"), link(t, n[1], n[0], "partition"))
	if got := passes(in, out); got != 0 {
		t.Errorf("%d of 10 datagrams passed a partition", got)
	}
	// Its first question went to everyone; the later ones go to the peer alone.
	probed := func() (state int) {
		inside(t, n[0], func(h *netlink.Handle, eth netlink.Link) error {
			all, err := h.NeighList(eth.Attrs().Index, netlink.FAMILY_V6)
			for _, e := range all {
				if addr, _ := netip.AddrFromSlice(e.IP); addr == n[1].Addr6 {
					state = e.State
				}
			}
			return err
		})
		return state
	}
	if s := probed(); s != netlink.NUD_REACHABLE {
		t.Fatalf("the peer's entry is in state %#x, want reachable", s)
	}
	inside(t, n[0], func(h *netlink.Handle, eth netlink.Link) error {
		all, err := h.NeighList(eth.Attrs().Index, netlink.FAMILY_V6)
		for _, e := range all {
			if addr, _ := netip.AddrFromSlice(e.IP); addr == n[1].Addr6 {
				e.State = netlink.NUD_PROBE
				err = errors.Join(err, h.NeighSet(&e))
			}
		}
		return err
	})
	for deadline := time.Now().Add(10 * time.Second); probed() != netlink.NUD_REACHABLE; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the peer's entry is in state %#x, want reachable again", probed())
		}
	}
}

func TestSelectorsPickByPrefixAndPort(t *testing.T) {
	n := netemtest.Network(t, 2)
	b := open(t)
	net4, net6 := netip.PrefixFrom(n[1].Addr, 24).Masked(), netip.PrefixFrom(n[1].Addr6, 64).Masked()
	other, far := net4.Addr().As4(), net6.Addr().As16()
	other[3], far[13] = 77, 9
	more := map[string]*sink{}
	from := map[string]*source{}
	for name, at := range map[string]netip.AddrPort{
		"plain":  netip.AddrPortFrom(n[1].Addr, 7000),
		"port":   netip.AddrPortFrom(n[1].Addr, 7001),
		"other":  netip.AddrPortFrom(netip.AddrFrom4(other), 7000),
		"plain6": netip.AddrPortFrom(n[1].Addr6, 7000),
		"port6":  netip.AddrPortFrom(n[1].Addr6, 7001),
		"far6":   netip.AddrPortFrom(netip.AddrFrom16(far), 7000),
	} {
		switch name {
		case "other":
			addAddress(t, n[1], netip.PrefixFrom(at.Addr(), 24))
		case "far6":
			addAddress(t, n[1], netip.PrefixFrom(at.Addr(), 64))
		}
		more[name] = newSink(t, n[1], at.Addr(), at.Port())
		from[name] = newSource(t, n[0], at, 2000) // larger than a packet: in fragments
		meet(t, more[name], from[name])
		from[name] = newSource(t, n[0], at, 64)
	}
	cut := func(name string, match ...string) netem.Link {
		l := netem.Link{From: n[0], To: netem.Endpoint{Name: name}, Impairment: netem.Impairment{Partition: true}}
		for _, m := range match {
			var s netem.Selector
			p, port, found := strings.Cut(m, " ")
			s.Prefix = netip.MustParsePrefix(p)
			if found {
				v, err := strconv.Atoi(port)
				if err != nil {
					t.Fatal(err)
				}
				s.Port = uint16(v)
			}
			l.Match = append(l.Match, s)
		}
		return l
	}
	clear := func(l netem.Link) netem.Link { l.Impairment = netem.Impairment{}; return l }
	for _, c := range []struct {
		what  string
		links []netem.Link
		cut   string
	}{
		{"port of an address", []netem.Link{cut("a", n[1].Addr.String()+"/32 7001")}, "port"},
		{"port of a network", []netem.Link{cut("a", net4.String()+" 7001", net6.String()+" 7001")}, "port port6"},
		{"network", []netem.Link{cut("a", netip.PrefixFrom(netip.AddrFrom4(other), 26).Masked().String(), netip.AddrFrom16(far).String()+"/112")}, "other far6"},
		{"everything", []netem.Link{cut("a", "0.0.0.0/0", "::/0")}, "plain port other plain6 port6 far6"},
		{"a longer prefix is nearer", []netem.Link{cut("a", "0.0.0.0/0"), clear(cut("b", n[1].Addr.String()+"/32"))}, "other"},
		{"a port is nearer than its address", []netem.Link{cut("a", n[1].Addr.String()+"/32"), clear(cut("b", n[1].Addr.String()+"/32 7001"))}, "plain"},
		{"another match of the same link", []netem.Link{cut("a", n[1].Addr6.String()+"/128"), cut("a", n[1].Addr6.String()+"/128 7000")}, "plain6"},
	} {
		for _, l := range c.links {
			apply(t, b, l)
		}
		for name := range more {
			want := 10
			if strings.Contains(" "+c.cut+" ", " "+name+" ") {
				want = 0
			}
			if got := passes(more[name], from[name]); got != want {
				t.Errorf("%s: %d of 10 datagrams to %s, want %d", c.what, got, more[name].addr, want)
			}
		}
		if err := b.Clear(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTwoLinksCannotHaveTheSamePackets(t *testing.T) {
	n := netemtest.Network(t, 2)
	b := open(t)
	apply(t, b, link(t, n[0], n[1], "delay 1ms"))
	l := link(t, n[0], n[1], "delay 2ms")
	l.To.Name = "other"
	if err := b.Apply(ctx, []netem.Link{l}); err == nil || !strings.Contains(err.Error(), n[1].Addr.String()) {
		t.Errorf("Apply = %v, want an error that names %s", err, n[1].Addr)
	}
}

// Whatever a socket was promised when it was made.
func TestPacketsAreCutToSizeWhereFatesArePerPacket(t *testing.T) {
	n := netemtest.Network(t, 2)
	for _, to := range []netip.Addr{n[1].Addr, n[1].Addr6} {
		t.Run(to.String(), func(t *testing.T) {
			b := open(t)
			apply(t, b, link(t, n[0], n[1], "delay 100us"), link(t, n[1], n[0], "delay 100us"))
			s := transfer(t, n[0], n[1], to, 300*time.Millisecond)
			size := func(text string) uint64 {
				t.Helper()
				apply(t, b, link(t, n[0], n[1], text))
				from := state(t, b, n[0], n[1])
				time.Sleep(300 * time.Millisecond)
				to := state(t, b, n[0], n[1])
				if to.Packets == from.Packets {
					t.Fatalf("%s: the transfer stands still", text)
				}
				return (to.Bytes - from.Bytes) / (to.Packets - from.Packets)
			}
			if got := size("delay 100us"); got < 3000 {
				t.Errorf("%d bytes a packet with a delay alone, want the sender's large ones", got)
			}
			for range 2 {
				if got := size("delay 100us duplicate 0.001%"); got > 1514 {
					t.Errorf("%d bytes a packet where fates are per packet, want at most 1514", got)
				}
				if got := size("delay 100us"); got < 3000 {
					t.Errorf("%d bytes a packet with a delay alone again", got)
				}
			}
			s.end()
			if c := counters(t, b); c.Overrun != 0 {
				t.Errorf("overrun %d", c.Overrun)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if wrong := checksumErrors(t, n[1]); wrong != 0 {
		t.Errorf("%d segments with a wrong checksum", wrong)
	}
}

// checksumErrors reads the node's count of TCP segments that were thrown away.
func checksumErrors(t testing.TB, node netem.Endpoint) (n int) {
	t.Helper()
	err := netns.Do(node.Netns, func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 14 && f[0] == "Tcp:" {
				n, _ = strconv.Atoi(f[15])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// stream is a TCP transfer whose sums of both sides are compared at its end.
type stream struct {
	t    testing.TB
	stop atomic.Bool
	sums [2]chan [32]byte
}

// transfer begins one and waits for so long.
func transfer(t testing.TB, from, to netem.Endpoint, addr netip.Addr, wait time.Duration) *stream {
	t.Helper()
	var l net.Listener
	err := netns.Do(to.Netns, func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(addr, 7777).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := netns.Dial(ctx, from.Netns, "tcp", l.Addr().String())
	if err != nil {
		l.Close()
		t.Fatal(err)
	}
	s := &stream{t: t, sums: [2]chan [32]byte{make(chan [32]byte, 1), make(chan [32]byte, 1)}}
	t.Cleanup(func() { s.stop.Store(true); conn.Close() })
	go func() {
		defer conn.Close()
		sum := sha256.New()
		for k := byte(0); !s.stop.Load(); k++ {
			n, err := conn.Write(bytes.Repeat([]byte{k}, 100_000))
			sum.Write(bytes.Repeat([]byte{k}, n))
			if err != nil {
				t.Errorf("transfer: %v", err)
				break
			}
		}
		s.sums[0] <- [32]byte(sum.Sum(nil))
	}()
	go func() {
		defer l.Close()
		in, err := l.Accept()
		if err != nil {
			t.Errorf("transfer: %v", err)
			return
		}
		defer in.Close()
		sum := sha256.New()
		buf := make([]byte, 1<<17)
		for err == nil {
			var n int
			n, err = in.Read(buf)
			sum.Write(buf[:n])
		}
		if err != io.EOF {
			t.Errorf("transfer: %v", err)
		}
		s.sums[1] <- [32]byte(sum.Sum(nil))
	}()
	time.Sleep(wait)
	return s
}

// end stops the transfer; what was sent must have come.
func (s *stream) end() {
	s.t.Helper()
	s.stop.Store(true)
	var sums [2][32]byte
	for i := range sums {
		select {
		case sums[i] = <-s.sums[i]:
		case <-time.After(30 * time.Second):
			s.t.Fatal("transfer: no end within 30 seconds")
		}
	}
	if sums[0] != sums[1] {
		s.t.Error("transfer: what came is not what was sent")
	}
}

// Every change that loses nothing by itself.
func TestLiveChangesLoseDoubleAndReorderNothingAndLeakNothingUndelayed(t *testing.T) {
	n := netemtest.Network(t, 2)
	b := open(t)
	in := newSink(t, n[1], n[1].Addr, 7000)
	out := newSource(t, n[0], in.addr, 200)
	meet(t, in, out)
	const least = 3 * time.Millisecond
	changes := []string{"delay 3ms", "delay 20ms", "delay 5ms jitter 2ms", "delay 4ms rate 200mbit", "delay 30ms duplicate 0.0000001%",
		"delay 3ms limit 100000", "delay 3ms slot 1ms 2ms", "delay 8ms"}
	apply(t, b, link(t, n[0], n[1], changes[0]))
	const sent = 10_000
	done := make(chan []arrival)
	go func() { done <- carry(out, in, sent, 5, 500*time.Microsecond, time.Second) }()
	for i := range 60 {
		time.Sleep(20 * time.Millisecond)
		apply(t, b, link(t, n[0], n[1], changes[i%len(changes)]))
	}
	got := <-done
	for at, a := range got {
		if a.n != at {
			t.Fatalf("datagram %d came as number %d", a.n, at)
		}
		if a.took < least-50*time.Microsecond {
			t.Fatalf("datagram %d came after %v, every delay is %v or more", a.n, a.took, least)
		}
	}
	if len(got) != sent {
		t.Errorf("%d of %d datagrams came", len(got), sent)
	}
	if c := counters(t, b); c.Overrun != 0 || c.Dropped != 0 {
		t.Errorf("overrun %d, dropped %d", c.Overrun, c.Dropped)
	}
}

func TestClearUnderTrafficLosesNothing(t *testing.T) {
	n := netemtest.Network(t, 2)
	b := open(t)
	in := newSink(t, n[1], n[1].Addr, 7000)
	out := newSource(t, n[0], in.addr, 200)
	meet(t, in, out)
	// The kernel stops an interface for a moment when it gets its first clsact.
	apply(t, b, link(t, n[0], n[1], "none"))
	const sent = 10_000
	done := make(chan []arrival)
	go func() { done <- carry(out, in, sent, 5, 500*time.Microsecond, time.Second) }()
	for i := range 10 {
		apply(t, b, link(t, n[0], n[1], []string{"delay 3ms", "delay 3ms duplicate 0.0000001%"}[i%2]))
		time.Sleep(30 * time.Millisecond)
		if err := b.Clear(ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(30 * time.Millisecond)
	}
	seen := map[int]bool{}
	for _, a := range <-done {
		if seen[a.n] {
			t.Errorf("datagram %d came twice", a.n)
		}
		seen[a.n] = true
	}
	if len(seen) != sent {
		t.Errorf("%d of %d datagrams came", len(seen), sent)
	}
	if c := counters(t, b); c.Overrun != 0 || c.Packets == 0 {
		t.Errorf("counters %+v, want packets and no overrun", c)
	}
}

func TestAFailedApplyChangesNothing(t *testing.T) {
	n := netemtest.Network(t, 3)
	// A filter where ours have to be, of another protocol: no filter of ours can
	// be added there.
	inside(t, n[1], func(h *netlink.Handle, eth netlink.Link) error {
		err := h.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: eth.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
		if err != nil {
			return err
		}
		return h.FilterAdd(&netlink.U32{FilterAttrs: netlink.FilterAttrs{
			LinkIndex: eth.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS, Priority: 4242, Protocol: unix.ETH_P_LOOPBACK}})
	})
	b := open(t)
	apply(t, b, link(t, n[0], n[1], "delay 30ms"), link(t, n[2], n[0], "none"))
	before := map[string]netem.LinkState{}
	show := func() map[string]netem.LinkState {
		all, err := b.Show(ctx)
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]netem.LinkState{}
		for _, s := range all {
			m[s.From.Name+" "+s.To.Name] = s
		}
		return m
	}
	before = show()
	had := [][]string{leftovers(t, n[0]), leftovers(t, n[1]), leftovers(t, n[2])}
	if err := b.Apply(ctx, []netem.Link{link(t, n[0], n[1], "loss 100%"), link(t, n[0], n[2], "loss 100%"), link(t, n[2], n[1], "loss 100%"), link(t, n[1], n[0], "loss 100%")}); err == nil {
		t.Fatal("Apply succeeded where no filter can be added")
	} else {
		t.Log(err)
	}
	after := show()
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("links before %v, after %v", before, after)
	}
	for i := range n {
		if got := leftovers(t, n[i]); fmt.Sprint(got) != fmt.Sprint(had[i]) {
			t.Errorf("%s has %v, want %v", n[i].Name, got, had[i])
		}
	}
	if s := netemtest.RTT(t, n[0], n[1], 5); s.P50 < 29*time.Millisecond || s.P50 > 60*time.Millisecond {
		t.Errorf("round trip %v, want still 30ms", s.P50)
	}
	netemtest.RTT(t, n[2], n[1], 5)
}

func TestFiltersOfOthersAreLeftAloneAndOursAreTakenOut(t *testing.T) {
	n := netemtest.Network(t, 2)
	foreign := func(h *netlink.Handle, eth netlink.Link) *netlink.U32 {
		return &netlink.U32{FilterAttrs: netlink.FilterAttrs{
			LinkIndex: eth.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS, Priority: 7, Protocol: unix.ETH_P_IP},
			Sel: &netlink.TcU32Sel{Flags: 0, Nkeys: 1, Keys: []netlink.TcU32Key{{Mask: 0xffffffff, Val: 1, Off: 16}}}}
	}
	b := open(t)
	apply(t, b, netemtest.Both(n[0], n[1], 10*time.Millisecond)...)
	inside(t, n[0], func(h *netlink.Handle, eth netlink.Link) error { return h.FilterAdd(foreign(h, eth)) })
	only := func(what string) {
		t.Helper()
		for _, l := range leftovers(t, n[0]) {
			if l != "clsact" && l != "filter of priority 7" {
				t.Errorf("after %s there is %s", what, l)
			}
		}
		found := false
		for _, l := range leftovers(t, n[0]) {
			found = found || l == "filter of priority 7"
		}
		if !found {
			t.Errorf("after %s the filter of somebody else is gone", what)
		}
	}
	if err := b.Clear(ctx); err != nil {
		t.Fatal(err)
	}
	only("Clear")
	if l := leftovers(t, n[1]); len(l) != 1 || l[0] != "clsact" {
		t.Errorf("after Clear: %v, want the clsact alone", l)
	}
	apply(t, b, netemtest.Both(n[0], n[1], 10*time.Millisecond)...)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	only("Close")
	if l := leftovers(t, n[1]); len(l) != 0 {
		t.Errorf("after Close: %v", l)
	}
	for i, want := range []bool{false, true} {
		if bare, err := wire.Bare(n[i]); err != nil || bare != want {
			t.Errorf("Bare(%s) = %v, %v, want %v", n[i].Name, bare, err, want)
		}
	}
	b = open(t)
	apply(t, b, netemtest.Both(n[0], n[1], 10*time.Millisecond)...)
	if err := unix.Kill(b.Pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-b.Done()
	if err := wire.Detach(n[0]); err != nil {
		t.Fatal(err)
	}
	only("Detach")
	if err := wire.Strip(n[0]); err != nil {
		t.Fatal(err)
	}
	only("Strip")
	if err := errors.Join(wire.Detach(n[1]), wire.Strip(n[1]), wire.Strip(n[1])); err != nil {
		t.Fatal(err)
	}
	if l := leftovers(t, n[1]); len(l) != 0 {
		t.Errorf("after Strip: %v", l)
	}
}

func TestShowTellsWhenSomebodyTookAFilterAway(t *testing.T) {
	n := netemtest.Network(t, 2)
	b := open(t)
	apply(t, b, link(t, n[0], n[1], "delay 10ms loss 1% seed 4"))
	if s := state(t, b, n[0], n[1]); s.Impairment.String() != "delay 10ms loss 1% seed 4" {
		t.Errorf("Show has %q", s.Impairment)
	}
	if err := wire.Detach(n[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Show(ctx); err == nil || !strings.Contains(err.Error(), n[1].Addr.String()) {
		t.Errorf("Show = %v, want an error that names %s", err, n[1].Addr)
	}
}

func TestANamespaceIsTheSameByWhateverPath(t *testing.T) {
	n := netemtest.Network(t, 2)
	sleep := exec.Command("sleep", "60")
	if err := netns.Do(n[0].Netns, sleep.Start); err != nil {
		t.Fatal(err)
	}
	defer func() { sleep.Process.Kill(); sleep.Wait() }()
	b := open(t)
	other := n[0]
	other.Netns = fmt.Sprintf("/proc/%d/ns/net", sleep.Process.Pid)
	apply(t, b, link(t, other, n[1], "delay 10ms"))
	if s := netemtest.RTT(t, n[0], n[1], 5); s.P50 < 9*time.Millisecond {
		t.Errorf("round trip %v, want 10ms", s.P50)
	}
	apply(t, b, link(t, n[0], n[1], "delay 30ms"))
	if s := netemtest.RTT(t, n[0], n[1], 5); s.P50 < 29*time.Millisecond {
		t.Errorf("round trip %v by the other path, want 30ms", s.P50)
	}
}

func TestAnInterfaceThatIsGoneTakesItsLinksAlongAndMayComeBack(t *testing.T) {
	n := netemtest.Network(t, 3)
	b := open(t)
	apply(t, b, append(netemtest.Both(n[0], n[1], 20*time.Millisecond), netemtest.Both(n[0], n[2], 30*time.Millisecond)...)...)
	netemtest.RTT(t, n[0], n[1], 3)
	inside(t, n[1], func(h *netlink.Handle, eth netlink.Link) error { return h.LinkDel(eth) })
	all, err := b.Show(ctx)
	if err != nil || len(all) != 3 {
		t.Errorf("Show has %d links, %v, want the 3 that do not begin at the interface that is gone", len(all), err)
	}
	if s := netemtest.RTT(t, n[0], n[2], 5); s.P50 < 29*time.Millisecond {
		t.Errorf("round trip %v of a link that was left alone, want 30ms", s.P50)
	}
	sw, err := filepath.Glob(netns.Path(fmt.Sprintf("flt-%d-*-sw", os.Getpid())))
	if err != nil || len(sw) != 1 {
		t.Fatalf("switches %v, %v, want the one of the network", sw, err)
	}
	if err := netns.Join(sw[0], "br0", n[1].Name, n[1].Netns, n[1].Interface, []netip.Prefix{netip.PrefixFrom(n[1].Addr, 24)}, nil); err != nil {
		t.Fatal(err)
	}
	apply(t, b, link(t, n[1], n[0], "delay 15ms"))
	if s := netemtest.RTT(t, n[1], n[0], 5); s.P50 < 24*time.Millisecond {
		t.Errorf("round trip %v over an interface that came back, want 25ms", s.P50)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
