package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
)

// Blast says what Throughput sends. The zero value of a field is its default.
type Blast struct {
	// For is how long it sends, at most MaxBlast; default 1 s.
	For time.Duration
	// Pace is how fast; default as fast as one thread can.
	Pace netem.Rate
	// Size is of the IP packets in bytes, at least MinSize; default 1500.
	Size int
	// Wait is how long after the last packet was sent those under way are
	// waited for, while they keep coming; default Grace.
	Wait time.Duration
}

// MaxBlast bounds the time of a Blast.
const MaxBlast = 30 * time.Second

// Throughput is what arrived of a Blast.
type Throughput struct {
	From, To      string
	Packets       int
	Bytes         int64         // link headers included
	First, Last   time.Duration // arrivals, since the first packet was sent
	BitsPerSecond float64       // between the two; 0 where fewer than two arrived
	OfferedBits   float64       // that were sent in a second
	Missed        int           // as in Flow
}

// segmentsAtOnce is how many packets go with one system call, as one large
// packet that the kernel cuts.
const segmentsAtOnce = 16

// Rate sends UDP packets one way for a while, fills the link with them and
// tells how fast they arrived. Both namespaces must be at hand. When ctx ends
// first it gives what there is, and ctx's error.
func Rate(ctx context.Context, of Pair, b Blast) (Throughput, error) {
	t := Throughput{From: of.From.Name, To: of.To.Name}
	if b.For == 0 {
		b.For = time.Second
	}
	if b.Size == 0 {
		b.Size = 1500
	}
	if b.Wait == 0 {
		b.Wait = Grace
	}
	fail := func(err error) (Throughput, error) {
		return t, fmt.Errorf("rate %s to %s: %w", t.From, t.To, err)
	}
	if b.For < 0 || b.For > MaxBlast || b.Size < MinSize || b.Size > 65535 || b.Pace < 0 || b.Wait < 0 {
		return fail(fmt.Errorf("packets of %d bytes at %s for %v: out of bounds", b.Size, b.Pace, b.For))
	}
	out, err := openSender(of, Stream{})
	if err != nil {
		return fail(err)
	}
	defer out.close()
	port, err := out.port()
	if err != nil {
		return fail(err)
	}
	in, err := openTap(of.To, portFilter(out.v6, port), beginning, 64<<20)
	if err != nil {
		return fail(err)
	}
	defer in.close()

	segments := max(1, min(segmentsAtOnce, 60_000/b.Size))
	payload := b.Size - out.headers()
	if unix.SetsockoptInt(out.fd, unix.SOL_UDP, unix.UDP_SEGMENT, payload) != nil {
		segments = 1 // Linux before 4.18 cannot
	}
	batch := make([]byte, segments*payload)
	var interval time.Duration
	if b.Pace > 0 {
		interval = time.Duration(float64(segments*(b.Size+linkHeader)*8) / float64(b.Pace) * float64(time.Second))
	}

	var first, settled, last time.Time
	bits := 0.0 // after the packet that arrived when it had settled
	receive := func() {
		in.read(func(p received) {
			if p.link.Pkttype != unix.PACKET_HOST {
				return
			}
			size := packetSize(p.b)
			if p.link.Hatype == unix.ARPHRD_ETHER {
				size += linkHeader
			}
			if t.Packets == 0 {
				first = p.at
			}
			switch {
			case !settled.IsZero():
				bits += float64(size) * 8
			case p.at.Sub(first) >= b.For/5:
				settled = p.at
			}
			t.Packets++
			t.Bytes += int64(size)
			last = p.at
		})
	}
	const lookEvery = 10 * time.Millisecond // into the socket
	start := time.Now()
	sent, looked := 0, start
	for now := start; now.Sub(start) < b.For && ctx.Err() == nil; now = time.Now() {
		if now.Sub(looked) > lookEvery {
			receive()
			looked = now
		}
		if left := start.Add(time.Duration(sent) * interval).Sub(now); left > 0 {
			sleep(min(left, lookEvery))
			continue
		}
		if err := out.write(ctx, batch); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fail(os.NewSyscallError("send", err))
		}
		sent++
	}
	t.OfferedBits = float64(sent*segments*(b.Size+linkHeader)*8) / time.Since(start).Seconds()
	for deadline := time.Now().Add(b.Wait); time.Now().Before(deadline) && ctx.Err() == nil; {
		came := t.Packets
		in.wait(max(0, min(time.Until(deadline), quiet)))
		receive()
		if t.Packets == came && came > 0 {
			break
		}
	}
	t.Missed = in.missed()
	if t.Packets > 0 {
		t.First, t.Last = first.Sub(start), last.Sub(start)
	}
	if span := last.Sub(settled); !settled.IsZero() && span > 0 {
		t.BitsPerSecond = bits / span.Seconds()
	}
	return t, ctx.Err()
}

const (
	linkHeader = 14 // Ethernet's
	// quiet is for how long nothing comes when all has come.
	quiet = 250 * time.Millisecond
)

func (s *sender) port() (uint16, error) {
	sa, err := unix.Getpeername(s.fd)
	if err != nil {
		return 0, os.NewSyscallError("getpeername", err)
	}
	return portOf(sa), nil
}

// packetSize is what an IP packet says of itself.
func packetSize(b []byte) int {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		return int(binary.BigEndian.Uint16(b[2:]))
	case len(b) >= 40 && b[0]>>4 == 6:
		return headers6 - 8 + int(binary.BigEndian.Uint16(b[4:]))
	}
	return len(b)
}

// beginning is how much of a packet is looked at: its headers.
const beginning = 64

// portFilter lets the beginnings of UDP packets for a port pass.
func portFilter(v6 bool, port uint16) []unix.SockFilter {
	protocol, to := uint32(9), uint32(20+2)
	if v6 {
		protocol, to = 6, 40+2
	}
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: protocol},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.IPPROTO_UDP, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: to},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(port), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: beginning},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
}
