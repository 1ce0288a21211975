package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrNoRoute is returned for an address that a namespace has no way to.
var ErrNoRoute = errors.New("no route")

// way is by which link packets leave for an address, and through which router,
// invalid where the address is on the link itself.
func way(h *netlink.Handle, to netip.Addr) (out netlink.Link, router netip.Addr, err error) {
	routes, err := h.RouteGet(to.AsSlice())
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), err == nil && len(routes) == 0:
		return nil, router, fmt.Errorf("%w to %s", ErrNoRoute, to)
	case err != nil:
		return nil, router, fmt.Errorf("route to %s: %w", to, err)
	}
	if out, err = h.LinkByIndex(routes[0].LinkIndex); err != nil {
		return nil, router, fmt.Errorf("route to %s: %w", to, err)
	}
	if gw, ok := netip.AddrFromSlice(routes[0].Gw); ok && !gw.IsUnspecified() {
		router = gw
	}
	return out, router, nil
}

// Via names the interface by which packets leave the namespace at path for the
// address, as its own routes say.
func Via(path string, to netip.Addr) (string, error) {
	h, err := open(path)
	if err != nil {
		return "", err
	}
	defer h.Close()
	out, _, err := way(h, to)
	if err != nil {
		return "", err
	}
	return out.Attrs().Name, nil
}

// Introduce tells the namespace at path the link address of a neighbour in the
// namespace at its own path, unless it knows it: what asking for it would have
// found. While the kernel asks it keeps what is sent, but no more than some 200 KB: of a
// burst of large packets it would drop the rest. Where the way goes through a router,
// or has no link addresses, there is nothing to do.
func Introduce(path string, addr netip.Addr, neighbour string) error {
	from, err := open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	out, router, err := way(from, addr)
	if err != nil {
		return err
	}
	if router.IsValid() || out.Attrs().RawFlags&(unix.IFF_NOARP|unix.IFF_LOOPBACK) != 0 {
		return nil
	}
	family := netlink.FAMILY_V4
	if addr.Is6() {
		family = netlink.FAMILY_V6
	}
	all, err := from.NeighList(out.Attrs().Index, family)
	if err != nil {
		return fmt.Errorf("neighbours: %w", err)
	}
	const known = netlink.NUD_PERMANENT | netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE
	if slices.ContainsFunc(all, func(n netlink.Neigh) bool { return n.IP.Equal(addr.AsSlice()) && n.State&known != 0 }) {
		return nil
	}
	there, err := open(neighbour)
	if err != nil {
		return err
	}
	defer there.Close()
	addrs, err := there.AddrList(nil, family)
	if err != nil {
		return fmt.Errorf("addresses: %w", err)
	}
	i := slices.IndexFunc(addrs, func(a netlink.Addr) bool { return a.IP.Equal(addr.AsSlice()) })
	if i < 0 {
		return fmt.Errorf("no interface has %s", addr)
	}
	in, err := there.LinkByIndex(addrs[i].LinkIndex)
	if err != nil {
		return err
	}
	return from.NeighSet(&netlink.Neigh{LinkIndex: out.Attrs().Index, Family: family, State: netlink.NUD_REACHABLE,
		IP: addr.AsSlice(), HardwareAddr: in.Attrs().HardwareAddr})
}
