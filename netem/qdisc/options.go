package qdisc

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/faultlab/faultlab/netem"
)

// options are all that one netem qdisc is told, in the kernel's units: times
// in nanoseconds, chances of 2^32-1, rates in bytes a second. Two that are
// equal do the same, but for the table of their jitter, which the kernel does
// not show.
type options struct {
	latency, jitter            int64
	limit                      uint32 // packets
	jitterCorr, lossCorr, loss uint32
	model                      int // of loss: 0, lossStates, lossGilbert
	gilbert                    gilbert
	states                     states
	duplicate, duplicateCorr   uint32
	reorder, reorderCorr, gap  uint32
	corrupt, corruptCorr       uint32
	rate                       uint64 // 0 is none
	slot                       slot
	seed                       uint64 // 0 leaves the choice to the kernel
}

type gilbert struct{ p, r, h, k1 uint32 } // h is 1 - the loss of the bad state

type states struct{ p13, p31, p32, p14, p23 uint32 }

type slot struct {
	min, max       int64
	packets, bytes uint32
}

// optionsOf translates. The token bucket of a rate with burst is not netem's:
// see shaperOf.
func optionsOf(i netem.Impairment) options {
	o := options{
		latency: int64(i.Delay), jitter: int64(i.Jitter), jitterCorr: i.JitterCorrelation.Uint32(),
		limit: uint32(i.QueueLimit()),
		loss:  i.Loss.Chance.Uint32(), lossCorr: i.Loss.Correlation.Uint32(),
		duplicate: i.Duplicate.Chance.Uint32(), duplicateCorr: i.Duplicate.Correlation.Uint32(),
		reorder: i.Reorder.Chance.Uint32(), reorderCorr: i.Reorder.Correlation.Uint32(), gap: uint32(i.Gap),
		corrupt: i.Corrupt.Chance.Uint32(), corruptCorr: i.Corrupt.Correlation.Uint32(),
		slot: slot{int64(i.Slot.Min), int64(i.Slot.Max), uint32(i.Slot.Packets), uint32(i.Slot.Bytes)},
		seed: i.Seed,
	}
	if i.Partition {
		// What netem loses is gone without a word to the sender.
		o.loss = math.MaxUint32
	}
	if g := i.Gilbert; g != (netem.GilbertElliott{}) {
		o.model = lossGilbert
		o.gilbert = gilbert{g.P.Uint32(), g.R.Uint32(), math.MaxUint32 - g.BadLoss.Uint32(), g.GoodLoss.Uint32()}
	}
	if s := i.States; s != (netem.FourState{}) {
		o.model = lossStates
		o.states = states{s.P13.Uint32(), s.P31.Uint32(), s.P32.Uint32(), s.P14.Uint32(), s.P23.Uint32()}
	}
	if o.reorder != 0 && o.gap == 0 {
		o.gap = 1 // 0 is netem's word for never
	}
	switch {
	case i.Rate != 0 && i.Burst == 0:
		o.rate = uint64(i.Rate) / 8
	case i.Jitter != 0:
		// With a rate no packet departs before the one ahead of it.
		o.rate = unlimited
	}
	return o
}

// impairment is what the options and the shaper above them do, for links that
// this process has not made itself. The distribution cannot be told.
func impairment(o options, s shaper) netem.Impairment {
	i := netem.Impairment{
		Delay: time.Duration(o.latency), Jitter: time.Duration(o.jitter), JitterCorrelation: share(o.jitterCorr),
		Loss:      netem.Random{Chance: share(o.loss), Correlation: share(o.lossCorr)},
		Duplicate: netem.Random{Chance: share(o.duplicate), Correlation: share(o.duplicateCorr)},
		Reorder:   netem.Random{Chance: share(o.reorder), Correlation: share(o.reorderCorr)},
		Gap:       int(o.gap),
		Corrupt:   netem.Random{Chance: share(o.corrupt), Correlation: share(o.corruptCorr)},
		Slot:      netem.Slot{Min: time.Duration(o.slot.min), Max: time.Duration(o.slot.max), Packets: int(o.slot.packets), Bytes: netem.Bytes(o.slot.bytes)},
	}
	if i.Gap == 1 {
		i.Gap = 0
	}
	switch g, t := o.gilbert, o.states; o.model {
	case lossGilbert:
		i.Gilbert = netem.GilbertElliott{P: share(g.p), R: share(g.r), BadLoss: share(math.MaxUint32 - g.h), GoodLoss: share(g.k1)}
	case lossStates:
		i.States = netem.FourState{P13: share(t.p13), P31: share(t.p31), P32: share(t.p32), P23: share(t.p23), P14: share(t.p14)}
	}
	switch {
	case s.rate != unlimited:
		i.Rate, i.Burst = netem.Rate(8*s.rate), netem.Bytes(s.burst)
	case o.rate != unlimited:
		i.Rate = netem.Rate(8 * o.rate)
	}
	if i.Limit = 0; int(o.limit) != i.QueueLimit() {
		i.Limit = int(o.limit)
	}
	alone := options{limit: o.limit, loss: math.MaxUint32, seed: o.seed}
	if o == alone {
		return netem.Impairment{Partition: true}
	}
	return i
}

