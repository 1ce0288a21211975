package oltp

import (
	"math"
	"math/rand/v2"
)

// Distribution says how ids are drawn from a table's 1 to Rows.
type Distribution string

// The distributions, by sysbench's names.
const (
	// Special is sysbench 1.0's default: three draws of four fall on the upper
	// three quarters of a window of 1% in the middle of the table, so on 0.75%
	// of its rows; the rest is bell-shaped about the middle.
	Special Distribution = "special"
	// Uniform draws every id alike: the default since sysbench 1.1.
	Uniform Distribution = "uniform"
	// Gaussian is a bell about the middle of the table: the mean of 12 uniform
	// draws, whose standard deviation is a twelfth of the table.
	Gaussian Distribution = "gaussian"
	// Pareto draws an id of the first k out of n with probability
	// (k/n)^0.1386: the first fifth of the ids gets four fifths of the draws,
	// the first fifth of that four fifths of those, and so on down to id 1.
	Pareto Distribution = "pareto"
	// Zipfian draws id k in proportion to k^-0.8. It is sysbench 1.1's; 1.0 has
	// none.
	Zipfian Distribution = "zipfian"
)

// Distributions lists the names that Config takes.
func Distributions() []Distribution {
	return []Distribution{Special, Uniform, Gaussian, Pareto, Zipfian}
}

// Shape are the distributions' parameters, by the names of sysbench's options.
// What is 0 is sysbench's default.
type Shape struct {
	// SpecIter is how many uniform draws the bells of Gaussian and Special are
	// the mean of. 0 is 12.
	SpecIter int
	// SpecPct is how much of the table Special's hot window covers, in percent
	// from 1 to 100. 0 is 1.
	SpecPct int
	// SpecRes is how many of Special's draws go there, in percent from 1 to 99.
	// 0 is 75.
	SpecRes int
	// ParetoH is the share of ids that gets a share 1-ParetoH of the draws,
	// between 0 and 1. 0 is 0.2.
	ParetoH float64
	// ZipfianExp is the exponent, up to 100. 0 is 0.8.
	ZipfianExp float64
}

// withDefaults fills in what was left out.
func (s Shape) withDefaults() Shape {
	if s.SpecIter == 0 {
		s.SpecIter = 12
	}
	if s.SpecPct == 0 {
		s.SpecPct = 1
	}
	if s.SpecRes == 0 {
		s.SpecRes = 75
	}
	if s.ParetoH == 0 {
		s.ParetoH = 0.2
	}
	if s.ZipfianExp == 0 {
		s.ZipfianExp = 0.8
	}
	return s
}

// sampler draws ids. It is read only, so sessions share one.
type sampler struct {
	kind Distribution
	n    int
	Shape
	power float64 // of Pareto
	zipf  zipf
}

func newSampler(d Distribution, s Shape, n int) *sampler {
	return &sampler{
		kind: d, n: n, Shape: s,
		power: math.Log(s.ParetoH) / math.Log(1-s.ParetoH),
		zipf:  newZipf(float64(n), s.ZipfianExp),
	}
}

// draw draws an id from 1 to n.
func (s *sampler) draw(r *rand.Rand) int64 {
	switch s.kind {
	case Uniform:
		return 1 + r.Int64N(int64(s.n))
	case Gaussian:
		return 1 + int64(s.bell(r)*float64(s.n))
	case Pareto:
		return 1 + int64(float64(s.n)*math.Pow(r.Float64(), s.power))
	case Zipfian:
		return s.zipf.draw(r)
	default:
		return s.special(r)
	}
}

// bell draws from 0 to 1, most often about the middle.
func (s *sampler) bell(r *rand.Rand) float64 {
	var sum float64
	for range s.SpecIter {
		sum += r.Float64()
	}
	return sum / float64(s.SpecIter)
}

// special follows sysbench 1.0. That draws one number u to choose between bell
// (u < 0.25) and window, then uses the same u as the place in the window, whose
// first quarter is therefore never hit.
func (s *sampler) special(r *rand.Rand) int64 {
	t := float64(s.n - 1)
	u := r.Float64()
	if u < 1-float64(s.SpecRes)/100 && s.n > 1 {
		return 1 + int64(s.bell(r)*t)
	}
	window := float64(s.SpecPct) / 100 * t
	return 1 + int64(u*(window+1)+t/2-window/2)
}

// zipf draws k from 1 to n in proportion to k^-e: rejection-inversion, by
// Hörmann and Derflinger (ACM TOMACS 6.3, 1996), which needs no table of n
// sums. It draws from the area under x^-e, cut into bars one wide about each k,
// and takes the part of a bar that is k^-e large.
type zipf struct {
	n, e     float64
	from, to float64 // of the area
	sure     float64 // k is taken without a look when x is at least k - sure
}

func newZipf(n, e float64) zipf {
	z := zipf{n: n, e: e}
	z.from, z.to = z.area(1.5)-1, z.area(n+0.5)
	z.sure = 2 - z.inverse(z.area(2.5)-math.Pow(2, -e))
	return z
}

// area is the integral of x^-e from 1 to x.
func (z zipf) area(x float64) float64 {
	l := math.Log(x)
	if t := (1 - z.e) * l; t != 0 { // expm1: exact about the exponent 1 as well
		return math.Expm1(t) / t * l
	}
	return l
}

// inverse is the x whose area is a.
func (z zipf) inverse(a float64) float64 {
	if t := max((1-z.e)*a, -1); t != 0 {
		return math.Exp(math.Log1p(t) / t * a)
	}
	return math.Exp(a)
}

func (z zipf) draw(r *rand.Rand) int64 {
	for {
		a := z.to + r.Float64()*(z.from-z.to)
		x := z.inverse(a)
		k := min(max(math.Floor(x+0.5), 1), z.n)
		if k-x <= z.sure || a >= z.area(k+0.5)-math.Pow(k, -z.e) {
			return int64(k)
		}
	}
}

// Lengths of the two strings: groups of 11 digits, joined by dashes.
const (
	groupDigits = 11
	cLength     = 10*(groupDigits+1) - 1
	padLength   = 5*(groupDigits+1) - 1
)

// fillGroups overwrites b, of cLength or padLength, with random groups.
func fillGroups(r *rand.Rand, b []byte) {
	for i := 0; i < len(b); i += groupDigits + 1 {
		if i > 0 {
			b[i-1] = '-'
		}
		n := r.Uint64N(100_000_000_000)
		for j := i + groupDigits - 1; j >= i; j-- {
			b[j] = '0' + byte(n%10)
			n /= 10
		}
	}
}

// uniqueID is the nth of all 32-bit integers in an order that looks random: x
// squared modulo a prime, which visits each number once (Preshing, "How to
// generate a sequence of unique random integers"), twice.
func uniqueID(n uint32) int64 {
	return int64(int32(residue(residue(n)+0x682f0161) ^ 0x5bf03635))
}

func residue(x uint32) uint32 {
	const prime = 1<<32 - 5
	switch {
	case x >= prime:
		return x
	case x <= prime/2:
		return uint32(uint64(x) * uint64(x) % prime)
	default:
		return uint32(prime - uint64(x)*uint64(x)%prime)
	}
}
