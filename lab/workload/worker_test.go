package workload

import (
	"slices"
	"testing"
	"time"
)

func TestACollectorThatIsLateMovesNothingIntoAnotherSecond(t *testing.T) {
	const ms = time.Millisecond
	w := newWorker(&Runner{}, 0)
	w.record(span{begin: 1000 * ms, end: 4500 * ms, interval: time.Second})
	for _, at := range []time.Duration{999 * ms, 1000 * ms, 1999 * ms, 2000 * ms, 3500 * ms, 4499 * ms, 4500 * ms, 9000 * ms} {
		w.commit(at-ms, at, Statements{Read: 1})
	}
	var got []int
	for k := range 4 {
		tally := w.take(k)
		got = append(got, len(tally.commits))
		if tally.sent.Read != len(tally.commits) {
			t.Errorf("interval %d has %d reads, %d transactions", k, tally.sent.Read, len(tally.commits))
		}
		if k == 1 { // ended before the boundary, but the collector came first
			w.commit(2998*ms, 2999*ms, Statements{Read: 1})
		}
	}
	if want := []int{2, 1, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("transactions by interval are %v, want %v: one before and two after the window, the late one with the next interval", got, want)
	}
	if w.committed != 9 {
		t.Errorf("%d transactions in all, want 9", w.committed)
	}
}

func TestBusyTimeIsCutAtTheWindowsEdges(t *testing.T) {
	const s = time.Second
	window := span{begin: 10 * s, end: 20 * s, interval: s}
	for _, tt := range []struct {
		name     string
		from, to time.Duration // of the transaction; to 30s is still going on
		want     time.Duration
	}{
		{"within", 12 * s, 15 * s, 3 * s},
		{"began before", 5 * s, 12 * s, 2 * s},
		{"goes on", 18 * s, 30 * s, 2 * s},
		{"spans all of it", 5 * s, 30 * s, 10 * s},
		{"none", idle, 30 * s, 0},
	} {
		w := newWorker(&Runner{}, 0)
		w.since = tt.from
		w.record(window)
		if tt.to < window.end {
			w.commit(tt.from, tt.to, Statements{})
			w.since = idle
		}
		if got := w.endRecord(window.end); got != tt.want {
			t.Errorf("%s: busy %v, want %v", tt.name, got, tt.want)
		}
	}
}
