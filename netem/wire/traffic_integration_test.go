//go:build integration

package wire_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netemtest"
	"github.com/faultlab/faultlab/netem/netns"
)

var ctx = context.Background()

func apply(t testing.TB, b netem.Backend, links ...netem.Link) {
	t.Helper()
	if err := b.Apply(ctx, links); err != nil {
		t.Fatalf("Apply(%v): %v", links, err)
	}
}

func link(t testing.TB, from, to netem.Endpoint, text string) netem.Link {
	t.Helper()
	i, _, err := netem.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return netem.Link{From: from, To: to, Impairment: i}
}

func counters(t testing.TB, b netem.Backend) netem.Counters {
	t.Helper()
	c, err := b.Counters(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// state is that of the one link from one node to another.
func state(t testing.TB, b netem.Backend, from, to netem.Endpoint) netem.LinkState {
	t.Helper()
	all, err := b.Show(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.From.Name == from.Name && s.To.Name == to.Name {
			return s
		}
	}
	t.Fatalf("Show has no link %s to %s: %v", from.Name, to.Name, all)
	return netem.LinkState{}
}

// A sink receives numbered datagrams in a node.
type sink struct {
	t    testing.TB
	conn *net.UDPConn
	addr netip.AddrPort
}

// arrival is one datagram as it came.
type arrival struct {
	n       int           // its number
	took    time.Duration // since it was sent
	spoiled int           // bits of its filling
}

func newSink(t testing.TB, node netem.Endpoint, addr netip.Addr, port uint16) *sink {
	t.Helper()
	s := &sink{t: t, addr: netip.AddrPortFrom(addr, port)}
	err := netns.Do(node.Netns, func() (err error) {
		s.conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.addr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.conn.Close() })
	raw, err := s.conn.SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// filling is what every byte behind number and time is.
const filling = 0x5a

// take receives until nothing has come for so long.
func (s *sink) take(quiet time.Duration) (got []arrival) {
	s.t.Helper()
	buf := make([]byte, 64<<10)
	for {
		s.conn.SetReadDeadline(time.Now().Add(quiet))
		n, err := s.conn.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return got
		}
		if err != nil {
			s.t.Error(err)
			return got
		}
		a := arrival{n: int(binary.BigEndian.Uint64(buf)), took: time.Duration(monotonic() - int64(binary.BigEndian.Uint64(buf[8:])))}
		for _, b := range buf[16:n] {
			for x := b ^ filling; x != 0; x &= x - 1 {
				a.spoiled++
			}
		}
		got = append(got, a)
	}
}

func monotonic() int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// A source sends numbered datagrams from a node.
type source struct {
	t    testing.TB
	fd   int
	next int
	buf  []byte
}

func newSource(t testing.TB, node netem.Endpoint, to netip.AddrPort, size int) *source {
	t.Helper()
	s := &source{t: t, buf: slices.Repeat([]byte{filling}, size)}
	var sa syscall.Sockaddr = &syscall.SockaddrInet4{Port: int(to.Port())}
	family := syscall.AF_INET
	if to.Addr().Is6() {
		family, sa = syscall.AF_INET6, &syscall.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	} else {
		sa.(*syscall.SockaddrInet4).Addr = to.Addr().As4()
	}
	err := netns.Do(node.Netns, func() (err error) {
		s.fd, err = syscall.Socket(family, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(s.fd) })
	if err := syscall.Connect(s.fd, sa); err != nil {
		t.Fatal(err)
	}
	return s
}

// send sends n datagrams, as many at once and then a pause.
func (s *source) send(n, atOnce int, pause time.Duration) {
	s.t.Helper()
	for i := range n {
		binary.BigEndian.PutUint64(s.buf, uint64(s.next))
		binary.BigEndian.PutUint64(s.buf[8:], uint64(monotonic()))
		s.next++
		if _, err := syscall.Write(s.fd, s.buf); err != nil {
			s.t.Errorf("send: %v", err)
			return
		}
		if atOnce > 0 && (i+1)%atOnce == 0 {
			time.Sleep(pause)
		}
	}
}

// carry sends and gives what comes, until all is sent and it is quiet.
func carry(out *source, in *sink, n, atOnce int, pause, quiet time.Duration) (got []arrival) {
	in.t.Helper()
	sent := make(chan struct{})
	go func() { defer close(sent); out.send(n, atOnce, pause) }()
	for {
		select {
		case <-sent:
			return append(got, in.take(quiet)...)
		default:
			got = append(got, in.take(quiet)...)
		}
	}
}

// meet resolves the link address of the peer, so that no packet of the test's is
// the one that waits for it.
func meet(t testing.TB, s *sink, from *source) {
	t.Helper()
	const tries = 10
	for range tries {
		from.send(1, 0, 0)
		if len(s.take(200*time.Millisecond)) > 0 {
			s.take(100 * time.Millisecond) // of earlier tries
			from.next = 0
			return
		}
	}
	t.Fatalf("none of %d datagrams of %d bytes to %s came before anything was asked", tries, len(from.buf), s.addr)
}

// decided is what has to become of n packets with the impairment's seed.
func decided(i netem.Impairment, n int) (copies []int, spoiled int, ahead map[int]bool) {
	d := netem.NewDecider(i)
	ahead = map[int]bool{}
	for k := range n {
		v := d.Decide()
		for _, f := range v.Copies[:v.N] {
			copies = append(copies, k)
			if f.Flip >= 0 {
				spoiled++
			}
			if f.Ahead {
				ahead[k] = true
			}
		}
	}
	return copies, spoiled, ahead
}

func numbers(got []arrival) (n []int) {
	for _, a := range got {
		n = append(n, a.n)
	}
	return n
}

// Packet by packet: with a seed the decisions are known beforehand.
func TestEveryPacketMeetsTheFateThatWasDecidedForIt(t *testing.T) {
	for _, text := range []string{
		"loss 0.1% seed 1", "loss 1% seed 2", "loss 10% 25% seed 3", "loss 50% seed 4", "loss gemodel 1% 10% seed 5",
		"loss state 1% 30% 5% 90% 0.1% seed 6", "duplicate 2% seed 7", "delay 5ms loss 1% duplicate 10% seed 8", "loss 100% seed 9",
	} {
		t.Run(text, func(t *testing.T) {
			n := netemtest.Network(t, 2)
			b := open(t)
			in := newSink(t, n[1], n[1].Addr, 7000)
			out := newSource(t, n[0], in.addr, 64)
			meet(t, in, out)
			l := link(t, n[0], n[1], text)
			const sent = 10_000
			want, _, _ := decided(l.Impairment, sent)
			for range 2 { // a seed given again begins anew
				// A machine that stands still for long loses packets before
				// any decision, and says so: then once more.
				for try := 1; ; try++ {
					before := counters(t, b)
					out.next = 0
					apply(t, b, l)
					first := state(t, b, n[0], n[1])
					got := numbers(carry(out, in, sent, 50, time.Millisecond, time.Second))
					after, s := counters(t, b), state(t, b, n[0], n[1])
					if after.Overrun != before.Overrun && try < 5 {
						t.Logf("overrun %d", after.Overrun-before.Overrun)
						continue
					}
					if !slices.Equal(got, want) {
						at := 0
						for at < min(len(got), len(want)) && got[at] == want[at] {
							at++
						}
						t.Errorf("got %d datagrams, want %d; the first %d are as decided", len(got), len(want), at)
					}
					arrives := map[int]bool{}
					for _, k := range want {
						arrives[k] = true
					}
					lost := uint64(sent - len(arrives))
					if after.Dropped-before.Dropped != lost || s.Dropped-first.Dropped != lost {
						t.Errorf("dropped %d, of the link %d, want %d", after.Dropped-before.Dropped, s.Dropped-first.Dropped, lost)
					}
					if s.Packets-first.Packets != uint64(len(want)) {
						t.Errorf("the link counts %d packets, want %d", s.Packets-first.Packets, len(want))
					}
					break
				}
			}
		})
	}
}

func TestCorruptionChangesOneBitAndReceiversNoticeByTheirChecksums(t *testing.T) {
	n := netemtest.Network(t, 2)
	b := open(t)
	in := newSink(t, n[1], n[1].Addr, 7000)
	out := newSource(t, n[0], in.addr, 1400)
	meet(t, in, out)
	apply(t, b, link(t, n[0], n[1], "corrupt 10% seed 3"))
	const sent = 5000
	_, spoiled, _ := decided(netem.Impairment{Corrupt: netem.Random{Chance: netem.Whole / 10}, Seed: 3}, sent)

	got := carry(out, in, sent, 50, time.Millisecond, time.Second)
	for _, a := range got {
		if a.spoiled != 0 {
			t.Fatalf("datagram %d with a checksum came with %d bits changed", a.n, a.spoiled)
		}
	}
	// A few bits matter to nobody: of the sender's link address, or of the time to live.
	if lost := sent - len(got); lost > spoiled || lost < spoiled*95/100 {
		t.Errorf("%d of %d datagrams with a checksum were lost, %d were spoiled", lost, sent, spoiled)
	}

	if err := unix.SetsockoptInt(out.fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err)
	}
	apply(t, b, link(t, n[0], n[1], "corrupt 10% seed 3"))
	bits := 0
	for _, a := range carry(out, in, sent, 50, time.Millisecond, time.Second) {
		if a.spoiled > 1 {
			t.Errorf("datagram %d came with %d bits changed, want one", a.n, a.spoiled)
		}
		bits += a.spoiled
	}
	// 1384 of 1442 bytes are filling.
	if want := spoiled * 1384 / 1442; bits > want*110/100 || bits < want*90/100 {
		t.Errorf("%d datagrams came spoiled, want about %d", bits, want)
	}
}

func TestReorderedPacketsGoAheadOfThoseThatWait(t *testing.T) {
	n := netemtest.Network(t, 2)
	b := open(t)
	in := newSink(t, n[1], n[1].Addr, 7000)
	out := newSource(t, n[0], in.addr, 64)
	meet(t, in, out)
	l := link(t, n[0], n[1], "delay 200ms reorder 5% gap 3 seed 11")
	apply(t, b, l)
	const sent = 1000 // within the delay
	_, _, ahead := decided(l.Impairment, sent)
	got := carry(out, in, sent, 20, time.Millisecond, time.Second)
	if len(got) != sent || len(ahead) == 0 {
		t.Fatalf("%d of %d datagrams, %d ahead", len(got), sent, len(ahead))
	}
	for at, a := range got {
		if first := at < len(ahead); first != ahead[a.n] || first == (a.took > 190*time.Millisecond) {
			t.Errorf("datagram %d came as number %d after %v, ahead: %t", a.n, at, a.took, ahead[a.n])
		}
	}
}
