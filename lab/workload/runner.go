package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"
)

const (
	// opening is how many sessions are opened at once: enough to hide a long
	// round trip, few enough for a server's accept queue.
	opening = 32
	// stopGrace is how long Stop waits for transactions to end by themselves
	// before it closes their connections.
	stopGrace = time.Second
	// longest is the greatest latency that a histogram tells apart.
	longest = 10 * time.Hour
)

// Options of a runner. The zero value is one thread.
type Options struct {
	// Threads is how many sessions run transactions at the same time, each one
	// after another without pause. 0 is 1.
	Threads int
	// Rate makes it an open loop: transactions arrive as they are due, wait for
	// a free thread, and their latency counts from when they were due. Without
	// one each thread runs one after another: a closed loop.
	Rate Rate
	// Arrivals is how they arrive at that rate; "" is Exponential.
	Arrivals Arrivals
	// Queue is how many may wait for a thread; more are dropped. 0 is
	// DefaultQueue.
	Queue int
	// Seed makes the load's random choices repeatable. 0 draws one.
	Seed uint64
	// Interval is the length of a Sample. 0 is a second.
	Interval time.Duration
	// OnSample, if not nil, is called by Measure with each sample once it is
	// over. It must be quick: the next one waits for it.
	OnSample func(Sample)
}

// Runner keeps a closed-loop load running: between measurements too, so that
// connections, caches and the cluster's queues stay as they are under load.
type Runner struct {
	driver  Driver
	target  Target
	opt     Options
	epoch   time.Time
	workers []*worker

	stop      chan struct{}   // closed: begin nothing new
	ctx       context.Context // ended: every connection is closed
	cut       context.CancelFunc
	stopOnce  sync.Once
	running   sync.WaitGroup
	paused    atomic.Pointer[chan struct{}] // not nil: closed to resume
	measuring sync.Mutex

	// Of an open loop.
	arrivals chan time.Duration // when each was due; nil in a closed loop
	dropped  atomic.Int64
	first    atomic.Pointer[span] // window, over which the rate goes its way
	resumed  atomic.Int64         // when the last pause ended

	live struct {
		sync.Mutex
		at  time.Duration
		n   int64
		tps float64
	}
}

