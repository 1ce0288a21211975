package workload

import (
	"context"
	"fmt"
	"time"
)

// Pause lets the transactions in flight end and holds the next ones back until
// Resume, with all connections kept. It is for moments in which a cluster has
// to catch up, or its links are changed. It returns once every worker rests,
// or with an error when ctx ends first; the load is paused then all the same.
func (r *Runner) Pause(ctx context.Context) error {
	resumed := make(chan struct{})
	r.paused.CompareAndSwap(nil, &resumed)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		busy := 0
		for _, w := range r.workers {
			if !w.resting() {
				busy++
			}
		}
		if busy == 0 {
			return nil
		}
		select {
		case <-r.stop:
			return ErrStopped
		case <-ctx.Done():
			return fmt.Errorf("pausing the load: %d of %d threads do not end their transaction: %w", busy, len(r.workers), ctx.Err())
		case <-tick.C:
		}
	}
}

// Resume ends a Pause. Without one it does nothing.
func (r *Runner) Resume() {
	if r.paused.Load() == nil {
		return
	}
	r.resumed.Store(int64(r.now()))
	if resumed := r.paused.Swap(nil); resumed != nil {
		close(*resumed)
	}
}

// hold waits while the load is paused. It looks again each time that it was let
// go, and says so first: a Pause right after a Resume must not take a worker
// that is on its way out for one that rests.
func (w *worker) hold() {
	for resumed := w.r.paused.Load(); resumed != nil && !w.stopping(); resumed = w.r.paused.Load() {
		w.rest()
		w.atGate(true)
		select {
		case <-*resumed:
		case <-w.r.stop:
		}
		w.atGate(false)
	}
}

func (w *worker) atGate(held bool) {
	w.mu.Lock()
	w.held = held
	w.mu.Unlock()
}

// resting reports whether the worker is held, and so between transactions.
func (w *worker) resting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}
