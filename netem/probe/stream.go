package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

// Stream says what OneWay sends. The zero value of a field is its default.
type Stream struct {
	// Count is how many packets, at most MaxCount; default 100.
	Count int
	// Interval is between two packets; default none, as fast as they can be
	// sent. Packets that are late are sent at once, so the mean is kept.
	Interval time.Duration
	// Size is of the IP packet in bytes, at least MinSize; default 128.
	Size int
	// Port is the UDP port they are sent to; default one that is free.
	Port uint16
	TOS  uint8
	// Wait is how long after the last packet was sent those under way are
	// waited for; default Grace. When all have come it ends earlier.
	Wait time.Duration
}

const (
	// MaxCount bounds the packets of one Stream.
	MaxCount = 1_000_000
	// MinSize is the least size of a Stream's packets, with either kind of
	// address.
	MinSize = headers6 + labels*labelSize

	headers4 = 20 + 8 // IP, UDP
	headers6 = 40 + 8

	labels    = 3
	labelSize = 12 // of the stream and of the packet in it
)

// Flow is what became of the packets of one Stream, as seen on the receiver's
// interface: before its checksums and its sockets, so that packets count that
// arrive spoilt.
type Flow struct {
	From, To string // names of the endpoints
	Sent     int
	// Refused is how many of them the sender's own system gave an error for. They
	// are lost too.
	Refused    int
	Received   int // distinct ones
	Lost       int
	Duplicates int // arrivals of a packet that had come
	Reordered  int // first arrivals of packets sent before one that had come
	Corrupted  int // arrivals with any bit changed
	// Missed counts packets that came and that the measurement had no room
	// for. Anything but 0 makes the figures void.
	Missed int
	// Bursts are the lengths of runs of lost packets, in their order.
	Bursts []int

	// Delays are of first arrivals, shortest first.
	Delays             []time.Duration
	Min, Max, P50, P99 time.Duration

	// Arrivals are all, in their order.
	Arrivals []Arrival
}

// Arrival is one packet that came.
type Arrival struct {
	Seq       int // of the packet, from 0 on in the order of sending
	At        time.Time
	Delay     time.Duration
	Corrupted bool
}

// OneWay sends numbered UDP packets from one endpoint to the other and tells
// what became of each. Both namespaces must be at hand. The times are the
// kernels' of sending, before any filter or queue, and of arrival. When ctx
// ends first it gives what there is, and ctx's error.
func OneWay(ctx context.Context, of Pair, s Stream) (Flow, error) {
	s = s.withDefaults()
	f := Flow{From: of.From.Name, To: of.To.Name}
	if s.Count < 0 || s.Count > MaxCount || s.Size < MinSize || s.Size > 65535 || s.Interval < 0 || s.Wait < 0 {
		return f, fmt.Errorf("stream %s to %s: %d packets of %d bytes every %v: out of bounds", f.From, f.To, s.Count, s.Size, s.Interval)
	}
	run, err := openRun(of, s)
	if err != nil {
		return f, fmt.Errorf("stream %s to %s: %w", f.From, f.To, err)
	}
	defer run.close()
	// Packets that wait for the neighbour's address would be late, and more than
	// a few lost, neither of which is the link's doing. Where it cannot be told
	// they are sent all the same.
	_ = netns.Introduce(of.From.Netns, of.address(), of.To.Netns)
	err = run.send(ctx)
	run.await(ctx)
	return run.flow(), err
}

func (s Stream) withDefaults() Stream {
	if s.Count == 0 {
		s.Count = 100
	}
	if s.Size == 0 {
		s.Size = 128
	}
	if s.Wait == 0 {
		s.Wait = Grace
	}
	return s
}

// run is one Stream under way.
type run struct {
	of       Pair
	s        Stream
	out      *sender
	in       *tap
	payload  []byte
	id       uint64
	sentAt   []time.Time
	stamped  []bool // sentAt is the kernel's
	refused  int
	stamps   bool // the kernel's numbers of packets are still ours
	arrived  []bool
	distinct int
	slowest  time.Duration

	arrivals []Arrival
	heads    []int // of arrivals, in kinds
	kinds    map[string]int
}

