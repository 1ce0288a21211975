// Package probe owns the proof that a link is what it was asked to be: it
// measures live links and sets asked against measured.
//
// Round trips (Measure, Open) need nothing of the far end but its address; what
// becomes of single packets (OneWay), how fast they pass (Blast) and what a
// Check reports need both ends' namespaces.
//
// # Round trips
//
// A probe is an ICMP echo from one endpoint's namespace to another's address,
// so it takes both directions of the link as any packet does. Both its times
// are the kernel's: when the request enters the device layer, before any
// filter or queue, and when the reply comes in. The far end's kernel answers by
// itself. So no process has to be scheduled between the two, and the figure is
// right on a machine whose processors are all busy.
package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
)

// Pair is a link to measure: From asks, To answers. It is measured by To's IPv4
// address where it has one, else by its IPv6 address.
type Pair struct{ From, To netem.Endpoint }

// V6 is the pair to be measured by IPv6.
func (p Pair) V6() Pair {
	p.From.Addr, p.To.Addr = netip.Addr{}, netip.Addr{}
	return p
}

func (p Pair) address() netip.Addr {
	if p.To.Addr.IsValid() {
		return p.To.Addr.Unmap()
	}
	return p.To.Addr6
}

// Stat is what was seen of one pair. The times are zero when nothing came back.
type Stat struct {
	From, To   string // names of the endpoints
	Sent, Lost int
	Min, Max   time.Duration
	P50, P99   time.Duration
	// RTTs are all round trips, shortest first.
	RTTs []time.Duration
	// Probes are all that were sent, in their order.
	Probes []Probe
}

// Probe is one echo request.
type Probe struct {
	At   time.Time     // when it was sent
	RTT  time.Duration // 0 where it was lost
	Lost bool
}

// cutGuard is before a change of the link: what is sent within it may meet
// either state.
const cutGuard = 100 * time.Millisecond

// Between is what the probes met that were sent from one change of the link to
// another, apart from those whose reply the second may have met.
func (s Stat) Between(from, to time.Time) Stat {
	out := Stat{From: s.From, To: s.To}
	for _, p := range s.Probes {
		if !p.At.Before(from) && p.At.Add(p.RTT).Before(to.Add(-cutGuard)) {
			out.Probes = append(out.Probes, p)
		}
	}
	out.count()
	return out
}

const (
	// DefaultInterval is between two probes of a pair: light enough to go on
	// under load.
	DefaultInterval = 50 * time.Millisecond
	// Grace is how long Take waits for replies under way. What takes longer
	// counts as lost.
	Grace = 2 * time.Second
)

// ErrUnsupported is wrapped by errors that say that this user or machine may
// not send probes.
var ErrUnsupported = errors.New("probes need root on Linux")

// Prober measures pairs in the background until it is closed.
type Prober struct {
	mu    sync.Mutex // held for one probe at a time, and while taking
	pairs []*pair
	quit  chan struct{}
	done  chan struct{}
	once  sync.Once
}

// Open begins to probe every pair once per interval, jittered by half of it so
// that it falls into step with nothing. An interval of 0 is DefaultInterval.
func Open(pairs []Pair, interval time.Duration) (*Prober, error) {
	p, err := open(pairs)
	if err != nil {
		return nil, err
	}
	if interval <= 0 {
		interval = DefaultInterval
	}
	go p.run(interval)
	return p, nil
}

// Measure sends n probes on one pair, an interval apart, and waits for their
// replies. When ctx ends first it gives what there is, and ctx's error.
func Measure(ctx context.Context, of Pair, n int, interval time.Duration) (Stat, error) {
	p, err := open([]Pair{of})
	if err != nil {
		return Stat{}, err
	}
	defer p.closeSockets()
	for i := range n {
		if i > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(jittered(interval)):
			}
		}
		if ctx.Err() != nil {
			break
		}
		p.pairs[0].receive()
		p.pairs[0].send()
	}
	return p.Take()[0], ctx.Err()
}

func open(pairs []Pair) (*Prober, error) {
	if len(pairs) == 0 {
		return nil, errors.New("no pairs to probe")
	}
	p := &Prober{quit: make(chan struct{}), done: make(chan struct{})}
	for _, of := range pairs {
		q, err := openPair(of)
		if err != nil {
			p.closeSockets()
			return nil, fmt.Errorf("probe %s to %s: %w", of.From.Name, of.To.Name, err)
		}
		p.pairs = append(p.pairs, q)
	}
	awaitStamps(pairs[0].From)
	return p, nil
}

