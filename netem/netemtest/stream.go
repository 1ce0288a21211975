package netemtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

// A stream is a TCP transfer whose every byte is checked at the far end.
type stream struct {
	conn, peer net.Conn // who sends, who receives
	stop       atomic.Bool
	rest       atomic.Bool // send nothing for now
	resting    atomic.Bool
	sent       chan int64
	got        chan error
	received   atomic.Int64
	failed     atomic.Pointer[error] // of sending
}

// streamOptions are for bulk over long links.
type streamOptions struct {
	v6     bool
	buffer int    // bytes of socket buffers; 0 is the system's choice
	fast   bool   // bytes are counted, not looked at
	pace   uint64 // most bytes a second; 0 is no bound
	// control is the congestion control; empty is the system's choice. reno
	// does not take late packets for congestion.
	control string
}

func startStream(t testing.TB, from, to netem.Endpoint, o streamOptions) *stream {
	t.Helper()
	addr := to.Addr
	if o.v6 {
		addr = to.Addr6
	}
	var l net.Listener
	err := netns.Do(to.Netns, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(addr.String(), "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := netns.Dial(ctx, from.Netns, "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	l.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second))
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	s := &stream{conn: conn, peer: peer, sent: make(chan int64, 1), got: make(chan error, 1)}
	if o.buffer > 0 {
		s.option(t, conn, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, o.buffer)
		s.option(t, peer, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, o.buffer)
	}
	if o.control != "" {
		control(t, conn, func(fd int) error { return unix.SetsockoptString(fd, unix.SOL_TCP, unix.TCP_CONGESTION, o.control) })
	}
	if o.pace > 0 {
		s.option(t, conn, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, int(o.pace))
	}
	go func() { s.got <- s.receive(!o.fast) }()
	go func() { s.sent <- s.send() }()
	return s
}

func (s *stream) option(t testing.TB, c net.Conn, level, name, value int) {
	t.Helper()
	control(t, c, func(fd int) error { return unix.SetsockoptInt(fd, level, name, value) })
}

func control(t testing.TB, c net.Conn, f func(fd int) error) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		if e := raw.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
			err = e
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

const pattern = 251 // a prime, so that a lost or doubled segment shows

func (s *stream) send() (n int64) {
	buf := make([]byte, 256*pattern)
	for i := range buf {
		buf[i] = byte(i % pattern)
	}
	for !s.stop.Load() {
		if s.rest.Load() {
			s.resting.Store(true)
			time.Sleep(time.Millisecond)
			continue
		}
		s.resting.Store(false)
		k, err := s.conn.Write(buf)
		n += int64(k)
		if err != nil {
			s.failed.Store(&err)
			break
		}
	}
	s.conn.(*net.TCPConn).CloseWrite()
	return n
}

func (s *stream) receive(look bool) error {
	buf := make([]byte, 1<<18)
	for n := int64(0); ; {
		k, err := s.peer.Read(buf)
		if look {
			for i, b := range buf[:k] {
				if want := byte((n + int64(i)) % pattern); b != want {
					return fmt.Errorf("byte %d is %d, want %d", n+int64(i), b, want)
				}
			}
		}
		n += int64(k)
		s.received.Store(n)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// pause stops sending and returns when the far end has all.
func (s *stream) pause(t testing.TB) {
	t.Helper()
	s.rest.Store(true)
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		unacked := 1
		if s.resting.Load() {
			control(t, s.conn, func(fd int) (err error) {
				unacked, err = unix.IoctlGetInt(fd, unix.TIOCOUTQ)
				return err
			})
		}
		if unacked == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("stream: %d bytes are on their way for a minute", unacked)
		}
	}
}

func (s *stream) resume() { s.rest.Store(false) }

// segments are what the sender put out and what came in at the receiver, both
// counted by TCP in packets of wire size, data only.
func (s *stream) segments(t testing.TB) (out, in int) {
	t.Helper()
	return int(s.info(t, s.conn).Data_segs_out), int(s.info(t, s.peer).Data_segs_in)
}

func (s *stream) info(t testing.TB, c net.Conn) (i *unix.TCPInfo) {
	t.Helper()
	control(t, c, func(fd int) (err error) {
		i, err = unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
		return err
	})
	return i
}

// check ends the stream and compares both sides.
func (s *stream) check(t testing.TB) int64 {
	t.Helper()
	s.stop.Store(true)
	s.conn.SetWriteDeadline(time.Now().Add(30 * time.Second))
	sent := <-s.sent
	if err := s.failed.Load(); err != nil {
		t.Errorf("stream: sending failed: %v", *err)
	}
	select {
	case err := <-s.got:
		if n := s.received.Load(); err != nil || n != sent {
			t.Errorf("stream: sent %d bytes, got %d, %v", sent, n, err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("stream: the far end did not see its end")
	}
	return sent
}