func openRun(of Pair, s Stream) (*run, error) {
	r := &run{of: of, s: s, id: rand.Uint64(), stamps: true, arrived: make([]bool, s.Count), kinds: map[string]int{}}
	var err error
	r.in, err = openTap(of.To, lengthFilter(s.Size), s.Size, s.Count*(2*s.Size+2048))
	if err != nil {
		return nil, err
	}
	r.out, err = openSender(of, s)
	if err != nil {
		r.in.close()
		return nil, err
	}
	if err := r.out.single(); err != nil {
		r.close()
		return nil, err
	}
	r.payload = make([]byte, s.Size-r.out.headers())
	filler := rand.New(rand.NewPCG(r.id, 0))
	for i := range r.payload {
		r.payload[i] = byte(filler.Uint32())
	}
	return r, nil
}

func (r *run) close() {
	r.in.close()
	r.out.close()
}

// label writes the packet's number, three times so that a changed bit hides
// nothing.
func (r *run) label(seq int) {
	for i := range labels {
		binary.BigEndian.PutUint64(r.payload[i*labelSize:], r.id)
		binary.BigEndian.PutUint32(r.payload[i*labelSize+8:], uint32(seq))
	}
}

func (r *run) send(ctx context.Context) error {
	const lookEvery = 32 // packets, into the sockets, when there is no pause between them
	start := time.Now()
	for seq := range r.s.Count {
		due := start.Add(time.Duration(seq) * r.s.Interval)
		if left := time.Until(due); left > 0 {
			r.look()
			for left = time.Until(due); left > 0 && ctx.Err() == nil; left = time.Until(due) {
				sleep(min(left, 50*time.Millisecond))
			}
		}
		if seq%lookEvery == 0 {
			r.look()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.label(seq)
		r.sentAt, r.stamped = append(r.sentAt, time.Now()), append(r.stamped, false)
		if err := r.out.write(ctx, r.payload); err != nil {
			r.refused++
			r.stamps = false
		}
	}
	return nil
}

// look takes what is in the sockets.
func (r *run) look() {
	r.stamp()
	r.receive()
}

// sleep is more exact than time.Sleep, and the thread has nothing else to do.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	unix.Nanosleep(&ts, nil)
}

func (r *run) stamp() {
	r.out.stamps(func(id uint32, at time.Time) {
		// Every device on the way stamps, and the first is the sender's.
		if n := int(id); r.stamps && n < len(r.sentAt) && !r.stamped[n] {
			r.sentAt[n], r.stamped[n] = at, true
		}
	})
}

// await returns when all has come or the time is up.
func (r *run) await(ctx context.Context) {
	deadline := time.Now().Add(r.s.Wait)
	for {
		r.look()
		if r.distinct == len(r.sentAt) {
			// Copies may still be under way.
			if d := time.Now().Add(r.slowest + 20*time.Millisecond); d.Before(deadline) {
				deadline = d
			}
			r.distinct = -1
		}
		left := time.Until(deadline)
		if left <= 0 || ctx.Err() != nil {
			return
		}
		r.in.wait(min(left, 50*time.Millisecond))
	}
}

func (r *run) receive() {
	r.in.read(func(p received) {
		if len(p.b) < len(r.payload) {
			return
		}
		head, payload := p.b[:len(p.b)-len(r.payload)], p.b[len(p.b)-len(r.payload):]
		seq, ok := r.seq(payload)
		if !ok {
			return
		}
		kind := p.kind(head)
		n, known := r.kinds[kind]
		if !known {
			n = len(r.kinds)
			r.kinds[kind] = n
		}
		r.label(seq)
		a := Arrival{Seq: seq, At: p.at}
		a.Corrupted = !bytes.Equal(payload, r.payload) || len(head) >= 20 && head[0]>>4 == 4 && checksum(head[:20]) != 0
		r.arrivals = append(r.arrivals, a)
		r.heads = append(r.heads, n)
		if !r.arrived[seq] {
			r.arrived[seq] = true
			r.distinct++
		}
		r.slowest = max(r.slowest, a.At.Sub(r.sentAt[seq]))
	})
}