func (p *Prober) run(interval time.Duration) {
	defer close(p.done)
	step := interval / time.Duration(len(p.pairs))
	for i := 0; ; i = (i + 1) % len(p.pairs) {
		select {
		case <-p.quit:
			return
		case <-time.After(jittered(step)):
		}
		p.mu.Lock()
		// Nothing waits for replies: they are stamped, and read when the
		// pair's turn comes again.
		p.pairs[i].receive()
		p.pairs[i].send()
		p.mu.Unlock()
	}
}

func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.5 + rand.Float64()))
}

// Take gives what was seen since the last Take, or since Open. While replies
// are under way it waits for them, at most Grace, and sends nothing meanwhile.
func (p *Prober) Take() []Stat {
	p.mu.Lock()
	defer p.mu.Unlock()
	for deadline := time.Now().Add(Grace); ; time.Sleep(time.Millisecond) {
		waiting := false
		for _, q := range p.pairs {
			q.receive()
			waiting = waiting || len(q.waiting) > 0
		}
		if !waiting || time.Now().After(deadline) {
			break
		}
	}
	stats := make([]Stat, len(p.pairs))
	for i, q := range p.pairs {
		stats[i] = q.take()
	}
	return stats
}

// Close ends the probing. It is safe to call twice.
func (p *Prober) Close() error {
	p.once.Do(func() {
		close(p.quit)
		<-p.done
		p.closeSockets()
	})
	return nil
}

func (p *Prober) closeSockets() {
	for _, q := range p.pairs {
		unix.Close(q.fd)
	}
}

// pair is one socket, inside From's namespace and connected to To.
type pair struct {
	of      Pair
	fd      int
	v6      bool
	id, seq uint16
	waiting map[uint16]asked // requests without answer
	probes  []Probe
	// unstamped tells that a reply came of which no time is known.
	unstamped bool
}

// asked is when a request was sent.
type asked struct {
	at      time.Time
	stamped bool // by the kernel
}

