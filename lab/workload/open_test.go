package workload

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func steady(rate float64) Rate { return Rate{{rate, rate}} }

func TestAnOpenLoopKeepsItsRateWhateverTheServerDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{transact: takes(10 * time.Millisecond)}, Options{Threads: 4, Rate: steady(100), Arrivals: Fixed})
		time.Sleep(time.Second)
		w := measure(t, r, 10*time.Second)
		if w.Transactions < 999 || w.Transactions > 1001 || w.Dropped != 0 || w.Queue > 1 {
			t.Errorf("%d transactions, %d dropped, queue %d; want 1000 at once", w.Transactions, w.Dropped, w.Queue)
		}
		if w.Busy < 0.24 || w.Busy > 0.26 {
			t.Errorf("busy is %v, want 0.25: 100 times 10 ms of 4 threads", w.Busy)
		}
		if got := w.Latency.ValueAtQuantile(99); got < 9_900 || got > 10_100 {
			t.Errorf("p99 is %d us, want 10000", got)
		}
	})
}

// A server that stands still for 3 s in 60 is met by the 3 s' worth of
// transactions that were due meanwhile, evenly from 0 to 3 s: 5% of all. A closed
// loop sees one.
func TestAStallIsInThePercentilesOfAnOpenLoopAsTheorySays(t *testing.T) {
	stall := func(threads int, rate Rate) Window {
		var w Window
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			f := &fake{transact: func(context.Context, int) error {
				at := time.Since(begin)
				if at >= 30*time.Second && at < 33*time.Second {
					time.Sleep(33*time.Second - at)
				}
				time.Sleep(time.Millisecond)
				return nil
			}}
			w = measure(t, start(t, f, Options{Threads: threads, Rate: rate, Arrivals: Fixed}), 60*time.Second)
		})
		return w
	}
	near := func(what string, got int64, want float64) {
		t.Helper()
		if ms := float64(got) / 1000; math.Abs(ms-want) > 40 {
			t.Errorf("%s is %.0f ms, want %.0f", what, ms, want)
		}
	}
	w := stall(64, steady(500))
	near("max", w.Latency.Max(), 3000)
	near("p99.9", w.Latency.ValueAtQuantile(99.9), 3000*(1-0.1/5))
	near("p99", w.Latency.ValueAtQuantile(99), 3000*(1-1.0/5))
	near("p96", w.Latency.ValueAtQuantile(96), 3000*(1-4.0/5))
	near("p94", w.Latency.ValueAtQuantile(94), 1)
	zero := 0
	for _, s := range w.Samples {
		if s.Transactions == 0 {
			zero++
		}
	}
	if zero != 3 {
		t.Errorf("%d seconds without a transaction, want 3", zero)
	}
	w = stall(1, nil)
	near("max of a closed loop", w.Latency.Max(), 3000)
	near("p99.9 of a closed loop", w.Latency.ValueAtQuantile(99.9), 1)
}

func TestWhatTheServerCannotDoWaitsAndIsDroppedBeyondTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{transact: takes(10 * time.Millisecond)}, Options{Rate: steady(200), Arrivals: Fixed, Queue: 50})
		w := measure(t, r, 10*time.Second)
		// 100 a second get through; 50 wait, and each of them half a second.
		if w.Transactions < 995 || w.Transactions > 1001 || w.Queue != 50 || w.Dropped < 940 || w.Dropped > 960 {
			t.Errorf("%d transactions, queue %d, %d dropped; want 1000, 50, 950", w.Transactions, w.Queue, w.Dropped)
		}
		if got := w.Latency.ValueAtQuantile(90); got < 490_000 || got > 530_000 {
			t.Errorf("p90 is %d us, want about 510000", got)
		}
	})
}

func TestArrivalsOfManyUsersAreExponential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{transact: takes(time.Microsecond)}, Options{Threads: 8, Seed: 7, Rate: steady(1000)})
		w := measure(t, r, 60*time.Second)
		// The number in a second is Poisson: its variance is its mean.
		var mean, square float64
		for _, s := range w.Samples {
			mean += float64(s.Transactions) / 60
			square += float64(s.Transactions*s.Transactions) / 60
		}
		if mean < 980 || mean > 1020 {
			t.Errorf("%.0f a second, want 1000", mean)
		}
		if v := square - mean*mean; v < 500 || v > 1700 {
			t.Errorf("variance of a second is %.0f, want about 1000", v)
		}
	})
}

func TestAPauseIsNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{transact: takes(20 * time.Millisecond)}
		r := start(t, f, Options{Threads: 2, Rate: steady(95), Arrivals: Fixed})
		time.Sleep(time.Second)
		for range 3 {
			if err := r.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.mu.Lock()
			tries := f.tries
			f.mu.Unlock()
			time.Sleep(5 * time.Second)
			f.mu.Lock()
			if f.tries != tries {
				t.Errorf("%d transactions began while the load was paused", f.tries-tries)
			}
			f.mu.Unlock()
			r.Resume()
			w := measure(t, r, 5*time.Second)
			if w.Transactions < 470 || w.Latency.Max() > 60_000 {
				t.Errorf("after a pause: %d transactions, the longest %d us; want 475, none that waited for the pause", w.Transactions, w.Latency.Max())
			}
		}
	})
}

func TestARateRisesAndSteps(t *testing.T) {
	for _, c := range []struct {
		text string
		want []int64 // transactions of 6 seconds
	}{
		{"100", []int64{100, 100, 100, 100, 100, 100}},
		{"100,200,400", []int64{100, 100, 200, 200, 400, 400}},
		{"10..610", []int64{60, 160, 260, 360, 460, 560}},
		{"100..300,50", []int64{133, 200, 267, 50, 50, 50}},
	} {
		synctest.Test(t, func(t *testing.T) {
			rate, err := ParseRate(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if rate.String() != c.text {
				t.Errorf("%s is written as %s", c.text, rate)
			}
			r := start(t, &fake{transact: takes(100 * time.Microsecond)}, Options{Threads: 4, Rate: rate, Arrivals: Fixed})
			time.Sleep(3 * time.Second) // a warm-up is at the first rate
			w := measure(t, r, 6*time.Second)
			for i, s := range w.Samples {
				if d := s.Transactions - c.want[i]; d < -8 || d > 8 {
					t.Errorf("%s: second %d has %d transactions, want %d", c.text, i, s.Transactions, c.want[i])
				}
			}
		})
	}
	for _, bad := range []string{"", "0", "-1", "x", "1..", "..5", "1,,2", "1e9", "NaN", "Inf", "1e-300", "1..0.0001"} {
		if r, err := ParseRate(bad); err == nil {
			t.Errorf("rate %q was read as %v", bad, r)
		}
	}
}
