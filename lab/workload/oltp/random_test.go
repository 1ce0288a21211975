package oltp

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

// The figures are those of four million draws by sysbench 1.0.20's own
// sysbench.rand.special(1, 20000).
func TestSpecialHasTheShapeOfSysbenchs(t *testing.T) {
	const n, draws = 20_000, 2_000_000
	r := rand.New(rand.NewPCG(1, 2))
	ids := newSampler(Special, Shape{}.withDefaults(), n)
	count := make([]int, n+2)
	for range draws {
		id := ids.draw(r)
		if id < 1 || id > n {
			t.Fatalf("drew %d of 1 to %d", id, n)
		}
		count[id]++
	}
	share := func(from, to int) float64 {
		var sum int
		for _, c := range count[from : to+1] {
			sum += c
		}
		return float64(sum) / draws
	}
	for _, tt := range []struct {
		what     string
		from, to int
		want     float64
	}{
		{"the hot rows", 9950, 10101, 0.7587}, // 0.75, and the bell's part
		{"the first quarter of the window, which sysbench never hits", 9900, 9949, 0.0030},
		{"below the window", 1, 9899, 0.1192},
		{"the tails beyond three deviations", 1, 4999, 0.25 * 0.00108}, // a mean of 12 has lighter tails than a normal
		{"one hot row", 10_000, 10_000, 20_150.0 / 4e6},
		{"one half-hot row at the edge", 9950, 9950, 5290.0 / 4e6},
	} {
		got := share(tt.from, tt.to)
		if d := math.Abs(got - tt.want); d > 0.0002+0.03*tt.want {
			t.Errorf("%s (%d to %d) get %.5f of the draws, want %.5f", tt.what, tt.from, tt.to, got, tt.want)
		}
	}
}

func TestSmallTablesAreDrawnAsSysbenchDrawsThem(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n, want := range map[int][]float64{ // of a million draws by sysbench
		1:  {1},
		2:  {0.4999, 0.5001},
		3:  {0.1252, 0.8652, 0.0097},
		10: {0, 0.0001, 0.0055, 0.0582, 0.3720, 0.5589, 0.0053, 0.0001, 0, 0},
	} {
		const draws = 300_000
		ids := newSampler(Special, Shape{}.withDefaults(), n)
		got := make([]float64, n)
		for range draws {
			got[ids.draw(r)-1] += 1.0 / draws
		}
		for i := range got {
			if math.Abs(got[i]-want[i]) > 0.005 {
				t.Errorf("special of %d drew %.4f, want %.4f", n, got, want)
				break
			}
		}
	}
}

func TestUniformDrawsEveryIDAlike(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const n, draws = 100, 1_000_000
	ids := newSampler(Uniform, Shape{}.withDefaults(), n)
	count := make([]float64, n)
	for range draws {
		count[ids.draw(r)-1]++
	}
	var chi2 float64
	for _, c := range count {
		chi2 += (c - draws/n) * (c - draws/n) / (draws / n)
	}
	if chi2 > 148.2 { // 99 degrees of freedom, one in a thousand
		t.Errorf("chi-square of %v over %d ids", chi2, n)
	}
}

// draws is that many draws in order.
func draws(d Distribution, s Shape, n, count int) []float64 {
	r := rand.New(rand.NewPCG(11, uint64(n)))
	ids := newSampler(d, s.withDefaults(), n)
	all := make([]float64, count)
	for i := range all {
		all[i] = float64(ids.draw(r))
	}
	slices.Sort(all)
	return all
}

// compare holds the empirical distribution against the documented one, cdf(k)
// being the probability of an id of at most k. The Kolmogorov-Smirnov distance
// of 100,000 draws exceeds 0.007 once in 10,000 times, and the seed is fixed.
func compare(t *testing.T, what string, n int, all []float64, cdf func(k float64) float64) {
	t.Helper()
	if all[0] < 1 || all[len(all)-1] > float64(n) {
		t.Errorf("%s drew ids from %v to %v of 1 to %d", what, all[0], all[len(all)-1], n)
	}
	var worst, at float64
	below := 0
	for k := 1; k <= n; k++ {
		for below < len(all) && all[below] <= float64(k) {
			below++
		}
		if d := math.Abs(float64(below)/float64(len(all)) - cdf(float64(k))); d > worst {
			worst, at = d, float64(k)
		}
	}
	if worst > 0.007 {
		t.Errorf("%s of %d is %.4f off its formula at id %v", what, n, worst, at)
	}
}

