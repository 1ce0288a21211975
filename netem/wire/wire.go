// Package wire owns the emulator for kernels without netem: a delay line in
// user space, one helper process for a whole lab.
//
// # Path of a packet
//
// In each node's namespace clsact egress filters redirect the packets for a
// shaped peer to a TAP device. The device is only a sink. A packet socket bound
// to it sees each packet before the sink drops it, and the kernel writes the
// packet and its time of arrival into a ring that the helper shares, so that
// neither a system call nor a wake-up is needed when a packet arrives. The
// helper finds the packet's line, which is one directed link with packets of
// IPv4 and IPv6 alike, holds it there until its deadline, arrival plus delay,
// and puts it on the node's interface through a packet socket that bypasses
// the filter. Both sockets carry the virtio header: packets that the sender
// left to the card to cut or to sum up pass whole.
//
// ARP, neighbour discovery (ICMPv6 133 to 137), and where a link is to a whole
// network its broadcast and multicast, meet no filter. Nor do packets with a
// VLAN tag.
//
// # Faults
//
// What else is asked of a link is decided by netem.Decider as each packet
// arrives, and by netem.Pacer for when it leaves: what is asked is what happens,
// packet by packet, and a seed repeats it. Packets leave a line in the order in
// which they came, but for those that reorder sends ahead. A packet's size is
// that of its frame, Ethernet header included.
//
// Where a link's faults are per packet the TAP of its interface has no
// offloads, so the kernel cuts and sums up packets before they reach the
// ring. The interface's other links then see wire-size packets too, which costs
// them speed and nothing else.
//
// Changes hold from the next arrival on, and delays for packets under way as
// well. A partition drops what arrives; what is under way when it begins
// arrives in its time.
//
// # Time
//
// One locked thread at real-time priority does all of this. A wake-up is what
// costs: on a virtual machine some 20 microseconds of processor time for timer
// and switch, and as much again in what it disturbs. So
//
//   - while packets are under way it sleeps until the first deadline and looks
//     into the rings at least once per shortest delay, early enough for every
//     deadline, and no arrival wakes it; only after a silence does one;
//   - while packets arrive it looks into the rings every few milliseconds, so
//     that they do not fill up;
//   - deadlines that lie close together share one wake-up;
//   - where less time is left than a sleep costs, measured at the start, it
//     waits awake;
//   - it learns how late it is woken and asks to be woken earlier by as much.
//
// All delays take the same path with the same kinds of wake-ups, so what
// remains of its lateness is in a baseline too and falls out of differences.
//
// # Failing
//
// It fails closed. What packets of shaped links meet, and how it shows:
//
//   - The helper is killed: they are dropped. The filters point at devices that
//     vanish with it, and a redirect to a device that is gone drops the packet.
//     Done is closed and calls return ErrDead; Detach, or a new helper for the
//     same interface, takes the filters out.
//   - Its parent is killed: the helper sees the end of its input, releases what
//     it holds, takes its filters out and ends. Packets pass as without it.
//   - It is stopped, or has no processor for long: packets wait in the ring, and
//     those that find it full are dropped (Counters.Overrun).
//   - More than half a gigabyte is under way: new packets are dropped
//     (Counters.Overrun).
//   - A queue behind a given rate is full: new packets are dropped, as asked
//     (Counters.Dropped).
//   - Somebody takes the filters away: packets pass undelayed, and Show fails.
//     That cannot be prevented; priorities 4242 and 4243 are no one else's.
//   - An interface vanishes: its links do too. One that comes back by the same
//     name has none until the next Apply.
//   - An interface gets its first clsact, or loses it at Close: the kernel stops
//     it, and what is sent within about a millisecond is dropped. Between the two
//     nothing is lost, whatever changes.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/faultlab/faultlab/netem"
)

// ErrUnsupported is wrapped by errors that say that this machine cannot run
// the delay line, as against an attempt that went wrong.
var ErrUnsupported = errors.New("userspace delay is not possible here")

// ErrDead is wrapped by every call's error once the helper is gone. Shaped
// links are cut then, until Detach or the end of their namespaces.
var ErrDead = errors.New("the delay helper is gone, its links are cut")

// Arg is what the helper's command line ends with by convention; the program's
// main calls Main when it sees it.
const Arg = "__wire"

// Options say how the helper is started.
type Options struct {
	// Command is the helper's command line. Empty is this program's own file
	// with Arg.
	Command []string
	// Stderr takes what the helper says when it fails. Nil is os.Stderr.
	Stderr io.Writer
}

// Backend is a running helper. It implements netem.Backend.
type Backend struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	conn  *conn

	mu      sync.Mutex // one call at a time
	seq     uint64
	replies chan reply // roomy: an answer that came too late for its call waits for the next
	done    chan struct{}
	waitErr error // valid after done

	closeOnce sync.Once
	closeErr  error
}

