package probe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/faultlab/faultlab/netem"
)

// A Check sets what was asked of a link and its way back against what is
// measured.
type Check struct {
	Pair
	There, Back netem.Impairment // From to To, To to From
	// Bare is the median round trip of the link with nothing asked; 0 where it
	// is not known, and then it is in what is measured.
	Bare time.Duration
	// Tolerance is by what share of a delay its median may be off, and Slack by
	// how much in any case. Defaults are a tenth and 0.3 ms, which a busy
	// machine needs.
	Tolerance float64
	Slack     time.Duration
}

// Confidence of the intervals by which a Check judges: of a thousand lines one
// is wrong by chance.
const Confidence = 0.999

// rateTolerance is by what share a rate may be off.
const rateTolerance = 0.05

// A Line is one thing asked of a link, beside what was measured.
type Line struct {
	What     string  `json:"what"` // rtt, or loss n1 to n2
	Unit     string  `json:"unit"` // ms, %, Mbit/s or bytes
	Asked    float64 `json:"asked"`
	Measured float64 `json:"measured"`
	// Low and High are what the measurement leaves open of the truth.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	OK   bool    `json:"ok"`
	// Note says what a reader has to know of it.
	Note string `json:"note,omitempty"`
}

func (l Line) String() string {
	s := fmt.Sprintf("%s: asked %s, measured %s", l.What, l.Text(l.Asked), l.Text(l.Measured))
	if l.Low != l.High {
		s += fmt.Sprintf(" (%s to %s)", l.Text(l.Low), l.Text(l.High))
	}
	if !l.OK {
		s += ": WRONG"
	}
	if l.Note != "" {
		s += "; " + l.Note
	}
	return s
}

// Text is one of the line's figures with its unit.
func (l Line) Text(v float64) string {
	switch l.Unit {
	case unitShare:
		return fmt.Sprintf("%.3g%%", v)
	case unitBytes:
		return fmt.Sprintf("%.0f bytes", v)
	}
	return fmt.Sprintf("%.3f %s", v, l.Unit)
}

const (
	unitTime  = "ms"
	unitShare = "%"
	unitRate  = "Mbit/s"
	unitBytes = "bytes"
)

// Measured is what a Check goes by. What is nil was not measured.
type Measured struct {
	RTT                 *Stat
	There, Back         *Flow
	RateThere, RateBack *Throughput
	MTU                 *MTUSize
}

// Run measures the link, for some seconds and more where rare events were
// asked for, and judges. Where To's namespace is not known, only what takes
// the way there and back.
func (c Check) Run(ctx context.Context) ([]Line, error) {
	m, err := c.Measure(ctx)
	if err != nil {
		return nil, err
	}
	return c.Judge(m), nil
}

// Measure is the first half of Run.
func (c Check) Measure(ctx context.Context) (m Measured, err error) {
	const echoes = 60
	rtt, err := Measure(ctx, c.Pair, echoes, 15*time.Millisecond)
	if err != nil {
		return m, err
	}
	m.RTT = &rtt
	if !c.There.Partition && !c.Back.Partition {
		size, err := MTU(ctx, c.Pair)
		if err != nil {
			return m, err
		}
		m.MTU = &size
	}
	if c.From.Netns == "" || c.To.Netns == "" {
		return m, nil
	}
	for _, d := range []struct {
		of   Pair
		i    netem.Impairment
		flow **Flow
		rate **Throughput
	}{
		{c.Pair, c.There, &m.There, &m.RateThere},
		{Pair{From: c.To, To: c.From}, c.Back, &m.Back, &m.RateBack},
	} {
		f, err := OneWay(ctx, d.of, streamFor(d.i))
		if err != nil {
			return m, err
		}
		*d.flow = &f
		if d.i.Rate == 0 {
			continue
		}
		t, err := Rate(ctx, d.of, blastFor(d.i))
		if err != nil {
			return m, err
		}
		*d.rate = &t
	}
	return m, nil
}

// streamFor sends enough for rare events to be seen, in at most some ten
// seconds, and not so much that a given rate would make a queue.
func streamFor(i netem.Impairment) Stream {
	const (
		size   = 400
		least  = 1000
		most   = 20_000
		events = 30
		long   = 10 * time.Second
	)
	s := Stream{Size: size, Interval: 250 * time.Microsecond, Wait: Grace}
	if !i.Queues() {
		s.Wait = min(i.Delay+4*i.Jitter+Grace/4, Grace)
	}
	rarest := 1.0
	for _, p := range expectedOf(i).shares() {
		if p > 0 {
			rarest = min(rarest, p)
		}
	}
	s.Count = int(min(max(events/rarest, least), most))
	if i.Rate > 0 {
		s.Interval = max(s.Interval, time.Duration(float64(2*(size+linkHeader)*8)/float64(i.Rate)*float64(time.Second)))
	}
	if i.Slot.Packets > 0 {
		s.Interval = max(s.Interval, 2*i.Slot.Max/time.Duration(i.Slot.Packets))
	}
	s.Interval = min(s.Interval, long/10)
	s.Count = max(min(s.Count, int(long/s.Interval)), 10)
	if i.Bursty() {
		s.Count = max(s.Count, most/4)
	}
	return s
}