func TestGaussianIsABellOfATwelfthOfTheTable(t *testing.T) {
	for _, n := range []int{100, 10_000, 1_000_000} {
		// The sum of 12 uniforms is within 0.0023 of the normal distribution.
		all := draws(Gaussian, Shape{}, n, 100_000)
		var sum, squares float64
		for _, x := range all {
			sum += x
			squares += x * x
		}
		mean := sum / float64(len(all))
		if want := float64(n+1) / 2; math.Abs(mean-want) > 0.002*float64(n) {
			t.Errorf("mean of 1 to %d is %v, want %v", n, mean, want)
		}
		deviation := math.Sqrt(squares/float64(len(all)) - mean*mean)
		if want := float64(n) / 12; math.Abs(deviation-want) > 0.01*want {
			t.Errorf("standard deviation of 1 to %d is %v, want %v", n, deviation, want)
		}
		bell := distuv.Normal{Mu: float64(n) / 2, Sigma: float64(n) / 12}
		for _, q := range []float64{0.05, 0.25, 0.5, 0.75, 0.95} {
			got, want := all[int(q*float64(len(all)))], bell.Quantile(q)
			if math.Abs(got-want) > 1+0.01*float64(n) {
				t.Errorf("quantile %v of 1 to %d is %v, want %.0f", q, n, got, want)
			}
		}
	}
}

func TestParetoGivesAShareOfTheIDsTheRestOfTheDraws(t *testing.T) {
	for _, h := range []float64{0.2, 0.1, 0.4} {
		for _, n := range []int{1, 10, 10_000} {
			compare(t, "pareto", n, draws(Pareto, Shape{ParetoH: h}, n, 100_000), func(k float64) float64 {
				return math.Pow(k/float64(n), math.Log(1-h)/math.Log(h))
			})
		}
	}
}

func TestZipfianDrawsIDsInProportionToTheirPower(t *testing.T) {
	for _, e := range []float64{0.8, 0.2, 1, 1.0000001, 2.5} {
		for _, n := range []int{1, 2, 10, 100_000} {
			sums := make([]float64, n+1)
			for k := 1; k <= n; k++ {
				sums[k] = sums[k-1] + math.Pow(float64(k), -e)
			}
			compare(t, "zipfian", n, draws(Zipfian, Shape{ZipfianExp: e}, n, 100_000), func(k float64) float64 {
				return sums[int(k)] / sums[n]
			})
		}
	}
}

func TestTheHotWindowFollowsItsOptions(t *testing.T) {
	all := draws(Special, Shape{SpecPct: 10, SpecRes: 50, SpecIter: 3}, 1000, 200_000)
	hot := 0.0
	for _, x := range all {
		if x >= 500 && x <= 551 { // the upper half of the 100 in the middle
			hot++
		}
	}
	// Half of the draws, and a bell of deviation 167 over these 52.
	if got := hot / float64(len(all)); math.Abs(got-(0.5+0.5*0.1206)) > 0.01 {
		t.Errorf("the hot window got %.4f of the draws", got)
	}
}

// The figures are those of two million draws by sysbench 1.0.20's own
// sysbench.rand.
func TestQuantilesAreThoseOfSysbench(t *testing.T) {
	for _, tt := range []struct {
		dist      Distribution
		n         int
		quantiles []float64 // of 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99
		mean      float64
		first     float64 // share of id 1
	}{
		{Gaussian, 10_000, []float64{3080, 3628, 4433, 5001, 5568, 6373, 6920}, 5000.5, 0},
		{Pareto, 1000, []float64{1, 1, 1, 7, 126, 688, 930}, 122.1, 0.384},
		{Pareto, 10_000, []float64{1, 1, 1, 68, 1254, 6880, 9300}, 1215, 0.279},
		{Uniform, 10_000, []float64{100, 500, 2495, 4998, 7499, 9495, 9900}, 5000, 0.0001},
		{Special, 10_000, []float64{3541, 4291, 4988, 5013, 5038, 5706, 6458}, 5009.7, 0},
	} {
		all := draws(tt.dist, Shape{}, tt.n, 300_000)
		for i, q := range []float64{0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99} {
			got, want := all[int(q*float64(len(all)))], tt.quantiles[i]
			if math.Abs(got-want) > 1+0.005*float64(tt.n) {
				t.Errorf("%s of %d: quantile %v is %v, sysbench's %v", tt.dist, tt.n, q, got, want)
			}
		}
		var sum, first float64
		for _, x := range all {
			sum += x
			if x == 1 {
				first++
			}
		}
		if got := sum / float64(len(all)); math.Abs(got-tt.mean) > 0.003*float64(tt.n) {
			t.Errorf("%s of %d: mean is %.1f, sysbench's %v", tt.dist, tt.n, got, tt.mean)
		}
		if got := first / float64(len(all)); math.Abs(got-tt.first) > 0.004 {
			t.Errorf("%s of %d: id 1 got %.4f of the draws, sysbench's %v", tt.dist, tt.n, got, tt.first)
		}
	}
}

func TestMadeUpIDsAreEachMadeOnce(t *testing.T) {
	const n = 1 << 20
	seen := make(map[int64]bool, n)
	var negative int
	for i := range uint32(n) {
		id := uniqueID(i - n/2)
		if id < math.MinInt32 || id > math.MaxInt32 || seen[id] {
			t.Fatalf("id %d came for %d: out of range, or again", id, i)
		}
		seen[id] = true
		if id < 0 {
			negative++
		}
	}
	if math.Abs(float64(negative)/n-0.5) > 0.01 {
		t.Errorf("%d of %d ids are negative, want about half: they should be all over INTEGER", negative, n)
	}
}
