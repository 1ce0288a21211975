package workload

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// attempts is how often a transaction is tried in all before it is given
	// up. Deadlocks on a hot row can repeat, but a load that never gives up
	// hides that nothing gets through.
	attempts = 20
	// The pauses double from the first to the last, each drawn at random from
	// its upper half so that the threads do not come back together.
	firstRetry, lastRetry     = time.Millisecond, 100 * time.Millisecond
	firstFailure, lastFailure = 10 * time.Millisecond, time.Second
	// openTimeout bounds the opening of a session anew.
	openTimeout = 15 * time.Second
	// idle is the value of worker.since outside transactions.
	idle = -1
	// closed is the value of due in a closed loop: begin at once.
	closed = -1
)

// worker is one thread of the load.
type worker struct {
	r        *Runner
	id       int
	opened   int // sessions so far
	session  Session
	failures int // in a row

	// mu is taken by the worker once a transaction and by the collector once an
	// interval, so it is free when the worker wants it.
	mu        sync.Mutex
	committed int64
	connected bool
	held      bool          // by Pause
	since     time.Duration // busy, but not yet counted so, from then on
	rec       *record       // nil outside windows
}

// record is a worker's part of a window.
type record struct {
	span
	busy    time.Duration
	first   int     // interval of pending[0]; the ones before are taken
	pending []tally // more than one only while the collector is late
}

func newWorker(r *Runner, id int) *worker {
	return &worker{r: r, id: id, since: idle}
}

// open opens the session. Each has other random choices, repeatable all the same.
func (w *worker) open(ctx context.Context) error {
	s, err := w.r.driver.Session(ctx, w.r.target, mix(w.r.opt.Seed, uint64(w.id), uint64(w.opened)))
	if err != nil {
		return err
	}
	w.opened++
	w.session = s
	w.mu.Lock()
	w.connected = true
	w.mu.Unlock()
	return nil
}

// close closes the session, if there is one.
func (w *worker) close() {
	if w.session == nil {
		return
	}
	_ = w.session.Close() // it has served, or is broken
	w.session = nil
	w.mu.Lock()
	w.connected = false
	w.mu.Unlock()
}

// loop runs transactions until the load is stopped.
func (w *worker) loop() {
	defer w.close()
	for w.hold(); !w.stopping(); w.hold() {
		if w.session == nil {
			w.reopen()
			continue
		}
		due := time.Duration(closed)
		if w.r.arrivals != nil {
			var ok bool
			if due, ok = w.await(); !ok {
				continue
			}
		}
		if !w.transaction(due) {
			w.failures++
			w.rest()
			w.pause(backoff(w.failures, firstFailure, lastFailure))
			continue
		}
		w.failures = 0
	}
	w.rest()
}

// reopen tries once to open a session in the place of a broken one.
func (w *worker) reopen() {
	ctx, cancel := context.WithTimeout(w.r.ctx, openTimeout)
	err := w.open(ctx)
	cancel()
	if err == nil {
		w.note(w.r.now(), func(t *tally) { t.reconnects++ })
		return
	}
	if w.stopping() {
		return
	}
	w.note(w.r.now(), func(t *tally) { t.fail("connect") })
	w.failures++
	w.pause(backoff(w.failures, firstFailure, lastFailure))
}

