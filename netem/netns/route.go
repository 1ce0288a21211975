package netns

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ErrNoRoute is returned for an address that a namespace has no way to.
var ErrNoRoute = errors.New("no route")

// Via names the interface by which packets leave the namespace at path for the
// address, as its own routes say.
func Via(path string, to netip.Addr) (string, error) {
	h, err := open(path)
	if err != nil {
		return "", err
	}
	defer h.Close()
	routes, err := h.RouteGet(to.AsSlice())
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), err == nil && len(routes) == 0:
		return "", fmt.Errorf("%w to %s", ErrNoRoute, to)
	case err != nil:
		return "", fmt.Errorf("route to %s: %w", to, err)
	}
	l, err := h.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", fmt.Errorf("route to %s: %w", to, err)
	}
	return l.Attrs().Name, nil
}