func openPair(of Pair) (*pair, error) {
	to := of.address()
	if !to.IsValid() {
		return nil, fmt.Errorf("%s has no address", of.To.Name)
	}
	q := &pair{of: of, fd: -1, v6: to.Is6(), id: uint16(rand.Uint32()), waiting: map[uint16]asked{}}
	family, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	if q.v6 {
		family, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	err := inside(of.From, func() (err error) {
		q.fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return nil, err
	}
	const stamps = unix.SOF_TIMESTAMPING_TX_SCHED | unix.SOF_TIMESTAMPING_RX_SOFTWARE |
		unix.SOF_TIMESTAMPING_SOFTWARE | unix.SOF_TIMESTAMPING_OPT_TSONLY | unix.SOF_TIMESTAMPING_OPT_ID
	err = errors.Join(
		q.onlyReplies(),
		unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, stamps),
		os.NewSyscallError("connect", unix.Connect(q.fd, sockaddr(to, 0))),
	)
	if err != nil {
		unix.Close(q.fd)
		return nil, err
	}
	return q, nil
}

// onlyReplies has the socket see no other ICMP messages than echo replies.
func (q *pair) onlyReplies() error {
	if q.v6 {
		var block unix.ICMPv6Filter // a bit for each type that is not to pass
		for i := range block.Data {
			block.Data[i] = ^uint32(0)
		}
		block.Data[echoReply6/32] &^= 1 << (echoReply6 % 32)
		return unix.SetsockoptICMPv6Filter(q.fd, unix.SOL_ICMPV6, unix.ICMPV6_FILTER, &block)
	}
	const icmpFilter = 1 // linux/icmp.h
	return unix.SetsockoptInt(q.fd, unix.SOL_RAW, icmpFilter, ^(1 << echoReply))
}

const (
	echoReply    = 0
	echoRequest  = 8
	echoRequest6 = 128
	echoReply6   = 129
	requestSize  = 64 // as ping's
)

func (q *pair) send() {
	var b [requestSize]byte
	_ = q.request(b[:])
}

// request sends an echo request that fills b. A request that the kernel drops,
// for example into a dead emulator, is a lost one: its error is of interest to
// who looks for a size.
func (q *pair) request(b []byte) error {
	q.seq++
	clear(b)
	binary.BigEndian.PutUint16(b[4:], q.id)
	binary.BigEndian.PutUint16(b[6:], q.seq)
	if q.v6 {
		b[0] = echoRequest6 // its checksum is the kernel's
	} else {
		b[0] = echoRequest
		binary.BigEndian.PutUint16(b[2:], checksum(b))
	}
	q.waiting[q.seq] = asked{at: time.Now()}
	_, err := unix.Write(q.fd, b)
	q.stamp()
	return err
}

// stamp puts the kernel's time of sending in place of ours. It is usually there
// as soon as the request was written, later when that had to wait for the
// neighbour's address.
func (q *pair) stamp() {
	var oob [512]byte
	for {
		_, n, _, _, err := unix.Recvmsg(q.fd, nil, oob[:], unix.MSG_ERRQUEUE)
		if err != nil {
			return
		}
		id, at, ok := sendStamp(oob[:n])
		seq := uint16(id + 1) // the kernel counts from 0, send from 1
		// Every device on the way stamps, and the first is the sender's.
		if a, waits := q.waiting[seq]; ok && waits && !a.stamped {
			q.waiting[seq] = asked{at, true}
		}
	}
}

// receive reads the replies that are there.
func (q *pair) receive() {
	q.stamp()
	var b [256]byte
	var oob [512]byte
	for {
		reading := time.Now()
		n, noob, _, _, err := unix.Recvmsg(q.fd, b[:], oob[:], 0)
		if err == unix.EINTR {
			continue
		}
		if errno, ok := err.(unix.Errno); ok && errno != unix.EAGAIN {
			continue // an ICMP error for an earlier request; reading it clears it
		}
		if err != nil {
			return
		}
		id, seq, ok := parseReply(b[:n], q.v6)
		a, waits := q.waiting[seq]
		if !ok || id != q.id || !waits {
			continue
		}
		delete(q.waiting, seq)
		// A packet that came before the kernel began to stamp gets its stamp
		// when it is read: that is no time of arrival, and the probe did not
		// take place.
		if came, ok := timestamp(oob[:noob]); ok && came.Before(reading) {
			q.probes = append(q.probes, Probe{At: a.at, RTT: came.Sub(a.at)})
		} else {
			q.unstamped = true
		}
	}
}

func (q *pair) take() Stat {
	s := Stat{From: q.of.From.Name, To: q.of.To.Name, Probes: q.probes}
	for _, a := range q.waiting {
		s.Probes = append(s.Probes, Probe{At: a.at, Lost: true})
	}
	slices.SortFunc(s.Probes, func(a, b Probe) int { return a.At.Compare(b.At) })
	q.probes = nil
	clear(q.waiting)
	s.count()
	return s
}

// count fills in what follows from the probes.
func (s *Stat) count() {
	for _, p := range s.Probes {
		s.Sent++
		if p.Lost {
			s.Lost++
		} else {
			s.RTTs = append(s.RTTs, p.RTT)
		}
	}
	slices.Sort(s.RTTs)
	if n := len(s.RTTs); n > 0 {
		s.Min, s.Max = s.RTTs[0], s.RTTs[n-1]
		s.P50, s.P99 = Quantile(s.RTTs, 0.50), Quantile(s.RTTs, 0.99)
	}
}

// Quantile is the smallest of the sorted times that at least the share q of
// them does not exceed; 0 for none.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// parseReply reads what a raw socket gives: an IPv4 packet, or what is in an
// IPv6 packet.
func parseReply(b []byte, v6 bool) (id, seq uint16, ok bool) {
	header, reply := 0, byte(echoReply6)
	if !v6 {
		if len(b) < 20 {
			return 0, 0, false
		}
		if header, reply = int(b[0]&0xf)*4, echoReply; header < 20 {
			return 0, 0, false
		}
	}
	if len(b) < header+8 || b[header] != reply {
		return 0, 0, false
	}
	b = b[header:]
	return binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:]), true
}

// checksum is the Internet's (RFC 1071), of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// timestamp finds the kernel's software stamp among control messages.
func timestamp(oob []byte) (time.Time, bool) {
	_, at, ok := sendStamp(oob)
	return at, ok
}

// sendStamp finds the stamp, and for a message of the error queue the number of
// the packet that it is of.
func sendStamp(oob []byte) (id uint32, at time.Time, ok bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, time.Time{}, false
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPING &&
			len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})):
			ts := *(*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			at, ok = time.Unix(ts.Unix()), ts.Nano() != 0
		case (m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_RECVERR || m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_RECVERR) &&
			len(m.Data) >= int(unsafe.Sizeof(unix.SockExtendedErr{})):
			id = (*unix.SockExtendedErr)(unsafe.Pointer(&m.Data[0])).Data
		}
	}
	return id, at, ok
}

// MedianInterval is the 95% interval of the median that the probes allow, from
// the ranks of a binomial distribution: n/2 -+ 0.98 sqrt(n). Both are 0 without
// probes.
func (s Stat) MedianInterval() (low, high time.Duration) {
	n := len(s.RTTs)
	if n == 0 {
		return 0, 0
	}
	half := 0.98 * math.Sqrt(float64(n))
	first := max(int(math.Floor(float64(n)/2-half)), 0)
	last := min(int(math.Ceil(float64(n)/2+half)), n-1)
	return s.RTTs[first], s.RTTs[last]
}
