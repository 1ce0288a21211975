// Package netemtest owns the contract of netem.Backend as a test suite that
// every emulator passes, and the small networks that it runs in.
package netemtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
	"github.com/faultlab/faultlab/netem/probe"
)

// Network makes n nodes on one switch, each in a namespace of its own, that end
// with the test. Without root the test is skipped.
func Network(t testing.TB, n int) []netem.Endpoint {
	t.Helper()
	make := func(suffix string) string {
		name := fmt.Sprintf("flt-%d-%x-%s", os.Getpid(), serial.Add(1), suffix)
		t.Cleanup(func() {
			if err := netns.Delete(name); err != nil {
				t.Error(err)
			}
		})
		err := netns.Create(name)
		if errors.Is(err, netns.ErrUnsupported) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return netns.Path(name)
	}
	sw := make("sw")
	if err := netns.Bridge(sw, "br0"); err != nil {
		t.Fatal(err)
	}
	var nodes []netem.Endpoint
	for i := 1; i <= n; i++ {
		e := netem.Endpoint{
			Name: fmt.Sprintf("n%d", i), Interface: "eth0", Netns: make(fmt.Sprintf("n%d", i)),
			Addr: netip.AddrFrom4([4]byte{198, 18, 0, byte(i)}),
		}
		if err := netns.Join(sw, "br0", e.Name, e.Netns, e.Interface, []netip.Prefix{netip.PrefixFrom(e.Addr, 24)}, nil); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, e)
	}
	return nodes
}

var serial atomic.Uint32

// Link is one direction with a delay.
func Link(from, to netem.Endpoint, delay time.Duration) netem.Link {
	return netem.Link{From: from, To: to, Impairment: netem.Impairment{Delay: delay}}
}

// Both is a link and its way back, each with half of rtt.
func Both(a, b netem.Endpoint, rtt time.Duration) []netem.Link {
	return []netem.Link{Link(a, b, rtt/2), Link(b, a, rtt/2)}
}

