package wire

import (
	"testing"
	"time"
)

func TestWaitingAwakeIsBoundedToAShareOfTheTime(t *testing.T) {
	var a allowance
	const need = 50 * time.Microsecond
	var spent time.Duration
	now := time.Duration(0)
	for now < time.Second { // always a packet due soon
		if a.spend(now, need, 0.1) {
			spent += need
		}
		now += need
	}
	if share := float64(spent) / float64(now); share < 0.08 || share > 0.101 {
		t.Errorf("awake for %.3f of the time, want 0.1", share)
	}
}

func TestAnIdleAllowanceDoesNotGrowWithoutEnd(t *testing.T) {
	a := allowance{}
	a.spend(0, 0, 0.1)
	if a.spend(time.Hour, 2*time.Millisecond, 0.1) {
		t.Error("an hour of silence pays for more than a millisecond")
	}
	if !a.spend(time.Hour, time.Millisecond, 0.1) {
		t.Error("the millisecond is not there")
	}
}
