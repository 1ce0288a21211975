package probe

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/faultlab/faultlab/netem"
)

func TestBinomialIsTheExactInterval(t *testing.T) {
	// From R's binom.test.
	for _, c := range []struct {
		k, n      int
		low, high float64
	}{
		{0, 10, 0, 0.3084971}, {10, 10, 0.6915029, 1}, {5, 10, 0.1870860, 0.8129140}, {1, 1000, 0.0000253, 0.0055589}, {0, 0, 0, 1},
	} {
		low, high := Binomial(c.k, c.n, 0.95)
		if math.Abs(low-c.low) > 2e-7 || math.Abs(high-c.high) > 2e-7 {
			t.Errorf("Binomial(%d, %d, 0.95) = %.7f, %.7f, want %.7f, %.7f", c.k, c.n, low, high, c.low, c.high)
		}
	}
}

func impairment(t *testing.T, text string) netem.Impairment {
	t.Helper()
	i, _, err := netem.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestWhatAReceiverIsToSeeIsWhatIsDecided(t *testing.T) {
	for _, text := range []string{
		"none", "loss 10%", "loss 30% 25%", "loss gemodel 2% 25%", "loss state 1% 20%", "duplicate 10%", "loss 10% duplicate 20%",
		"delay 10ms reorder 25%", "delay 10ms reorder 50% gap 5", "delay 10ms reorder 30% 50%", "corrupt 5%", "corrupt 5% 20%", "duplicate 10% 30%", "partition",
	} {
		i := impairment(t, text)
		want := expectedOf(i)
		i.Seed = 99
		d := netem.NewDecider(i)
		const draws = 300_000
		var got expected
		copies := 0.0
		for range draws {
			v := d.Decide()
			switch v.N {
			case 0:
				got.lost++
			case 2:
				got.doubled++
			}
			for _, c := range v.Copies[:v.N] {
				copies++
				if c.Ahead {
					got.ahead++
				}
				if c.Flip >= 0 {
					got.corrupted++
				}
			}
		}
		got = expected{got.lost / draws, got.doubled / draws, got.ahead / max(copies, 1), got.corrupted / max(copies, 1)}
		if i.Partition {
			want.corrupted, want.ahead = 0, 0
		}
		for n, g := range got.shares() {
			if w := want.shares()[n]; math.Abs(g-w) > 0.01 {
				t.Errorf("%s: share %d of lost, doubled, ahead, corrupted: %.4f decided, %.4f expected", text, n, g, w)
			}
		}
	}
}

// sawn is a flow in which so many packets were lost, spread evenly, and the
// others took so long.
func sawn(sent, lost int, delay time.Duration) *Flow {
	f := &Flow{From: "a", To: "b", Sent: sent}
	for seq := range sent {
		if lost > 0 && seq%(sent/lost) == 0 {
			continue
		}
		f.Arrivals = append(f.Arrivals, Arrival{Seq: seq, Delay: delay})
	}
	f.count()
	return f
}

func TestALinkIsJudgedByWhatWasAskedOfIt(t *testing.T) {
	stat := func(rtt time.Duration, lost int) *Stat {
		s := Stat{}
		for n := range 60 {
			if n < lost {
				s.Probes = append(s.Probes, Probe{Lost: true})
			} else {
				s.Probes = append(s.Probes, Probe{RTT: rtt})
			}
		}
		s.count()
		return &s
	}
	doubled := sawn(1000, 0, 0)
	doubled.Arrivals = append(doubled.Arrivals, doubled.Arrivals[:100]...)
	*doubled = Flow{From: "a", To: "b", Sent: 1000, Arrivals: doubled.Arrivals}
	doubled.count()

	for _, c := range []struct {
		name        string
		there, back string
		m           Measured
		wrong       []string // what of the lines, in their order
	}{
		{"all as asked", "delay 5ms", "delay 5ms", Measured{RTT: stat(10*time.Millisecond, 0), There: sawn(1000, 0, 5*time.Millisecond), Back: sawn(1000, 0, 5*time.Millisecond)}, nil},
		{"twice what was asked", "delay 5ms", "delay 5ms", Measured{RTT: stat(20*time.Millisecond, 0)}, []string{"rtt"}},
		{"the other way round", "delay 5ms", "none", Measured{RTT: stat(5*time.Millisecond, 0), There: sawn(1000, 0, 0), Back: sawn(1000, 0, 5*time.Millisecond)}, []string{"delay a to b", "delay a to b"}},
		{"loss as asked", "loss 10%", "none", Measured{There: sawn(1000, 100, 0)}, nil},
		{"loss ten times less", "loss 10%", "none", Measured{There: sawn(1000, 10, 0)}, []string{"loss a to b"}},
		{"a loss that nobody asked for", "none", "none", Measured{There: sawn(1000, 1, 0)}, []string{"loss a to b"}},
		{"a partition that leaks", "partition", "none", Measured{RTT: stat(0, 60), There: sawn(1000, 500, 0)}, []string{"loss a to b"}},
		{"a partition", "partition", "none", Measured{RTT: stat(0, 60), There: sawn(1000, 1000, 0), Back: sawn(1000, 0, 0)}, nil},
		{"doubled as asked", "duplicate 10%", "none", Measured{There: doubled}, nil},
		{"doubled though not asked", "none", "none", Measured{There: doubled}, []string{"duplicate a to b"}},
		{"a queue may be late", "delay 5ms rate 1mbit", "none", Measured{RTT: stat(90*time.Millisecond, 0), RateThere: &Throughput{BitsPerSecond: 1.01e6, OfferedBits: 1.5e6}}, nil},
		{"a queue may not be early", "delay 5ms rate 1mbit", "none", Measured{RTT: stat(1*time.Millisecond, 0), RateThere: &Throughput{BitsPerSecond: 1.2e6, OfferedBits: 1.5e6}}, []string{"rtt", "rate  to "}},
		{"large packets hang", "none", "none", Measured{MTU: &MTUSize{Interface: 1500, Passes: 1450}}, []string{"mtu"}},
		{"echoes lost as asked", "loss 10%", "loss 10%", Measured{RTT: stat(0, 12)}, nil},
		{"echoes lost though not asked", "none", "none", Measured{RTT: stat(0, 1)}, []string{"loss there and back"}},
	} {
		check := Check{There: impairment(t, c.there), Back: impairment(t, c.back)}
		var wrong []string
		lines := check.Judge(c.m)
		for _, l := range lines {
			if !l.OK {
				wrong = append(wrong, l.What)
			}
		}
		if strings.Join(wrong, ", ") != strings.Join(c.wrong, ", ") {
			t.Errorf("%s: wrong are %q, want %q; lines:\n%v", c.name, wrong, c.wrong, lines)
		}
		if err := Wrong(lines); (err == nil) != (len(c.wrong) == 0) {
			t.Errorf("%s: Wrong = %v", c.name, err)
		}
	}
}

func TestALineReadsAsASentence(t *testing.T) {
	l := Line{What: "rtt", Unit: unitTime, Asked: 0.6, Measured: 0.694, Low: 0.68, High: 0.7, Note: "0.080 of it bare"}
	if got, want := l.String(), "rtt: asked 0.600 ms, measured 0.694 ms (0.680 ms to 0.700 ms): WRONG; 0.080 of it bare"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNoCheckSendsForLong(t *testing.T) {
	for _, text := range []string{"none", "loss 0.0001%", "loss 1%", "rate 8kbit", "rate 10mbit", "slot 1s packets 1", "slot 300s packets 1", "loss gemodel 1% 10%", "partition"} {
		s := streamFor(impairment(t, text))
		if took := time.Duration(s.Count) * s.Interval; s.Count < 10 || s.Count > MaxCount || took > 25*time.Second {
			t.Errorf("%s: %d packets over %v", text, s.Count, took)
		}
	}
	if b := blastFor(impairment(t, "rate 1mbit burst 1mb")); b.For > 10*time.Second {
		t.Errorf("a blast of %v", b.For)
	}
}
