package netem

import (
	"cmp"
	"fmt"
	"time"
)

// Impairment is what is done to the packets of one directed link. The zero
// value does nothing, but packets still take the emulator's path: that is what
// a baseline needs.
type Impairment struct {
	// Delay is added to every packet, one way.
	Delay time.Duration
	// Jitter is how far delays lie from Delay, distributed as Distribution
	// says. Packets keep their order under it: one that is late holds up those
	// behind it, as in a router's queue. Reorder is for the other thing.
	Jitter            time.Duration
	JitterCorrelation Share
	Distribution      Distribution

	// At most one of Loss, Gilbert and States is not zero.
	Loss    Random
	Gilbert GilbertElliott
	States  FourState

	Duplicate Random
	// Reorder is the chance of a packet to go ahead at once of those that wait
	// for their delay. With a Gap of n only every n-th packet has that chance.
	Reorder Random
	Gap     int
	// Corrupt is the chance of a packet to arrive with one bit changed.
	Corrupt Random

	// Rate is how fast packets leave, link headers included; 0 is no bound.
	Rate Rate
	// Burst is how much may leave at once after a silence before Rate holds.
	Burst Bytes
	// Limit is how many packets the link holds before it drops new ones; 0 is
	// so many that a link without Rate never drops, and one with Rate has a
	// queue of 1,000 packets beside what its delay keeps under way.
	Limit int

	// Partition drops everything, silently.
	Partition bool
	Slot      Slot
	// Seed makes faults repeatable: the same packets meet the same fates. 0
	// takes a different one each time.
	Seed uint64
}

// Random is the chance that something happens to a packet, and how much the
// next packet's draw resembles the last one's. Correlation is kernel netem's: a
// moving average of draws, which lie nearer to the middle for it, so a small
// chance becomes much smaller. For losses in bursts GilbertElliott is the
// better model.
type Random struct{ Chance, Correlation Share }

// GilbertElliott loses packets in bursts: a good and a bad state, in each a
// chance of loss. P leads from good to bad, R back. BadLoss (1-h) is 100% in
// the simple Gilbert model, GoodLoss (1-k) 0.
type GilbertElliott struct{ P, R, BadLoss, GoodLoss Share }

// FourState is netem's Markov model: 1 good, 2 good within a burst, 3 lost
// within a burst, 4 lost alone. P13 means from 1 to 3.
type FourState struct{ P13, P31, P32, P23, P14 Share }

// Slot holds packets back and lets those that wait leave together, every Min to
// Max, as radio links and some virtual network cards do. Packets and Bytes bound what
// leaves at once; 0 is no bound.
type Slot struct {
	Min, Max time.Duration
	Packets  int
	Bytes    Bytes
}

const (
	// MaxDelay bounds the delay of one direction. Longer is a mistake in units
	// rather than a network.
	MaxDelay = 300 * time.Second
	// MaxJitter is what kernel netem can draw.
	MaxJitter = 2 * time.Second
)

// PerPacket tells whether packets meet different fates, so that it matters
// where one ends and the next begins: segments of TCP that travel as one large
// packet inside a machine have to be cut first.
func (i Impairment) PerPacket() bool {
	return i.Loss != Random{} || i.Gilbert != GilbertElliott{} || i.States != FourState{} || i.Duplicate != Random{} ||
		i.Reorder != Random{} || i.Corrupt != Random{} || i.Jitter != 0 || i.Rate != 0 || i.Limit != 0 || i.Slot != Slot{}
}

// Lossy tells whether packets get lost because it was asked.
func (i Impairment) Lossy() bool {
	return i.Partition || i.Loss != Random{} || i.Gilbert != GilbertElliott{} || i.States != FourState{} || i.Rate != 0 || i.Limit != 0
}

// Bursty tells whether losses come in bursts, so that a count of them tells
// less than one of single losses.
func (i Impairment) Bursty() bool {
	return i.Gilbert != GilbertElliott{} || i.States != FourState{} || i.Loss.Correlation != 0
}

// Queues tells whether packets wait for others, so that their delay is at least
// the one asked and depends on the traffic.
func (i Impairment) Queues() bool { return i.Rate != 0 || i.Slot != Slot{} }

// Overtakes tells whether packets may be quicker than the delay.
func (i Impairment) Overtakes() bool { return i.Reorder != Random{} }

// CorruptRate is the share of packets that arrive spoilt.
func (i Impairment) CorruptRate() float64 { return i.Corrupt.Chance.float() }

// queueBehindRate is how many packets wait for their turn at a given rate, tc's
// own default.
const queueBehindRate = 1000

