package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func near(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-9*(1+math.Abs(b))
}

func TestQuantilesAgreeWithTheUsualDefinition(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		q    float64
		want float64
	}{
		{nil, 0.5, math.NaN()}, {[]float64{7}, 0.95, 7}, {[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5}, {[]float64{1, 2, 3, 4, 5}, 0.05, 1.2},
		{[]float64{1, 2}, 0, 1}, {[]float64{1, 2}, 1, 2},
	} {
		if got := Quantile(c.xs, c.q); !near(got, c.want) {
			t.Errorf("Quantile(%v, %v): got %v, want %v", c.xs, c.q, got, c.want)
		}
	}
}

func TestAQuantileLeavesItsInputInOrder(t *testing.T) {
	xs := []float64{3, 1, 2}
	Median(xs)
	if xs[0] != 3 || xs[1] != 1 {
		t.Errorf("got %v, want it untouched", xs)
	}
}

func TestIntervalsAgreeWithStudentsTable(t *testing.T) {
	// Logs -1, 0, 1: mean 0, standard error 1/sqrt(3), t(2) = 4.302653.
	half := 4.30265273 / math.Sqrt(3)
	ci, ok := Center([]float64{math.Exp(-1), 1, math.Exp(1)})
	if !ok || math.Abs(math.Log(ci[1])-half) > 1e-6 || math.Abs(math.Log(ci[0])+half) > 1e-6 {
		t.Errorf("got %v, %v; want exp(+-%v)", ci, ok, half)
	}
}

// The claim of the package comment: 95% means 95%, whatever the number of
// pairs, and for noise with heavier tails than normal too.
func TestNinetyFivePercentIntervalsHoldTheTruthNinetyFiveTimesInAHundred(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	noise := map[string]func() float64{
		"normal": r.NormFloat64,
		"one window in ten is five times as noisy": func() float64 {
			x := r.NormFloat64()
			if r.IntN(10) == 0 {
				x *= 5
			}
			return x
		},
	}
	const trials, truth, spread = 4000, 0.93, 0.05
	for name, draw := range noise {
		for _, n := range []int{3, 5, 10, 20} {
			held := 0
			for range trials {
				a, b := make([]float64, n), make([]float64, n)
				for i := range a {
					a[i] = 1000 * math.Exp(0.3*r.NormFloat64()) // the level drifts from pair to pair
					b[i] = a[i] * truth * math.Exp(spread*draw())
				}
				if c := Compare(a, b, 0); c.CI[0] <= truth && truth <= c.CI[1] {
					held++
				}
			}
			if got := float64(held) / trials; got < 0.935 || got > 0.985 {
				t.Errorf("%s, %d pairs: the interval held the truth in %.3f of %d trials, want 0.95", name, n, got, trials)
			}
		}
	}
}

func TestNoiseAloneIsSeldomDetectedAndALargeEffectAlways(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	count := func(effect float64) (detected float64) {
		const trials = 2000
		for range trials {
			a, b := make([]float64, 5), make([]float64, 5)
			for i := range a {
				a[i], b[i] = 1000*math.Exp(0.03*r.NormFloat64()), 1000*effect*math.Exp(0.03*r.NormFloat64())
			}
			if Compare(a, b, 0).Outcome == Detected {
				detected++
			}
		}
		return detected / trials
	}
	if got := count(1); got > 0.07 {
		t.Errorf("no effect: detected in %.3f of trials, want 0.05", got)
	}
	if got := count(0.7); got < 0.99 {
		t.Errorf("a loss of 30%%: detected in %.3f of trials, want nearly all", got)
	}
}

