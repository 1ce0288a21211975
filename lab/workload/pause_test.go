package workload

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPausedLoadRestsOnTheSameSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{transact: takes(30 * time.Millisecond)}
		r := start(t, f, Options{Threads: 4})
		time.Sleep(time.Second)
		if err := r.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := measure(t, r, 2*time.Second)
		if w.Transactions != 0 || w.Busy != 0 {
			t.Errorf("paused: %d transactions, busy %v; want none", w.Transactions, w.Busy)
		}
		r.Resume()
		w = measure(t, r, 2*time.Second)
		if w.Transactions < 4*65 || f.opens != 4 {
			t.Errorf("resumed: %d transactions on %d sessions in all, want about %d on 4", w.Transactions, f.opens, 4*66)
		}
	})
}

func TestPauseTellsWhenTransactionsDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{transact: takes(time.Minute)}, Options{Threads: 2})
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Pause(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v, want that of the deadline", err)
		}
	})
}

func TestAPauseRightAfterAResumeStillHoldsEveryWorker(t *testing.T) {
	var paused atomic.Bool
	r := start(t, &fake{transact: func(context.Context, int) error {
		if paused.Load() {
			t.Error("a transaction ran in a paused load")
		}
		return nil
	}}, Options{Threads: 8})
	for range 200 {
		if err := r.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		paused.Store(true)
		time.Sleep(10 * time.Microsecond)
		paused.Store(false)
		r.Resume()
	}
}
