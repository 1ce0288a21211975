package wire

import (
	"time"

	"github.com/faultlab/faultlab/netem"
)

// A line is one directed link: packets leave it in the order of their arrival,
// each a delay after it came. Deadlines are not stored but follow from the
// line's present delay, so a change holds at once for packets under way, and
// none can overtake another.
type line struct {
	delay  time.Duration
	q      fifo
	faults *faults // nil where nothing is done but to delay

	packets, bytes, dropped uint64
}

// faults are what else is done to the packets of a line.
type faults struct {
	fate  *netem.Decider // for each packet that arrives
	pace  netem.Pacer    // of those that leave
	limit int            // of packets in the line
	lossy bool           // a packet beyond the limit is lost as asked
	first time.Duration  // how much earlier than its delay a packet may be due
	ready time.Duration  // when the one that left last was; none is ready before it
}

// A change is what a line is to be. All that takes time to prepare is prepared
// in it.
type change struct {
	line       *line
	impairment netem.Impairment
	faults     *faults
}

func newChange(l *line, i netem.Impairment) change {
	c := change{line: l, impairment: i}
	if !i.PerPacket() && !i.Partition {
		return c
	}
	c.faults = &faults{fate: netem.NewDecider(i), limit: i.QueueLimit(), lossy: i.Lossy()}
	switch {
	case i.Reorder.Chance != 0:
		c.faults.first = netem.MaxDelay
	case i.Distribution == netem.Distribution{}:
		c.faults.first = i.Jitter
	default:
		c.faults.first = 4 * i.Jitter // as far as tables reach
	}
	return c
}

// apply runs on the engine's thread. A partition is for packets that come: those
// under way keep their times.
func (c change) apply() {
	l, f := c.line, c.faults
	if f != nil && l.faults != nil {
		f.ready, f.pace = l.faults.ready, l.faults.pace
	}
	if !c.impairment.Partition {
		l.delay = c.impairment.Delay
		if l.faults != nil {
			l.q.each(func(p *packet) { p.offset = 0 }) // of another jitter
		}
		if f != nil {
			f.pace.Change(c.impairment)
		}
	}
	l.faults = f
}

// minDelay is how soon after its arrival a packet may be due.
func (l *line) minDelay() time.Duration {
	if l.faults == nil {
		return l.delay
	}
	return max(0, l.delay-l.faults.first)
}

// deadline is when the oldest packet has to leave. There must be one.
func (l *line) deadline() time.Duration {
	p := l.q.peek()
	if l.faults == nil {
		return p.at + l.delay
	}
	return l.faults.pace.Departure(l.ready(p), p.size())
}

// ready is when the oldest packet of a line with faults has had its delay.
func (l *line) ready(p *packet) time.Duration {
	return max(p.at+max(l.delay+p.offset, 0), l.faults.ready)
}

// pop takes the oldest packet, which leaves.
func (l *line) pop() {
	p := l.q.pop()
	l.packets++
	l.bytes += uint64(p.size())
	if f := l.faults; f != nil {
		f.ready = l.ready(&p)
		f.pace.Sent(f.ready, p.size())
	}
}

func (l *line) addTo(c *netem.Counters) {
	c.Packets += l.packets
	c.Bytes += l.bytes
	c.Dropped += l.dropped
}

// A packet is a frame behind its virtio header.
type packet struct {
	at     time.Duration // of arrival, on the engine's clock
	offset time.Duration // of its delay from the line's, drawn under the line's present faults
	b      []byte
}

// size is the frame's, link header included.
func (p *packet) size() int { return len(p.b) - vnetHeader }

// flip changes one bit of the frame.
func (p *packet) flip(n int64) {
	n %= int64(8 * p.size())
	p.b[vnetHeader+n/8] ^= 1 << (n % 8)
}

// fifo is a queue of packets that reuses its memory.
type fifo struct {
	ring []packet // length is a power of two
	head uint     // of the oldest
	tail uint     // behind the newest
}

func (f *fifo) len() int      { return int(f.tail - f.head) }
func (f *fifo) peek() *packet { return &f.ring[f.head&uint(len(f.ring)-1)] }

func (f *fifo) each(do func(*packet)) {
	for i := f.head; i != f.tail; i++ {
		do(&f.ring[i&uint(len(f.ring)-1)])
	}
}

func (f *fifo) push(p packet) {
	if f.len() == len(f.ring) {
		bigger := make([]packet, max(64, 2*len(f.ring)))
		n := uint(0)
		for ; f.len() > 0; n++ {
			bigger[n] = f.pop()
		}
		f.ring, f.head, f.tail = bigger, 0, n
	}
	f.ring[f.tail&uint(len(f.ring)-1)] = p
	f.tail++
}

func (f *fifo) pop() packet {
	p := f.peek()
	f.head++
	out := *p
	*p = packet{}
	return out
}

// pool keeps packet buffers of two sizes. It is bounded in what it hands out,
// not in what it keeps.
type pool struct {
	small, big [][]byte
	out        int // bytes handed out
}

const (
	smallBuffer = 2 << 10
	bigBuffer   = vnetHeader + 64<<10 + 128 // the largest segmentation offload, with its link header
	// maxHeld bounds memory: a second of 4 Gbit/s, or 260,000 small packets.
	maxHeld = 512 << 20
)

// get gives a buffer of length n, or nil when too much is out or n too long.
func (p *pool) get(n int) []byte {
	free, size := &p.small, smallBuffer
	if n > smallBuffer {
		free, size = &p.big, bigBuffer
	}
	if n > size || p.out+size > maxHeld {
		return nil
	}
	p.out += size
	if k := len(*free); k > 0 {
		b := (*free)[k-1]
		*free = (*free)[:k-1]
		return b[:n]
	}
	return make([]byte, n, size)
}

func (p *pool) put(b []byte) {
	p.out -= cap(b)
	if cap(b) == smallBuffer {
		p.small = append(p.small, b)
	} else {
		p.big = append(p.big, b)
	}
}
