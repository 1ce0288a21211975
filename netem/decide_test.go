package netem

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"
)

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func stringOf(v any) string        { return fmt.Sprint(v) }

func parse(t *testing.T, s string) Impairment {
	t.Helper()
	i, _, err := Parse(s + " seed 7")
	if err != nil {
		t.Fatal(err)
	}
	return i
}

const draws = 400_000

func TestLossTakesTheShareThatItsModelSays(t *testing.T) {
	for _, s := range []string{
		"loss 0.1%", "loss 1%", "loss 10%", "loss 50%", "loss 100%", "loss 10% 25%",
		"loss gemodel 1%", "loss gemodel 1% 10%", "loss gemodel 1% 10% 70% 0.1%", "loss gemodel 0% 0% 0% 2%",
		"loss state 1%", "loss state 1% 30% 5% 90% 0.1%", "loss state 0% 0% 0% 0% 5%", "loss state 2% 20%",
	} {
		i := parse(t, s)
		d := NewDecider(i)
		lost, bursts, in := 0, 0, false
		for range draws {
			gone := d.Decide().N == 0
			if gone {
				lost++
				if !in {
					bursts++
				}
			}
			in = gone
		}
		got, want := float64(lost)/draws, i.LossRate()
		sigma := math.Sqrt(want * (1 - want) / draws * i.LossSpread())
		if math.Abs(got-want) > 5*sigma+1e-9 {
			t.Errorf("%s: lost %.4f%%, want %.4f%%", s, 100*got, 100*want)
		}
		t.Logf("%s: %.4f%% in bursts of %.2f", s, 100*got, float64(lost)/float64(max(bursts, 1)))
	}
}

// TestLossSpreadIsThatOfTheDecisions: of the number lost in blocks of packets.
func TestLossSpreadIsThatOfTheDecisions(t *testing.T) {
	for _, text := range []string{
		"loss 5%", "loss 30% 25%", "loss gemodel 2% 25%", "loss gemodel 1% 10% 50% 0%", "loss gemodel 1% 10% 10% 1%", "loss gemodel 60% 70%",
		"loss gemodel 0% 10%", "loss state 1% 20%", "loss state 1% 30% 5% 90% 0.1%",
	} {
		i := parse(t, text)
		const blocks, size = 1000, 2000
		d := NewDecider(i)
		var sum, squares float64
		for range blocks {
			lost := 0.0
			for range size {
				if d.Decide().N == 0 {
					lost++
				}
			}
			sum, squares = sum+lost, squares+lost*lost
		}
		mean := sum / blocks
		want := 1.0
		if alone := mean * (1 - mean/size); alone > 0 {
			want = max((squares/blocks-mean*mean)/alone, 1)
		}
		if got := i.LossSpread(); math.Abs(got/want-1) > 0.4 {
			t.Errorf("%s: spread %.2f, want %.2f", text, got, want)
		}
	}
}

func TestGilbertElliottLosesInBurstsOfOneOverR(t *testing.T) {
	d := NewDecider(parse(t, "loss gemodel 1% 10%"))
	lost, bursts, in := 0, 0, false
	for range draws {
		gone := d.Decide().N == 0
		if gone {
			lost++
			if !in {
				bursts++
			}
		}
		in = gone
	}
	if mean := float64(lost) / float64(bursts); mean < 9 || mean > 11 {
		t.Errorf("mean burst %.2f packets, want 10", mean)
	}
}

func TestCopiesReorderingAndCorruptionComeAsOftenAsAsked(t *testing.T) {
	d := NewDecider(parse(t, "delay 1ms duplicate 2% reorder 5% corrupt 3%"))
	var double, ahead, flipped, copies int
	for range draws {
		v := d.Decide()
		if v.N == 2 {
			double++
		}
		for _, f := range v.Copies[:v.N] {
			copies++
			if f.Ahead {
				ahead++
			}
			if f.Flip >= 0 {
				flipped++
			}
		}
	}
	for _, c := range []struct {
		what      string
		n, of     int
		wantShare float64
	}{{"duplicates", double, draws, 0.02}, {"ahead", ahead, copies, 0.05}, {"corrupted", flipped, copies, 0.03}} {
		if got := float64(c.n) / float64(c.of); math.Abs(got-c.wantShare) > 5*math.Sqrt(c.wantShare/float64(c.of)) {
			t.Errorf("%s: %.4f, want %.4f", c.what, got, c.wantShare)
		}
	}
}

func TestOnlyEveryNthPacketGoesAheadWithAGap(t *testing.T) {
	d := NewDecider(parse(t, "delay 1ms reorder 100% gap 5"))
	for n := 1; n <= 50; n++ {
		if ahead := d.Decide().Copies[0].Ahead; ahead != (n%5 == 0) {
			t.Errorf("packet %d ahead: %t", n, ahead)
		}
	}
}

func TestJitterHasTheMeanAndSpreadOfItsDistribution(t *testing.T) {
	for _, c := range []struct {
		text              string
		mean, spread, tol float64 // in jitters
	}{
		{"jitter 1ms", 0, 1 / math.Sqrt(3), 0.01},
		{"jitter 1ms distribution uniform", 0, 1 / math.Sqrt(3), 0.01},
		{"jitter 1ms distribution normal", 0, 1, 0.02},
		{"jitter 1ms distribution pareto", 0, 0.82, 0.05},
		{"jitter 1ms distribution paretonormal", 0, 0.67, 0.05},
	} {
		d := NewDecider(parse(t, "delay 10ms "+c.text))
		var sum, squares float64
		for range draws {
			x := float64(d.Decide().Copies[0].Offset) / float64(time.Millisecond)
			sum += x
			squares += x * x
		}
		mean := sum / draws
		spread := math.Sqrt(squares/draws - mean*mean)
		if math.Abs(mean-c.mean) > c.tol || math.Abs(spread-c.spread) > c.tol {
			t.Errorf("%s: mean %.3f and spread %.3f, want %.3f and %.3f", c.text, mean, spread, c.mean, c.spread)
		}
	}
}

