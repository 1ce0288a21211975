package wire

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
)

// packetTo makes a frame behind its virtio header. Of an IPv4 packet, fragment
// is the field of that name, and options are words that lengthen the header.
func packetTo(to netip.Addr, proto byte, port uint16, fragment uint16, options int) []byte {
	b := make([]byte, ipHeader+100)
	ip := b[ipHeader:]
	if to.Is4() {
		binary.BigEndian.PutUint16(b[ipHeader-2:], unix.ETH_P_IP)
		ip[0] = 0x45 + byte(options)
		binary.BigEndian.PutUint16(ip[6:], fragment)
		ip[9] = proto
		copy(ip[16:], to.AsSlice())
		binary.BigEndian.PutUint16(ip[20+4*options+2:], port)
	} else {
		binary.BigEndian.PutUint16(b[ipHeader-2:], unix.ETH_P_IPV6)
		ip[0] = 0x60
		ip[6] = proto
		copy(ip[24:], to.AsSlice())
		binary.BigEndian.PutUint16(ip[42:], port)
	}
	return b
}

func on(prefix string, port uint16) netem.Selector {
	return netem.Selector{Prefix: netip.MustParsePrefix(prefix), Port: port}
}

func TestTheNearestSelectorWins(t *testing.T) {
	names := map[*line]string{nil: ""}
	lines := map[netem.Selector]*line{}
	for _, s := range []netem.Selector{
		on("10.0.0.0/8", 0), on("10.1.0.0/16", 0), on("10.1.2.3/32", 0), on("10.1.2.3/32", 3306), on("10.1.2.9/32", 3306),
		on("10.0.0.0/8", 53), on("fd00::/16", 0), on("fd00:1::/32", 80), on("fd00:1::7/128", 0), on("fd00:1::/96", 0),
	} {
		l := &line{}
		lines[s], names[l] = l, s.String()
	}
	tab := newTable(lines)
	for _, c := range []struct {
		to       string
		proto    byte
		port     uint16
		fragment uint16
		options  int
		want     string
	}{
		{"10.1.2.3", unix.IPPROTO_TCP, 3306, 0, 0, "10.1.2.3/32:3306"},
		{"10.1.2.3", unix.IPPROTO_UDP, 3306, 0x4000, 0, "10.1.2.3/32:3306"},
		{"10.1.2.3", unix.IPPROTO_TCP, 3307, 0, 0, "10.1.2.3/32"},
		{"10.1.2.3", unix.IPPROTO_TCP, 53, 0, 0, "10.1.2.3/32"},
		{"10.1.2.3", unix.IPPROTO_ICMP, 3306, 0, 0, "10.1.2.3/32"},
		{"10.1.2.3", unix.IPPROTO_UDP, 3306, 0x2000, 0, "10.1.2.3/32"},
		{"10.1.2.3", unix.IPPROTO_UDP, 3306, 0x0001, 0, "10.1.2.3/32"},
		{"10.1.2.3", unix.IPPROTO_UDP, 3306, 0, 1, "10.1.2.3/32"},
		{"10.1.2.9", unix.IPPROTO_TCP, 3306, 0, 0, "10.1.2.9/32:3306"},
		{"10.1.2.9", unix.IPPROTO_TCP, 1, 0, 0, "10.1.0.0/16"},
		{"10.2.0.1", unix.IPPROTO_UDP, 53, 0, 0, "10.0.0.0/8:53"},
		{"10.2.0.1", unix.IPPROTO_UDP, 54, 0, 0, "10.0.0.0/8"},
		{"11.2.0.1", unix.IPPROTO_UDP, 53, 0, 0, ""},
		{"fd00:1::7", unix.IPPROTO_TCP, 80, 0, 0, "fd00:1::7/128"},
		{"fd00:1::8", unix.IPPROTO_TCP, 80, 0, 0, "fd00:1::/96"},
		{"fd00:1::1:0:8", unix.IPPROTO_TCP, 80, 0, 0, "[fd00:1::/32]:80"},
		{"fd00:1::1:0:8", unix.IPPROTO_TCP, 81, 0, 0, "fd00::/16"},
		{"fd01::1", unix.IPPROTO_TCP, 80, 0, 0, ""},
	} {
		got := names[tab.find(packetTo(netip.MustParseAddr(c.to), c.proto, c.port, c.fragment, c.options))]
		if got != c.want {
			t.Errorf("%+v went to %q", c, got)
		}
	}
	for n := range ipHeader + 44 { // whatever is cut short, nothing is read behind its end
		tab.find(packetTo(netip.MustParseAddr("10.1.2.3"), unix.IPPROTO_TCP, 3306, 0, 0)[:n:n])
		tab.find(packetTo(netip.MustParseAddr("fd00:1::8"), unix.IPPROTO_TCP, 80, 0, 0)[:n:n])
	}
}

// What the kernel redirects has a line, and what has a line is redirected.
func TestFiltersAndLinesAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	addr := func() netip.Addr { // few bits that differ, so that prefixes meet addresses
		if r.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, byte(r.IntN(3)), byte(r.IntN(2) * 129), byte(r.IntN(5))})
		}
		a := netip.MustParseAddr("fd00::").As16()
		for range 3 {
			a[r.IntN(16)] ^= byte(1 << r.IntN(8))
		}
		return netip.AddrFrom16(a)
	}
	redirected := func(s netem.Selector, frame []byte) bool {
		proto := map[uint16]uint16{priority4: unix.ETH_P_IP, priority6: unix.ETH_P_IPV6}[priorityOf(s)]
		if binary.BigEndian.Uint16(frame[ipHeader-2:]) != proto {
			return false
		}
		for _, keys := range matches(s) {
			all := true
			for _, k := range keys {
				all = all && binary.BigEndian.Uint32(frame[ipHeader+int(k.Off):])&k.Mask == k.Val
			}
			if all {
				return true
			}
		}
		return false
	}
	found := 0
	for range 5_000 {
		a := addr()
		p, _ := a.Prefix(r.IntN(a.BitLen() + 1))
		s := netem.Selector{Prefix: p, Port: uint16(r.IntN(2) * 80)}
		tab := newTable(map[netem.Selector]*line{s: {}})
		frame := packetTo(addr(), []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP}[r.IntN(3)], []uint16{80, 81}[r.IntN(2)],
			[]uint16{0, 0, 0x4000, 0x2000, 7}[r.IntN(5)], r.IntN(2))
		line, kernel := tab.find(frame) != nil, redirected(s, frame)
		if line != kernel {
			t.Fatalf("%s: line %t, filter %t, packet % x", s, line, kernel, frame[vnetHeader:ipHeader+48])
		}
		if line {
			found++
		}
	}
	if found < 300 {
		t.Errorf("only %d packets had a line: the test tests nothing", found)
	}
}

func TestManyLinesAreFoundByTheirAddress(t *testing.T) {
	lines := map[netem.Selector]*line{}
	for i := range 500 {
		lines[on(fmt.Sprintf("10.0.%d.%d/32", i/250, i%250), 0)] = &line{}
		lines[on(fmt.Sprintf("fd00::%x/128", i), 0)] = &line{}
	}
	tab := newTable(lines)
	for s, l := range lines {
		if got := tab.find(packetTo(s.Prefix.Addr(), unix.IPPROTO_TCP, 1, 0, 0)); got != l {
			t.Fatalf("%s has not its own line", s)
		}
	}
}