// seq is the number that at least two of the labels agree on.
func (r *run) seq(payload []byte) (int, bool) {
	label := func(i int) []byte { return payload[i*labelSize : (i+1)*labelSize] }
	for i := range labels {
		l := label(i)
		if !bytes.Equal(l, label((i+1)%labels)) || binary.BigEndian.Uint64(l) != r.id {
			continue
		}
		seq := int(binary.BigEndian.Uint32(l[8:]))
		return seq, seq < len(r.sentAt)
	}
	return 0, false
}

func (r *run) flow() Flow {
	f := Flow{From: r.of.From.Name, To: r.of.To.Name, Sent: len(r.sentAt), Refused: r.refused, Missed: r.in.missed()}
	usual, count := -1, make([]int, len(r.kinds))
	for _, n := range r.heads {
		if count[n]++; usual < 0 || count[n] > count[usual] {
			usual = n
		}
	}
	for i, a := range r.arrivals {
		a.Delay = a.At.Sub(r.sentAt[a.Seq])
		a.Corrupted = a.Corrupted || r.heads[i] != usual
		f.Arrivals = append(f.Arrivals, a)
	}
	f.count()
	return f
}

// count fills in what follows from the arrivals.
func (f *Flow) count() {
	seen, last := make([]bool, f.Sent), -1
	for _, a := range f.Arrivals {
		if a.Corrupted {
			f.Corrupted++
		}
		if seen[a.Seq] {
			f.Duplicates++
			continue
		}
		seen[a.Seq] = true
		f.Received++
		if a.Seq < last {
			f.Reordered++
		}
		last = max(last, a.Seq)
		f.Delays = append(f.Delays, a.Delay)
	}
	f.Lost = f.Sent - f.Received
	run := 0
	for _, came := range append(seen, true) {
		switch {
		case !came:
			run++
		case run > 0:
			f.Bursts = append(f.Bursts, run)
			run = 0
		}
	}
	slices.Sort(f.Delays)
	if n := len(f.Delays); n > 0 {
		f.Min, f.Max = f.Delays[0], f.Delays[n-1]
		f.P50, f.P99 = Quantile(f.Delays, 0.50), Quantile(f.Delays, 0.99)
	}
}

// MeanBurst is how many packets are lost in a row, on average; 0 where none is.
func (f Flow) MeanBurst() float64 {
	if len(f.Bursts) == 0 {
		return 0
	}
	return float64(f.Lost) / float64(len(f.Bursts))
}

// Bits is how many bits a second arrived: IP packets, without link headers.
func (f Flow) Bits(size int) float64 {
	if len(f.Arrivals) < 2 {
		return 0
	}
	span := f.Arrivals[len(f.Arrivals)-1].At.Sub(f.Arrivals[0].At)
	return float64(len(f.Arrivals)-1) * float64(size) * 8 / span.Seconds()
}

// sender is a UDP socket inside From's namespace, connected to a port of To
// that is held there, so that nobody answers.
type sender struct {
	fd, held int
	v6       bool
	errors   *batch
}