// transaction runs one transaction to its end, and reports whether that was its
// commit. It leaves no session behind that is not fit for the next one. due is
// when it should have begun, or closed.
func (w *worker) transaction(due time.Duration) bool {
	begin := w.work()
	if due != closed {
		begin = due
	}
	for attempt := 1; ; attempt++ {
		sent, err := w.session.Transaction(w.r.ctx)
		end := w.r.now()
		if err == nil {
			w.commit(begin, end, sent)
			return true
		}
		usable := ServerCode(err) != 0 && !errors.Is(err, ErrUnknownOutcome)
		if usable {
			// Whatever became of the transaction, the next BEGIN would commit
			// the rest of it. A session that cannot say ROLLBACK is closed.
			sent.Other++
			usable = w.session.Rollback(w.r.ctx) == nil
		}
		if !usable {
			w.close()
		}
		if w.r.ctx.Err() != nil {
			return false // it was Stop that broke the connection
		}
		again := usable && Retryable(err) && attempt < attempts
		w.note(end, func(t *tally) {
			t.sent.add(sent)
			switch {
			case again:
				t.failed(sent.Kind, failures{retries: 1})
			case errors.Is(err, ErrUnknownOutcome):
				t.failed(sent.Kind, failures{unknown: 1})
			default:
				t.failed(sent.Kind, failures{errors: 1})
				t.fail(errorKey(err))
			}
		})
		if !again {
			return false
		}
		w.pause(backoff(attempt, firstRetry, lastRetry))
		if w.stopping() {
			return false
		}
	}
}

func (s *Statements) add(t Statements) {
	s.Read += t.Read
	s.Write += t.Write
	s.Other += t.Other
}

// work marks the worker as busy, and tells since when: the end of the
// transaction before, if nothing was in between.
func (w *worker) work() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since == idle {
		w.since = w.r.now()
	}
	return w.since
}

// rest marks the worker as idle.
func (w *worker) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settle(w.r.now())
	w.since = idle
}

// settle counts the busy time until at. w.mu is held.
func (w *worker) settle(at time.Duration) {
	if w.since == idle {
		return
	}
	if w.rec != nil {
		w.rec.busy += w.rec.overlap(w.since, at)
	}
	w.since = at
}

// commit counts a committed transaction.
func (w *worker) commit(begin, end time.Duration, sent Statements) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.committed++
	w.settle(end)
	if t := w.rec.tally(end); t != nil {
		t.sent.add(sent)
		t.commits = append(t.commits, commit{max(1, (end - begin).Microseconds()), sent.Kind})
	}
}

// note counts something else than a commit.
func (w *worker) note(at time.Duration, count func(*tally)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.rec.tally(at); t != nil {
		count(t)
	}
}

// tally is where to count what happened then, nil if that is outside the
// window. The worker decides, by its own clock, so that a collector that is
// late moves nothing into another second.
func (r *record) tally(at time.Duration) *tally {
	if r == nil || at < r.begin || at >= r.end {
		return nil
	}
	// What the worker noted just before a boundary and counts just after the
	// collector was there goes to the interval that is open.
	k := max(0, int((at-r.begin)/r.interval)-r.first)
	for len(r.pending) <= k {
		r.pending = append(r.pending, tally{})
	}
	return &r.pending[k]
}

// record begins a window.
func (w *worker) record(s span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rec = &record{span: s}
}

// take hands over the tally of the window's interval k. They are taken in order.
func (w *worker) take(k int) tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rec.first = k + 1
	if len(w.rec.pending) == 0 {
		return tally{}
	}
	t := w.rec.pending[0]
	w.rec.pending = append(w.rec.pending[:0], w.rec.pending[1:]...)
	return t
}

// endRecord ends the window, and tells how long the worker was busy in it.
func (w *worker) endRecord(at time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	busy := w.rec.busy
	if w.since != idle {
		busy += w.rec.overlap(w.since, at)
	}
	w.rec = nil
	return busy
}

func (w *worker) stopping() bool {
	select {
	case <-w.r.stop:
		return true
	default:
		return false
	}
}

// pause waits d, or until the load is stopped.
func (w *worker) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.r.stop:
	}
}

// backoff is the pause after the nth failure in a row.
func backoff(n int, first, last time.Duration) time.Duration {
	d := last
	if n < 16 {
		d = min(last, first<<(n-1))
	}
	return d/2 + rand.N(d/2)
}

// mix makes one seed of several numbers, each of which changes all of it.
func mix(parts ...uint64) uint64 {
	var h uint64
	for _, p := range parts {
		// SplitMix64, by Steele, Lea and Flood.
		h += p + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}
