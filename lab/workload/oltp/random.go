package oltp

import "math/rand/v2"

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
)

// Distributions lists the names that Config takes.
func Distributions() []Distribution { return []Distribution{Special, Uniform} }

// draw draws an id from 1 to n.
func (d Distribution) draw(r *rand.Rand, n int) int64 {
	if d == Uniform {
		return 1 + r.Int64N(int64(n))
	}
	return special(r, n)
}

const (
	specialShare  = 0.75 // of the draws that go to the hot window
	specialWindow = 0.01 // of the table that the window covers
	specialRounds = 12   // of uniform draws whose mean is the bell
)

// special follows sb_rand_special of sysbench 1.0. That draws one number u to
// choose between bell (u < 0.25) and window, then uses the same u as the place
// in the window, whose first quarter is therefore never hit.
func special(r *rand.Rand, n int) int64 {
	t := float64(n - 1)
	u := r.Float64()
	if u < 1-specialShare && n > 1 {
		var sum float64
		for range specialRounds {
			sum += r.Float64()
		}
		return 1 + int64(sum*t/specialRounds)
	}
	return 1 + int64(u*(t*specialWindow+1)+t/2-t*specialWindow/2)
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
