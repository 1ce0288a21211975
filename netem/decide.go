package netem

import (
	"math"
	"math/rand/v2"
	"time"
)

// A Decider decides what becomes of each packet of one link, in the order and
// with the arithmetic of kernel netem. It does not know the time: see Pacer.
type Decider struct {
	i     Impairment
	table []int16
	rng   *rand.PCG

	jitterLast, lossLast, duplicateLast, reorderLast, corruptLast uint32

	bad     bool  // Gilbert's state
	state   uint8 // FourState's, from 0
	counter int   // packets since the last one that was reordered
}

// Fate is what becomes of one copy of a packet.
type Fate struct {
	// Offset is added to the link's delay. The sum may be negative: at once.
	Offset time.Duration
	// Ahead sends the packet at once, before all that wait.
	Ahead bool
	// Flip, where it is not -1, is a number from which the bit to change follows:
	// modulo the packet's bits.
	Flip int64
}

// Verdict is what becomes of a packet: N copies arrive.
type Verdict struct {
	N      int
	Copies [2]Fate
}

// NewDecider begins with what has not been validated again here. With a seed,
// two deciders take the same decisions.
func NewDecider(i Impairment) *Decider {
	d := &Decider{}
	d.Change(i)
	return d
}

// Change goes on with another impairment. States and draws begin anew, as with
// kernel netem.
func (d *Decider) Change(i Impairment) {
	seed := i.Seed
	for seed == 0 {
		seed = rand.Uint64()
	}
	*d = Decider{i: i, table: i.Distribution.Table(), rng: rand.NewPCG(seed, 0)}
}

// Decide takes the next packet.
func (d *Decider) Decide() Verdict {
	var v Verdict
	if d.i.Partition {
		return v
	}
	n := 1
	if d.happens(d.i.Duplicate, &d.duplicateLast) {
		n++
	}
	if d.lost() { // takes one copy, as in the kernel
		n--
	}
	v.N = n
	for c := range n {
		v.Copies[c] = d.fate()
	}
	return v
}

func (d *Decider) fate() Fate {
	f := Fate{Flip: -1}
	if d.happens(d.i.Corrupt, &d.corruptLast) {
		f.Flip = int64(d.uint32())
	}
	gap := d.i.Gap
	if d.i.Reorder.Chance != 0 && gap == 0 {
		gap = 1
	}
	if gap == 0 || d.counter < gap-1 || !d.happens(d.i.Reorder, &d.reorderLast) {
		d.counter++
		f.Offset = d.jitter()
	} else {
		d.counter = 0
		f.Ahead = true
	}
	return f
}

func (d *Decider) uint32() uint32 { return uint32(d.rng.Uint64() >> 32) }

// draw is netem's correlated random number: an average of a new one and the one
// before.
func (d *Decider) draw(correlation Share, last *uint32) uint32 {
	v := uint64(d.uint32())
	rho := uint64(correlation.Uint32())
	if rho == 0 {
		return uint32(v)
	}
	*last = uint32((v*(1<<32-(rho+1)) + uint64(*last)*(rho+1)) >> 32)
	return *last
}

func (d *Decider) happens(r Random, last *uint32) bool {
	return r.Chance != 0 && r.Chance.Uint32() >= d.draw(r.Correlation, last)
}

// below draws once for a transition.
func (d *Decider) below(p Share) bool { return p == Whole || d.uint32() < p.Uint32() }

func (d *Decider) lost() bool {
	switch {
	case d.i.Gilbert != GilbertElliott{}:
		g := d.i.Gilbert
		if !d.bad {
			d.bad = d.below(g.P)
			return d.below(g.GoodLoss)
		}
		d.bad = !d.below(g.R)
		return d.below(g.BadLoss)
	case d.i.States != FourState{}:
		return d.fourState()
	}
	return d.happens(d.i.Loss, &d.lossLast)
}

const (
	inGap = iota
	inBurst
	lostInBurst
	lostInGap
)

