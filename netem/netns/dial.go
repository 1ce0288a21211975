package netns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Dial connects over TCP from inside the namespace at path. network is tcp,
// tcp4 or tcp6; addr is an IP address and a port. As with package net, small
// writes are sent at once.
//
// The socket is made by a thread inside the namespace and belongs to it ever
// after. net.Dialer is not used since it promises nothing about the thread
// that makes its socket.
func Dial(ctx context.Context, path, network, addr string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	conn, err := dial(ctx, path, network, to)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: net.TCPAddrFromAddrPort(to), Err: err}
	}
	return conn, nil
}

func dial(ctx context.Context, path, network string, to netip.AddrPort) (net.Conn, error) {
	ip := to.Addr().Unmap()
	switch {
	case network == "tcp", network == "tcp4" && ip.Is4(), network == "tcp6" && ip.Is6():
	default:
		return nil, net.UnknownNetworkError(network)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: ip.As16()})
	if ip.Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: ip.As4()}
	}

	var fd int
	err := Do(path, func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return nil, err
	}
	// EINTR too leaves the connection under way.
	err = unix.Connect(fd, sa)
	if err != nil && err != unix.EINPROGRESS && err != unix.EINTR {
		unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	// The poller must first see the socket when connecting: of a socket that
	// has not begun it reports a hang-up.
	f := os.NewFile(uintptr(fd), "tcp")
	defer f.Close()
	if err := waitConnected(ctx, f); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetNoDelay(true); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

// waitConnected returns when the connection stands, has failed, or ctx ends.
func waitConnected(ctx context.Context, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok {
		if err := f.SetWriteDeadline(d); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()

	var failed error
	err = raw.Write(func(fd uintptr) bool {
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			failed = os.NewSyscallError("getsockopt", err)
		case errno != 0:
			failed = os.NewSyscallError("connect", unix.Errno(errno))
		default:
			// No error may also mean not yet; only a peer proves success.
			_, err := unix.Getpeername(int(fd))
			return err == nil
		}
		return true
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if ctx.Err() == nil {
			return context.DeadlineExceeded
		}
		return ctx.Err()
	}
	return errors.Join(failed, err)
}
