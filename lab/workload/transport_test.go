package workload

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// wire is a prompt connection and its other end.
func wire(t *testing.T) (far *net.TCPConn, c net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close() })
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	c = prompt(dialled)
	if _, ok := c.(*promptConn); !ok {
		t.Fatalf("prompt made a %T of a TCP connection", c)
	}
	return accepted.(*net.TCPConn), c
}

func TestAPromptConnectionCarriesBothWaysAtOnce(t *testing.T) {
	far, c := wire(t)
	sent := make([]byte, 8<<20) // more than the socket's buffers: it must wait
	rand.Read(sent)
	go func() {
		io.Copy(far, far) // echo
		far.CloseWrite()
	}()
	go func() {
		if n, err := c.Write(sent); err != nil || n != len(sent) {
			t.Errorf("Write wrote %d of %d bytes: %v", n, len(sent), err)
		}
		c.(*promptConn).Conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("ReadAll came back with %d bytes of %d, equal %v: %v", len(got), len(sent), bytes.Equal(got, sent), err)
	}
}

func TestAPromptConnectionEndsAsOthersDo(t *testing.T) {
	t.Run("deadline", func(t *testing.T) {
		_, c := wire(t)
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read = %d, %v; want a passed deadline", n, err)
		}
	})
	t.Run("closed while it reads", func(t *testing.T) {
		_, c := wire(t)
		time.AfterFunc(10*time.Millisecond, func() { c.Close() })
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read = %d, %v; want a closed connection", n, err)
		}
	})
	t.Run("reset by the peer", func(t *testing.T) {
		far, c := wire(t)
		far.SetLinger(0)
		far.Close()
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Read = %d, %v; want a reset", n, err)
		}
		if n, err := c.Write([]byte("x")); n != 0 || !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write = %d, %v; want a broken pipe", n, err)
		}
	})
}

func TestAPromptConnectionMakesNoGarbage(t *testing.T) {
	far, c := wire(t)
	go io.Copy(far, far)
	p := []byte("ping")
	if n := testing.AllocsPerRun(100, func() { c.Write(p); io.ReadFull(c, p) }); n != 0 {
		t.Errorf("%v allocations a round trip, want none", n)
	}
}
