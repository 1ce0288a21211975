package stats

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the power curve in the documentation")

// machine is a run of windows on a machine that drifts: its level wanders from
// window to window (autocorrelated), sinks during the run, and each window has
// noise of its own.
type machine struct {
	r                  *rand.Rand
	noise, wander, sag float64 // as shares of the level
	level              float64
}

// window is the throughput of the next one of n windows.
func (m *machine) window(n int) float64 {
	const memory = 0.8
	m.level = memory*m.level + m.wander*m.r.NormFloat64()
	m.sag += 0.1 / float64(n)
	return 1000 * math.Exp(m.level-m.sag+m.noise*m.r.NormFloat64())
}

// run measures pairs in random order within the pair, as the engine does.
func (m *machine) run(pairs int, effect float64) (baseline, condition []float64) {
	m.level, m.sag = 0, 0
	for range pairs {
		a, b := m.window(2*pairs), m.window(2*pairs)
		if m.r.IntN(2) == 0 {
			a, b = b, a
		}
		baseline, condition = append(baseline, a), append(condition, b*effect)
	}
	return baseline, condition
}

// Baseline against baseline on a drifting machine is called an effect in at most
// 5 of 100 runs, give or take what 1,000 runs can tell (two-sided 99.9%: 2.3).
func TestOnADriftingMachineNoiseIsDetectedInFiveRunsOfAHundred(t *testing.T) {
	for _, pairs := range []int{5, 10, 20} {
		m := &machine{r: rand.New(rand.NewPCG(5, uint64(pairs))), noise: 0.02, wander: 0.03}
		const runs = 1000
		detected := 0
		for range runs {
			if a, b := m.run(pairs, 1); Compare(a, b, 0).Outcome == Detected {
				detected++
			}
		}
		if share := float64(detected) / runs; share > 0.05+0.023 {
			t.Errorf("%d pairs: nothing was detected as an effect in %.3f of %d runs, want at most 0.05", pairs, share, runs)
		}
	}
}

func TestOnADriftingMachineTheIntervalHoldsTheTruthNinetyFiveTimesInAHundred(t *testing.T) {
	for _, pairs := range []int{3, 5, 10, 20} {
		for _, truth := range []float64{1, 0.97, 0.7} {
			m := &machine{r: rand.New(rand.NewPCG(6, uint64(pairs))), noise: 0.02, wander: 0.03}
			const runs = 2000
			held := 0
			for range runs {
				a, b := m.run(pairs, truth)
				if c := Compare(a, b, 0); c.CI[0] <= truth && truth <= c.CI[1] {
					held++
				}
			}
			if share := float64(held) / runs; share < 0.92 || share > 0.98 {
				t.Errorf("%d pairs, ratio %g: the interval held it in %.3f of %d runs, want 0.92 to 0.98", pairs, truth, share, runs)
			}
		}
	}
}

// Why windows are measured in pairs: taken as two heaps, their intervals are
// wider for the drift that pairs cancel.
func TestPairsCancelWhatDrifts(t *testing.T) {
	m := &machine{r: rand.New(rand.NewPCG(7, 1)), noise: 0.01, wander: 0.05}
	var paired, apart float64
	const runs = 500
	for range runs {
		a, b := m.run(10, 0.95)
		p, i := Compare(a, b, 0), Independent(a, b)
		paired += math.Log(p.CI[1]/p.CI[0]) / runs
		apart += math.Log(i.CI[1]/i.CI[0]) / runs
	}
	if paired > 0.8*apart {
		t.Errorf("intervals of pairs are %.3f wide and those of heaps %.3f", paired, apart)
	}
}

func TestIntervalsOfIndependentRunsHoldTheTruth(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	draw := func(n int, level, spread float64) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = level * math.Exp(spread*r.NormFloat64())
		}
		return out
	}
	for _, c := range []struct {
		n, m   int
		sn, sm float64
	}{{3, 3, 0.05, 0.05}, {5, 5, 0.02, 0.1}, {5, 20, 0.1, 0.02}} {
		const runs, truth = 2000, 0.9
		held, detected := 0, 0
		for range runs {
			x := draw(c.n, 1000, c.sn)
			if k := Independent(x, draw(c.m, 900, c.sm)); k.CI[0] <= truth && truth <= k.CI[1] {
				held++
			}
			if Independent(x, draw(c.m, 1000, c.sm)).Outcome == Detected {
				detected++
			}
		}
		if share := float64(held) / runs; share < 0.92 || share > 0.985 {
			t.Errorf("%+v: the interval held the truth in %.3f of %d runs", c, share, runs)
		}
		if share := float64(detected) / runs; share > 0.08 {
			t.Errorf("%+v: no difference was detected as one in %.3f of %d runs", c, share, runs)
		}
	}
	if k := Independent([]float64{1, 2}, []float64{2, 4}); k.HasCI || k.Outcome != Inconclusive || k.Ratio != 2 {
		t.Errorf("two windows each: %+v", k)
	}
	if k := Independent(nil, nil); k.Outcome != Inconclusive {
		t.Errorf("no windows: %+v", k)
	}
}

// The power curve of the documentation: in how many of 100 runs an effect is
// detected, by its size, the number of pairs and how much one window of a pair
// differs from the other with nothing changed.
func TestThePowerCurveOfTheDocumentationIsWhatIsSimulated(t *testing.T) {
	var b strings.Builder
	b.WriteString("| windows of a pair differ by | pairs | -2% | -5% | -10% | -20% |\n|---|---|---|---|---|---|\n")
	for _, noise := range []float64{0.02, 0.05, 0.1} {
		for _, pairs := range []int{5, 10, 20, 40} {
			fmt.Fprintf(&b, "| %.0f%% | %d |", 100*noise, pairs)
			for _, effect := range []float64{0.98, 0.95, 0.9, 0.8} {
				r := rand.New(rand.NewPCG(9, uint64(pairs)))
				const runs = 1000
				detected := 0
				for range runs {
					x, y := make([]float64, pairs), make([]float64, pairs)
					for i := range x {
						x[i], y[i] = 1000, 1000*effect*math.Exp(noise*r.NormFloat64())
					}
					if Compare(x, y, 0).Outcome == Detected {
						detected++
					}
				}
				fmt.Fprintf(&b, " %d |", (detected+5)/10)
			}
			b.WriteString("\n")
		}
	}
	const file, begin, end = "../../docs/measurement.md", "<!-- power -->\n", "<!-- /power -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the power curve", file)
	}
	if old == b.String() {
		return
	}
	if !*update {
		t.Fatalf("%s has another power curve than\n%s", file, &b)
	}
	if err := os.WriteFile(file, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
