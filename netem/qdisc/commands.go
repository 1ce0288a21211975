package qdisc

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

// Commands writes what Apply would do on interfaces that have no links yet, as
// commands of ip and tc that people read, and can run. A table of jitter that
// is neither one of iproute2's nor uniform is left out: a comment says so.
// Frames are as large as the interface's MTU makes them, or Ethernet's where
// that is not to be found.
func Commands(links []netem.Link) []string {
	var out []string
	next := map[netem.Endpoint]uint16{}
	discovered := map[netem.Endpoint]bool{}
	for _, l := range links {
		at := netem.Endpoint{Netns: l.From.Netns, Interface: l.From.Interface}
		tc := func(object, rest string) {
			verb, rest, _ := strings.Cut(rest, " ")
			out = append(out, fmt.Sprintf("%s tc %s %s dev %s %s", inside(at.Netns), object, verb, at.Interface, rest))
		}
		if next[at] == 0 {
			tc("qdisc", fmt.Sprintf("add root handle %s htb default 0 direct_qlen %d", handle(root), directQueue))
		}
		next[at]++
		id, i := next[at], l.Impairment
		tc("class", fmt.Sprintf("add parent %s classid %s htb rate %s quantum %d", handle(root), handle(classOf(id)), rate(unlimited), quantum))
		tc("qdisc", fmt.Sprintf("add parent %s handle %s tbf %s", handle(classOf(id)), handle(shaperHandle(id)), shaperOf(i, frameOf(at))))
		name, comment := i.Distribution.Name, ""
		if name == "uniform" || i.Distribution.Text != "" {
			name = "" // which is uniform to tc
		}
		if i.Distribution.Text != "" {
			comment = " # and the distribution of " + i.Distribution.Name
		}
		tc("qdisc", fmt.Sprintf("add parent %s handle %s netem %s", handle(shaperHandle(id)|1), handle(netemHandle(id)), optionsOf(i).text(name)+comment))
	}
	seen := map[netem.Endpoint]uint16{}
	for _, l := range links { // last, so that packets find everything in place
		at := netem.Endpoint{Netns: l.From.Netns, Interface: l.From.Interface}
		seen[at]++
		var all []filter
		for _, s := range l.Selectors() {
			if s.Prefix.Addr().Is6() && !discovered[at] {
				discovered[at] = true
				all = append(all, discovery()...)
			}
			all = append(all, filtersOf(s, classOf(seen[at]))...)
		}
		for _, f := range all {
			out = append(out, fmt.Sprintf("%s tc filter add dev %s parent %s %s", inside(at.Netns), at.Interface, handle(root), f))
		}
	}
	return out
}

// inside is how a command is run in a namespace.
func inside(path string) string {
	if filepath.Dir(path) == netns.Dir {
		return "ip netns exec " + filepath.Base(path)
	}
	return "nsenter --net=" + path
}

func frameOf(e netem.Endpoint) uint32 {
	mtu := 1500
	if c, err := dial(e); err == nil {
		defer c.close()
		if l, err := c.link(e.Interface); err == nil {
			mtu = l.Attrs().MTU
		}
	}
	return uint32(mtu) + headers
}
