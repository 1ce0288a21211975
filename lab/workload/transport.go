package workload

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// promptConn is a connection whose reads and writes the runtime takes for
// computing. Neither waits in the kernel, the runtime's poller does that as
// ever, so the runtime loses nothing; told of a system call, it would watch for
// one that blocks, and since a send through two virtual links takes longer than
// its patience of 20 microseconds, hand the processor to another thread in the
// middle of it, thousands of times a second. That cost a load on two processors
// a fifth of its throughput (see BenchmarkLoad).
type promptConn struct {
	net.Conn
	raw        syscall.RawConn
	in, out    transfer
	take, give func(fd uintptr) bool
}

// transfer is a read or a write under way.
type transfer struct {
	p     []byte // what is still to be filled or sent
	n     int    // bytes done
	errno syscall.Errno
}

// prompt makes c's reads and writes prompt, where c has a socket.
func prompt(c net.Conn) net.Conn {
	s, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return c
	}
	q := &promptConn{Conn: c, raw: raw}
	// Made once: a method value at each call would be garbage at each call.
	q.take, q.give = q.in.receive, q.out.send
	return q
}

func (c *promptConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := c.in.run(p, "recvfrom", c.raw.Read, c.take)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (c *promptConn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return c.out.run(p, "sendto", c.raw.Write, c.give)
}

// run has try called until it is done, each time that the socket is ready.
func (t *transfer) run(p []byte, name string, whenReady func(func(uintptr) bool) error, try func(uintptr) bool) (int, error) {
	*t = transfer{p: p}
	err := whenReady(try)
	t.p = nil
	if err == nil && t.errno != 0 {
		err = os.NewSyscallError(name, t.errno)
	}
	return t.n, err
}

// receive reads once, and reports false when there is nothing to read yet.
func (t *transfer) receive(fd uintptr) bool {
	n, errno := retry(unix.SYS_RECVFROM, fd, t.p)
	if errno == unix.EAGAIN {
		return false
	}
	t.n, t.errno = n, errno
	return true
}

// send writes what is left, and reports false while some of it is.
func (t *transfer) send(fd uintptr) bool {
	for len(t.p) > 0 {
		n, errno := retry(unix.SYS_SENDTO, fd, t.p)
		if errno == unix.EAGAIN {
			return false
		}
		if errno != 0 {
			t.errno = errno
			return true
		}
		t.n += n
		t.p = t.p[n:]
	}
	return true
}

// retry makes the call until no signal interrupts it. It never waits:
// MSG_DONTWAIT.
func retry(call, fd uintptr, p []byte) (n int, errno syscall.Errno) {
	for {
		r, _, errno := unix.RawSyscall6(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
			return int(r), 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