// RTT is what n probes from a to b saw. None may be lost.
func RTT(t testing.TB, a, b netem.Endpoint, n int) probe.Stat {
	t.Helper()
	s, err := probe.Measure(context.Background(), probe.Pair{From: a, To: b}, n, 4*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if s.Lost > 0 {
		t.Errorf("%s to %s: %d of %d probes lost", a.Name, b.Name, s.Lost, s.Sent)
	}
	return s
}

// Backend runs the contract over an emulator; open gives a fresh one, which the
// suite closes.
func Backend(t *testing.T, open func(t *testing.T) netem.Backend) {
	start := func(t *testing.T, nodes int) (netem.Backend, []netem.Endpoint) {
		n := Network(t, nodes)
		b := open(t)
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		return b, n
	}
	ctx := context.Background()
	apply := func(t *testing.T, b netem.Backend, links ...netem.Link) {
		t.Helper()
		if err := b.Apply(ctx, links); err != nil {
			t.Fatalf("Apply(%v): %v", links, err)
		}
	}

	t.Run("the added round trip is what was asked", func(t *testing.T) {
		b, n := start(t, 2)
		bare := RTT(t, n[0], n[1], 60).P50
		for _, asked := range []time.Duration{100 * time.Microsecond, 600 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
			apply(t, b, Both(n[0], n[1], asked)...)
			added := RTT(t, n[0], n[1], 60).P50 - bare
			t.Logf("asked %v, added %v", asked, added)
			// Wide: shared machines wake late. The benchmark has the real figures.
			if off := math.Abs(float64(added - asked)); off > float64(asked)/10+float64(400*time.Microsecond) {
				t.Errorf("asked %v, added %v (bare %v)", asked, added, bare)
			}
		}
	})

	t.Run("no packet is early", func(t *testing.T) {
		b, n := start(t, 2)
		apply(t, b, Both(n[0], n[1], 5*time.Millisecond)...)
		if s := RTT(t, n[0], n[1], 200); s.Min < 4800*time.Microsecond {
			t.Errorf("shortest round trip %v of asked 5ms", s.Min)
		}
	})

	t.Run("links that are not named are left alone", func(t *testing.T) {
		b, n := start(t, 3)
		apply(t, b, Both(n[0], n[1], 40*time.Millisecond)...)
		if s := RTT(t, n[0], n[2], 30); s.P50 > 20*time.Millisecond {
			t.Errorf("bystander's round trip %v while another link has 40ms", s.P50)
		}
		apply(t, b, Both(n[0], n[2], 80*time.Millisecond)...)
		if s := RTT(t, n[0], n[1], 10); s.P50 < 39*time.Millisecond || s.P50 > 70*time.Millisecond {
			t.Errorf("first link's round trip %v after a second got 80ms, want still 40ms", s.P50)
		}
	})

	t.Run("one direction alone can be delayed", func(t *testing.T) {
		b, n := start(t, 2)
		apply(t, b, Link(n[0], n[1], 30*time.Millisecond))
		for _, s := range []probe.Stat{RTT(t, n[0], n[1], 10), RTT(t, n[1], n[0], 10)} {
			if s.P50 < 29*time.Millisecond || s.P50 > 50*time.Millisecond {
				t.Errorf("round trip %s to %s %v, want 30ms either way round", s.From, s.To, s.P50)
			}
		}
	})

	t.Run("changes under traffic lose and spoil nothing", func(t *testing.T) {
		b, n := start(t, 2)
		apply(t, b, Both(n[0], n[1], 2*time.Millisecond)...)
		stream := startStream(t, n[0], n[1])
		for i := range 20 {
			apply(t, b, Both(n[0], n[1], []time.Duration{20, 1, 5, 0}[i%4]*time.Millisecond)...)
			time.Sleep(20 * time.Millisecond)
			if i%7 == 3 {
				if err := b.Clear(ctx); err != nil {
					t.Fatalf("Clear: %v", err)
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		stream.check(t)
		c, err := b.Counters(ctx)
		if err != nil || c.Packets == 0 || c.Overrun != 0 {
			t.Errorf("counters %+v, %v, want packets and no overrun", c, err)
		}
	})

	t.Run("after Clear packets pass as without it, and Apply brings it back", func(t *testing.T) {
		b, n := start(t, 2)
		for range 3 {
			apply(t, b, Both(n[0], n[1], 40*time.Millisecond)...)
			if s := RTT(t, n[0], n[1], 5); s.P50 < 39*time.Millisecond {
				t.Errorf("round trip %v after Apply of 40ms", s.P50)
			}
			if err := b.Clear(ctx); err != nil {
				t.Fatalf("Clear: %v", err)
			}
			before, _ := b.Counters(ctx)
			if s := RTT(t, n[0], n[1], 20); s.P50 > 20*time.Millisecond {
				t.Errorf("round trip %v after Clear", s.P50)
			}
			if after, _ := b.Counters(ctx); after.Packets != before.Packets {
				t.Errorf("%d packets took the emulator's path after Clear", after.Packets-before.Packets)
			}
		}
	})

	t.Run("a bulk transfer keeps its large packets", func(t *testing.T) {
		b, n := start(t, 2)
		apply(t, b, Both(n[0], n[1], 600*time.Microsecond)...)
		stream := startStream(t, n[0], n[1])
		time.Sleep(time.Second)
		bytes := stream.check(t)
		c, _ := b.Counters(ctx)
		t.Logf("%.2f Gbit/s, %d bytes a packet", float64(bytes)*8/1e9, c.Bytes/max(c.Packets, 1))
		if bytes < 20<<20 {
			t.Errorf("%d bytes in a second", bytes)
		}
		if c.Overrun != 0 {
			t.Errorf("overrun %d", c.Overrun)
		}
	})

	t.Run("impossible links are refused and change nothing", func(t *testing.T) {
		b, n := start(t, 2)
		apply(t, b, Both(n[0], n[1], 30*time.Millisecond)...)
		nowhere := n[0]
		nowhere.Netns = netns.Path("does-not-exist")
		for _, l := range []netem.Link{Link(n[0], n[1], -1), Link(n[0], n[1], netem.MaxDelay+1), Link(nowhere, n[1], 0)} {
			if err := b.Apply(ctx, []netem.Link{l}); err == nil {
				t.Errorf("Apply(%v) succeeded", l)
			}
		}
		if s := RTT(t, n[0], n[1], 5); s.P50 < 29*time.Millisecond {
			t.Errorf("round trip %v, want still 30ms", s.P50)
		}
	})

	t.Run("Close twice is no error", func(t *testing.T) {
		b, n := start(t, 2)
		apply(t, b, Both(n[0], n[1], 40*time.Millisecond)...)
		for range 2 {
			if err := b.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		if s := RTT(t, n[0], n[1], 5); s.P50 > 20*time.Millisecond {
			t.Errorf("round trip %v after Close", s.P50)
		}
	})
}

// A stream is a TCP transfer whose every byte is checked at the far end.
type stream struct {
	conn net.Conn
	stop atomic.Bool
	sent chan int64
	got  chan error
	n    int64
}

func startStream(t *testing.T, from, to netem.Endpoint) *stream {
	t.Helper()
	var l net.Listener
	addr := net.JoinHostPort(to.Addr.String(), "7777")
	err := netns.Do(to.Netns, func() (err error) { l, err = net.Listen("tcp", addr); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := netns.Dial(ctx, from.Netns, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &stream{conn: conn, sent: make(chan int64, 1), got: make(chan error, 1)}
	go func() { s.got <- s.receive(l) }()
	go func() { s.sent <- s.send() }()
	return s
}

const pattern = 251 // a prime, so that a lost or doubled segment shows

func (s *stream) send() (n int64) {
	buf := make([]byte, 256*pattern)
	for i := range buf {
		buf[i] = byte(i % pattern)
	}
	for !s.stop.Load() {
		k, err := s.conn.Write(buf)
		n += int64(k)
		if err != nil {
			break
		}
	}
	s.conn.Close()
	return n
}

func (s *stream) receive(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]byte, 1<<16)
	for {
		k, err := c.Read(buf)
		for _, b := range buf[:k] {
			if b != byte(s.n%pattern) {
				return fmt.Errorf("byte %d is %d, want %d", s.n, b, s.n%pattern)
			}
			s.n++
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// check ends the stream and compares both sides.
func (s *stream) check(t *testing.T) int64 {
	t.Helper()
	s.stop.Store(true)
	s.conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
	sent := <-s.sent
	select {
	case err := <-s.got:
		if err != nil || s.n != sent {
			t.Errorf("stream: sent %d bytes, got %d, %v", sent, s.n, err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("stream: the far end did not see its end")
	}
	return sent
}
