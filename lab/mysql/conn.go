package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"regexp"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/faultlab/faultlab/lab"
)

// DialFunc opens the transport of a connection.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Open makes a handle for a server, for administration: few connections, and
// every read and write bounded by timeout, so that a frozen server is an
// error. Nothing is dialled yet.
func Open(addr string, cred lab.Credentials, dial DialFunc, timeout time.Duration) (*sql.DB, error) {
	cfg := driver.NewConfig()
	cfg.Net, cfg.Addr = "tcp", addr
	cfg.User, cfg.Passwd = cred.User, cred.Password
	cfg.DialFunc = dial
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = timeout, timeout, timeout
	cfg.InterpolateParams = true
	// Broken connections are this package's errors to report, not lines on
	// the user's terminal.
	cfg.Logger = log.New(io.Discard, "", 0)
	c, err := driver.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(1)
	return db, nil
}

// OpenNode makes a handle for a node of a cluster, dialled from the client.
func OpenNode(c *lab.Cluster, n lab.Node, timeout time.Duration) (*sql.DB, error) {
	return Open(n.Addr(), c.Credentials, c.Client().Dial, timeout)
}

var errorLine = regexp.MustCompile(`(?m)\[ERROR\] (?:\[[^\]\n]*\] )*(.+)$`)

// complaint is the first error in a server's log, after a colon. Those that
// follow, such as that it gives up, are its consequence.
func complaint(log string) string {
	if m := errorLine.FindStringSubmatch(log); m != nil {
		return ": " + strings.TrimRight(m[1], ". \r")
	}
	return ""
}

// WaitReady asks the node's server until it answers a query, it has ended, or
// ctx is over. Nothing is slept for but the pause between two questions.
func WaitReady(ctx context.Context, c *lab.Cluster, n lab.Node) error {
	db, err := OpenNode(c, n, 5*time.Second)
	if err != nil {
		return err
	}
	defer db.Close()
	return Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		select {
		case <-n.Done():
			return false, fmt.Errorf("server of %s ended while it was starting%s; the end of its log:\n%s", n.Name(), complaint(n.Log(20_000)), n.Log(2000))
		default:
		}
		var one int
		err := db.QueryRowContext(ctx, "SELECT 1").Scan(&one)
		return err == nil, nil
	}, func() error {
		var one int
		err := db.QueryRowContext(ctx, "SELECT 1").Scan(&one)
		return fmt.Errorf("server of %s does not answer: %w; the end of its log:\n%s", n.Name(), err, n.Log(2000))
	})
}

// Poll calls f until it reports true or an error. When ctx ends first, the
// error is last's, joined with ctx's.
func Poll(ctx context.Context, pause time.Duration, f func() (bool, error), last func() error) error {
	t := time.NewTicker(pause)
	defer t.Stop()
	for {
		ok, err := f()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return errors.Join(last(), ctx.Err())
		case <-t.C:
		}
	}
}

// Exec runs statements one after another on one connection, so that session
// settings hold. An error names the statement, and tells no password that it
// holds.
func Exec(ctx context.Context, db *sql.DB, stmts ...string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, s := range stmts {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			return &statementError{s, err}
		}
	}
	return nil
}

// statementError is why a statement failed.
type statementError struct {
	stmt string
	err  error
}

// passwordRE finds passwords in statements, and in what servers quote of them.
var passwordRE = regexp.MustCompile(`(?i)((?:PASSWORD\s*=|IDENTIFIED\s+BY)\s*)'([^']*)'?`)

func (e *statementError) Error() string {
	stmt, why := passwordRE.ReplaceAllString(e.stmt, "$1'***'"), e.err.Error()
	if len(stmt) > 60 {
		stmt = stmt[:60] + "..."
	}
	for _, m := range passwordRE.FindAllStringSubmatch(e.stmt, -1) {
		if m[2] != "" {
			why = strings.ReplaceAll(why, m[2], "***")
		}
	}
	// A quotation may end in the middle of one.
	return stmt + ": " + passwordRE.ReplaceAllString(why, "$1'***'")
}

func (e *statementError) Unwrap() error { return e.err }

// Row reads the first row of a query as column name -> text; nil when there
// is none. NULL is "".
func Row(ctx context.Context, db *sql.DB, query string) (map[string]string, error) {
	rows, err := Rows(ctx, db, query)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// Rows reads all rows of a query as column name -> text. NULL is "".
func Rows(ctx context.Context, db *sql.DB, query string) ([]map[string]string, error) {
	columns, rows, err := Table(ctx, db, query)
	if err != nil {
		return nil, err
	}
	out := make([]map[string]string, len(rows))
	for i, row := range rows {
		out[i] = make(map[string]string, len(columns))
		for j, c := range columns {
			if row[j] != nil {
				out[i][c] = *row[j]
			}
		}
	}
	return out, nil
}

// Pairs reads a two-column result, such as SHOW GLOBAL STATUS, as a map. NULL
// is "".
func Pairs(ctx context.Context, db *sql.DB, query string) (map[string]string, error) {
	_, rows, err := Table(ctx, db, query)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(rows))
	for _, r := range rows {
		if len(r) == 2 && r[0] != nil && r[1] != nil {
			out[*r[0]] = *r[1]
		}
	}
	return out, nil
}

// Table reads a whole result: column names, and rows whose NULLs are nil.
func Table(ctx context.Context, db *sql.DB, query string) (columns []string, rows [][]*string, err error) {
	rs, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, nil, err
	}
	defer rs.Close()
	if columns, err = rs.Columns(); err != nil {
		return nil, nil, err
	}
	dest := make([]any, len(columns))
	for rs.Next() {
		row := make([]*string, len(columns))
		for i := range row {
			dest[i] = &row[i]
		}
		if err := rs.Scan(dest...); err != nil {
			return nil, nil, err
		}
		rows = append(rows, row)
	}
	return columns, rows, rs.Err()
}
