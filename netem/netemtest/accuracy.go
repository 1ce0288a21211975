package netemtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
	"github.com/faultlab/faultlab/netem/probe"
)

// Accuracy is how near to what was asked round trips are.
type Accuracy struct {
	Asked time.Duration
	// Echo is by the kernel's stamps: what is on the wire. Request is a request
	// and its response over an established TCP connection, as a program sees
	// them: with what it takes to wake the program.
	Echo, Request Error
}

// Error is how far a median round trip is from bare plus asked, and how far
// its 99th percentile lies above it.
type Error struct{ Bare, P50, Spread time.Duration }

func errorOf(bare, asked time.Duration, sorted []time.Duration) Error {
	p50 := probe.Quantile(sorted, 0.5)
	return Error{Bare: bare, P50: p50 - bare - asked, Spread: probe.Quantile(sorted, 0.99) - p50}
}

// RoundTrips are the round trips at which accuracy is measured.
func RoundTrips() []time.Duration {
	return []time.Duration{100 * time.Microsecond, 600 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}
}

// MeasureAccuracy measures an emulator that shapes nothing yet, between the
// first two nodes, in some 20 seconds.
func MeasureAccuracy(t testing.TB, b netem.Backend, n []netem.Endpoint) []Accuracy {
	t.Helper()
	ctx := context.Background()
	pair := probe.Pair{From: n[0], To: n[1]}
	r := NewRequests(t, n[0], Echoer(t, n[1]))
	echo := func() []time.Duration {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		s, err := probe.Measure(ctx, pair, 700, 2*time.Millisecond)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return s.RTTs
	}
	request := func(asked time.Duration) []time.Duration { return r.Measure(t, samples(asked+2*time.Millisecond)) }
	bareEcho, bareRequest := probe.Quantile(echo(), 0.5), probe.Quantile(request(0), 0.5)
	var all []Accuracy
	for _, asked := range RoundTrips() {
		if err := b.Apply(ctx, Both(n[0], n[1], asked)); err != nil {
			t.Fatal(err)
		}
		all = append(all, Accuracy{Asked: asked, Echo: errorOf(bareEcho, asked, echo()), Request: errorOf(bareRequest, asked, request(asked))})
	}
	return all
}

// patience is how long one figure is measured at most: a slow machine makes
// fewer round trips.
const patience = 5 * time.Second

// samples is how many round trips fit into two seconds.
func samples(each time.Duration) int { return int(min(max(2*time.Second/each, 20), 700)) }

// Echoer answers whatever comes to a TCP port of a node, which it gives, until
// the test ends.
func Echoer(t testing.TB, at netem.Endpoint) (addr string) {
	t.Helper()
	var l net.Listener
	err := netns.Do(at.Netns, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(at.Addr.String(), "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) // by read and write, as a server does
		}
	}()
	return l.Addr().String()
}

// Requests is an established connection to an Echoer, possibly through
// something.
type Requests struct{ conn net.Conn }

// NewRequests connects from a node's namespace.
func NewRequests(t testing.TB, from netem.Endpoint, addr string) Requests {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := netns.Dial(ctx, from.Netns, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return Requests{c}
}

// Measure makes n requests, some milliseconds apart, and gives their times,
// shortest first.
func (r Requests) Measure(t testing.TB, n int) []time.Duration {
	t.Helper()
	b := make([]byte, 64)
	begun := time.Now()
	r.conn.SetDeadline(begun.Add(10 * patience))
	var all []time.Duration
	for i := range n + 10 {
		at := time.Now()
		if len(all) > 20 && at.Sub(begun) > patience {
			break
		}
		if _, err := r.conn.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r.conn, b); err != nil {
			t.Fatal(err)
		}
		if i >= 10 { // the first ones warm up
			all = append(all, time.Since(at))
		}
		time.Sleep(time.Millisecond + time.Duration(i%8)*100*time.Microsecond)
	}
	slices.Sort(all)
	return all
}

// Burn keeps every processor busy with processes of ordinary priority, until
// the function it gives is called, and at most ten minutes.
func Burn(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all []*exec.Cmd
	for range runtime.NumCPU() {
		c := exec.CommandContext(ctx, "timeout", "600", "sh", "-c", "while :; do :; done")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // timeout's child too
		c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
		if err := c.Start(); err != nil {
			cancel()
			t.Fatal(err)
		}
		all = append(all, c)
	}
	stop = func() {
		cancel()
		for _, c := range all {
			c.Wait()
		}
		all = nil
	}
	t.Cleanup(stop)
	return stop
}

// Table is accuracy for people, as Markdown.
func Table(all []Accuracy) string {
	var s strings.Builder
	s.WriteString("| asked rtt | echo: p50 off | p99 - p50 | request: p50 off | p99 - p50 |\n|---:|---:|---:|---:|---:|\n")
	for _, a := range all {
		fmt.Fprintf(&s, "| %s | %s | %s | %s | %s |\n", netem.FormatDuration(a.Asked), Micros(a.Echo.P50), Micros(a.Echo.Spread), Micros(a.Request.P50), Micros(a.Request.Spread))
	}
	return s.String()
}

// Micros is a time in microseconds.
func Micros(d time.Duration) string {
	return fmt.Sprintf("%.0f us", float64(d)/float64(time.Microsecond))
}

// Bulk is how many bits a second one TCP transfer brings.
func Bulk(t testing.TB, from, to netem.Endpoint, length time.Duration) float64 {
	t.Helper()
	s := startStream(t, from, to, streamOptions{fast: true})
	time.Sleep(length / 5) // it finds its speed
	before, begun := s.received.Load(), time.Now()
	time.Sleep(length)
	got, took := s.received.Load()-before, time.Since(begun)
	s.check(t)
	return float64(got) * 8 / took.Seconds()
}
