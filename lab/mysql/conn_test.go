package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// refusing is a database whose every statement fails as fail says.
type refusing struct{ fail func(query string) error }

func (r refusing) Connect(context.Context) (driver.Conn, error) { return r, nil }
func (r refusing) Driver() driver.Driver                        { return nil }
func (r refusing) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (r refusing) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (r refusing) Close() error                                 { return nil }
func (r refusing) ExecContext(_ context.Context, q string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(0), r.fail(q)
}

func TestAnErrorOfAStatementNamesItWithoutItsPassword(t *testing.T) {
	const secret = "s3cr3t-s3cr3t-s3cr3t-123"
	cause := errors.New("refused")
	for _, stmt := range []string{
		"CREATE USER 'a'@'%' IDENTIFIED BY '" + secret + "'",
		"ALTER USER a identified  by '" + secret + "'",
		"SET PASSWORD = '" + secret + "'",
		"CHANGE REPLICATION SOURCE TO SOURCE_USER='u', SOURCE_PASSWORD='" + secret + "' FOR CHANNEL 'group_replication_recovery'",
	} {
		for _, says := range []struct {
			name string
			err  error
		}{
			{"short", cause},
			// Servers quote up to 80 bytes of what they do not understand.
			{"quoting", quoting(stmt[strings.Index(stmt, " ")+1:], cause)},
			{"quoting the end", quoting(stmt[strings.Index(stmt, secret)-1:], cause)},
		} {
			db := sql.OpenDB(refusing{func(string) error { return says.err }})
			defer db.Close()
			err := Exec(t.Context(), db, stmt)
			if !errors.Is(err, cause) {
				t.Errorf("%s: got %v, want an error that wraps the server's", stmt, err)
				continue
			}
			if strings.Contains(err.Error(), secret[:6]) {
				t.Errorf("%s, server's answer %s: the error tells the password: %v", stmt, says.name, err)
			}
			if verb, _, _ := strings.Cut(stmt, " "); !strings.HasPrefix(err.Error(), verb) {
				t.Errorf("%s: got %v, want the statement named", stmt, err)
			}
		}
	}
}

func quoting(text string, cause error) error {
	return fmt.Errorf("You have an error in your SQL syntax near '%s' at line 1: %w", text[:min(80, len(text))], cause)
}

func TestStatementsRunInOrderAndEndAtTheFirstError(t *testing.T) {
	var ran []string
	db := sql.OpenDB(refusing{func(q string) error {
		ran = append(ran, q)
		if q == "two" {
			return errors.New("no")
		}
		return nil
	}})
	defer db.Close()
	err := Exec(t.Context(), db, "one", "two", "three")
	if err == nil || err.Error() != "two: no" {
		t.Errorf("got error %v, want that of two", err)
	}
	if got := strings.Join(ran, " "); got != "one two" {
		t.Errorf("got %q run, want \"one two\"", got)
	}
}

func TestPollingEndsWithTheAnswerTheErrorOrTheContext(t *testing.T) {
	fatal, last := errors.New("fatal"), errors.New("last state")
	for _, c := range []struct {
		name string
		at   time.Duration // when f has an answer; 0 is never
		err  error         // f's
		end  func(context.Context) (context.Context, context.CancelFunc)
		want []error
		took time.Duration
	}{
		{"answer", 300 * time.Millisecond, nil, context.WithCancel, nil, 300 * time.Millisecond},
		{"error", 200 * time.Millisecond, fatal, context.WithCancel, []error{fatal}, 200 * time.Millisecond},
		{"deadline", 0, nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 450*time.Millisecond)
		}, []error{last, context.DeadlineExceeded}, 450 * time.Millisecond},
		{"cancelled", 0, nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(350*time.Millisecond, cancel)
			return ctx, cancel
		}, []error{context.Canceled}, 350 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := c.end(t.Context())
				defer cancel()
				began := time.Now()
				err := Poll(ctx, 100*time.Millisecond, func() (bool, error) {
					if c.at > 0 && time.Since(began) >= c.at {
						return c.err == nil, c.err
					}
					return false, nil
				}, func() error { return last })
				if (err == nil) != (len(c.want) == 0) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				for _, want := range c.want {
					if !errors.Is(err, want) {
						t.Errorf("got %v, want it to be %v", err, want)
					}
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
			})
		})
	}
}

func TestStatusWordsAreNumbers(t *testing.T) {
	for _, c := range []struct {
		in   string
		want float64
		ok   bool
	}{
		{"ON", 1, true}, {"yes", 1, true}, {"OFF", 0, true}, {"No", 0, true}, {"42", 42, true}, {"0.000123", 0.000123, true},
		{"Synced", 0, false}, {"", 0, false}, {"198.18.0.11:3306", 0, false},
	} {
		if got, ok := number(c.in); got != c.want || ok != c.ok {
			t.Errorf("number(%q): got %v, %v; want %v, %v", c.in, got, ok, c.want, c.ok)
		}
	}
}

func TestTheReasonWhyAServerEndedIsTheFirstErrorOfItsLog(t *testing.T) {
	for _, c := range []struct{ log, want string }{
		{"2026-12-01T14:35:13.517937Z 0 [System] [MY-013602] [Server] Channel mysql_main configured.\n" +
			"2026-12-01T14:35:13.551200Z 0 [ERROR] [MY-000067] [Server] unknown variable 'no_such_variable=1'.\n" +
			"2026-12-01T14:35:13.559675Z 0 [ERROR] [MY-010119] [Server] Aborting\n", ": unknown variable 'no_such_variable=1'"},
		{"2026-12-01 14:35:13 0 [ERROR] /usr/sbin/mariadbd: unknown variable 'x=1'\n", ": /usr/sbin/mariadbd: unknown variable 'x=1'"},
		{"faultlab: the server of n1 ended: exit status 1\n", ""},
	} {
		if got := complaint(c.log); got != c.want {
			t.Errorf("got %q, want %q, of\n%s", got, c.want, c.log)
		}
	}
}