func TestAnOwnTableIsReadAndUsed(t *testing.T) {
	i := parse(t, "delay 1ms jitter 1ms")
	i.Distribution = Distribution{Name: "mine.dist", Text: "# two\n-8192 8192\n"}
	if err := i.Validate(); err != nil {
		t.Fatal(err)
	}
	d := NewDecider(i)
	for range 100 {
		if o := d.Decide().Copies[0].Offset; o != time.Millisecond && o != -time.Millisecond {
			t.Fatalf("offset %v", o)
		}
	}
	for text, want := range map[string]string{
		"1":           "distribution mine.dist: a table has 2 to 16384 numbers, not 1",
		"1\n2\n40000": `distribution mine.dist: line 3: "40000" is not a whole number of 16 bits`,
	} {
		i.Distribution.Text = text
		if err := i.Validate(); err == nil || err.Error() != want {
			t.Errorf("table %q: %v, want %s", text, err, want)
		}
	}
	i.Distribution.Text = ""
	if err := i.Validate(); err == nil {
		t.Error("a distribution without table is valid")
	}
}

func TestASeedRepeatsEveryDecision(t *testing.T) {
	i := parse(t, "delay 1ms jitter 0.5ms 25% loss 10% duplicate 5% reorder 10% corrupt 5%")
	a, b := NewDecider(i), NewDecider(i)
	i.Seed++
	c := NewDecider(i)
	same := 0
	for range 1000 {
		x := a.Decide()
		if y := b.Decide(); x != y {
			t.Fatalf("%+v and %+v with the same seed", x, y)
		}
		if x == c.Decide() {
			same++
		}
	}
	if same > 100 {
		t.Errorf("%d of 1000 decisions are the same with another seed", same)
	}
}

func TestPartitionDropsEverything(t *testing.T) {
	d := NewDecider(Impairment{Partition: true})
	for range 100 {
		if d.Decide().N != 0 {
			t.Fatal("a packet got through")
		}
	}
}

func TestDecidingLeavesNoGarbage(t *testing.T) {
	d := NewDecider(parse(t, "delay 1ms jitter 0.5ms 25% distribution normal loss 10% duplicate 5% reorder 10% corrupt 5%"))
	p := &Pacer{}
	p.Change(Impairment{Rate: 1e9, Slot: Slot{Min: time.Millisecond, Max: 2 * time.Millisecond}})
	now := time.Duration(0)
	if n := testing.AllocsPerRun(1000, func() { d.Decide(); p.Departure(now, 1500); p.Sent(now, 1500); now += time.Microsecond }); n > 0 {
		t.Errorf("%.1f allocations a packet", n)
	}
}

func TestARateSpacesPacketsByTheirSize(t *testing.T) {
	p := &Pacer{}
	p.Change(Impairment{Rate: 8e6}) // a byte a microsecond
	for n := 1; n <= 3; n++ {
		if got, want := p.Departure(0, 1000), time.Duration(n)*time.Millisecond; got != want {
			t.Errorf("packet %d leaves at %v, want %v", n, got, want)
		}
		p.Sent(0, 1000)
	}
	if got := p.Departure(10*time.Millisecond, 500); got != 10500*time.Microsecond {
		t.Errorf("after a silence: %v, want 10.5ms", got)
	}
}

func TestABurstPassesAtOnceAndThenTheRateHolds(t *testing.T) {
	p := &Pacer{}
	p.Change(Impairment{Rate: 8e6, Burst: 3000})
	start := time.Second
	for n, want := range []time.Duration{0, 0, 0, time.Millisecond, 2 * time.Millisecond} {
		if got := p.Departure(start, 1000) - start; got != want {
			t.Errorf("packet %d leaves after %v, want %v", n, got, want)
		}
		p.Sent(start, 1000)
	}
}

func TestSlotsLetPacketsLeaveTogether(t *testing.T) {
	p := &Pacer{}
	p.Change(Impairment{Slot: Slot{Min: 5 * time.Millisecond, Max: 5 * time.Millisecond, Packets: 3}})
	times := map[time.Duration]int{}
	for n := range 30 {
		ready := time.Duration(n) * time.Millisecond
		at := p.Departure(ready, 100)
		if at < ready || at%(5*time.Millisecond) != 0 {
			t.Errorf("ready at %v, leaves at %v", ready, at)
		}
		p.Sent(ready, 100)
		times[at]++
	}
	for at, n := range times {
		if n > 3 {
			t.Errorf("%d packets leave at %v, want at most 3", n, at)
		}
	}
	if len(times) < 10 {
		t.Errorf("only %d slots", len(times))
	}
}

func TestALimitIsOutOfTheWayUnlessARateIsGiven(t *testing.T) {
	for text, least := range map[string]int{"delay 100ms": 400_000, "delay 1ms": 100_000, "none": 100_000} {
		i, _, _ := Parse(text)
		if got := i.QueueLimit(); got < least {
			t.Errorf("%s: limit %d, want at least %d", text, got, least)
		}
	}
	i, _, _ := Parse("rate 10mbit delay 10ms")
	if got := i.QueueLimit(); got < 1000 || got > 1300 {
		t.Errorf("rate 10mbit delay 10ms: limit %d, want 1000 and what is under way", got)
	}
	i, _, _ = Parse("delay 1ms limit 7")
	if got := i.QueueLimit(); got != 7 {
		t.Errorf("limit %d, want 7", got)
	}
}
