package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// start runs a load for the length of the test.
func start(t *testing.T, f *fake, opt Options) *Runner {
	t.Helper()
	r, err := Start(t.Context(), f, Target{}, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

func measure(t *testing.T, r *Runner, d time.Duration) Window {
	t.Helper()
	w, err := r.Measure(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	check(t, w)
	return w
}

// check holds a window against itself.
func check(t *testing.T, w Window) {
	t.Helper()
	var sum Sample
	at := w.Start
	for i, s := range w.Samples {
		if !s.Time.Equal(at) {
			t.Errorf("sample %d begins at %v, want %v, the end of the one before", i, s.Time, at)
		}
		at = at.Add(s.Length)
		sum.Transactions += s.Transactions
		sum.Errors += s.Errors
		sum.Retries += s.Retries
		sum.Unknown += s.Unknown
	}
	if !at.Equal(w.End) {
		t.Errorf("samples end at %v, the window at %v", at, w.End)
	}
	var errs int64
	for _, n := range w.Errors {
		errs += n
	}
	got := []int64{sum.Transactions, w.Latency.TotalCount(), sum.Errors, sum.Retries, sum.Unknown}
	want := []int64{w.Transactions, w.Transactions, errs, w.Retries, w.Unknown}
	if !slices.Equal(got, want) {
		t.Errorf("transactions, latencies, errors, retries, unknown: samples have %v, window %v", got, want)
	}
}

func TestSamplesAddUpToTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{transact: takes(30 * time.Millisecond)}
		r := start(t, f, Options{Threads: 4})
		time.Sleep(time.Second / 3)
		w := measure(t, r, 3500*time.Millisecond)
		if n := len(w.Samples); n != 4 || w.Samples[3].Length != 500*time.Millisecond {
			t.Errorf("got %d samples, the last %v long; want 4, the last 500ms", n, w.Samples[n-1].Length)
		}
		// 3.5 s / 30 ms, and one more or less at the edges.
		if got := w.Transactions; got < 4*116 || got > 4*117 {
			t.Errorf("got %d transactions of 4 threads, want 4 times 116 or 117", got)
		}
		if got := w.Latency.ValueAtQuantile(50); got < 29_900 || got > 30_100 {
			t.Errorf("median latency is %d us, want 30000", got)
		}
		if w.Busy < 0.999 || w.Busy > 1.001 {
			t.Errorf("busy is %v, want 1", w.Busy)
		}
		for _, s := range w.Samples {
			got := []int64{s.Reads, s.Writes, s.Others}
			if want := []int64{3 * s.Transactions, 2 * s.Transactions, s.Transactions}; !slices.Equal(got, want) {
				t.Errorf("reads, writes, others are %v, want %v", got, want)
			}
		}
	})
}

func TestATransactionBelongsToTheSecondInWhichItCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{transact: takes(1500 * time.Millisecond)}
		r := start(t, f, Options{})
		time.Sleep(200 * time.Millisecond) // the first one began before the window
		w := measure(t, r, 4*time.Second)
		var got []int64
		for _, s := range w.Samples {
			got = append(got, s.Transactions)
		}
		if want := []int64{0, 1, 1, 0}; !slices.Equal(got, want) { // at 1.3, 2.8 and (next window) 4.3 s
			t.Errorf("transactions by second are %v, want %v", got, want)
		}
		if got := w.Samples[1].Max; got < 1498*time.Millisecond || got > 1502*time.Millisecond {
			t.Errorf("latency is %v, want 1.5s: all of it, though it began before the window", got)
		}
		if w.Busy < 0.999 || w.Busy > 1.001 {
			t.Errorf("busy is %v, want 1: transactions that span the edges are work too", w.Busy)
		}
	})
}

func TestAStallIsSecondsWithoutTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{transact: func(_ context.Context, n int) error {
			time.Sleep(100 * time.Millisecond)
			if n == 6 {
				time.Sleep(3 * time.Second)
			}
			return nil
		}}
		w := measure(t, start(t, f, Options{}), 5*time.Second)
		var zero int
		for _, s := range w.Samples {
			if s.Transactions == 0 {
				zero++
			}
		}
		if zero != 2 {
			t.Errorf("%d seconds without transactions, want the 2 whole ones of 3.1 s: %+v", zero, w.Samples)
		}
		if got := time.Duration(w.Latency.Max()) * time.Microsecond; got < 3*time.Second {
			t.Errorf("longest latency is %v, want the stall's 3.1 s", got)
		}
	})
}

func TestAConflictIsTriedAgainAfterARollback(t *testing.T) {
	for _, code := range []uint16{1020, 1205, 1213, 1317, 3101} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{transact: func(_ context.Context, n int) error {
					time.Sleep(400 * time.Millisecond)
					if n <= 2 {
						return fmt.Errorf("update: %w", serverError(code))
					}
					return nil
				}}
				w := measure(t, start(t, f, Options{}), 1500*time.Millisecond)
				if w.Retries != 2 || w.Transactions != 1 || len(w.Errors) != 0 {
					t.Errorf("got %d retries, %d transactions, errors %v; want 2, 1 and none", w.Retries, w.Transactions, w.Errors)
				}
				if got, want := f.first(5), []string{"begin", "rollback", "begin", "rollback", "begin"}; !cmp.Equal(got, want) {
					t.Errorf("session did %v, want %v", got, want)
				}
				if got := time.Duration(w.Latency.Max()) * time.Microsecond; got < 1200*time.Millisecond {
					t.Errorf("latency is %v, want that of all three attempts", got)
				}
			})
		})
	}
}

func TestAConflictThatNeverEndsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{transact: func(context.Context, int) error { return serverError(1213) }}
		w := measure(t, start(t, f, Options{}), 10*time.Second)
		if w.Errors["1213"] == 0 || w.Transactions != 0 {
			t.Errorf("got %d transactions, errors %v; want none, and 1213", w.Transactions, w.Errors)
		}
		if got, want := w.Retries/w.Errors["1213"], int64(attempts-1); got < want || got > want+want/w.Errors["1213"] {
			t.Errorf("%d retries for %d transactions given up, want %d each", w.Retries, w.Errors["1213"], want)
		}
	})
}

func TestANodeThatTakesNoWritesIsNotHammered(t *testing.T) {
	for _, code := range []uint16{1047, 1290, 1836, 3100} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{transact: func(context.Context, int) error { return serverError(code) }}
				w := measure(t, start(t, f, Options{}), 30*time.Second)
				if n := w.Errors[fmt.Sprint(code)]; n < 30 || n > 80 {
					t.Errorf("%d attempts in 30 s (%v), want about one a second after the first few", n, w.Errors)
				}
				if w.Busy > 0.01 || w.Retries != 0 {
					t.Errorf("busy %v, %d retries; want neither", w.Busy, w.Retries)
				}
			})
		})
	}
}

func TestASessionThatCannotRollBackIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{rollback: serverError(1047), transact: func(_ context.Context, n int) error {
			time.Sleep(100 * time.Millisecond)
			if n == 1 {
				return serverError(1213)
			}
			return nil
		}}
		w := measure(t, start(t, f, Options{}), time.Second)
		if got, want := f.first(4), []string{"begin", "rollback", "close", "begin"}; !cmp.Equal(got, want) {
			t.Errorf("session did %v, want %v", got, want)
		}
		if !maps.Equal(w.Errors, map[string]int64{"1213": 1}) || w.Retries != 0 {
			t.Errorf("errors %v, %d retries; want one 1213 given up", w.Errors, w.Retries)
		}
		if got := w.Samples[0].Reconnects; got != 1 {
			t.Errorf("%d reconnects, want 1", got)
		}
	})
}

func TestACommitOfUnknownOutcomeIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{transact: func(_ context.Context, n int) error {
			time.Sleep(100 * time.Millisecond)
			if n == 1 {
				return fmt.Errorf("%w: %w", ErrUnknownOutcome, errors.New("broken pipe"))
			}
			return nil
		}}
		w := measure(t, start(t, f, Options{}), time.Second)
		if w.Unknown != 1 || w.Retries != 0 || len(w.Errors) != 0 {
			t.Errorf("unknown %d, retries %d, errors %v; want 1, 0, none", w.Unknown, w.Retries, w.Errors)
		}
		if got, want := f.first(3), []string{"begin", "close", "begin"}; !cmp.Equal(got, want) {
			t.Errorf("session did %v, want %v", got, want)
		}
	})
}

