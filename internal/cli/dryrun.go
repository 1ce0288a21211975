package cli

import (
	"fmt"
	"path/filepath"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

// dryRun prints what shape set would do, as commands that a person can read and
// type. What an emulator that was named would do is of use on a machine that
// cannot run it, too.
func (c *command) dryRun(emulator string, l netem.Link) error {
	all := emulators()
	for i := range all {
		if all[i].name == emulator {
			all[i].probe = func() error { return nil }
		}
	}
	kind, err := chooseEmulator(emulator, all)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "# emulator %s; packets that leave %s for %s: %s\n", kind.name, l.From.Interface, l.To.Name, l.Impairment)
	for _, line := range kind.commands(l) {
		fmt.Fprintln(c.stdout, line)
	}
	return nil
}

// inside is how a command is run in a namespace.
func inside(path string) string {
	if filepath.Dir(path) == netns.Dir {
		return "ip netns exec " + filepath.Base(path)
	}
	return "nsenter --net=" + path
}

// detourCommands are what the emulator in user space does to an interface. What
// it does to packets no command can.
func detourCommands(l netem.Link) []string {
	dev, tc := l.From.Interface, inside(l.From.Netns)+" tc"
	out := []string{
		"# TAP stands for a device of the process that holds the packets",
		tc + " qdisc add dev " + dev + " clsact",
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
			out = append(out, fmt.Sprintf("%s filter add dev %s egress protocol %s prio %d u32 %s action mirred egress redirect dev TAP", tc, dev, protocol, prio, m))
		}
	}
	return append(out, "# each packet is held as asked, and leaves "+dev+" past these filters")
}