func openSender(of Pair, o Stream) (_ *sender, err error) {
	to, port := of.address(), o.Port
	s := &sender{fd: -1, held: -1, v6: to.Is6(), errors: newBatch(0)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	family, level, discover, dontFragment, recvErr, class := unix.AF_INET, unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE, unix.IP_RECVERR, unix.IP_TOS
	if s.v6 {
		family, level, discover, dontFragment, recvErr, class = unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE, unix.IPV6_RECVERR, unix.IPV6_TCLASS
	}
	udp := func(e netem.Endpoint) (fd int, err error) {
		err = inside(e, func() (err error) {
			fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			return os.NewSyscallError("socket", err)
		})
		return fd, err
	}
	if s.held, err = udp(of.To); err != nil {
		return nil, err
	}
	err = errors.Join(
		unix.SetsockoptInt(s.held, unix.SOL_SOCKET, unix.SO_RCVBUF, 0), // nobody reads it
		os.NewSyscallError("bind", unix.Bind(s.held, sockaddr(to, port))),
	)
	if err != nil {
		return nil, err
	}
	if port == 0 {
		sa, err := unix.Getsockname(s.held)
		if err != nil {
			return nil, os.NewSyscallError("getsockname", err)
		}
		port = portOf(sa)
	}
	if s.fd, err = udp(of.From); err != nil {
		return nil, err
	}
	const room = 64 << 20 // packets that a queue holds belong to the socket
	err = errors.Join(
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, room),
		unix.SetsockoptInt(s.fd, level, discover, dontFragment),
		unix.SetsockoptInt(s.fd, level, recvErr, 1), // silence is to be told from an error
		unix.SetsockoptInt(s.fd, level, class, int(o.TOS)),
	)
	err = errors.Join(err, os.NewSyscallError("connect", unix.Connect(s.fd, sockaddr(to, port))))
	return s, err
}

// single has the kernel stamp every packet, and leave its checksum out: what
// arrives spoilt is to be seen.
func (s *sender) single() error {
	const stamps = unix.SOF_TIMESTAMPING_TX_SCHED | unix.SOF_TIMESTAMPING_SOFTWARE | unix.SOF_TIMESTAMPING_OPT_TSONLY | unix.SOF_TIMESTAMPING_OPT_ID
	const room = 16 << 20 // every device on the way adds a stamp, and the first must not be the one that is lost
	err := errors.Join(
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room),
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, stamps),
	)
	if s.v6 {
		return errors.Join(err, unix.SetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_NO_CHECK6_TX, 1), unix.SetsockoptInt(s.held, unix.SOL_UDP, unix.UDP_NO_CHECK6_RX, 1))
	}
	return errors.Join(err, unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1))
}

func (s *sender) close() {
	for _, fd := range []int{s.fd, s.held} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func (s *sender) headers() int {
	if s.v6 {
		return headers6
	}
	return headers4
}

// write waits for room where the socket has none.
func (s *sender) write(ctx context.Context, b []byte) error {
	for {
		_, err := unix.Write(s.fd, b)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN && ctx.Err() == nil:
			unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}, 50)
		default:
			return err
		}
	}
}

// stamps gives the kernel's times of sending that are there.
func (s *sender) stamps(each func(id uint32, at time.Time)) {
	s.errors.read(s.fd, unix.MSG_ERRQUEUE, func(_, control []byte, _ *unix.RawSockaddrLinklayer) {
		if id, at, ok := sendStamp(control); ok {
			each(id, at)
		}
	})
}

// tap is a packet socket: it sees what comes in on an interface before the
// receiver's IP layer does.
type tap struct {
	fd      int
	packets *batch
	lost    int
}

type received struct {
	b    []byte // from the IP header on
	at   time.Time
	link *unix.RawSockaddrLinklayer
}

// kind is what all packets of a stream have in common in their headers, when
// they arrive as they were sent.
func (p received) kind(head []byte) string {
	h := append([]byte(nil), head...)
	if len(h) >= 20 && h[0]>>4 == 4 {
		h[4], h[5], h[10], h[11] = 0, 0, 0, 0 // identification, checksum
	}
	return fmt.Sprintf("%x %d %d %x", p.link.Addr[:min(int(p.link.Halen), 8)], p.link.Pkttype, p.link.Protocol, h)
}

// lengthFilter lets packets of one length pass, whatever is in them.
func lengthFilter(size int) []unix.SockFilter {
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_LEN},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(size), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 17},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
}

