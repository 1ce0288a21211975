package wire

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
)

// A table finds the line of a frame by where it goes. The longest prefix that
// holds the address wins, and of one prefix a port before all ports. It does
// not change once it is made.
type table struct{ four, six family }

type family struct {
	exact []route // single addresses, in order
	nets  []route // longest first
}

type route struct {
	addr, mask address
	bits       int
	ports      []portRoute
	rest       *line // to other ports; nil where nothing was asked for them
}

type portRoute struct {
	port uint16
	line *line
}

// address is of either family, as a number.
type address struct{ hi, lo uint64 }

func addressOf(a netip.Addr) address {
	if a.Is4() {
		b := a.As4()
		return address{lo: uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return address{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// maskOf is the mask of a prefix as words of its address, the most significant
// first.
func maskOf(p netip.Prefix) []uint32 {
	mask := make([]uint32, p.Addr().BitLen()/32)
	for i := range mask {
		mask[i] = ^uint32(0) << (32 - min(max(p.Bits()-32*i, 0), 32)) // a shift by 32 leaves nothing
	}
	return mask
}

func newTable(lines map[netem.Selector]*line) *table {
	t := &table{}
	for s, l := range lines {
		t.add(s, l)
	}
	for _, f := range []*family{&t.four, &t.six} {
		slices.SortFunc(f.exact, func(a, b route) int {
			return cmp.Or(cmp.Compare(a.addr.hi, b.addr.hi), cmp.Compare(a.addr.lo, b.addr.lo))
		})
		slices.SortFunc(f.nets, func(a, b route) int { return b.bits - a.bits })
	}
	return t
}

func (t *table) add(s netem.Selector, l *line) {
	f := &t.four
	if s.Prefix.Addr().Is6() {
		f = &t.six
	}
	list := &f.nets
	if s.Prefix.IsSingleIP() {
		list = &f.exact
	}
	addr := addressOf(s.Prefix.Addr())
	i := slices.IndexFunc(*list, func(r route) bool { return r.addr == addr && r.bits == s.Prefix.Bits() })
	if i < 0 {
		r := route{addr: addr, bits: s.Prefix.Bits()}
		if m := maskOf(s.Prefix); len(m) == 1 {
			r.mask = address{lo: uint64(m[0])}
		} else {
			r.mask = address{uint64(m[0])<<32 | uint64(m[1]), uint64(m[2])<<32 | uint64(m[3])}
		}
		*list = append(*list, r)
		i = len(*list) - 1
	}
	if s.Port == 0 {
		(*list)[i].rest = l
	} else {
		(*list)[i].ports = append((*list)[i].ports, portRoute{s.Port, l})
	}
}

func (a address) less(b address) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

const ipHeader = vnetHeader + 14 // where it begins

// find gives the line for a frame behind its virtio header, nil for none.
func (t *table) find(frame []byte) *line {
	if len(frame) < ipHeader+20 {
		return nil
	}
	switch binary.BigEndian.Uint16(frame[ipHeader-2:]) {
	case unix.ETH_P_IP:
		return t.four.find(address{lo: uint64(binary.BigEndian.Uint32(frame[ipHeader+16:]))}, frame)
	case unix.ETH_P_IPV6:
		if len(frame) >= ipHeader+40 {
			return t.six.find(address{binary.BigEndian.Uint64(frame[ipHeader+24:]), binary.BigEndian.Uint64(frame[ipHeader+32:])}, frame)
		}
	}
	return nil
}

func (f *family) find(a address, frame []byte) *line {
	i, end := 0, len(f.exact)
	for i < end {
		if m := int(uint(i+end) / 2); f.exact[m].addr.less(a) {
			i = m + 1
		} else {
			end = m
		}
	}
	if i < len(f.exact) && f.exact[i].addr == a {
		if l := f.exact[i].pick(frame); l != nil {
			return l
		}
	}
	for i := range f.nets {
		r := &f.nets[i]
		if (address{a.hi & r.mask.hi, a.lo & r.mask.lo}) == r.addr {
			if l := r.pick(frame); l != nil {
				return l
			}
		}
	}
	return nil
}

func (r *route) pick(frame []byte) *line {
	if len(r.ports) > 0 {
		if port := portOf(frame); port != 0 {
			for _, p := range r.ports {
				if p.port == port {
					return p.line
				}
			}
		}
	}
	return r.rest
}

// portOf is the TCP or UDP port that a frame goes to, 0 where it has none
// that can be seen: like the filters, it passes over fragments, IPv4 options and IPv6
// extension headers.
func portOf(frame []byte) uint16 {
	ip := frame[ipHeader:]
	var proto byte
	var behind int
	if ip[0]>>4 == 4 {
		if ip[0]&0xf != 5 || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 {
			return 0
		}
		proto, behind = ip[9], 20
	} else {
		proto, behind = ip[6], 40
	}
	if proto != unix.IPPROTO_TCP && proto != unix.IPPROTO_UDP || len(ip) < behind+4 {
		return 0
	}
	return binary.BigEndian.Uint16(ip[behind+2:])
}
