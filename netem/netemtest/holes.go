package netemtest

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

// watchHoles looks at the TCP segments that come in for a connection, before
// the receiver's TCP does, until the function it gives is called: that tells
// the lengths, in segments, of the holes between segments of new data.
func watchHoles(t testing.TB, at netem.Endpoint, conn net.Conn) func() []int {
	t.Helper()
	port := uint16(conn.LocalAddr().(*net.TCPAddr).Port)
	from := uint16(conn.RemoteAddr().(*net.TCPAddr).Port)
	fd := -1
	err := netns.Do(at.Netns, func() (err error) {
		ifi, err := net.InterfaceByName(at.Interface)
		if err != nil {
			return err
		}
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		// Packets whose first 100 bytes are enough, of TCP, by IPv4 without options or IPv6.
		filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 100}}
		prog := unix.SockFprog{Len: 1, Filter: &filter[0]}
		patience := unix.Timeval{Usec: 20_000}
		return errors.Join(
			unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: ifi.Index}), // ETH_P_ALL in network order
		)
	})
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan []int, 1)
	go func() {
		defer unix.Close(fd)
		h := holes{port: port, from: from}
		b := make([]byte, 256)
		for {
			n, sa, err := unix.Recvfrom(fd, b, unix.MSG_TRUNC)
			if errors.Is(err, os.ErrDeadlineExceeded) || err == unix.EAGAIN || err == unix.EINTR {
				select {
				case <-stop:
					done <- h.lengths
					return
				default:
					continue
				}
			}
			if err != nil {
				done <- h.lengths
				return
			}
			if ll, ok := sa.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_HOST {
				h.see(b[:min(n, 100)])
			}
		}
	}()
	return func() []int {
		close(stop)
		select {
		case lengths := <-done:
			return lengths
		case <-time.After(20 * time.Second):
			t.Fatal("packets keep coming to a connection that rests")
			return nil
		}
	}
}

// holes follows the sequence numbers of one direction of a connection.
type holes struct {
	port, from uint16
	begun      bool
	next       uint32 // after the newest data seen
	lengths    []int
}

func (h *holes) see(b []byte) {
	tcp, data, ok := segment(b)
	if !ok || data == 0 || binary.BigEndian.Uint16(tcp) != h.from || binary.BigEndian.Uint16(tcp[2:]) != h.port {
		return
	}
	seq := binary.BigEndian.Uint32(tcp[4:])
	if ahead := int32(seq - h.next); h.begun && ahead > 0 {
		const mss = 1448 // at most; segments of bulk are of this size
		h.lengths = append(h.lengths, (int(ahead)+mss-1)/mss)
	}
	if end := seq + uint32(data); !h.begun || int32(end-h.next) > 0 {
		h.next, h.begun = end, true
	}
}

// segment finds the TCP header of an IP packet, and how much data is behind it.
func segment(b []byte) (tcp []byte, data int, ok bool) {
	switch {
	case len(b) >= 40 && b[0] == 0x45 && b[9] == unix.IPPROTO_TCP:
		tcp, data = b[20:], int(binary.BigEndian.Uint16(b[2:]))-20
	case len(b) >= 60 && b[0]>>4 == 6 && b[6] == unix.IPPROTO_TCP:
		tcp, data = b[40:], int(binary.BigEndian.Uint16(b[4:]))
	default:
		return nil, 0, false
	}
	return tcp, data - int(tcp[12]>>4)*4, true
}
