package qdisc

// What the netlink library does not speak: the attributes of netem beyond the
// first, of tbf with a burst in bytes and, all in one place then, those of htb
// and u32. Structures and numbers are of linux/pkt_sched.h and linux/pkt_cls.h.

import (
	"encoding/binary"
	"fmt"
	"math"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

type nlAttr = syscall.NetlinkRouteAttr

var native = binary.NativeEndian

// unlimited is a rate in bytes a second at which the largest packet takes no
// time in the kernel's arithmetic, so that nothing ever waits for it.
const unlimited = 1_000_000_000_000

// A tick is what the kernel counts some times in (PSCHED_SHIFT).
const tick = 64 * time.Nanosecond

func ticks(ns int64) uint32 { return uint32(min(ns/int64(tick), math.MaxUint32)) }

// words are 32-bit numbers one after another, as a C structure has them.
func words(all ...uint32) []byte {
	var b []byte
	for _, w := range all {
		b = native.AppendUint32(b, w)
	}
	return b
}

func readWords(b []byte, to ...*uint32) error {
	if len(b) < 4*len(to) {
		return fmt.Errorf("%d bytes where the kernel has %d", len(b), 4*len(to))
	}
	for i, w := range to {
		*w = native.Uint32(b[4*i:])
	}
	return nil
}

func readLongs[T int64 | uint64](b []byte, to ...*T) error {
	if len(b) < 8*len(to) {
		return fmt.Errorf("%d bytes where the kernel has %d", len(b), 8*len(to))
	}
	for i, v := range to {
		*v = T(native.Uint64(b[8*i:]))
	}
	return nil
}

func attr(kind int, value []byte) []byte { return nl.NewRtAttr(kind, value).Serialize() }

func long(v uint64) []byte { return native.AppendUint64(nil, v) }

// low is a rate's lower half, all ones where that does not hold it.
func low(rate uint64) uint32 { return uint32(min(rate, math.MaxUint32)) }

// Attributes of netem that the library has no names for.
const (
	netemLatency64 = 10 + iota
	netemJitter64
	netemSlot
	netemSlotDist
	netemPRNGSeed
)

const (
	lossStates  = 1 // NETEM_LOSS_GI
	lossGilbert = 2 // NETEM_LOSS_GE
)

// encode writes all that netem has, also what is 0: an attribute that is
// missing leaves what was before.
func (o options) encode(table []int16) []byte {
	b := words(ticks(o.latency), o.limit, o.loss, o.gap, o.duplicate, ticks(o.jitter))
	add := func(kind int, value []byte) { b = append(b, attr(kind, value)...) }
	add(nl.TCA_NETEM_CORR, words(o.jitterCorr, o.lossCorr, o.duplicateCorr))
	add(nl.TCA_NETEM_REORDER, words(o.reorder, o.reorderCorr))
	add(nl.TCA_NETEM_CORRUPT, words(o.corrupt, o.corruptCorr))
	add(nl.TCA_NETEM_RATE, words(low(o.rate), 0, 0, 0)) // no overhead, no cells
	if o.rate > math.MaxUint32 {
		add(nl.TCA_NETEM_RATE64, long(o.rate))
	}
	switch o.model { // without it losses are random
	case lossStates:
		s := o.states
		add(nl.TCA_NETEM_LOSS|unix.NLA_F_NESTED, attr(lossStates, words(s.p13, s.p31, s.p32, s.p14, s.p23)))
	case lossGilbert:
		g := o.gilbert
		add(nl.TCA_NETEM_LOSS|unix.NLA_F_NESTED, attr(lossGilbert, words(g.p, g.r, g.h, g.k1)))
	}
	add(nl.TCA_NETEM_ECN, words(0))
	add(netemLatency64, long(uint64(o.latency)))
	add(netemJitter64, long(uint64(o.jitter)))
	s := o.slot
	slot := append(long(uint64(s.min)), long(uint64(s.max))...)
	slot = append(slot, words(s.packets, s.bytes)...)
	add(netemSlot, append(slot, make([]byte, 16)...)) // no distribution
	if o.seed != 0 {
		add(netemPRNGSeed, long(o.seed))
	}
	if len(table) > 0 {
		var t []byte
		for _, v := range table {
			t = native.AppendUint16(t, uint16(v))
		}
		add(nl.TCA_NETEM_DELAY_DIST, t)
	}
	return b
}

// decodeOptions reads what the kernel has. It does not say its table.
func decodeOptions(b []byte) (o options, err error) {
	var latency, jitter uint32
	if err := readWords(b, &latency, &o.limit, &o.loss, &o.gap, &o.duplicate, &jitter); err != nil {
		return o, fmt.Errorf("netem: %w", err)
	}
	o.latency, o.jitter = int64(latency)*int64(tick), int64(jitter)*int64(tick)
	attrs, err := nl.ParseRouteAttr(b[24:])
	if err != nil {
		return o, fmt.Errorf("netem: %w", err)
	}
	for _, a := range attrs {
		v := a.Value
		switch a.Attr.Type &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER) {
		case nl.TCA_NETEM_CORR:
			err = readWords(v, &o.jitterCorr, &o.lossCorr, &o.duplicateCorr)
		case nl.TCA_NETEM_REORDER:
			err = readWords(v, &o.reorder, &o.reorderCorr)
		case nl.TCA_NETEM_CORRUPT:
			err = readWords(v, &o.corrupt, &o.corruptCorr)
		case nl.TCA_NETEM_RATE:
			var rate uint32
			err = readWords(v, &rate)
			o.rate = max(o.rate, uint64(rate))
		case nl.TCA_NETEM_RATE64:
			err = readLongs(v, &o.rate)
		case netemLatency64:
			err = readLongs(v, &o.latency)
		case netemJitter64:
			err = readLongs(v, &o.jitter)
		case netemPRNGSeed:
			err = readLongs(v, &o.seed)
		case netemSlot:
			if err = readLongs(v, &o.slot.min, &o.slot.max); err == nil {
				err = readWords(v[16:], &o.slot.packets, &o.slot.bytes)
			}
			o.slot.packets, o.slot.bytes = unbounded(o.slot.packets), unbounded(o.slot.bytes)
		case nl.TCA_NETEM_LOSS:
			err = o.readLoss(v)
		}
		if err != nil {
			return o, fmt.Errorf("netem: attribute %d: %w", a.Attr.Type, err)
		}
	}
	return o, nil
}

