package qdisc

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

// ErrUnsupported is wrapped by errors that say that this kernel or this user
// cannot do what was asked, as against an attempt that went wrong.
var ErrUnsupported = errors.New("kernel netem is not possible here")

// A LackError says which part the kernel lacks, and what mends it.
type LackError struct {
	What   string // no netem
	Config string // CONFIG_NET_SCH_NETEM
	Mend   string // the command, or what else to do
	Cause  error
}

func (e *LackError) Error() string {
	return fmt.Sprintf("%v: %s in this kernel (%s): %v", ErrUnsupported, e.What, e.Config, e.Cause)
}

func (e *LackError) Unwrap() []error { return []error{ErrUnsupported, e.Cause} }

// lacks wraps errors that no second attempt will mend.
func lacks(what, config string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: it needs root: %w", ErrUnsupported, err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP): // the kernel knows no such kind
		osRelease, _ := os.ReadFile("/etc/os-release")
		return &LackError{What: what, Config: config, Mend: mend(string(osRelease), release()), Cause: err}
	}
	return err
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// mend is what brings netem to a distribution's kernel.
func mend(osRelease, kernel string) string {
	const none = "this kernel has no such module: use the emulator in user space, --emulator user"
	var ids []string
	for line := range strings.Lines(osRelease) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		if k == "ID" || k == "ID_LIKE" {
			ids = append(ids, strings.Fields(strings.Trim(v, `"'`))...)
		}
	}
	is := func(all ...string) bool {
		return slices.ContainsFunc(all, func(id string) bool { return slices.Contains(ids, id) })
	}
	// A distribution's name says nothing where the kernel is not its own.
	low := strings.ToLower(kernel)
	for _, host := range []string{"microsoft", "wsl", "firecracker", "-fc", "linuxkit", "gvisor", "kata"} {
		if strings.Contains(low, host) {
			return none
		}
	}
	switch {
	case is("ubuntu"):
		return "sudo apt-get install linux-modules-extra-" + kernel
	case is("debian") && strings.Contains(low, "cloud"):
		return "sudo apt-get install linux-image-amd64, and start that kernel instead of the cloud one"
	case is("fedora", "rhel", "centos"):
		return "sudo dnf install kernel-modules-extra-" + kernel
	}
	return none
}

// Probe tries a whole tree, in a namespace of its own that is gone afterwards.
// Its error says what is missing: a *LackError with what mends it where it is a
// part of the kernel. It wraps ErrUnsupported.
func Probe() error {
	return attempt(netem.Impairment{Delay: 300 * time.Microsecond, Loss: netem.Random{Chance: netem.Whole / 100}})
}

// attempt does something to two links of a scratch namespace.
func attempt(i netem.Impairment) error {
	err := netns.Scratch(func(path string) error {
		b := Open()
		from := netem.Endpoint{Name: "scratch", Netns: path, Interface: "lo"}
		err := b.Apply(context.Background(), []netem.Link{
			{From: from, Match: only(1), Impairment: netem.Impairment{Delay: time.Millisecond}},
			{From: from, Match: only(2), Impairment: i},
		})
		return errors.Join(err, b.Close())
	})
	if errors.Is(err, netns.ErrUnsupported) && !errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// only is one address of a network that nobody has.
func only(n byte) []netem.Selector {
	return []netem.Selector{{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, n}), 32)}}
}

// Lacks lists which impairments this kernel's netem cannot do though it can do
// the rest, each in words of the text form and with the reason: old kernels
// pass over what they do not know, and some refuse duplicates beside other
// links.
func Lacks() ([]string, error) {
	if err := Probe(); err != nil {
		return nil, err
	}
	var out []string
	for _, text := range []string{
		"delay 0.1ms", "delay 300s", // finer and longer than a 32-bit tick
		"delay 1ms jitter 0.1ms distribution normal",
		"loss gemodel 1% 10%", "loss state 1% 10%",
		"duplicate 1%", "delay 1ms reorder 10%", "corrupt 1%",
		"rate 100gbit", "rate 10mbit burst 128kb", "slot 1ms", "loss 1% seed 1",
	} {
		i, _, err := netem.Parse(text)
		if err != nil {
			return nil, err
		}
		if err := attempt(i); err != nil {
			// Without the scratch that it was tried in.
			_, why, ok := strings.Cut(err.Error(), fmt.Sprintf("link to %v: ", only(2)))
			if !ok {
				why = err.Error()
			}
			out = append(out, text+": "+why)
		}
	}
	return out, nil
}
