// Package netem owns the vocabulary of network faults: what may be done to a
// link, how that is written, what becomes of each packet, and the interface
// that every emulator fulfils.
//
// It is pure: no namespaces, no netlink, no goroutines. Emulators are in
// netem/qdisc and netem/wire, the proof in netem/probe.
package netem

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// Endpoint is where a fault is attached: one interface in one network
// namespace, whoever made it.
type Endpoint struct {
	Name      string     // of the node or client, unique in a lab
	Netns     string     // path of the namespace: /run/netns/NAME or /proc/PID/ns/net
	Interface string     // inside the namespace, usually eth0
	Addr      netip.Addr // IPv4 address on Interface
	Addr6     netip.Addr // IPv6 address on Interface; the zero Addr where there is none
}

// Link is the directed path From -> To and what is done to it. Both kinds of
// addresses of To share the link: one queue, one rate, one loss.
type Link struct {
	From, To Endpoint
	// Match is what leaves From by this link, where that is not simply all
	// that is addressed to To: then To is of use for its name only.
	Match      []Selector `json:",omitempty"`
	Impairment Impairment
}

// Selector picks packets by where they go: to an address of Prefix and, where
// Port is not 0, to that TCP or UDP port.
type Selector struct {
	Prefix netip.Prefix
	Port   uint16 `json:",omitempty"`
}

func (s Selector) String() string {
	if s.Port == 0 {
		return s.Prefix.String()
	}
	if s.Prefix.Addr().Is6() {
		return fmt.Sprintf("[%s]:%d", s.Prefix, s.Port)
	}
	return fmt.Sprintf("%s:%d", s.Prefix, s.Port)
}

// Selectors are what the link's packets are told by, Match or To's addresses.
func (l Link) Selectors() []Selector {
	if len(l.Match) > 0 {
		return l.Match
	}
	var out []Selector
	for _, a := range []netip.Addr{l.To.Addr, l.To.Addr6} {
		if a.IsValid() {
			out = append(out, Selector{Prefix: netip.PrefixFrom(a, a.BitLen())})
		}
	}
	return out
}

// Validate reports what makes the link impossible.
func (l Link) Validate() error {
	if err := l.Impairment.Validate(); err != nil {
		return fmt.Errorf("link %s to %s: %w", l.From.Name, l.To.Name, err)
	}
	all := l.Selectors()
	if len(all) == 0 {
		return fmt.Errorf("link %s to %s: %s has no address", l.From.Name, l.To.Name, l.To.Name)
	}
	for _, s := range all {
		if !s.Prefix.IsValid() || s.Prefix != s.Prefix.Masked() {
			return fmt.Errorf("link %s to %s: %s is not a network", l.From.Name, l.To.Name, s.Prefix)
		}
	}
	return nil
}

// Backend is an emulator that serves one lab.
type Backend interface {
	// Name is what results call it: "user" or "kernel".
	Name() string
	// Apply makes the given links as asked, in place, without a moment in
	// which packets pass unshaped or are lost. Links that are not named keep
	// what they have. A link whose seed is given begins its faults anew. When
	// it fails nothing has changed.
	Apply(ctx context.Context, links []Link) error
	// Clear takes the emulator out of the path of every link: packets pass
	// as if it were not there.
	Clear(ctx context.Context) error
	// Show reads back every link that is emulated, in no particular order.
	Show(ctx context.Context) ([]LinkState, error)
	// Counters reads totals since the backend was opened.
	Counters(ctx context.Context) (Counters, error)
	// Close clears and ends the emulator. It is safe to call twice.
	Close() error
}

// LinkState is a link as the emulator has it, and what it did to its packets.
type LinkState struct {
	Link
	Packets uint64 // sent on, copies included
	Bytes   uint64
	Dropped uint64 // as asked: loss, partition, a queue filled at a given rate
}

// Counters are totals since a backend was opened. Differences of two readings
// describe a window.
type Counters struct {
	Packets uint64 // delayed and delivered
	Bytes   uint64
	// Dropped counts packets that were lost as asked: by loss or partition, or
	// because the queue behind a given rate was full.
	Dropped uint64
	// Overrun counts packets that the emulator lost without being asked to.
	// Anything but 0 makes a window invalid.
	Overrun uint64
	// Wakeups counts how often the emulator had to be scheduled.
	Wakeups uint64
	// CPU is processor time used by the emulator.
	CPU time.Duration
	// Late is how long after its deadline a packet left, of the packets since
	// the previous reading: median and 99th percentile. Negative is early.
	LateP50, LateP99 time.Duration
}