func blastFor(i netem.Impairment) Blast {
	b := Blast{For: 2 * time.Second, Pace: i.Rate + i.Rate/2}
	if fill := time.Duration(float64(i.Burst) * 8 / float64(i.Rate) * float64(time.Second)); fill > b.For/10 {
		b.For = min(10*fill, 10*time.Second) // the burst passes first
	}
	return b
}

// expected are the shares of sent packets that meet something.
type expected struct{ lost, doubled, ahead, corrupted float64 }

func (x expected) shares() []float64 {
	return []float64{x.lost, x.doubled, x.ahead, x.corrupted}
}

// expectedOf is what a receiver is to see. Where draws depend on each other it
// follows from the decisions themselves.
func expectedOf(i netem.Impairment) expected {
	share := func(s netem.Share) float64 { return float64(s) / float64(netem.Whole) }
	dependent := i.Duplicate.Correlation|i.Reorder.Correlation|i.Corrupt.Correlation != 0
	if !dependent {
		loss, double := i.LossRate(), share(i.Duplicate.Chance)
		x := expected{lost: loss * (1 - double), doubled: double * (1 - loss), corrupted: i.CorruptRate()}
		if p := share(i.Reorder.Chance); p > 0 {
			x.ahead = 1 / (float64(max(i.Gap, 1)-1) + 1/p)
		}
		return x
	}
	const draws = 500_000
	i.Seed = 1
	d := netem.NewDecider(i)
	var x expected
	copies := 0
	for range draws {
		v := d.Decide()
		switch v.N {
		case 0:
			x.lost++
		case 2:
			x.doubled++
		}
		for _, c := range v.Copies[:v.N] {
			copies++
			if c.Ahead {
				x.ahead++
			}
			if c.Flip >= 0 {
				x.corrupted++
			}
		}
	}
	return expected{x.lost / draws, x.doubled / draws, x.ahead / float64(max(copies, 1)), x.corrupted / float64(max(copies, 1))}
}

// Judge is the second half of Run.
func (c Check) Judge(m Measured) []Line {
	if c.Tolerance == 0 {
		c.Tolerance = 0.1
	}
	if c.Slack == 0 {
		c.Slack = 300 * time.Microsecond
	}
	var lines []Line
	cut := c.There.Partition || c.Back.Partition
	if m.RTT != nil && !cut {
		lines = append(lines, c.rtt(*m.RTT))
	}
	if m.RTT != nil && (m.There == nil || m.Back == nil) {
		lines = append(lines, c.echoes(*m.RTT))
	}
	for _, d := range []struct {
		i netem.Impairment
		f *Flow
		t *Throughput
	}{{c.There, m.There, m.RateThere}, {c.Back, m.Back, m.RateBack}} {
		if d.f != nil {
			lines = append(lines, c.flow(d.i, *d.f)...)
		}
		if d.t != nil {
			lines = append(lines, rateLine(d.i, *d.t))
		}
	}
	if m.MTU != nil && !cut {
		l := Line{What: "mtu", Unit: unitBytes, Asked: float64(m.MTU.Interface), Measured: float64(m.MTU.Passes)}
		l.Low, l.High, l.OK = l.Measured, l.Measured, m.MTU.Passes >= m.MTU.Interface
		lines = append(lines, l)
	}
	return lines
}

// margins are how far a median delay may be below and above what was asked:
// jitter need not be symmetric, packets that go ahead are early, queues make
// late.
func (c Check) margins(delay time.Duration, all ...netem.Impairment) (below, above float64, note string) {
	off := c.Slack + time.Duration(c.Tolerance*float64(delay))
	below, above = millis(off), millis(off)
	for _, i := range all {
		below += millis(i.Jitter)
		above += millis(i.Jitter)
		if i.Overtakes() {
			below, note = math.Inf(1), "packets go ahead"
		}
		if i.Queues() {
			above, note = math.Inf(1), "packets queue"
		}
	}
	return below, above, note
}

func (c Check) rtt(s Stat) Line {
	delay := c.There.Delay + c.Back.Delay
	l := Line{What: "rtt", Unit: unitTime, Asked: millis(c.Bare + delay), Measured: millis(s.P50)}
	below, above, note := c.margins(delay, c.There, c.Back)
	low, high := s.MedianInterval()
	l.Low, l.High, l.Note = millis(low), millis(high), note
	switch {
	case len(s.RTTs) == 0:
		l.Note = fmt.Sprintf("none of %d came back within %v", s.Sent, Grace)
		l.OK = delay > Grace || c.There.LossRate() == 1 || c.Back.LossRate() == 1
	default:
		l.OK = l.High >= l.Asked-below && l.Low <= l.Asked+above
		if c.Bare > 0 {
			l.Note = join(l.Note, fmt.Sprintf("%.3f of it bare", millis(c.Bare)))
		}
	}
	return l
}