// unbounded turns what netem makes of a slot's missing bounds back to none.
func unbounded(n uint32) uint32 {
	if n == math.MaxInt32 {
		return 0
	}
	return n
}

func (o *options) readLoss(b []byte) error {
	attrs, err := nl.ParseRouteAttr(b)
	if err != nil {
		return err
	}
	for _, a := range attrs {
		switch kind := a.Attr.Type &^ unix.NLA_F_NESTED; kind {
		case lossStates:
			s := &o.states
			err = readWords(a.Value, &s.p13, &s.p31, &s.p32, &s.p14, &s.p23)
			o.model = lossStates
		case lossGilbert:
			g := &o.gilbert
			err = readWords(a.Value, &g.p, &g.r, &g.h, &g.k1)
			o.model = lossGilbert
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// linkLayerEthernet says that times follow from rates alone, without a table.
const linkLayerEthernet = 1

// rateSpec is struct tc_ratespec.
func rateSpec(rate uint64) []byte {
	return append([]byte{0, linkLayerEthernet, 0, 0, 0, 0, 0, 0}, words(low(rate))...)
}

// encode writes tbf. Its limit bounds a queue that it does not have, since
// netem's is in its place: it is there to be read back, for the kernel does
// not tell bursts.
func (s shaper) encode() []byte {
	parms := append(rateSpec(s.rate), rateSpec(s.peak)...)
	parms = append(parms, words(s.burst, 0, 0)...)
	b := attr(nl.TCA_TBF_PARMS, parms)
	b = append(b, attr(nl.TCA_TBF_BURST, words(s.burst))...)
	b = append(b, attr(nl.TCA_TBF_RATE64, long(s.rate))...)
	if s.peak != 0 {
		b = append(b, attr(nl.TCA_TBF_PRATE64, long(s.peak))...)
		b = append(b, attr(nl.TCA_TBF_PBURST, words(s.largest))...)
	}
	return b
}

// decodeShaper reads all but largest.
func decodeShaper(b []byte) (s shaper, err error) {
	attrs, err := nl.ParseRouteAttr(b)
	if err != nil {
		return s, fmt.Errorf("tbf: %w", err)
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case nl.TCA_TBF_PARMS:
			var rate, peak, skip uint32
			err = readWords(a.Value, &skip, &skip, &rate, &skip, &skip, &peak, &s.burst)
			s.rate, s.peak = max(s.rate, uint64(rate)), max(s.peak, uint64(peak))
		case nl.TCA_TBF_RATE64:
			err = readLongs(a.Value, &s.rate)
		case nl.TCA_TBF_PRATE64:
			err = readLongs(a.Value, &s.peak)
		}
		if err != nil {
			return s, fmt.Errorf("tbf: attribute %d: %w", a.Attr.Type, err)
		}
	}
	return s, nil
}

const (
	directQueue = 1 << 30 // packets
	quantum     = 1 << 16 // bytes that a class may send in its turn
)

// encodeRoot writes htb without a default class: what no filter picks goes
// straight through, by a queue that is never full.
func encodeRoot() []byte {
	const version, rateToQuantum = 3, 10
	return append(attr(nl.TCA_HTB_INIT, words(version, rateToQuantum, 0, 0, 0)),
		attr(nl.TCA_HTB_DIRECT_QLEN, words(directQueue))...)
}

// encodeClass writes a class of htb that never holds anything up.
func encodeClass() []byte {
	const bucket = 1 << 10
	parms := append(rateSpec(unlimited), rateSpec(unlimited)...)
	parms = append(parms, words(bucket, bucket, quantum, 0, 0)...)
	b := attr(nl.TCA_HTB_PARMS, parms)
	b = append(b, attr(nl.TCA_HTB_RATE64, long(unlimited))...)
	return append(b, attr(nl.TCA_HTB_CEIL64, long(unlimited))...)
}

// encode writes u32's options: the class that packets with all these keys belong to.
func (f filter) encode() []byte {
	sel := make([]byte, nl.SizeofTcU32Sel)
	sel[0], sel[2] = nl.TC_U32_TERMINAL, byte(len(f.keys))
	for _, k := range f.keys {
		sel = binary.BigEndian.AppendUint32(sel, k.mask)
		sel = binary.BigEndian.AppendUint32(sel, k.value)
		sel = append(sel, words(uint32(k.at), 0)...)
	}
	return append(attr(nl.TCA_U32_CLASSID, words(f.class)), attr(nl.TCA_U32_SEL, sel)...)
}

// decodeFilter reads what encode has written; ok is false for what is no filter
// but a table of them.
func decodeFilter(b []byte) (class uint32, keys []key, ok bool, err error) {
	attrs, err := nl.ParseRouteAttr(b)
	if err != nil {
		return 0, nil, false, fmt.Errorf("u32: %w", err)
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case nl.TCA_U32_CLASSID:
			err = readWords(a.Value, &class)
		case nl.TCA_U32_SEL:
			ok = true
			for b := a.Value[min(nl.SizeofTcU32Sel, len(a.Value)):]; len(b) >= nl.SizeofTcU32Key; b = b[nl.SizeofTcU32Key:] {
				keys = append(keys, key{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), int32(native.Uint32(b[8:]))})
			}
		}
		if err != nil {
			return 0, nil, false, fmt.Errorf("u32: attribute %d: %w", a.Attr.Type, err)
		}
	}
	return class, keys, ok, nil
}

// read reads TCA_STATS2.
func (s *stats) read(b []byte) error {
	attrs, err := nl.ParseRouteAttr(b)
	if err != nil {
		return fmt.Errorf("statistics: %w", err)
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case nl.TCA_STATS_BASIC:
			var packets uint32
			if err = readLongs(a.Value, &s.bytes); err == nil {
				err = readWords(a.Value[8:], &packets)
			}
			s.packets = max(s.packets, uint64(packets))
		case nl.TCA_STATS_PKT64:
			err = readLongs(a.Value, &s.packets)
		case nl.TCA_STATS_QUEUE:
			var bytes uint32
			err = readWords(a.Value, &s.backlog, &bytes, &s.dropped)
		}
		if err != nil {
			return fmt.Errorf("statistics: attribute %d: %w", a.Attr.Type, err)
		}
	}
	return nil
}
