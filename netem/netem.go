// Package netem owns the vocabulary of network faults: what may be done to a
// link, where it is attached, and the interface that every emulator fulfils.
//
// It is pure: no namespaces, no netlink, no goroutines. The kernel side is in
// netem/netns and netem/wire, the proof in netem/probe.
package netem

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// Impairment is what is done to the packets of one directed link.
// The zero value does nothing.
type Impairment struct {
	// Delay is added to every packet, one way. 0 adds nothing, but the
	// packet still takes the emulator's path: that is what a baseline needs.
	Delay time.Duration
}

// MaxDelay bounds the delay of one direction. Longer is a mistake in units
// rather than a network.
const MaxDelay = 60 * time.Second

// Validate reports what makes the impairment impossible.
func (i Impairment) Validate() error {
	switch {
	case i.Delay < 0:
		return fmt.Errorf("delay %v is negative", i.Delay)
	case i.Delay > MaxDelay:
		return fmt.Errorf("delay %v is longer than %v one way", i.Delay, MaxDelay)
	}
	return nil
}

func (i Impairment) String() string { return "delay " + i.Delay.String() }

// Endpoint is where a fault is attached: one interface in one network
// namespace, whoever made it.
type Endpoint struct {
	Name      string     // of the node or client, unique in a lab
	Netns     string     // path of the namespace: /run/netns/NAME or /proc/PID/ns/net
	Interface string     // inside the namespace, usually eth0
	Addr      netip.Addr // IPv4 address on Interface
}

// Link is the directed path From -> To and what is done to it.
type Link struct {
	From, To   Endpoint
	Impairment Impairment
}

// Backend is an emulator that serves one lab.
type Backend interface {
	// Name is what results call it: "user" or "kernel".
	Name() string
	// Apply makes the given links as asked, in place, without a moment in
	// which packets pass unshaped or are lost. Links that are not named keep
	// what they have.
	Apply(ctx context.Context, links []Link) error
	// Clear takes the emulator out of the path of every link: packets pass
	// as if it were not there.
	Clear(ctx context.Context) error
	// Counters reads totals since the backend was opened.
	Counters(ctx context.Context) (Counters, error)
	// Close clears and ends the emulator. It is safe to call twice.
	Close() error
}

// Counters are totals since a backend was opened. Differences of two readings
// describe a window.
type Counters struct {
	Packets uint64 // delayed and delivered
	Bytes   uint64
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