// openTap sees the first size bytes of the packets that a filter lets pass, and
// has room for so many bytes of them until they are read.
func openTap(e netem.Endpoint, filter []unix.SockFilter, size, room int) (_ *tap, err error) {
	t := &tap{fd: -1, packets: newBatch(size)}
	defer func() {
		if err != nil && t.fd >= 0 {
			unix.Close(t.fd)
		}
	}()
	err = inside(e, func() (err error) {
		// Of no protocol until it is bound and filters.
		t.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("packet socket", err)
		}
		prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		const stamps = unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE
		index, err := interfaceIndex(t.fd, e.Interface)
		if err != nil {
			return err
		}
		return errors.Join(
			os.NewSyscallError("filter", unix.SetsockoptSockFprog(t.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog)),
			os.NewSyscallError("timestamps", unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, stamps)),
			unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, min(max(room, 1<<20), 512<<20)),
			os.NewSyscallError("bind", unix.Bind(t.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: index})),
		)
	})
	if err != nil {
		return nil, err
	}
	awaitStamps(e)
	return t, nil
}

// awaitStamps returns when the kernel stamps what arrives. It begins to do so
// some time after the first socket asked for it: what comes before gets a stamp
// when it is read, which is no time of arrival. Where this cannot be told it
// waits for a while.
func awaitStamps(e netem.Endpoint) {
	const patience = time.Second
	fd := -1
	err := inside(e, func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return
	}
	defer unix.Close(fd)
	err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_RX_SOFTWARE|unix.SOF_TIMESTAMPING_SOFTWARE)
	}
	self, e2 := unix.Getsockname(fd)
	if err != nil || e2 != nil {
		time.Sleep(10 * time.Millisecond)
		return
	}
	var b [1]byte
	var oob [256]byte
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if unix.Sendto(fd, b[:], 0, self) != nil {
			time.Sleep(10 * time.Millisecond) // the loopback interface is down
			return
		}
		reading := time.Now()
		_, n, _, _, err := unix.Recvmsg(fd, b[:], oob[:], 0)
		if at, ok := timestamp(oob[:n]); err == nil && ok && at.Before(reading) {
			return
		}
	}
}

func (t *tap) close() { unix.Close(t.fd) }

// wait reports whether something came within d.
func (t *tap) wait(d time.Duration) bool {
	ts := unix.NsecToTimespec(int64(d))
	n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLIN}}, &ts, nil)
	return err == nil && n > 0
}

// read gives all packets that are there. What each gets is valid until it
// returns.
func (t *tap) read(each func(received)) {
	t.packets.read(t.fd, 0, func(data, control []byte, from *unix.RawSockaddrLinklayer) {
		if at, ok := timestamp(control); ok && from.Pkttype != unix.PACKET_OUTGOING {
			each(received{data, at, from})
		}
	})
}

// missed is how many packets there was no room for so far.
func (t *tap) missed() int {
	if s, err := unix.GetsockoptTpacketStats(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		t.lost += int(s.Drops) // reading sets it to 0
	}
	return t.lost
}

func interfaceIndex(fd int, name string) (int, error) {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, fmt.Errorf("interface %q: %w", name, err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr); err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	return int(ifr.Uint32()), nil
}

func htons(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return *(*uint16)(unsafe.Pointer(&b[0]))
}

// inside runs f in an endpoint's namespace and marks what this user or machine
// may not do.
func inside(e netem.Endpoint, f func() error) error {
	if e.Netns == "" {
		return fmt.Errorf("%w: the namespace of %s is not known", ErrUnsupported, e.Name)
	}
	err := netns.Do(e.Netns, f)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, netns.ErrUnsupported) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

func sockaddr(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Port: int(port), Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Port: int(port), Addr: a.As16()}
}

func portOf(sa unix.Sockaddr) uint16 {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return uint16(sa.Port)
	case *unix.SockaddrInet6:
		return uint16(sa.Port)
	}
	return 0
}
