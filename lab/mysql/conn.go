package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
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
			return false, fmt.Errorf("server of %s ended while it was starting; the end of its log:\n%s", n.Name(), n.Log(2000))
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
// settings hold. An error names the statement, without what follows its
// first 60 bytes: passwords stand late.
func Exec(ctx context.Context, db *sql.DB, stmts ...string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, s := range stmts {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			short := s
			if len(short) > 60 {
				short = short[:60] + "..."
			}
			return fmt.Errorf("%s: %w", short, err)
		}
	}
	return nil
}

// Row reads the first row of a query as column name -> text; nil when there
// is none. NULL is "".
func Row(ctx context.Context, db *sql.DB, query string, args ...any) (map[string]string, error) {
	rows, err := Rows(ctx, db, query, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// Rows reads all rows of a query as column name -> text. NULL is "".
func Rows(ctx context.Context, db *sql.DB, query string, args ...any) ([]map[string]string, error) {
	rs, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rs.Close()
	cols, err := rs.Columns()
	if err != nil {
		return nil, err
	}
	var out []map[string]string
	cells := make([]sql.NullString, len(cols))
	dest := make([]any, len(cols))
	for i := range cells {
		dest[i] = &cells[i]
	}
	for rs.Next() {
		if err := rs.Scan(dest...); err != nil {
			return nil, err
		}
		m := make(map[string]string, len(cols))
		for i, c := range cols {
			m[c] = cells[i].String
		}
		out = append(out, m)
	}
	return out, rs.Err()
}

// Pairs reads a two-column result, such as SHOW GLOBAL STATUS, as a map.
func Pairs(ctx context.Context, db *sql.DB, query string, args ...any) (map[string]string, error) {
	rs, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rs.Close()
	out := map[string]string{}
	for rs.Next() {
		var k, v sql.NullString
		if err := rs.Scan(&k, &v); err != nil {
			return nil, err
		}
		out[k.String] = v.String
	}
	return out, rs.Err()
}