// echoes is the loss of a way there and back.
func (c Check) echoes(s Stat) Line {
	there, back := expectedOf(c.There).lost, expectedOf(c.Back).lost
	f := Flow{Sent: s.Sent, Lost: s.Lost}
	l := lossLine("loss there and back", 1-(1-there)*(1-back), f, max(c.There.LossSpread(), c.Back.LossSpread()))
	if delay := c.There.Delay + c.Back.Delay; delay > Grace {
		l.OK, l.Note = true, "on their way for longer than is waited for"
	}
	return l
}

func (c Check) flow(i netem.Impairment, f Flow) []Line {
	way := fmt.Sprintf(" %s to %s", f.From, f.To)
	x := expectedOf(i)
	loss := lossLine("loss"+way, x.lost, f, i.LossSpread())
	if f.Missed > 0 {
		loss.OK, loss.Note = false, fmt.Sprintf("%d packets came and could not be measured", f.Missed)
	}
	if f.Refused > 0 {
		loss.OK, loss.Note = false, join(loss.Note, fmt.Sprintf("the sender's system refused %d", f.Refused))
	}
	late := i.Delay > Grace
	if late {
		loss.OK, loss.Note = f.Received == 0, "on their way for longer than is waited for"
	}
	lines := []Line{loss}
	if f.Received == 0 || late {
		return lines
	}
	delay := Line{What: "delay" + way, Unit: unitTime, Asked: millis(i.Delay), Measured: millis(f.P50)}
	below, above, note := c.margins(i.Delay, i)
	low, high := Stat{RTTs: f.Delays}.MedianInterval()
	delay.Low, delay.High, delay.Note = millis(low), millis(high), note
	delay.OK = delay.High >= delay.Asked-below && delay.Low <= delay.Asked+above
	lines = append(lines, delay)

	early := 0
	for _, d := range f.Delays {
		if d < i.Delay/2 {
			early++
		}
	}
	arrived := len(f.Arrivals)
	for _, e := range []struct {
		what  string
		asked float64
		k, n  int
	}{
		{"duplicate", x.doubled, f.Duplicates, f.Sent},
		{"corrupt", x.corrupted, f.Corrupted, arrived},
		{"reorder", x.ahead, early, len(f.Delays)},
	} {
		if e.asked == 0 && e.what == "reorder" {
			e.k = f.Reordered
		}
		if e.asked > 0 || e.k > 0 {
			low, high := Binomial(e.k, e.n, Confidence)
			lines = append(lines, shareLine(e.what+way, e.asked, e.k, e.n, low, high))
		}
	}
	return lines
}

func lossLine(what string, asked float64, f Flow, spread float64) Line {
	low, high := f.LossInterval(Confidence, spread)
	return shareLine(what, asked, f.Lost, f.Sent, low, high)
}

// shareLine judges a share by its interval; where nothing was asked nothing may
// be seen.
func shareLine(what string, asked float64, k, n int, low, high float64) Line {
	l := Line{What: what, Unit: unitShare, Asked: 100 * asked, Low: 100 * low, High: 100 * high}
	if n > 0 {
		l.Measured = 100 * float64(k) / float64(n)
	}
	// A share worked out in floating point may miss 1 by its last digit.
	l.OK = n > 0 && asked >= low-1e-9 && asked <= high+1e-9 && (asked > 0 || k == 0)
	l.Note = fmt.Sprintf("%d of %d", k, n)
	return l
}

func rateLine(i netem.Impairment, t Throughput) Line {
	asked := float64(i.Rate) / 1e6
	l := Line{What: fmt.Sprintf("rate %s to %s", t.From, t.To), Unit: unitRate, Asked: asked, Measured: t.BitsPerSecond / 1e6}
	l.Low, l.High = l.Measured, l.Measured
	l.OK = math.Abs(l.Measured/asked-1) <= rateTolerance
	switch offered := t.OfferedBits / 1e6; {
	case t.Missed > 0:
		l.OK, l.Note = false, fmt.Sprintf("%d packets came and could not be measured", t.Missed)
	case !l.OK && l.Measured < asked && offered < 1.1*asked:
		l.Note = fmt.Sprintf("this machine sent %.1f Mbit/s, too few to fill the link", offered)
	case !l.OK && i.LossRate() > 0:
		l.OK, l.Note = l.Measured < asked, "packets get lost before they take their time"
	}
	return l
}

// Wrong is an error that names the lines that are not OK, or nil.
func Wrong(lines []Line) error {
	var errs []error
	for _, l := range lines {
		if !l.OK {
			errs = append(errs, errors.New(l.String()))
		}
	}
	return errors.Join(errs...)
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}