func TestAComparisonSaysNoMoreThanItsPairsDo(t *testing.T) {
	ten := []float64{1000, 1010, 990, 1005, 995, 1000, 1002, 998, 1001, 999}
	times := func(f float64) []float64 {
		out := make([]float64, len(ten))
		for i, x := range ten {
			out[i] = x * f * (1 + 0.002*float64(i%3))
		}
		return out
	}
	for _, c := range []struct {
		name    string
		a, b    []float64
		floor   float64
		outcome string
		hasCI   bool
	}{
		{"no pairs", nil, nil, 0, Inconclusive, false},
		{"two pairs", ten[:2], times(0.5)[:2], 0, Inconclusive, false},
		{"three pairs", ten[:3], times(0.5)[:3], 0, Inconclusive, true},
		{"four pairs", ten[:4], times(0.5)[:4], 0, Inconclusive, true},
		{"five pairs, half", ten[:5], times(0.5)[:5], 0, Detected, true},
		{"the same", ten, ten, 0, NotDetected, true},
		{"within the floor", ten, times(0.97), 0.05, NotDetected, true},
		{"beyond the floor", ten, times(0.90), 0.05, Detected, true},
		{"faster", ten, times(1.2), 0.05, Detected, true},
		{"one window stood still", ten[:5], []float64{500, 0, 500, 500, 500}, 0, Inconclusive, false},
		{"unequal lengths", ten, times(0.5)[:3], 0, Inconclusive, true},
	} {
		got := Compare(c.a, c.b, c.floor)
		if got.Outcome != c.outcome || got.HasCI != c.hasCI {
			t.Errorf("%s: got %+v, want %s, interval %v", c.name, got, c.outcome, c.hasCI)
		}
	}
	if got := Compare([]float64{0, 0, 0}, []float64{1, 1, 1}, 0); !math.IsNaN(got.Ratio) {
		t.Errorf("a baseline that stood still: got ratio %v, want none", got.Ratio)
	}
}

func TestTheCenterHoldsTheMedianOfSkewedWindows(t *testing.T) {
	xs := []float64{1000, 1000, 1000, 1000, 1}
	ci, ok := Center(xs)
	if m := Median(xs); !ok || ci[0] > m || ci[1] < m {
		t.Errorf("got %v, %v, want it to hold %v", ci, ok, m)
	}
	for _, xs := range [][]float64{nil, {1, 2}, {1, 2, 0}, {1, 2, math.NaN()}, {1, 2, math.Inf(1)}} {
		if ci, ok := Center(xs); ok {
			t.Errorf("%v: got %v, want no interval", xs, ci)
		}
	}
}

func TestTheNoiseFloorIsTheFarEndOfLikeWithLike(t *testing.T) {
	got, ok := Floor([]float64{0.98, 1.02, 1, 0.99, 1.01})
	if !ok || got < 0.005 || got > 0.05 {
		t.Errorf("got %v, %v; want about 2%%", got, ok)
	}
	if _, ok := Floor([]float64{1, 1}); ok {
		t.Error("got a floor of two pairs, want none")
	}
}

func TestStallsAreCountedWithinTheirWindow(t *testing.T) {
	got := Steady([][]float64{
		{100, 100, 100, 9, 0, 0, 100},
		{0, 50, 50, 50}, // does not join the stall before it
		{},
	})
	if got.LongestStall != 3 || got.ZeroSeconds != 3 {
		t.Errorf("got %+v, want a stall of 3 and 3 seconds at zero", got)
	}
	if got := Steady([][]float64{{0, 0, 0}}); got.LongestStall != 3 || got.ZeroSeconds != 3 {
		t.Errorf("a dead window: got %+v, want a stall of 3", got)
	}
	if got := Steady([][]float64{{100, 100}, {900, 900}}); got.CV != 0 || got.P5OverP50 != 1 {
		t.Errorf("steady windows of different level: got %+v, want perfect steadiness", got)
	}
	if got := Steady(nil); got != (Steadiness{}) {
		t.Errorf("nothing: got %+v", got)
	}
}

func FuzzTheIntervalOfAComparisonHoldsItsRatio(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, 1.0, 2.0, 3.0)
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g float64) {
		got := Compare([]float64{a, b, c}, []float64{d, e, g}, 0)
		if got.HasCI && !(got.CI[0] <= got.Ratio*(1+1e-9) && got.Ratio <= got.CI[1]*(1+1e-9)) {
			t.Fatalf("got %+v, want the ratio within its interval", got)
		}
	})
}
