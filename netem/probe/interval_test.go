package probe

import (
	"testing"
	"time"
)

func TestTheMedianOfManyProbesIsKnownCloser(t *testing.T) {
	stat := func(n int) Stat {
		var s Stat
		for i := range n {
			s.RTTs = append(s.RTTs, time.Duration(i)*time.Millisecond/time.Duration(n))
		}
		return s
	}
	for _, c := range []struct {
		n         int
		low, high time.Duration
	}{
		{0, 0, 0},
		{1, 0, 0},
		{100, 400 * time.Microsecond, 600 * time.Microsecond},
		{10000, 490 * time.Microsecond, 510 * time.Microsecond},
	} {
		low, high := stat(c.n).MedianInterval()
		if (low-c.low).Abs() > 5*time.Microsecond || (high-c.high).Abs() > 5*time.Microsecond {
			t.Errorf("%d probes: got %v to %v, want about %v to %v", c.n, low, high, c.low, c.high)
		}
	}
}