func TestABrokenConnectionIsOpenedAnewWithoutHammering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		f := &fake{
			transact: func(context.Context, int) error {
				time.Sleep(100 * time.Millisecond)
				if down.Load() {
					return errors.New("invalid connection")
				}
				return nil
			},
			open: func(context.Context, int, Target) error {
				if down.Load() {
					return errors.New("connection refused")
				}
				return nil
			},
		}
		r := start(t, f, Options{Threads: 2})
		time.AfterFunc(5*time.Second, func() { down.Store(true) })
		time.AfterFunc(15*time.Second, func() { down.Store(false) })
		w := measure(t, r, 20*time.Second)
		if got := w.Errors["connection"]; got != 2 {
			t.Errorf("%d transactions lost their connection, want one a thread: %v", got, w.Errors)
		}
		if got := w.Errors["connect"]; got < 20 || got > 50 {
			t.Errorf("%d connections refused in 10 s, want about one a second and thread after the first few", got)
		}
		var reconnects int64
		for _, s := range w.Samples {
			reconnects += s.Reconnects
		}
		if last := w.Samples[19].Transactions; reconnects != 2 || last != 20 {
			t.Errorf("%d reconnects, %d transactions in the last second; want 2, 20", reconnects, last)
		}
		if w.Busy < 0.45 || w.Busy > 0.55 {
			t.Errorf("busy is %v, want about 0.5: the server was away half of the time", w.Busy)
		}
	})
}

func TestStartTellsWhichSessionWasRefusedAndLeavesNoneOpen(t *testing.T) {
	f := &fake{open: func(_ context.Context, n int, _ Target) error {
		if n == 7 {
			return explain(serverError(1040))
		}
		return nil
	}}
	r, err := Start(t.Context(), f, Target{}, Options{Threads: 50})
	if err == nil {
		r.Stop()
		t.Fatal("started without a session")
	}
	for _, want := range []string{"starting fake: session ", " of 50: ", "1040", "max_connections"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if f.alive != 0 {
		t.Errorf("%d sessions stay open", f.alive)
	}
}

func TestTheLoadGoesOnBetweenWindowsOnTheSameSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{transact: takes(10 * time.Millisecond)}
		r := start(t, f, Options{Threads: 3, Seed: 1})
		var sum int64
		for range 3 {
			sum += measure(t, r, time.Second).Transactions
			time.Sleep(time.Second)
		}
		if l := r.Live(); l.Threads != 3 || l.Transactions < sum*19/10 || l.TPS < 290 || l.TPS > 310 {
			t.Errorf("live is %+v, want 3 threads, twice the %d transactions of the windows, 300 TPS", l, sum)
		}
		r.Stop()
		if f.opens != 3 || len(f.seeds) != 3 {
			t.Errorf("%d sessions with %d different seeds, want 3 of each", f.opens, len(f.seeds))
		}
	})
}

func TestAWindowThatIsCutShortKeepsWhatItHas(t *testing.T) {
	for _, tt := range []struct {
		name string
		cut  func(*Runner, context.CancelFunc)
		want error
	}{
		{"interrupted", func(_ *Runner, cancel context.CancelFunc) { cancel() }, context.Canceled},
		{"load stopped", func(r *Runner, _ context.CancelFunc) { r.Stop() }, ErrStopped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, &fake{transact: takes(100 * time.Millisecond)}, Options{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(2550*time.Millisecond, func() { tt.cut(r, cancel) })
				w, err := r.Measure(ctx, time.Minute)
				if !errors.Is(err, tt.want) {
					t.Errorf("error is %v, want %v", err, tt.want)
				}
				check(t, w)
				if got := w.End.Sub(w.Start); got != 2550*time.Millisecond || w.Transactions != 25 {
					t.Errorf("window of %v has %d transactions, want 2.55s and 25", got, w.Transactions)
				}
				if w.Busy < 0.999 || w.Busy > 1.001 {
					t.Errorf("busy is %v, want 1", w.Busy)
				}
			})
		})
	}
}

func TestOnlyOneWindowIsMeasuredAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{transact: takes(time.Millisecond)}, Options{})
		go r.Measure(t.Context(), time.Second)
		synctest.Wait()
		if _, err := r.Measure(t.Context(), time.Second); err == nil {
			t.Error("a second window was measured at the same time")
		}
		time.Sleep(2 * time.Second)
		measure(t, r, time.Second)
		if _, err := r.Measure(t.Context(), 0); err == nil {
			t.Error("a window of no length was measured")
		}
	})
}

func TestEverySampleIsShownOnceItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Sample
		r := start(t, &fake{transact: takes(10 * time.Millisecond)}, Options{
			Interval: 5 * time.Second,
			OnSample: func(s Sample) {
				if late := time.Since(s.Time) - s.Length; late < 0 || late > time.Millisecond {
					t.Errorf("sample came %v after its end", late)
				}
				got = append(got, s)
			},
		})
		w := measure(t, r, 12*time.Second)
		if !cmp.Equal(got, w.Samples) || len(got) != 3 {
			t.Errorf("shown %v\nkept %v", got, w.Samples)
		}
	})
}

func TestStopEndsSoonWhenTheServerIsOutOfReach(t *testing.T) {
	for _, tt := range []struct {
		name   string
		during func(ctx context.Context, tgt Target) error
	}{
		{"in a transaction", nil},
		{"while it connects", func(ctx context.Context, tgt Target) error {
			c, err := Connect(ctx, tgt)
			if err == nil {
				c.Close()
			}
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				conns := make(chan net.Conn, 4)
				f.open = func(ctx context.Context, n int, tgt Target) error {
					if n > 4 && tt.during != nil {
						return tt.during(ctx, tgt)
					}
					c, err := tgt.Dial(ctx, "tcp", tgt.Addr)
					conns <- c
					return err
				}
				f.transact = func(context.Context, int) error {
					if tt.during != nil {
						return errors.New("invalid connection")
					}
					_, err := (<-conns).Read(make([]byte, 1))
					return err
				}
				r, err := Start(t.Context(), f, Target{Addr: "192.0.2.1:3306", Dial: blackhole}, Options{Threads: 4})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				begin := time.Now()
				r.Stop()
				r.Stop()
				if took := time.Since(begin); took > 2*time.Second {
					t.Errorf("took %v, want 2s at most", took)
				}
				if f.alive != 0 {
					t.Errorf("%d sessions stay open", f.alive)
				}
			})
		})
	}
}

func TestStopLetsTransactionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int64
		r := start(t, &fake{transact: func(ctx context.Context, _ int) error {
			time.Sleep(700 * time.Millisecond)
			if ctx.Err() != nil {
				t.Error("cut off")
			}
			ended.Add(1)
			return nil
		}}, Options{Threads: 5})
		time.Sleep(time.Millisecond)
		r.Stop()
		if ended.Load() != 5 {
			t.Errorf("%d transactions ended, want 5", ended.Load())
		}
	})
}

// In real time, for the race detector: the collector and the threads meet often.
func TestNoTransactionIsLostOrCountedTwiceUnderLoad(t *testing.T) {
	f := &fake{transact: func(_ context.Context, n int) error {
		if n%16 == 0 {
			time.Sleep(time.Microsecond)
		}
		return nil
	}}
	var shown int64
	r := start(t, f, Options{Threads: 8, Interval: time.Millisecond, OnSample: func(s Sample) { shown += s.Transactions }})
	var sum int64
	for range 5 {
		sum += measure(t, r, 50*time.Millisecond).Transactions
	}
	r.Stop()
	if total := r.Live().Transactions; shown != sum || sum == 0 || sum > total || total != int64(f.tries) {
		t.Errorf("windows %d, shown %d, committed %d, begun %d", sum, shown, total, f.tries)
	}
}
