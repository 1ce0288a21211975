package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// MTUSize is the size of packets, IP headers included, that pass a link and
// come back without being cut.
type MTUSize struct {
	Interface int // of From's interface
	Passes    int // the largest that passed, at most Interface; 0 where none did
}

// MTU sends echo requests that must not be cut, of the interface's MTU and,
// where those do not come back, of smaller sizes.
func MTU(ctx context.Context, of Pair) (MTUSize, error) {
	fail := func(err error) (MTUSize, error) {
		return MTUSize{}, fmt.Errorf("mtu %s to %s: %w", of.From.Name, of.To.Name, err)
	}
	q, err := openPair(of)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(q.fd)
	level, discover, never, least := unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE, 68
	header := 20
	if q.v6 {
		level, discover, never, least, header = unix.SOL_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE, 1280, 40
	}
	if err := unix.SetsockoptInt(q.fd, level, discover, never); err != nil {
		return fail(os.NewSyscallError("setsockopt", err))
	}
	size := MTUSize{}
	ifr, err := unix.NewIfreq(of.From.Interface)
	if err != nil {
		return fail(err)
	}
	if err := unix.IoctlIfreq(q.fd, unix.SIOCGIFMTU, ifr); err != nil {
		return fail(fmt.Errorf("interface %s: %w", of.From.Interface, err))
	}
	size.Interface = int(ifr.Uint32())

	passes := func(n int) (bool, error) {
		return q.echoes(ctx, min(n, 65535)-header)
	}
	if ok, err := passes(size.Interface); err != nil || ok {
		if ok {
			size.Passes = size.Interface
		}
		return size, err
	}
	low, high := least, size.Interface // what passes, what does not
	if ok, err := passes(low); err != nil || !ok {
		return size, err
	}
	for high-low > 1 {
		middle := (low + high) / 2
		ok, err := passes(middle)
		if err != nil {
			return size, err
		}
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	size.Passes = low
	return size, nil
}

// echoes sends requests of so many bytes until one is answered: some may be
// lost for other reasons than their size.
func (q *pair) echoes(ctx context.Context, bytes int) (bool, error) {
	const (
		tries = 12
		pause = 40 * time.Millisecond
	)
	b := make([]byte, bytes)
	before := len(q.probes)
	answered := func(patience time.Duration) (bool, error) {
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			q.stamp()
			q.receive()
			switch {
			case len(q.probes) > before || q.unstamped:
				return true, nil
			case ctx.Err() != nil:
				return false, ctx.Err()
			case time.Now().After(deadline):
				return false, nil
			}
		}
	}
	clear(q.waiting)
	q.unstamped = false
	for range tries {
		if errors.Is(q.request(b), unix.EMSGSIZE) {
			return false, nil
		}
		if ok, err := answered(pause); ok || err != nil {
			return ok, err
		}
	}
	return answered(Grace / 2)
}
