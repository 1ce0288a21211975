package cli

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
)

// destinations are what --to names.
type destinations []netem.Selector

var targetRE = regexp.MustCompile(`^(?:\[([0-9a-fA-F:.]+(?:/\d+)?)\](/\d+)?|([0-9.]+(?:/\d+)?)|([0-9a-fA-F:.]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:/\d+)?))(?::(\d+))?$`)

// targets reads every --to.
func targets(all []string) (destinations, error) {
	const form = "write an address or a network, and a port if only that is meant: 10.0.0.5, 10.0.0.0/8:3306, 2001:db8::1, [2001:db8::]/32:3306"
	var out destinations
	for _, text := range all {
		refuse := func(format string, args ...any) (destinations, error) {
			return nil, lab.Hint(usage("--to %s: "+format, append([]any{text}, args...)...), form)
		}
		m := targetRE.FindStringSubmatch(text)
		if m == nil {
			return refuse("not an address or a network")
		}
		addr, bits, both := strings.Cut(m[1]+m[2]+m[3]+m[4], "/")
		ip, err := netip.ParseAddr(addr)
		if err != nil {
			return refuse("%s is not an address", addr)
		}
		ip = ip.Unmap()
		s := netem.Selector{Prefix: netip.PrefixFrom(ip, ip.BitLen())}
		if both {
			n, err := strconv.Atoi(bits)
			if err != nil || n > ip.BitLen() {
				return refuse("/%s is not 0 to %d", bits, ip.BitLen())
			}
			if s.Prefix = netip.PrefixFrom(ip, n); s.Prefix != s.Prefix.Masked() {
				return nil, lab.Hint(usage("--to %s: %s lies within the network %s", text, ip, s.Prefix.Masked()),
					fmt.Sprintf("write %s for the network, %s for the one address", s.Prefix.Masked(), ip))
			}
		}
		if m[5] != "" {
			port, err := strconv.ParseUint(m[5], 10, 16)
			if err != nil || port == 0 {
				return refuse("port %s is not 1 to 65535", m[5])
			}
			s.Port = uint16(port)
		}
		if slices.Contains(out, s) {
			return refuse("given twice")
		}
		out = append(out, s)
	}
	// In any order they are the same link.
	slices.SortFunc(out, func(a, b netem.Selector) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// endpoint is the far end: of what --to names only a single address is a place
// that probes can be sent to.
func (d destinations) endpoint() netem.Endpoint {
	var names []string
	for _, s := range d {
		name := s.String()
		if s.Prefix.IsSingleIP() {
			name = strings.Replace(name, fmt.Sprintf("/%d", s.Prefix.Bits()), "", 1)
		}
		names = append(names, name)
	}
	e := netem.Endpoint{Name: strings.Join(names, ", ")}
	for _, s := range d {
		a, at := s.Prefix.Addr(), &e.Addr
		if a.Is6() {
			at = &e.Addr6
		}
		if !s.Prefix.IsSingleIP() || at.IsValid() && *at != a {
			e.Addr, e.Addr6 = netip.Addr{}, netip.Addr{}
			break
		}
		*at = a
	}
	return e
}
