package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Bridge makes a bridge inside the namespace at path and brings it up. It
// forwards from the first packet on: without spanning tree there is no
// listening phase, and without snooping no multicast is withheld.
func Bridge(path, name string) error {
	if err := Do(path, quietSwitch); err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}
	h, err := open(path)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}
	defer h.Close()

	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	off := false
	br := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &off}
	if err := h.LinkAdd(br); err != nil {
		return fmt.Errorf("bridge %s in %s: %w", name, path, cannot(err))
	}
	if err := h.LinkSetUp(br); err != nil {
		return fmt.Errorf("bridge %s in %s: %w", name, path, err)
	}
	return nil
}

// Join wires a node to a bridge: a veth pair whose one end is the bridge's port
// in the switch namespace and whose other end is ifname, up and with addrs,
// in the node's. mac may be nil. When it fails it leaves no pair behind.
func Join(switchPath, bridge, port, nodePath, ifname string, addrs []netip.Prefix, mac net.HardwareAddr) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("join %s of %s to %s: %w", ifname, nodePath, bridge, err)
		}
	}()
	sw, err := open(switchPath)
	if err != nil {
		return err
	}
	defer sw.Close()
	node, err := open(nodePath)
	if err != nil {
		return err
	}
	defer node.Close()
	br, err := sw.LinkByName(bridge)
	if err != nil {
		return err
	}
	peer, err := netns.GetFromPath(nodePath)
	if err != nil {
		return cannot(err)
	}
	defer peer.Close()

	attrs := netlink.NewLinkAttrs()
	attrs.Name = port
	attrs.MasterIndex = br.Attrs().Index
	pair := netlink.NewVeth(attrs)
	pair.PeerName = ifname
	pair.PeerHardwareAddr = mac
	pair.PeerNamespace = netlink.NsFd(peer)
	if err := sw.LinkAdd(pair); err != nil {
		return cannot(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, sw.LinkDel(pair))
		}
	}()
	eth, err := node.LinkByName(ifname)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		addr := &netlink.Addr{IPNet: &net.IPNet{
			IP:   a.Addr().AsSlice(),
			Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen()),
		}}
		if a.Addr().Is6() {
			// Duplicate detection would leave the address unusable for a
			// second, on a network where all addresses are ours.
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := node.AddrAdd(eth, addr); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	if err := node.LinkSetUp(eth); err != nil {
		return err
	}
	if err := sw.LinkSetUp(pair); err != nil {
		return err
	}
	return errors.Join(settled(node, ifname), settled(sw, port))
}

// settled waits until the kernel has told everyone that the interface is up.
// It does so from a worker, up to a second later, and until then a bridge port
// does not forward and an interface may drop what it is to send.
func settled(h *netlink.Handle, name string) error {
	const patience = 10 * time.Second
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		l, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		if l.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is still %v after %v", name, l.Attrs().OperState, patience)
		}
	}
}

func loopbackUp(path string) error {
	h, err := open(path)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	return h.LinkSetUp(lo)
}

// open gives a netlink connection into the namespace at path.
func open(path string) (*netlink.Handle, error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, cannot(err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, cannot(err)
	}
	return h, nil
}

// quietSwitch readies the thread's namespace for a bridge: /proc/sys/net shows
// the network namespace of whoever looks. The switch has no addresses, so
// without IPv6 it sends nothing of its own; and no frame has to pass through
// the packet filter, whose rules are for hosts. A kernel without IPv6 or
// without br_netfilter lacks the files.
func quietSwitch() error {
	for file, value := range map[string]string{
		"ipv6/conf/default/disable_ipv6":  "1",
		"bridge/bridge-nf-call-iptables":  "0",
		"bridge/bridge-nf-call-ip6tables": "0",
		"bridge/bridge-nf-call-arptables": "0",
	} {
		err := os.WriteFile("/proc/sys/net/"+file, []byte(value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
