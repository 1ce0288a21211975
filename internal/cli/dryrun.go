package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/faultlab/faultlab/netem"
)

// dryRun prints what shape set would do, as commands that a person can read and
// type.
func (c *command) dryRun(kind emulatorKind, ns string, l netem.Link) error {
	inside := "ip netns exec " + ns + " "
	switch {
	case isNumber(ns):
		inside = "nsenter --net --target " + ns + " "
	case filepath.IsAbs(ns):
		inside = "nsenter --net=" + ns + " "
	}
	fmt.Fprintf(c.stdout, "# emulator %s; packets that leave %s for %s: %s\n", kind.name, l.From.Interface, l.To.Name, l.Impairment)
	for _, line := range detourCommands(l) {
		if !strings.HasPrefix(line, "#") {
			line = inside + line
		}
		fmt.Fprintln(c.stdout, line)
	}
	return nil
}

// detourCommands are what the emulator in user space does to an interface. What
// it does to packets no command can.
func detourCommands(l netem.Link) []string {
	dev := l.From.Interface
	out := []string{
		"# TAP stands for a device of the process that holds the packets",
		"tc qdisc add dev " + dev + " clsact",
	}
	for _, s := range l.Selectors() {
		protocol, prio, ip := "ip", 4242, "ip"
		if s.Prefix.Addr().Is6() {
			protocol, prio, ip = "ipv6", 4243, "ip6"
		}
		match := fmt.Sprintf("match %s dst %s", ip, s.Prefix)
		matches := []string{match}
		if s.Port != 0 {
			matches = nil
			for _, proto := range []int{6, 17} {
				matches = append(matches, fmt.Sprintf("%s match %s protocol %d 0xff match %s dport %d 0xffff", match, ip, proto, ip, s.Port))
			}
		}
		for _, m := range matches {
			out = append(out, fmt.Sprintf("tc filter add dev %s egress protocol %s prio %d u32 %s action mirred egress redirect dev TAP", dev, protocol, prio, m))
		}
	}
	return append(out, "# each packet is held as asked, and leaves "+dev+" past these filters")
}