// share is the Share that Uint32 makes u of, or the nearest.
func share(u uint32) netem.Share {
	return netem.Share((uint64(u)*uint64(netem.Whole) + math.MaxUint32/2) / math.MaxUint32)
}

// String is how tc is told the same, but for the table of the jitter.
func (o options) String() string { return o.text("") }

func (o options) text(distribution string) string {
	out := []string{"limit " + strconv.Itoa(int(o.limit))}
	add := func(word string, values ...string) {
		out = append(out, strings.TrimSpace(word+" "+strings.Join(values, " ")))
	}
	chances := func(all ...uint32) string {
		for len(all) > 1 && all[len(all)-1] == 0 {
			all = all[:len(all)-1]
		}
		var t []string
		for _, c := range all {
			t = append(t, share(c).String())
		}
		return strings.Join(t, " ")
	}
	if o.latency != 0 || o.jitter != 0 {
		add("delay", nanoseconds(o.latency))
		if o.jitter != 0 {
			add(nanoseconds(o.jitter))
			if o.jitterCorr != 0 {
				add(chances(o.jitterCorr))
			}
			if distribution != "" {
				add("distribution", distribution)
			}
		}
	}
	switch g, s := o.gilbert, o.states; {
	case o.model == lossGilbert:
		add("loss gemodel", share(g.p).String(), share(g.r).String(), share(math.MaxUint32-g.h).String(), share(g.k1).String())
	case o.model == lossStates:
		add("loss state", share(s.p13).String(), share(s.p31).String(), share(s.p32).String(), share(s.p23).String(), share(s.p14).String())
	case o.loss != 0:
		add("loss", chances(o.loss, o.lossCorr))
	}
	if o.duplicate != 0 {
		add("duplicate", chances(o.duplicate, o.duplicateCorr))
	}
	if o.reorder != 0 {
		add("reorder", chances(o.reorder, o.reorderCorr), "gap", strconv.Itoa(int(o.gap)))
	}
	if o.corrupt != 0 {
		add("corrupt", chances(o.corrupt, o.corruptCorr))
	}
	if o.rate != 0 {
		add("rate", rate(o.rate))
	}
	if o.slot != (slot{}) {
		add("slot", nanoseconds(o.slot.min), nanoseconds(o.slot.max))
		if o.slot.packets != 0 {
			add("packets", strconv.Itoa(int(o.slot.packets)))
		}
		if o.slot.bytes != 0 {
			add("bytes", strconv.Itoa(int(o.slot.bytes)))
		}
	}
	if o.seed != 0 {
		add("seed", strconv.FormatUint(o.seed, 10))
	}
	return strings.Join(out, " ")
}

// nanoseconds writes a time as tc reads it: in one unit, whole.
func nanoseconds(ns int64) string {
	switch {
	case ns%int64(time.Second) == 0 && ns != 0:
		return fmt.Sprintf("%ds", ns/int64(time.Second))
	case ns%int64(time.Millisecond) == 0:
		return fmt.Sprintf("%dms", ns/int64(time.Millisecond))
	case ns%int64(time.Microsecond) == 0:
		return fmt.Sprintf("%dus", ns/int64(time.Microsecond))
	}
	return fmt.Sprintf("%dns", ns)
}

func rate(bytes uint64) string { return netem.Rate(8 * bytes).String() }

// table is what jitter is drawn from. The uniform distribution has one too: netem
// draws from the last table it was given, and cannot be told to forget it.
func table(i netem.Impairment) []int16 {
	if i.Jitter == 0 {
		return nil
	}
	if t := i.Distribution.Table(); t != nil {
		return t
	}
	const size, scale = 4096, 8192 // one jitter is 8192
	t := make([]int16, size)
	for n := range t {
		t[n] = int16((2*n + 1 - size) * scale / size)
	}
	return t
}

// A shaper is the token bucket (tbf) above a link's netem. It is always there,
// so that it can be changed while packets pass. It cuts what is larger than
// its burst, and it is the bucket of a rate with a burst.
type shaper struct {
	rate    uint64 // bytes a second
	burst   uint32 // bytes; a larger packet is cut to segments
	peak    uint64 // where the burst is larger than a packet may be,
	largest uint32 // that is how large it may be
}

// headers are Ethernet's, with a VLAN tag, which an MTU leaves out.
const headers = 18

// shaperOf gives the shaper of a link on an interface whose largest frames have
// so many bytes.
func shaperOf(i netem.Impairment, frame uint32) shaper {
	switch {
	case i.Burst != 0:
		return shaper{rate: uint64(i.Rate) / 8, burst: uint32(i.Burst), peak: unlimited, largest: frame}
	case i.PerPacket():
		return shaper{rate: unlimited, burst: frame}
	}
	return shaper{rate: unlimited, burst: math.MaxUint32}
}

func (s shaper) String() string {
	out := fmt.Sprintf("rate %s burst %d", rate(s.rate), s.burst)
	if s.peak != 0 {
		out += fmt.Sprintf(" peakrate %s", rate(s.peak))
		if s.largest != 0 {
			out += fmt.Sprintf(" mtu %d", s.largest)
		}
	}
	return out + fmt.Sprintf(" limit %d", s.burst)
}