// QueueLimit is Limit, or what its zero stands for.
//
// Without a rate the link holds what arrives in a delay. The fastest senders
// here make two million packets a second, and a limit costs nothing while it
// is not reached.
func (i Impairment) QueueLimit() int {
	const (
		fastest = 2e6 // packets a second
		least   = 100_000
		most    = 100_000_000
		small   = 64 // bytes, of the smallest packet
	)
	// Jitter tables reach to four times the jitter.
	held := (i.Delay + 4*i.Jitter + i.Slot.Max).Seconds()
	switch {
	case i.Limit > 0:
		return i.Limit
	case i.Rate > 0:
		return queueBehindRate + int(min(held*min(float64(i.Rate)/8/small, fastest), most))
	}
	return int(min(max(2*held*fastest, least), most))
}

// Validate reports what makes the impairment impossible.
func (i Impairment) Validate() error {
	for _, c := range []struct {
		name     string
		d, limit time.Duration
	}{
		{"delay", i.Delay, MaxDelay}, {"jitter", i.Jitter, MaxJitter},
		{"slot", i.Slot.Min, MaxDelay}, {"slot", i.Slot.Max, MaxDelay},
	} {
		switch {
		case c.d < 0:
			return fmt.Errorf("%s %s is negative", c.name, FormatDuration(-c.d))
		case c.d > c.limit:
			return fmt.Errorf("%s %s is longer than %s", c.name, FormatDuration(c.d), FormatDuration(c.limit))
		}
	}
	for _, c := range []struct {
		name   string
		shares []Share
	}{
		{"jitter", []Share{i.JitterCorrelation}}, {"loss", []Share{i.Loss.Chance, i.Loss.Correlation}},
		{"loss gemodel", []Share{i.Gilbert.P, i.Gilbert.R, i.Gilbert.BadLoss, i.Gilbert.GoodLoss}},
		{"loss state", []Share{i.States.P13, i.States.P31, i.States.P32, i.States.P23, i.States.P14}},
		{"duplicate", []Share{i.Duplicate.Chance, i.Duplicate.Correlation}},
		{"reorder", []Share{i.Reorder.Chance, i.Reorder.Correlation}},
		{"corrupt", []Share{i.Corrupt.Chance, i.Corrupt.Correlation}},
	} {
		for _, s := range c.shares {
			if s > Whole {
				return fmt.Errorf("%s %s is more than 100%%", c.name, s)
			}
		}
	}
	models := 0
	for _, on := range []bool{i.Loss != Random{}, i.Gilbert != GilbertElliott{}, i.States != FourState{}} {
		if on {
			models++
		}
	}
	table, err := i.Distribution.table()
	switch {
	case err != nil:
		return err
	case models > 1:
		return fmt.Errorf("loss has more than one model")
	case i.Loss.Chance == 0 && i.Loss.Correlation != 0, i.Duplicate.Chance == 0 && i.Duplicate.Correlation != 0,
		i.Reorder.Chance == 0 && i.Reorder.Correlation != 0, i.Corrupt.Chance == 0 && i.Corrupt.Correlation != 0:
		return fmt.Errorf("a correlation of something that never happens")
	case i.States != FourState{} && i.States.P13+i.States.P14 > Whole:
		return fmt.Errorf("loss state: P13 %s and P14 %s are together more than 100%%", i.States.P13, i.States.P14)
	case i.States != FourState{} && i.States.P31+i.States.P32 > Whole:
		return fmt.Errorf("loss state: P31 %s and P32 %s are together more than 100%%", i.States.P31, i.States.P32)
	case i.Jitter == 0 && (i.JitterCorrelation != 0 || table != nil || i.Distribution.Name != ""):
		return fmt.Errorf("a distribution or correlation of jitter without jitter")
	case i.Reorder.Chance != 0 && i.Delay == 0:
		return fmt.Errorf("reorder without delay: with nothing waiting there is nothing to go ahead of")
	case i.Gap != 0 && i.Reorder.Chance == 0:
		return fmt.Errorf("gap without reorder")
	case i.Gap < 0 || i.Gap > 1_000_000:
		return fmt.Errorf("gap %d is not 1 to 1,000,000 packets", i.Gap)
	case i.Rate < 0 || i.Rate%8 != 0:
		return fmt.Errorf("rate %d bit/s is not a whole number of bytes a second", i.Rate)
	case i.Rate != 0 && i.Rate < minRate:
		return fmt.Errorf("rate %s is less than %s", i.Rate, Rate(minRate))
	case i.Burst != 0 && i.Rate == 0:
		return fmt.Errorf("burst without rate")
	case i.Burst < 0 || i.Burst > 1<<30 || i.Burst != 0 && i.Burst < minBurst:
		return fmt.Errorf("burst %s is not %s to 1gb: it must hold at least one packet", i.Burst, Bytes(minBurst))
	case i.Limit < 0 || i.Limit > 100_000_000:
		return fmt.Errorf("limit %d is not 1 to 100,000,000 packets", i.Limit)
	case i.Slot.Max != 0 && i.Slot.Max < i.Slot.Min:
		return fmt.Errorf("slot: %s is less than %s", FormatDuration(i.Slot.Max), FormatDuration(i.Slot.Min))
	case i.Slot.Min == 0 && i.Slot != Slot{}:
		return fmt.Errorf("slot without the time between two")
	case i.Slot.Packets < 0 || i.Slot.Packets > 1_000_000 || i.Slot.Bytes < 0 || i.Slot.Bytes > 1<<30:
		return fmt.Errorf("slot: %d packets or %s are out of bounds", i.Slot.Packets, i.Slot.Bytes)
	case i.Partition && i.withoutPartition() != Impairment{}:
		return fmt.Errorf("partition drops every packet: nothing else can be done to them")
	}
	return nil
}

