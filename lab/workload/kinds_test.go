package workload

import (
	"context"
	"database/sql/driver"
	"regexp"
	"testing"
	"testing/synctest"
	"time"
)

// kinds is a driver whose transactions are read and write in turn: a read takes
// 1 ms, a write 3, and every fifth write fails.
type kinds struct{ *fake }

type kindsSession struct{ Session }

func (k kinds) Session(ctx context.Context, t Target, seed uint64) (Session, error) {
	s, err := k.fake.Session(ctx, t, seed)
	return kindsSession{s}, err
}

func (s kindsSession) Transaction(ctx context.Context) (Statements, error) {
	sent, err := s.Session.Transaction(ctx)
	n := s.Session.(fakeSession).tries
	sent.Kind = []string{"read", "write"}[n%2]
	if n%2 == 0 {
		time.Sleep(time.Millisecond)
		return sent, err
	}
	time.Sleep(3 * time.Millisecond)
	switch n % 10 {
	case 9:
		return sent, serverError(1213)
	case 7:
		return sent, serverError(1064)
	case 5:
		return sent, ErrUnknownOutcome
	}
	return sent, err
}

func TestTransactionsAreCountedByTheirKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Start(t.Context(), kinds{&fake{}}, Target{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Stop()
		w := measure(t, r, 3*time.Second)
		read, write := w.Kind("read"), w.Kind("write")
		if len(w.Kinds) != 2 || w.Kinds[0].Name != "read" {
			t.Errorf("kinds are %v, want read and write, in this order", w.Kinds)
		}
		if got := read.Transactions + write.Transactions; got != w.Transactions || read.Transactions == 0 {
			t.Errorf("%d reads and %d writes, %d transactions in all", read.Transactions, write.Transactions, w.Transactions)
		}
		if read.Retries+read.Errors+read.Unknown > 0 || write.Retries != w.Retries || write.Errors != w.Errors["1064"] || write.Unknown != w.Unknown ||
			write.Retries*write.Errors*write.Unknown == 0 {
			t.Errorf("retries, errors, unknown: reads %d, %d, %d, writes %d, %d, %d; want none, and the window's %d, %d, %d",
				read.Retries, read.Errors, read.Unknown, write.Retries, write.Errors, write.Unknown, w.Retries, w.Errors["1064"], w.Unknown)
		}
		if got, want := write.Latency.Min(), int64(3000); got < want-3 || got > want+3 {
			t.Errorf("the quickest write took %d us, want %d", got, want)
		}
		if read.Latency.TotalCount() != read.Transactions {
			t.Errorf("%d latencies of %d reads", read.Latency.TotalCount(), read.Transactions)
		}
		if none := w.Kind("none"); none.Transactions != 0 || none.Latency.TotalCount() != 0 || none.TPS(w) != 0 {
			t.Errorf("of a kind that there was not: %+v", none)
		}
		if line := regexp.MustCompile(`(?m)^    write: +\d+ +\d+\.\d\d +3\.0\d +3\.0\d `); !line.MatchString(FormatSummary(w)) {
			t.Errorf("no line like %s in:\n%s", line, FormatSummary(w))
		}
	})
}

func TestAWorkloadOfOneKindHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{transact: takes(time.Millisecond)}, Options{})
		if w := measure(t, r, time.Second); len(w.Kinds) > 0 || regexp.MustCompile("by kind").MatchString(FormatSummary(w)) {
			t.Errorf("kinds: %v", w.Kinds)
		}
	})
}

func TestValuesAreWrittenIntoTextAsLiterals(t *testing.T) {
	for _, tt := range []struct {
		text string
		args []driver.Value
		want string
	}{
		{"BEGIN", nil, "BEGIN"},
		{"SELECT c FROM t WHERE id=?", []driver.Value{int64(-7)}, "SELECT c FROM t WHERE id=-7"},
		{"VALUES (?, ?, ?)", []driver.Value{nil, 1.5, "it's"}, "VALUES (NULL, 1.5, 'it''s')"},
		{"SET c=?, d=?", []driver.Value{[]byte(`a\?`), "?"}, `SET c='a\\?', d='?'`},
	} {
		s := &Stmt{text: tt.text}
		for range 2 { // the buffer is used again
			if got := s.interpolate(tt.args); got != tt.want {
				t.Errorf("%q with %v: got %q, want %q", tt.text, tt.args, got, tt.want)
			}
		}
	}
}