func (d *Decider) fourState() bool {
	s, rnd := d.i.States, uint64(d.uint32())
	under := func(p ...Share) bool {
		sum := uint64(0)
		for _, x := range p {
			sum += uint64(x.Uint32())
		}
		return rnd < sum || sum >= math.MaxUint32
	}
	switch d.state {
	case inGap:
		switch {
		case s.P14 != 0 && under(s.P14):
			d.state = lostInGap
			return true
		case under(s.P14, s.P13):
			d.state = lostInBurst
			return true
		}
	case inBurst:
		if under(s.P23) {
			d.state = lostInBurst
			return true
		}
	case lostInBurst:
		switch {
		case under(s.P32):
			d.state = inBurst
		case under(s.P32, s.P31):
			d.state = inGap
		default:
			return true
		}
	case lostInGap:
		d.state = inGap
	}
	return false
}

// jitter is one draw's distance from the delay.
func (d *Decider) jitter() time.Duration {
	sigma := int64(d.i.Jitter)
	if sigma == 0 {
		return 0
	}
	rnd := d.draw(d.i.JitterCorrelation, &d.jitterLast)
	if d.table == nil {
		return time.Duration(int64(rnd)%(2*sigma) - sigma)
	}
	t := int64(d.table[int(rnd)%len(d.table)])
	x := sigma % tableScale * t
	if x >= 0 {
		x += tableScale / 2
	} else {
		x -= tableScale / 2
	}
	return time.Duration(x/tableScale + sigma/tableScale*t)
}

// A Pacer decides when packets that have waited for their delay may leave a
// link of a given rate or with slots. Times are on the caller's clock.
type Pacer struct {
	rate    Rate
	credit  time.Duration // that Burst is worth
	slot    Slot
	rng     *rand.PCG
	free    time.Duration // when the link has sent all it was given
	next    time.Duration // slot
	packets int           // left in it
	bytes   Bytes
}

// Change sets rate and slots. What was sent before still takes its time.
func (p *Pacer) Change(i Impairment) {
	p.rate, p.slot = i.Rate, i.Slot
	p.credit = 0
	if i.Rate > 0 {
		p.credit = p.takes(int(i.Burst))
	}
	if p.rng == nil || i.Seed != 0 {
		seed := i.Seed
		if seed == 0 {
			seed = rand.Uint64()
		}
		p.rng = rand.NewPCG(seed, 1)
	}
	p.packets, p.bytes = i.Slot.Packets, i.Slot.Bytes
}

// Idle tells that packets leave when they are ready.
func (p *Pacer) Idle() bool { return p.rate == 0 && p.slot == Slot{} }

// takes is how long size bytes occupy the link.
func (p *Pacer) takes(size int) time.Duration {
	return time.Duration(float64(size) * 8 * float64(time.Second) / float64(p.rate))
}

// Departure is when the next packet leaves that is ready at the given time and
// has size bytes. It may be asked again, also for another time.
func (p *Pacer) Departure(ready time.Duration, size int) time.Duration {
	if p.slot.Min != 0 {
		if ready-p.next > 1000*p.slot.Max {
			p.next = ready - p.slot.Max // after a long silence
		}
		for p.next < ready {
			p.open(p.next)
		}
		ready = p.next
	}
	if p.rate != 0 {
		ready = max(ready, max(p.free, ready-p.credit)+p.takes(size))
	}
	return ready
}

// Sent tells that the packet has been given to the link.
func (p *Pacer) Sent(ready time.Duration, size int) {
	leaves := p.Departure(ready, size)
	if p.rate != 0 {
		start := ready
		if p.slot.Min != 0 {
			start = p.next
		}
		p.free = max(p.free, start-p.credit) + p.takes(size)
	}
	if p.slot.Min != 0 {
		p.packets--
		p.bytes -= Bytes(size)
		if p.slot.Packets != 0 && p.packets <= 0 || p.slot.Bytes != 0 && p.bytes <= 0 {
			p.open(max(p.next, leaves))
		}
	}
}

// open draws the slot after one at the given time.
func (p *Pacer) open(after time.Duration) {
	gap := p.slot.Min
	if spread := p.slot.Max - p.slot.Min; spread > 0 {
		gap += time.Duration(p.rng.Uint64() % uint64(spread))
	}
	p.next = after + max(gap, 1)
	p.packets, p.bytes = p.slot.Packets, p.slot.Bytes
}
