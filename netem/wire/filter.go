package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
)

// Filters of these priorities are ours, all others somebody else's. The kernel
// wants one for each protocol.
const (
	priority4 = 4242
	priority6 = 4243
)

// Handles of u32 filters end in twelve bits, which are ours to choose and also
// the order in which filters are asked.
const (
	firstNode = 0x010 // before it, what passes without detour
	lastNode  = 0xfff
)

// A detour is the filters on an interface's way out by which its packets come
// to a TAP.
type detour struct {
	h        *netlink.Handle // in the interface's namespace
	from, to int             // interfaces
	own      bool            // the clsact: nobody else had made it
	nodes    map[netem.Selector][]uint32
	taken    map[uint32]bool
	pass     bool // neighbour discovery
}

// add redirects what the selector picks. What is there when it fails, remove
// takes out.
func (d *detour) add(s netem.Selector) error {
	if _, there := d.nodes[s]; there {
		return nil
	}
	if d.nodes == nil {
		d.nodes, d.taken = map[netem.Selector][]uint32{}, map[uint32]bool{}
		err := d.h.QdiscAdd(clsact(d.from))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			d.nodes = nil
			return lacks("no clsact (CONFIG_NET_SCH_INGRESS)", err)
		}
		d.own = err == nil
	}
	if s.Prefix.Addr().Is6() && !d.pass {
		for n, keys := range discovery() {
			f := filter(d.from, priority6)
			f.Handle, f.Sel = uint32(n+1), selector(keys)
			if err := d.h.FilterAdd(f); err != nil && !errors.Is(err, unix.EEXIST) {
				return lacks("no u32 filter (CONFIG_NET_CLS_U32)", err)
			}
		}
		d.pass = true
	}
	d.nodes[s] = nil
	node := uint32(firstNode)
	for _, keys := range matches(s) {
		for d.taken[node] {
			node++
		}
		if node > lastNode {
			return fmt.Errorf("more than %d filters", lastNode-firstNode)
		}
		f := filter(d.from, priorityOf(s))
		f.Handle, f.Sel = node, selector(keys)
		f.Actions = []netlink.Action{netlink.NewMirredAction(d.to)}
		if err := d.h.FilterAdd(f); err != nil {
			return lacks("no u32 filter with redirect (CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED)", err)
		}
		d.taken[node] = true
		d.nodes[s] = append(d.nodes[s], node)
	}
	return nil
}

// remove takes the filters of the selectors out.
func (d *detour) remove(all []netem.Selector) error {
	if len(all) == 0 {
		return nil
	}
	list, err := d.list()
	if err != nil {
		return err
	}
	for _, s := range all {
		for _, node := range d.nodes[s] {
			for _, f := range list {
				if a := f.Attrs(); int(a.Priority) == int(priorityOf(s)) && a.Handle&lastNode == node {
					del := filter(d.from, priorityOf(s))
					del.Handle = a.Handle
					if err := d.h.FilterDel(del); err != nil && !gone(err) {
						return err
					}
				}
			}
			delete(d.taken, node)
		}
		delete(d.nodes, s)
	}
	return nil
}

// list gives the filters that are ours.
func (d *detour) list() (ours []netlink.Filter, err error) {
	all, err := d.h.FilterList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: d.from}}, netlink.HANDLE_MIN_EGRESS)
	for _, f := range all {
		if p := f.Attrs().Priority; p == priority4 || p == priority6 {
			ours = append(ours, f)
		}
	}
	return ours, err
}

// missing tells which selectors have lost their filters to somebody else.
func (d *detour) missing() (gone []netem.Selector, err error) {
	list, err := d.list()
	if err != nil {
		return nil, err
	}
	there := map[[2]uint32]bool{}
	for _, f := range list {
		if u, ok := f.(*netlink.U32); ok && u.RedirIndex == d.to {
			there[[2]uint32{uint32(u.Priority), u.Handle & lastNode}] = true
		}
	}
	for s, nodes := range d.nodes {
		for _, n := range nodes {
			if !there[[2]uint32{uint32(priorityOf(s)), n}] {
				gone = append(gone, s)
				break
			}
		}
	}
	slices.SortFunc(gone, func(a, b netem.Selector) int { return strings.Compare(a.String(), b.String()) })
	return gone, nil
}

