package qdisc

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
)

// A filter leads packets that have all of its keys to a class (u32). Those of
// lower preference are asked first.
type filter struct {
	preference uint16
	protocol   uint16
	class      uint32
	keys       []key
}

// A key is 32 bits of a packet under a mask, at a place counted from the IP header.
type key struct {
	mask, value uint32
	at          int32
}

// Preferences are ours to choose, since the whole tree is. Every one has
// selectors of one kind, so that the kernel asks as the vocabulary says: the
// longest prefix first, and of one prefix a port before all ports.
const (
	preferDiscovery = 1
	prefer6         = 100 // and 2 more for each bit that the prefix is shorter
	prefer4         = 400
)

// same is for telling whether the kernel has a filter.
func (f filter) same() string { return fmt.Sprint(f) }

func (f filter) message() message {
	return message{
		parent: root, kind: "u32", options: f.encode(),
		info: uint32(f.preference)<<16 | uint32(bigEndian(f.protocol)),
	}
}

func bigEndian(v uint16) uint16 { return native.Uint16(binary.BigEndian.AppendUint16(nil, v)) }

// filtersOf are a selector's, for a class.
func filtersOf(s netem.Selector, class uint32) []filter {
	addr := s.Prefix.Addr()
	f := filter{preference: prefer4, protocol: unix.ETH_P_IP, class: class}
	at := int32(16)
	if addr.Is6() {
		f.preference, f.protocol, at = prefer6, unix.ETH_P_IPV6, 24
	}
	f.preference += 2 * uint16(addr.BitLen()-s.Prefix.Bits())
	words := addr.AsSlice()
	for left := s.Prefix.Bits(); left > 0; left -= 32 {
		mask := ^uint32(0) << (32 - min(left, 32))
		f.keys = append(f.keys, key{mask, binary.BigEndian.Uint32(words) & mask, at})
		words, at = words[4:], at+4
	}
	if !s.Prefix.IsSingleIP() {
		// Broadcast and multicast, by their link address, go to everybody.
		f.keys = append(f.keys, key{0x01000000, 0, -14})
	}
	if s.Port == 0 {
		f.preference++
		return []filter{f}
	}
	var out []filter
	for _, protocol := range []uint32{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		f := f
		if addr.Is4() {
			f.keys = append(slices.Clone(f.keys),
				key{0x0f000000, 0x05000000, 0}, // no options
				key{0x00003fff, 0, 4},          // no fragment
				key{0x00ff0000, protocol << 16, 8},
				key{0x0000ffff, uint32(s.Port), 20})
		} else {
			f.keys = append(slices.Clone(f.keys),
				key{0x0000ff00, protocol << 8, 4}, // right behind the header
				key{0x0000ffff, uint32(s.Port), 40})
		}
		out = append(out, f)
	}
	return out
}

// selector is what filtersOf has made f of; ok is false for any other filter.
func (f filter) selector() (s netem.Selector, ok bool) {
	width, first, base, port := 32, int32(16), uint16(prefer4), int32(20)
	if f.protocol == unix.ETH_P_IPV6 {
		width, first, base, port = 128, 24, prefer6, 40
	}
	if f.preference < base || int(f.preference-base) > 2*width+1 {
		return s, false
	}
	addr := make([]byte, width/8)
	for _, k := range f.keys {
		switch {
		case k.at == port:
			s.Port = uint16(k.value)
		case k.at >= first && k.at < first+int32(width/8):
			binary.BigEndian.PutUint32(addr[k.at-first:], k.value)
		}
	}
	a, _ := netip.AddrFromSlice(addr)
	s.Prefix = netip.PrefixFrom(a, width-int(f.preference-base)/2)
	return s, slices.ContainsFunc(filtersOf(s, f.class), func(g filter) bool { return g.same() == f.same() })
}

// discovery lets IPv6 neighbour discovery, ICMPv6 133 to 137, pass as ARP does:
// without it a peer would be unreachable rather than far.
func discovery() []filter {
	var out []filter
	for _, t := range []struct{ mask, first uint32 }{{0xff, 133}, {0xfe, 134}, {0xfe, 136}} {
		out = append(out, filter{
			preference: preferDiscovery, protocol: unix.ETH_P_IPV6, class: root, // straight through
			keys: []key{
				{0x0000ff00, unix.IPPROTO_ICMPV6 << 8, 4},
				{t.mask << 24, t.first << 24, 40},
			},
		})
	}
	return out
}

// String is how tc is told the same.
func (f filter) String() string {
	protocol := "ip"
	if f.protocol == unix.ETH_P_IPV6 {
		protocol = "ipv6"
	}
	var match []string
	for _, k := range f.keys {
		match = append(match, fmt.Sprintf("match u32 0x%08x 0x%08x at %d", k.value, k.mask, k.at))
	}
	return fmt.Sprintf("protocol %s pref %d u32 %s flowid %s", protocol, f.preference, strings.Join(match, " "), handle(f.class))
}

// handle writes a qdisc's handle or a class as tc does.
func handle(h uint32) string {
	if h&0xffff == 0 {
		return fmt.Sprintf("%x:", h>>16)
	}
	return fmt.Sprintf("%x:%x", h>>16, h&0xffff)
}

// A standing filter is one that the kernel has.
type standing struct {
	filter
	handle uint32
}

// filters lists those on our root.
func (c *conn) filters() ([]standing, error) {
	var out []standing
	err := c.dump(unix.RTM_GETTFILTER, unix.RTM_NEWTFILTER, root, func(m message, _ []nlAttr) error {
		f := standing{handle: m.handle}
		f.preference, f.protocol = uint16(m.info>>16), bigEndian(uint16(m.info))
		if m.kind != "u32" {
			out = append(out, f) // somebody else's, equal to none
			return nil
		}
		var ok bool
		var err error
		if f.class, f.keys, ok, err = decodeFilter(m.options); ok {
			out = append(out, f)
		}
		return err
	})
	return out, err
}

func (c *conn) addFilter(f filter) error {
	if err := c.do(unix.RTM_NEWTFILTER, create, f.message()); err != nil {
		return lacks("no u32 filter", "CONFIG_NET_CLS_U32", err)
	}
	return nil
}

func (c *conn) removeFilter(f standing) error {
	m := f.message()
	m.handle, m.options = f.handle, nil
	q := message{handle: f.handle, parent: root, info: m.info}
	return c.do(unix.RTM_DELTFILTER, 0, q)
}

// removeFilters takes all filters away, whoever made them.
func (c *conn) removeFilters() error {
	return c.do(unix.RTM_DELTFILTER, 0, message{parent: root})
}
