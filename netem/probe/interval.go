package probe

import (
	"gonum.org/v1/gonum/mathext"
)

// Binomial is the exact (Clopper-Pearson) interval of a share of which k cases
// of n were seen, at a confidence such as 0.95: in at least so many cases it
// holds the true share, whatever that is. Without cases it is 0 to 1.
func Binomial(k, n int, confidence float64) (low, high float64) {
	return binomial(float64(k), float64(n), confidence)
}

func binomial(k, n, confidence float64) (low, high float64) {
	if n <= 0 {
		return 0, 1
	}
	tail := (1 - confidence) / 2
	low, high = 0, 1
	if k > 0 {
		low = mathext.InvRegIncBeta(k, n-k+1, tail)
	}
	if k < n {
		high = mathext.InvRegIncBeta(k+1, n-k, 1-tail)
	}
	return low, high
}

// LossInterval is the interval of the share of lost packets. bursty tells that
// losses were asked to come in bursts: then packets are not independent, and
// count for fewer by about twice the mean burst.
func (f Flow) LossInterval(confidence float64, bursty bool) (low, high float64) {
	k, n := float64(f.Lost), float64(f.Sent)
	if bursty && f.Lost > 0 {
		inflated := max(2*f.MeanBurst()-1, 1)
		k, n = k/inflated, n/inflated
	}
	return binomial(k, n, confidence)
}
