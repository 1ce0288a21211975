package tpcc

import (
	"math/bits"
	"math/rand/v2"
)

// nurand is the specification's non-uniform random distribution, NURand
// (clause 2.1.6): a is its constant A, c the constant C that is chosen once.
type nurand struct{ a, c int }

// The constants C. They are the same in every run, so that runs contend for the
// same rows. The one for last names is another one while loading; their
// difference is as clause 2.1.6.1 demands.
const (
	cNameLoad = 123
	cNameRun  = 208
	cCustomer = 259
	cItem     = 7911
)

// scaled is the distribution over a range that is scale times smaller: A is the
// largest number of the form 2^n-1 in its share, as the specification's are.
func scaled(a, c, scale int) nurand {
	if scale > 1 {
		a = 1<<(bits.Len(uint(a/scale+1))-1) - 1
	}
	return nurand{a, c & a}
}

// draw draws from x to y.
func (n nurand) draw(r *rand.Rand, x, y int) int64 {
	return int64((between(r, 0, n.a)|between(r, x, y))+n.c)%int64(y-x+1) + int64(x)
}

// between draws from x to y, all alike.
func between(r *rand.Rand, x, y int) int { return x + r.IntN(y-x+1) }

var syllables = [10]string{"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"}

// lastName is the specification's name of a number from 0 to 999.
func lastName(n int) string {
	return syllables[n/100] + syllables[n/10%10] + syllables[n%10]
}

const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// appendText appends x to y random letters and digits.
func appendText(b []byte, r *rand.Rand, x, y int) []byte {
	for range between(r, x, y) {
		b = append(b, alphanumeric[r.IntN(len(alphanumeric))])
	}
	return b
}

// appendDigits appends that many random digits.
func appendDigits(b []byte, r *rand.Rand, n int) []byte {
	for range n {
		b = append(b, '0'+byte(r.IntN(10)))
	}
	return b
}

const original = "ORIGINAL"

// appendData appends a text of 26 to 50, one in ten with ORIGINAL in it.
func appendData(b []byte, r *rand.Rand) []byte {
	from := len(b)
	b = appendText(b, r, 26, 50)
	if r.IntN(10) == 0 {
		copy(b[from+r.IntN(len(b)-from-len(original)+1):], original)
	}
	return b
}
