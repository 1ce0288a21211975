package workload

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"regexp"
	"testing"
	"time"
)

func TestAnIntervalIsPrintedAsSysbenchPrintsIt(t *testing.T) {
	s := Sample{Length: 10 * time.Second, Transactions: 5123, Reads: 71722, Writes: 20492, Others: 10246,
		Errors: 1, Retries: 18, Unknown: 1, Reconnects: 5, P95: 41_096 * time.Microsecond}
	got := FormatInterval(20*time.Second, 16, s)
	want := "[ 20s ] thds: 16 tps: 512.30 qps: 10246.00 (r/w/o: 7172.20/2049.20/1024.60) lat (ms,95%): 41.10 err/s: 2.00 reconn/s: 0.50"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := FormatInterval(0, 1, Sample{}), "[ 0s ] thds: 1 tps: 0.00 qps: 0.00 (r/w/o: 0.00/0.00/0.00) lat (ms,95%): 0.00 err/s: 0.00 reconn/s: 0.00"; got != want {
		t.Errorf("empty sample: got  %s\nwant %s", got, want)
	}
}

func TestTheSummaryHasTheLinesThatProgramsReadFromSysbench(t *testing.T) {
	h := newHistogram()
	for us := int64(1000); us <= 100_000; us += 1000 {
		_ = h.RecordValue(us)
	}
	w := Window{Start: time.Unix(0, 0), End: time.Unix(10, 0), Latency: h, Transactions: 100, Retries: 7, Busy: 0.995,
		Samples: []Sample{{Reads: 1000, Writes: 300, Others: 150, Reconnects: 1}, {Reads: 400, Writes: 100, Others: 50, Errors: 2}}}
	got := FormatSummary(w)
	for _, line := range []string{
		`read: +1400`, `write: +400`, `other: +200`, `total: +2000`,
		`transactions: +100 +\(10\.00 per sec\.\)`, `queries: +2000 +\(200\.00 per sec\.\)`,
		`retries: +7 +\(0\.70 per sec\.\)`, `errors: +2 `, `unknown outcomes: +0 `, `reconnects: +1 +\(0\.10 per sec\.\)`,
		`total time: +10\.0000s`, `total number of events: +100`, `threads busy: +99\.5%`,
		`min: +1\.00`, `avg: +50\.5\d`, `max: +100\.0\d`, `95th percentile: +95\.\d\d`, `sum: +505\d\.\d\d`,
	} {
		if !regexp.MustCompile(`(?m)^ +` + line).MatchString(got) {
			t.Errorf("no line like %q in:\n%s", line, got)
		}
	}
	_ = FormatSummary(Window{}) // a window without anything is printed too
}

func TestWhatTheAnswerToACommitTellsOfItsOutcome(t *testing.T) {
	for _, tt := range []struct {
		err    error
		hidden bool
	}{
		{nil, false},
		{driver.ErrBadConn, false}, // the driver: nothing was sent
		{fmt.Errorf("write: %w", driver.ErrBadConn), false},
		{io.ErrUnexpectedEOF, true},
		{errors.New("invalid connection"), true},
		{serverError(1213), false}, // the server says that it rolled back
		{serverError(3101), false},
		{serverError(3100), false},
		{serverError(1053), true}, // the session was ended while it committed
		{serverError(1927), true},
	} {
		if got := OutcomeHidden(tt.err); got != tt.hidden {
			t.Errorf("outcome hidden by %v: got %v, want %v", tt.err, got, tt.hidden)
		}
	}
}
