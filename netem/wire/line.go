package wire

import "time"

// A line is one directed link: packets leave it in the order of their arrival,
// each a delay after it came. Deadlines are not stored but follow from the
// line's present delay, so a change holds at once for packets under way, and
// none can overtake another.
type line struct {
	delay time.Duration
	q     fifo
}

// deadline is when the oldest packet has to leave. ok is false when there is
// none.
func (l *line) deadline() (at time.Duration, ok bool) {
	if l.q.len() == 0 {
		return 0, false
	}
	return l.q.peek().at + l.delay, true
}

// A packet is a frame behind its virtio header.
type packet struct {
	at time.Duration // of arrival, on the engine's clock
	b  []byte
}

// fifo is a queue of packets that reuses its memory.
type fifo struct {
	ring []packet // length is a power of two
	head uint     // of the oldest
	tail uint     // behind the newest
}

func (f *fifo) len() int      { return int(f.tail - f.head) }
func (f *fifo) peek() *packet { return &f.ring[f.head&uint(len(f.ring)-1)] }

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