// Start opens all sessions and begins the load. ctx bounds the opening alone;
// the load runs until Stop. When a session cannot be opened none stays open,
// and the error tells what the server said.
func Start(ctx context.Context, d Driver, t Target, opt Options) (*Runner, error) {
	opt.Threads = max(opt.Threads, 1)
	if opt.Seed == 0 {
		opt.Seed = rand.Uint64()
	}
	if opt.Interval <= 0 {
		opt.Interval = time.Second
	}
	r := &Runner{driver: d, opt: opt, epoch: time.Now(), stop: make(chan struct{})}
	if len(opt.Rate) > 0 {
		if opt.Queue <= 0 {
			opt.Queue = DefaultQueue
		}
		r.arrivals = make(chan time.Duration, opt.Queue)
	}
	r.ctx, r.cut = context.WithCancel(context.WithoutCancel(ctx))
	t.Dial = t.dialUntil(r.ctx)
	r.target = t

	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(opening)
	for i := range opt.Threads {
		w := newWorker(r, i)
		r.workers = append(r.workers, w)
		group.Go(func() error {
			if err := w.open(gctx); err != nil {
				return fmt.Errorf("session %d of %d: %w", i+1, opt.Threads, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		r.cut()
		for _, w := range r.workers {
			w.close()
		}
		return nil, fmt.Errorf("starting %s: %w", d.Name(), err)
	}
	for _, w := range r.workers {
		r.running.Go(w.loop)
	}
	if r.arrivals != nil {
		r.running.Go(r.arrive)
	}
	return r, nil
}

// Stop ends the load and closes the sessions. Transactions get a second to end
// by themselves; then their connections are closed under them, so that it
// returns soon even when the server is frozen or out of reach. It may be called
// again, and while Measure runs.
func (r *Runner) Stop() {
	r.stopOnce.Do(func() {
		close(r.stop)
		time.AfterFunc(stopGrace, r.cut)
	})
	r.running.Wait()
	r.cut()
}

// Live is the load as it is now.
type Live struct {
	Threads      int     // sessions that are connected
	Transactions int64   // committed since Start
	TPS          float64 // since the call before, at least a tenth of a second ago
}

// Live tells how the load goes, for progress: it costs a few microseconds.
func (r *Runner) Live() Live {
	var l Live
	for _, w := range r.workers {
		w.mu.Lock()
		l.Transactions += w.committed
		if w.connected {
			l.Threads++
		}
		w.mu.Unlock()
	}
	r.live.Lock()
	defer r.live.Unlock()
	now := r.now()
	if d := now - r.live.at; d >= time.Second/10 {
		r.live.tps = float64(l.Transactions-r.live.n) / d.Seconds()
		r.live.at, r.live.n = now, l.Transactions
	}
	l.TPS = r.live.tps
	return l
}

// Measure records d of the load, one sample an interval counted from its own
// start. A transaction belongs to the interval in which it was committed, with
// all of its latency, whenever it began; one that is still open at the end
// belongs to no window.
//
// When ctx ends, or the load is stopped, what was recorded until then is
// returned with the error.
func (r *Runner) Measure(ctx context.Context, d time.Duration) (Window, error) {
	if d <= 0 {
		return Window{}, fmt.Errorf("window of %v: must be longer than nothing", d)
	}
	if !r.measuring.TryLock() {
		return Window{}, errors.New("another window is being measured")
	}
	defer r.measuring.Unlock()

	begin := r.now()
	dropped := r.dropped.Load()
	span := span{begin: begin, end: begin + d, interval: r.opt.Interval}
	r.first.CompareAndSwap(nil, &span)
	for _, w := range r.workers {
		w.record(span)
	}
	win := Window{Start: r.epoch.Add(begin), Latency: newHistogram(), Errors: map[string]int64{}}
	second := newHistogram()
	at := begin
	var err error
	for k := 0; at < span.end && err == nil; k++ {
		from := at
		at, err = r.sleep(ctx, min(from+r.opt.Interval, span.end))
		second.Reset()
		s := Sample{Time: r.epoch.Add(from), Length: at - from}
		for _, w := range r.workers {
			w.take(k).addTo(&s, second, &win)
		}
		if second.TotalCount() > 0 {
			s.P50, s.P95 = quantile(second, 50), quantile(second, 95)
			s.P99, s.Max = quantile(second, 99), time.Duration(second.Max())*time.Microsecond
			win.Latency.Merge(second)
		}
		if r.arrivals != nil {
			s.Queue = len(r.arrivals)
			total := r.dropped.Load()
			s.Dropped, dropped = total-dropped, total
			win.Dropped += s.Dropped
			win.Queue = max(win.Queue, s.Queue)
		}
		win.Transactions += s.Transactions
		win.Retries += s.Retries
		win.Unknown += s.Unknown
		win.Samples = append(win.Samples, s)
		if r.opt.OnSample != nil {
			r.opt.OnSample(s)
		}
	}
	win.End = r.epoch.Add(at)
	var busy time.Duration
	for _, w := range r.workers {
		busy += w.endRecord(at)
	}
	win.Busy = float64(busy) / (float64(at-begin) * float64(len(r.workers)))
	return win, err
}

// sleep waits until at, and tells when it woke for another reason.
func (r *Runner) sleep(ctx context.Context, at time.Duration) (time.Duration, error) {
	timer := time.NewTimer(at - r.now())
	defer timer.Stop()
	select {
	case <-timer.C:
		return at, nil
	case <-ctx.Done():
		return min(at, r.now()), ctx.Err()
	case <-r.stop:
		return min(at, r.now()), ErrStopped
	}
}

// now is the time since the runner's epoch: one reading of the monotonic clock.
func (r *Runner) now() time.Duration { return time.Since(r.epoch) }

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, longest.Microseconds(), 3)
}

func quantile(h *hdrhistogram.Histogram, q float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(q)) * time.Microsecond
}

// span is what a window covers, in time since the runner's epoch.
type span struct {
	begin, end, interval time.Duration
}

// overlap is how much of from..to lies within the window.
func (s span) overlap(from, to time.Duration) time.Duration {
	return max(0, min(to, s.end)-max(from, s.begin))
}

// tally is what one worker did in one interval.
type tally struct {
	sent       Statements
	commits    []commit
	errors     map[string]int64    // by errorKey
	failures   map[string]failures // by kind
	reconnects int64
}

// commit is a committed transaction.
type commit struct {
	latency int64 // microseconds
	kind    string
}

// failures are attempts that did not commit.
type failures struct{ retries, errors, unknown int64 }

func (f *failures) add(g failures) {
	f.retries += g.retries
	f.errors += g.errors
	f.unknown += g.unknown
}

// failed counts failures of transactions of a kind.
func (t *tally) failed(kind string, f failures) {
	if t.failures == nil {
		t.failures = make(map[string]failures)
	}
	f.add(t.failures[kind])
	t.failures[kind] = f
}

// fail counts an error by its key.
func (t *tally) fail(key string) {
	if t.errors == nil {
		t.errors = make(map[string]int64)
	}
	t.errors[key]++
}

// addTo adds the interval to its sample, its histogram and its window.
func (t tally) addTo(s *Sample, h *hdrhistogram.Histogram, w *Window) {
	s.Transactions += int64(len(t.commits))
	s.Reads += int64(t.sent.Read)
	s.Writes += int64(t.sent.Write)
	s.Others += int64(t.sent.Other)
	s.Reconnects += t.reconnects
	for key, n := range t.errors {
		s.Errors += n
		w.Errors[key] += n
	}
	for kind, f := range t.failures {
		s.Retries += f.retries
		s.Unknown += f.unknown
		if kind != "" {
			k := w.kind(kind)
			k.Retries += f.retries
			k.Errors += f.errors
			k.Unknown += f.unknown
		}
	}
	for _, c := range t.commits {
		us := min(c.latency, h.HighestTrackableValue())
		_ = h.RecordValue(us)
		if c.kind != "" {
			k := w.kind(c.kind)
			k.Transactions++
			_ = k.Latency.RecordValue(us)
		}
	}
}