// clear takes all filters out.
func (d *detour) clear() error {
	if d.nodes == nil {
		return nil
	}
	d.nodes, d.taken, d.pass = nil, nil, false
	return removeFilters(d.h, d.from)
}

// removeClsact takes the clsact out, if that is of use to nobody else.
func removeClsact(h *netlink.Handle, ifIndex int) error {
	for _, parent := range []uint32{netlink.HANDLE_MIN_EGRESS, netlink.HANDLE_MIN_INGRESS} {
		others, err := h.FilterList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: ifIndex}}, parent)
		if err != nil || len(others) > 0 {
			return nil
		}
	}
	if err := h.QdiscDel(clsact(ifIndex)); err != nil && !gone(err) {
		return err
	}
	return nil
}

func priorityOf(s netem.Selector) uint16 {
	if s.Prefix.Addr().Is6() {
		return priority6
	}
	return priority4
}

// matches are the keys of a selector's filters: a packet belongs to it that has
// all keys of one. Offsets are from the IP header on.
func matches(s netem.Selector) [][]netlink.TcU32Key {
	addr := s.Prefix.Addr()
	at := int32(16)
	if addr.Is6() {
		at = 24
	}
	var to []netlink.TcU32Key
	words := addr.AsSlice()
	for i, mask := range maskOf(s.Prefix) {
		if mask != 0 {
			to = append(to, netlink.TcU32Key{Mask: mask, Val: binary.BigEndian.Uint32(words[4*i:]) & mask, Off: at + 4*int32(i)})
		}
	}
	if !s.Prefix.IsSingleIP() {
		// Broadcast and multicast, by their link address, go to everybody.
		to = append(to, netlink.TcU32Key{Mask: 0x01000000, Val: 0, Off: -14})
	}
	if s.Port == 0 {
		return [][]netlink.TcU32Key{to}
	}
	var out [][]netlink.TcU32Key
	for _, proto := range []uint32{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		keys := append([]netlink.TcU32Key(nil), to...)
		if addr.Is4() {
			keys = append(keys,
				netlink.TcU32Key{Mask: 0x0f000000, Val: 0x05000000, Off: 0}, // no options
				netlink.TcU32Key{Mask: 0x00003fff, Val: 0, Off: 4},          // no fragment
				netlink.TcU32Key{Mask: 0x00ff0000, Val: proto << 16, Off: 8},
				netlink.TcU32Key{Mask: 0x0000ffff, Val: uint32(s.Port), Off: 20})
		} else {
			keys = append(keys,
				netlink.TcU32Key{Mask: 0x0000ff00, Val: proto << 8, Off: 4}, // right behind the header
				netlink.TcU32Key{Mask: 0x0000ffff, Val: uint32(s.Port), Off: 40})
		}
		out = append(out, keys)
	}
	return out
}

// discovery are the keys of IPv6 neighbour discovery, ICMPv6 133 to 137: it
// passes as ARP does, or a peer would be unreachable rather than far.
func discovery() [][]netlink.TcU32Key {
	var out [][]netlink.TcU32Key
	for _, t := range []struct{ mask, first uint32 }{{0xff, 133}, {0xfe, 134}, {0xfe, 136}} {
		out = append(out, []netlink.TcU32Key{
			{Mask: 0x0000ff00, Val: unix.IPPROTO_ICMPV6 << 8, Off: 4},
			{Mask: t.mask << 24, Val: t.first << 24, Off: 40},
		})
	}
	return out
}

func selector(keys []netlink.TcU32Key) *netlink.TcU32Sel {
	return &netlink.TcU32Sel{Flags: netlink.TC_U32_TERMINAL, Nkeys: uint8(len(keys)), Keys: keys}
}

func removeFilters(h *netlink.Handle, ifIndex int) error {
	for _, p := range []uint16{priority4, priority6} {
		// Without handle and selector: all of this priority.
		if err := h.FilterDel(filter(ifIndex, p)); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// gone tells that what was to be removed is not there: no interface, no
// clsact, no filter.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV)
}

func clsact(ifIndex int) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifIndex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

func filter(ifIndex int, priority uint16) *netlink.U32 {
	protocol := uint16(unix.ETH_P_IP)
	if priority == priority6 {
		protocol = unix.ETH_P_IPV6
	}
	return &netlink.U32{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: ifIndex, Parent: netlink.HANDLE_MIN_EGRESS, Priority: priority, Protocol: protocol,
	}}
}
