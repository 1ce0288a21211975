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

// LossInterval is the interval of the share of lost packets. Where losses cluster,
// packets count for fewer by spread, see netem.Impairment.LossSpread: what was
// asked, and not a cluster that was met or missed, says how sure a share is.
func (f Flow) LossInterval(confidence, spread float64) (low, high float64) {
	return binomial(float64(f.Lost)/spread, float64(f.Sent)/spread, confidence)
}
