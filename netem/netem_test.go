package netem

import (
	"testing"
	"time"
)

func TestOnlyPossibleDelaysAreValid(t *testing.T) {
	for _, c := range []struct {
		delay time.Duration
		ok    bool
	}{{0, true}, {300 * time.Microsecond, true}, {MaxDelay, true}, {MaxDelay + 1, false}, {-1, false}} {
		if err := (Impairment{Delay: c.delay}).Validate(); (err == nil) != c.ok {
			t.Errorf("Validate of delay %v = %v, want valid %t", c.delay, err, c.ok)
		}
	}
}
