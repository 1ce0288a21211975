package probe

import (
	"testing"

	"github.com/faultlab/faultlab/netem"
)

// TestALossIntervalHoldsTheShareThatWasAsked in as many flows as it promises,
// however losses cluster.
func TestALossIntervalHoldsTheShareThatWasAsked(t *testing.T) {
	const flows, confidence = 1000, 0.95
	for _, text := range []string{"loss 5%", "loss 30% 25%", "loss gemodel 2% 25%", "loss gemodel 1% 10% 50% 0%", "loss state 1% 20%"} {
		i, _, err := netem.Parse(text + " seed 7")
		if err != nil {
			t.Fatal(err)
		}
		asked, spread := i.LossRate(), i.LossSpread()
		d := netem.NewDecider(i)
		held := 0
		for range flows {
			f := Flow{Sent: 5000}
			for range f.Sent {
				if d.Decide().N == 0 {
					f.Lost++
				}
			}
			if low, high := f.LossInterval(confidence, spread); low <= asked && asked <= high {
				held++
			}
		}
		if share := float64(held) / flows; share < confidence-0.025 || share > 0.99 {
			t.Errorf("%s: %.1f%% of the intervals hold what was asked, want %.0f%%", text, 100*share, 100*confidence)
		}
	}
}