// Plus is what i and j do together: their delays add up, and of all else j's
// holds where it says anything.
func (i Impairment) Plus(j Impairment) Impairment {
	if i.Partition || j.Partition {
		return Impairment{Partition: true}
	}
	i.Delay += j.Delay
	if j.Jitter != 0 {
		i.Jitter, i.JitterCorrelation, i.Distribution = j.Jitter, j.JitterCorrelation, j.Distribution
	}
	if (j.Loss != Random{} || j.Gilbert != GilbertElliott{} || j.States != FourState{}) {
		i.Loss, i.Gilbert, i.States = j.Loss, j.Gilbert, j.States
	}
	if (j.Reorder != Random{}) {
		i.Reorder, i.Gap = j.Reorder, j.Gap
	}
	if j.Rate != 0 {
		i.Rate, i.Burst = j.Rate, j.Burst
	}
	i.Duplicate, i.Corrupt = cmp.Or(j.Duplicate, i.Duplicate), cmp.Or(j.Corrupt, i.Corrupt)
	i.Limit, i.Slot, i.Seed = cmp.Or(j.Limit, i.Limit), cmp.Or(j.Slot, i.Slot), cmp.Or(j.Seed, i.Seed)
	return i
}

func (i Impairment) withoutPartition() Impairment { i.Partition = false; return i }

const (
	minRate  = 8_000 // bit/s, a kilobyte a second: below it one packet takes seconds
	minBurst = 1600  // bytes, of one packet with its headers
)

// LossRate is the share of packets that loss takes in the long run. A correlated
// Random's follows from its decisions.
func (i Impairment) LossRate() float64 {
	g, s := i.Gilbert, i.States
	switch {
	case i.Partition:
		return 1
	case g != GilbertElliott{}:
		p, r := g.P.float(), g.R.float()
		bad := 0.0 // where the good state is never left
		if p > 0 {
			bad = p / (p + r)
		}
		return bad*g.BadLoss.float() + (1-bad)*g.GoodLoss.float()
	case s != FourState{}:
		if s.P13 == 0 {
			lost := s.P14.float()
			return lost / (1 + lost)
		}
		if s.P31 == 0 { // never out of the burst again
			if s.P32 == 0 {
				return 1
			}
			return s.P23.float() / (s.P23.float() + s.P32.float())
		}
		one, four := 1.0, s.P14.float()
		three := s.P13.float() / s.P31.float()
		two := 0.0
		if s.P32 > 0 {
			if s.P23 == 0 { // never out of state 2 again
				return 0
			}
			two = three * s.P32.float() / s.P23.float()
		}
		return (three + four) / (one + two + three + four)
	case i.Loss.Correlation != 0:
		const draws = 200_000
		d := NewDecider(Impairment{Loss: i.Loss, Seed: 1})
		lost := 0
		for range draws {
			if d.lost() {
				lost++
			}
		}
		return float64(lost) / draws
	}
	return i.Loss.Chance.float()
}

// LossSpread is how many times the variance of the number of lost packets is
// that of packets which are lost each for itself: 1 for those, more where losses
// cluster, also where few of a cluster are lost in a row. But for Gilbert-Elliott
// it follows from the decisions.
func (i Impairment) LossSpread() float64 {
	if !i.Bursty() {
		return 1
	}
	if g := i.Gilbert; g != (GilbertElliott{}) {
		p, r, lost := g.P.float(), g.R.float(), i.LossRate()
		if p == 0 || r == 0 || lost == 0 || lost == 1 {
			return 1
		}
		// Variance and covariances of a chain that keeps 1-p-r of its state.
		bad, stays, apart := p/(p+r), 1-p-r, g.BadLoss.float()-g.GoodLoss.float()
		return max(1+2*apart*apart*bad*(1-bad)*stays/(1-stays)/(lost*(1-lost)), 1)
	}
	const blocks, size = 200, 2000
	d := NewDecider(Impairment{Loss: i.Loss, States: i.States, Seed: 1})
	var sum, squares float64
	for range blocks {
		lost := 0.0
		for range size {
			if d.lost() {
				lost++
			}
		}
		sum, squares = sum+lost, squares+lost*lost
	}
	mean := sum / blocks
	alone := mean * (1 - mean/size)
	if alone == 0 {
		return 1
	}
	return max((squares/blocks-mean*mean)/alone, 1)
}