var _ netem.Backend = (*Backend)(nil)

// Open starts a helper. It shapes nothing yet. ctx bounds the start only.
func Open(ctx context.Context, o Options) (*Backend, error) {
	if len(o.Command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("start delay helper: %w", err)
		}
		o.Command = []string{self, Arg}
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	cmd.Stderr = o.Stderr
	// The helper's one thread polls in the kernel for long times on end, where
	// a preemption signal would only wake it.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	// Ctrl-C is for the parent, which then ends the helper in good order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start delay helper: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start delay helper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start delay helper: %w", err)
	}
	b := &Backend{
		cmd: cmd, stdin: stdin, conn: newConn(stdout, stdin),
		replies: make(chan reply, 16), done: make(chan struct{}),
	}
	go b.receive()
	if _, err := b.call(ctx, request{Op: opHello}); err != nil {
		b.Close()
		return nil, fmt.Errorf("start delay helper: %w", err)
	}
	return b, nil
}

// receive ends when the helper does.
func (b *Backend) receive() {
	for {
		var r reply
		if b.conn.read(&r) != nil {
			break
		}
		b.replies <- r
	}
	b.waitErr = b.cmd.Wait()
	close(b.done)
}

func (b *Backend) call(ctx context.Context, q request) (reply, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return reply{}, err
	}
	b.seq++
	q.Seq = b.seq
	if err := b.conn.write(q); err != nil {
		return reply{}, b.dead(err)
	}
	// Once asked, the answer is awaited even past the end of ctx: the helper
	// answers within milliseconds, and half a change is worse than a late one.
	for {
		select {
		case r := <-b.replies:
			if r.Seq == q.Seq {
				return r, r.err()
			}
		case <-b.done:
			return reply{}, b.dead(b.waitErr)
		case <-time.After(helperTimeout):
			return reply{}, fmt.Errorf("the delay helper did not answer within %v", helperTimeout)
		}
	}
}

// helperTimeout is short enough that Ctrl-C is done within 10 seconds even when
// the helper hangs.
const helperTimeout = 4 * time.Second

func (b *Backend) dead(cause error) error {
	if cause == nil {
		return ErrDead
	}
	return fmt.Errorf("%w (%v)", ErrDead, cause)
}

// Name is "user".
func (b *Backend) Name() string { return "user" }

// Pid is the helper's process.
func (b *Backend) Pid() int { return b.cmd.Process.Pid }

// Done is closed when the helper has ended, whoever ended it.
func (b *Backend) Done() <-chan struct{} { return b.done }

// Apply makes the links as asked, all or none. Where a link's delay changes,
// packets already under way take the new delay too; none is lost and none
// overtakes another of the same link. A link is the same as before if it begins
// at the same interface, by whatever path to the namespace, and To has the same
// name. Two links of an interface cannot have the same selector; of selectors
// that overlap the longest prefix wins, and of one prefix a port.
func (b *Backend) Apply(ctx context.Context, links []netem.Link) error {
	// Most links of a mesh are alike, and tables of jitter take long to judge.
	judged := map[netem.Impairment]bool{}
	for _, l := range links {
		i := l.Impairment
		if judged[i] {
			l.Impairment = netem.Impairment{}
		}
		if err := l.Validate(); err != nil {
			return err
		}
		judged[i] = true
	}
	_, err := b.call(ctx, request{Op: opApply, Links: links})
	return err
}

// Clear releases what is under way at once, takes the filters out, and gives
// back all but the clsact.
func (b *Backend) Clear(ctx context.Context) error {
	_, err := b.call(ctx, request{Op: opClear})
	return err
}

// Show reads back every link whose interface is still there. It fails where
// packets do not take the way they should because somebody removed a filter.
func (b *Backend) Show(ctx context.Context) ([]netem.LinkState, error) {
	r, err := b.call(ctx, request{Op: opShow})
	return r.Links, err
}

// Counters reads the helper's totals.
func (b *Backend) Counters(ctx context.Context) (netem.Counters, error) {
	r, err := b.call(ctx, request{Op: opCounters})
	return r.Counters, err
}

// Close clears all links and ends the helper. Its error is nil also when the
// helper had died before: Done tells.
func (b *Backend) Close() error {
	b.closeOnce.Do(func() {
		select {
		case <-b.done:
			return
		default:
		}
		b.stdin.Close()
		select {
		case <-b.done:
			if b.waitErr != nil {
				b.closeErr = fmt.Errorf("delay helper: %w", b.waitErr)
			}
		case <-time.After(helperTimeout):
			b.cmd.Process.Kill()
			<-b.done
			b.closeErr = fmt.Errorf("the delay helper did not end within %v and was killed", helperTimeout)
		}
	})
	return b.closeErr
}
