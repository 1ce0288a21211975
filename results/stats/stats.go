// Package stats owns the arithmetic of results: medians, intervals of ratios,
// and how steady a series of seconds is. It knows plain float64 only.
//
// Intervals are Student's t on logarithms, rather than a percentile bootstrap:
// with the 5 pairs of a short run a 95% percentile bootstrap holds the truth 83
// times in 100, its expanded form (Hesterberg 2015) 92 times, and with 3 pairs
// both 74; Student's t holds it 95 times. The package's tests simulate it. A
// sample is a window or a pair of windows, never a second: seconds of one
// window are not independent.
package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// MinInterval is how many samples an interval needs.
	MinInterval = 3
	// MinClaim is how many pairs a claim needs.
	MinClaim = 5
	// confidence of every interval.
	confidence = 0.95
)

// Outcomes of a comparison.
const (
	Detected     = "detected"
	NotDetected  = "not detected"
	Inconclusive = "inconclusive"
)

// Median of xs, which stays as it is. NaN without values.
func Median(xs []float64) float64 { return Quantile(xs, 0.5) }

// Quantile of xs, 0 <= q <= 1, between neighbours by straight line (type 7 of
// Hyndman and Fan, as R and NumPy have it). NaN without values.
func Quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(xs))
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 >= len(s) {
		return s[len(s)-1]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

// CV is the coefficient of variation: standard deviation over mean. 0 with
// fewer than 2 values or a mean of 0.
func CV(xs []float64) float64 {
	if len(xs) < 2 {
		return 0
	}
	mean, sd := stat.MeanStdDev(xs, nil)
	if mean == 0 {
		return 0
	}
	return sd / math.Abs(mean)
}

// Center is a 95% interval for the typical value of windows: Student's t on
// their logarithms, widened to hold their median where they are so skewed that
// it does not. ok is false with fewer than MinInterval values or where one is
// not above 0.
func Center(xs []float64) (ci [2]float64, ok bool) {
	logs, ok := logarithms(xs)
	if !ok {
		return ci, false
	}
	lo, hi := student(logs)
	m := Median(xs)
	return [2]float64{min(math.Exp(lo), m), max(math.Exp(hi), m)}, true
}

// Comparison of a condition with its baseline.
type Comparison struct {
	// Ratio is the geometric mean of condition over baseline, pair by pair:
	// 0.93 is a loss of 7%. Without pairs it is NaN.
	Ratio float64
	// CI is the ratio's 95% interval, where HasCI.
	CI    [2]float64
	HasCI bool
	Pairs int
	// Outcome is Inconclusive below MinClaim pairs, Detected where the
	// interval excludes 1 and the effect is beyond the noise floor, else
	// NotDetected.
	Outcome string
}

// Compare takes the values of neighbouring windows, baseline[i] beside
// condition[i]; of unequal lengths, the shorter counts. floor is the share by
// which baselines differ from one another with nothing changed (0.02 is 2%), 0
// where it was not measured.
//
// A pair in which something stood still has no logarithm: the ratio is then
// that of the medians, without an interval, and inconclusive.
func Compare(baseline, condition []float64, floor float64) Comparison {
	n := min(len(baseline), len(condition))
	c := Comparison{Ratio: math.NaN(), Pairs: n, Outcome: Inconclusive}
	if n == 0 {
		return c
	}
	ratios := make([]float64, n)
	for i := range ratios {
		ratios[i] = condition[i] / baseline[i]
	}
	if slices.ContainsFunc(ratios, func(r float64) bool { return !(r > 0) || math.IsInf(r, 0) }) {
		if m := Median(baseline[:n]); m > 0 {
			c.Ratio = Median(condition[:n]) / m
		}
		return c
	}
	c.Ratio = stat.GeometricMean(ratios, nil)
	logs, ok := logarithms(ratios)
	if !ok {
		return c
	}
	lo, hi := student(logs)
	c.CI, c.HasCI = [2]float64{math.Exp(lo), math.Exp(hi)}, true
	switch {
	case n < MinClaim:
	case lo <= 0 && hi >= 0, math.Abs(math.Log(c.Ratio)) <= math.Log1p(floor):
		c.Outcome = NotDetected
	default:
		c.Outcome = Detected
	}
	return c
}

// Floor is the noise floor that ratios of like with like (A/A pairs) show: the
// end of their interval that is further from 1, as a share. ok is false with
// fewer than MinInterval.
func Floor(ratios []float64) (share float64, ok bool) {
	logs, ok := logarithms(ratios)
	if !ok {
		return 0, false
	}
	lo, hi := student(logs)
	return math.Expm1(max(math.Abs(lo), math.Abs(hi))), true
}

// Independent compares windows that have no neighbours in one another, as of two
// runs: Welch's t on the logarithms. What a whole run differs by from another on
// the same machine, with nothing changed, is not in the interval: it holds what
// the windows of a run differ by.
func Independent(before, after []float64) Comparison {
	c := Comparison{Ratio: math.NaN(), Pairs: min(len(before), len(after)), Outcome: Inconclusive}
	if m := Median(before); m > 0 {
		c.Ratio = Median(after) / m
	}
	x, okX := logarithms(before)
	y, okY := logarithms(after)
	if !okX || !okY {
		return c
	}
	mx, sx := stat.MeanStdDev(x, nil)
	my, sy := stat.MeanStdDev(y, nil)
	vx, vy := sx*sx/float64(len(x)), sy*sy/float64(len(y))
	half := 0.0
	if v := vx + vy; v > 0 {
		nu := v * v / (vx*vx/float64(len(x)-1) + vy*vy/float64(len(y)-1))
		half = distuv.StudentsT{Mu: 0, Sigma: 1, Nu: nu}.Quantile((1+confidence)/2) * math.Sqrt(v)
	}
	diff := my - mx
	c.Ratio = math.Exp(diff)
	c.CI, c.HasCI = [2]float64{math.Exp(diff - half), math.Exp(diff + half)}, true
	switch {
	case c.Pairs < MinClaim:
	case c.CI[0] <= 1 && c.CI[1] >= 1:
		c.Outcome = NotDetected
	default:
		c.Outcome = Detected
	}
	return c
}

// logarithms of xs. ok is false where an interval cannot be made of them.
func logarithms(xs []float64) (logs []float64, ok bool) {
	if len(xs) < MinInterval {
		return nil, false
	}
	for _, x := range xs {
		if !(x > 0) || math.IsInf(x, 0) {
			return nil, false
		}
		logs = append(logs, math.Log(x))
	}
	return logs, true
}

// student is the interval of the mean of xs, of which there are at least 2.
func student(xs []float64) (lo, hi float64) {
	n := float64(len(xs))
	mean, sd := stat.MeanStdDev(xs, nil)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile((1 + confidence) / 2)
	half := t * sd / math.Sqrt(n)
	return mean - half, mean + half
}

// Steadiness of one-second rates.
type Steadiness struct {
	CV           float64 // of the seconds, each as a share of its window's median
	P5OverP50    float64 // of the same: 1 is perfectly steady, 0 stands still at times
	LongestStall int     // whole seconds below 10% of the window's median, or at 0
	ZeroSeconds  int     // in all windows
}

// Steady describes the seconds of windows: windows[i][j] is second j of window
// i. Windows differ in level, so each second is taken as a share of its own
// window's median; no stall reaches from one window into the next.
func Steady(windows [][]float64) Steadiness {
	var s Steadiness
	var shares []float64
	for _, w := range windows {
		m, stall := Median(w), 0
		for _, x := range w {
			if x == 0 {
				s.ZeroSeconds++
			}
			if x == 0 || x < m/10 {
				stall++
			} else {
				stall = 0
			}
			s.LongestStall = max(s.LongestStall, stall)
			if m > 0 {
				shares = append(shares, x/m)
			}
		}
	}
	s.CV = CV(shares)
	if m := Median(shares); m > 0 {
		s.P5OverP50 = Quantile(shares, 0.05) / m
	}
	return s
}
