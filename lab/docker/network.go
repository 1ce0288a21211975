package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/network"
	"github.com/vishvananda/netlink"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem/netns"
)

// subnets is how many labs there is room for in lab.Subnet4.
const subnets = 512

// subnet is the i-th: 198.18.i.0/24 and on into 198.19, and 2001:2:0:i::/64.
func subnet(i int) (v4, v6 netip.Prefix) {
	a4, a6 := lab.Subnet4.Addr().As4(), lab.Subnet6.Addr().As16()
	a4[1] += byte(i >> 8)
	a4[2] = byte(i)
	a6[6], a6[7] = byte(i>>8), byte(i)
	return netip.PrefixFrom(netip.AddrFrom4(a4), 24), netip.PrefixFrom(netip.AddrFrom16(a6), 64)
}

// host is the address of that number in the network.
func host(p netip.Prefix, n byte) netip.Addr {
	b := p.Addr().AsSlice()
	b[len(b)-1] = n
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Numbers of hosts in a lab's network. Nodes follow each other.
const (
	gatewayHost   = 1
	clientHost    = 9
	firstNodeHost = 11
	maxNodes      = 200
)

// labNetwork is a lab's own network: v6 is the zero Prefix where the daemon
// does without.
type labNetwork struct {
	name   string
	v4, v6 netip.Prefix
}

// createNetwork makes the lab's network in the first subnet that is free of the
// machine's routes and of Docker's networks. It leads nowhere else: nothing in
// a lab reaches the outside.
func (d daemon) createNetwork(ctx context.Context, name string, mtu int, labels map[string]string) (labNetwork, error) {
	taken, err := d.takenSubnets(ctx)
	if err != nil {
		return labNetwork{}, err
	}
	for i := range subnets {
		v4, v6 := subnet(i)
		if overlaps(taken, v4) || overlaps(taken, v6) {
			continue
		}
		n := labNetwork{name, v4, v6}
		err := d.tryNetwork(ctx, n, mtu, labels)
		if overlap(err) {
			continue // another lab was faster, or a route that is not this namespace's
		}
		if err != nil && ctx.Err() == nil {
			// A kernel or a daemon without IPv6.
			n.v6 = netip.Prefix{}
			if d.tryNetwork(ctx, n, mtu, labels) == nil {
				err = nil
			}
		}
		if err != nil {
			return labNetwork{}, fmt.Errorf("network %s: %w", name, err)
		}
		return n, nil
	}
	return labNetwork{}, lab.Hint(fmt.Errorf("network %s: no part of %s is free of routes and of Docker's networks", name, lab.Subnet4),
		"see what is there: ip route; docker network ls")
}

func (d daemon) tryNetwork(ctx context.Context, n labNetwork, mtu int, labels map[string]string) error {
	v6 := n.v6.IsValid()
	opts := network.CreateOptions{
		Driver: "bridge", Internal: true, EnableIPv6: &v6, Labels: labels, Options: map[string]string{},
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: n.v4.String(), Gateway: host(n.v4, gatewayHost).String()}}},
	}
	if v6 {
		opts.IPAM.Config = append(opts.IPAM.Config, network.IPAMConfig{Subnet: n.v6.String(), Gateway: host(n.v6, gatewayHost).String()})
	}
	if mtu > 0 {
		opts.Options["com.docker.network.driver.mtu"] = strconv.Itoa(mtu)
	}
	ctx, cancel, err := whole(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = d.NetworkCreate(ctx, n.name, opts)
	return err
}

// overlap tells the daemon's word for a subnet that is in use. It has no code
// of its own.
func overlap(err error) bool { return err != nil && strings.Contains(err.Error(), "overlaps") }

func overlaps(taken []netip.Prefix, p netip.Prefix) bool {
	for _, t := range taken {
		if t.Overlaps(p) {
			return true
		}
	}
	return false
}

// takenSubnets are the destinations of this machine's routes, the default one
// aside, and the subnets of Docker's networks.
func (d daemon) takenSubnets(ctx context.Context) ([]netip.Prefix, error) {
	var out []netip.Prefix
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		a, ok := netip.AddrFromSlice(r.Dst.IP)
		if ones, _ := r.Dst.Mask.Size(); ok && ones > 0 {
			out = append(out, netip.PrefixFrom(a.Unmap(), ones))
		}
	}
	networks, err := d.NetworkList(ctx, network.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list docker networks: %w", err)
	}
	for _, n := range networks {
		for _, c := range n.IPAM.Config {
			if p, err := netip.ParsePrefix(c.Subnet); err == nil {
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// errElsewhere is for a process that is not in this machine's /proc, or whose
// network is not the one that was asked for.
var errElsewhere = errors.New("not a namespace of this machine")

// findInterface names the interface that has the address in the namespace at
// path.
func findInterface(path string, addr netip.Addr) (name string, err error) {
	err = netns.Do(path, func() error {
		all, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, i := range all {
			addrs, err := i.Addrs()
			if err != nil {
				return err
			}
			for _, a := range addrs {
				if n, ok := a.(*net.IPNet); ok && n.IP.Equal(addr.AsSlice()) {
					name = i.Name
					return nil
				}
			}
		}
		return fmt.Errorf("%w: no interface has %s", errElsewhere, addr)
	})
	return name, err
}
