package workload

import (
	"bufio"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// connectTimeout bounds the transport's opening where ctx does not.
const connectTimeout = 10 * time.Second

// Conn is one connection to a server, without database/sql around it: a pool,
// its locks and its conversions cost a load more than the statements do. It is
// used by one goroutine at a time.
type Conn struct {
	conn driver.Conn
}

// Stmt is a statement to be run many times.
type Stmt struct {
	stmt    driver.Stmt // nil: it is sent as text
	conn    driver.Conn
	text    string
	buf     []byte // text with the values in it
	checked bool   // that Query is given a place for each column
}

// Connect opens a connection to the target's database. An empty
// Target.Database is none.
func Connect(ctx context.Context, t Target) (*Conn, error) {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "tcp", t.Addr
	cfg.User, cfg.Passwd, cfg.DBName = t.User, t.Password, t.Database
	cfg.DialFunc = buffered(t.dialer())
	cfg.Timeout = connectTimeout
	// What breaks is counted and told once; a line for each session is noise.
	cfg.Logger = &mysql.NopLogger{}
	// One more system call a statement, to learn early what the statement
	// itself will tell.
	cfg.CheckConnLiveness = false
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", t.Addr, err)
	}
	c, err := connector.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", t.Addr, explain(err))
	}
	return &Conn{c}, nil
}

// Exec runs statements that return no rows, or whose rows do not matter. Until
// it returns, the end of ctx closes the connection.
func (c *Conn) Exec(ctx context.Context, query string) error {
	_, err := c.conn.(driver.ExecerContext).ExecContext(ctx, query, nil)
	return explain(err)
}

// ExecRows is Exec for statements that change rows, and tells how many.
func (c *Conn) ExecRows(ctx context.Context, query string) (int64, error) {
	r, err := c.conn.(driver.ExecerContext).ExecContext(ctx, query, nil)
	if err != nil {
		return 0, explain(err)
	}
	return r.RowsAffected()
}

// Query reads the rows of a query into row, one after another, and calls each
// with it. What a row has in []byte is overwritten by the next one.
func (c *Conn) Query(ctx context.Context, query string, row []driver.Value, each func(row []driver.Value) error) error {
	rows, err := c.conn.(driver.QueryerContext).QueryContext(ctx, query, nil)
	if err != nil {
		return explain(err)
	}
	if err := columns(rows, query, row); err != nil {
		rows.Close()
		return err
	}
	return readRows(rows, row, each)
}

// QueryRow reads the one row of a query into dest. A value of the text protocol
// is int64, float64, []byte or nil.
func (c *Conn) QueryRow(ctx context.Context, query string, dest []driver.Value) error {
	rows, err := c.conn.(driver.QueryerContext).QueryContext(ctx, query, nil)
	if err != nil {
		return explain(err)
	}
	defer rows.Close()
	if err := columns(rows, query, dest); err != nil {
		return err
	}
	if err := rows.Next(dest); err != nil {
		return err // io.EOF: no row
	}
	return rows.Close()
}

// readRows reads all rows and closes them.
func readRows(rows driver.Rows, row []driver.Value, each func(row []driver.Value) error) error {
	defer rows.Close()
	for {
		err := rows.Next(row)
		if err == io.EOF {
			return rows.Close()
		}
		if err == nil {
			err = each(row)
		}
		if err != nil {
			return err
		}
	}
}

// columns checks that a row has a place for each column.
func columns(rows driver.Rows, query string, row []driver.Value) error {
	if got := len(rows.Columns()); got != len(row) {
		return fmt.Errorf("query has %d columns, not %d: %s", got, len(row), query)
	}
	return nil
}

// Prepare has the server prepare a statement. One that servers do not prepare,
// such as BEGIN before MariaDB 10.6 and in every MySQL, is sent as text each
// time, which is also what sysbench does.
func (c *Conn) Prepare(ctx context.Context, query string) (*Stmt, error) {
	s, err := c.conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if ServerCode(err) == erUnsupportedPS {
		return c.Text(query), nil
	}
	if err != nil {
		return nil, fmt.Errorf("preparing %q: %w", query, explain(err))
	}
	return &Stmt{stmt: s, text: query}, nil
}

// Text is a statement that is sent as text each time, with its arguments in the
// place of its question marks. It may have none that stand for themselves.
func (c *Conn) Text(query string) *Stmt {
	return &Stmt{conn: c.conn, text: query}
}

// Close ends the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Exec runs the statement and reads its rows, if it has any, without decoding
// them. Arguments are int64, float64, string or []byte, or nil. It takes no
// context: watching one costs more than a short statement. Closing the
// transport ends it.
func (s *Stmt) Exec(args []driver.Value) error {
	// The driver's ExecContext copies its arguments into new memory at each
	// call; Exec is the same without.
	var err error
	if s.stmt == nil {
		_, err = s.conn.(driver.Execer).Exec(s.interpolate(args), nil) //nolint:staticcheck
	} else {
		_, err = s.stmt.Exec(args) //nolint:staticcheck
	}
	return err
}

// Query is Exec for a statement whose rows matter: see Conn.Query. A prepared
// statement gives numbers in their own type, DECIMAL as text.
func (s *Stmt) Query(args, row []driver.Value, each func(row []driver.Value) error) error {
	var rows driver.Rows
	var err error
	if s.stmt == nil {
		rows, err = s.conn.(driver.Queryer).Query(s.interpolate(args), nil) //nolint:staticcheck
	} else {
		rows, err = s.stmt.Query(args) //nolint:staticcheck
	}
	if err != nil {
		return err
	}
	if !s.checked { // once: to ask for the columns makes their names
		if err := columns(rows, s.text, row); err != nil {
			rows.Close()
			return err
		}
		s.checked = true
	}
	return readRows(rows, row, each)
}

// interpolate writes the arguments into the text.
func (s *Stmt) interpolate(args []driver.Value) string {
	if len(args) == 0 {
		return s.text
	}
	s.buf = s.buf[:0]
	rest := s.text
	for _, arg := range args {
		before, after, _ := strings.Cut(rest, "?")
		s.buf, rest = appendLiteral(append(s.buf, before...), arg), after
	}
	s.buf = append(s.buf, rest...)
	return string(s.buf)
}

// appendLiteral appends an SQL literal.
func appendLiteral(b []byte, v driver.Value) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "NULL"...)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case float64:
		return strconv.AppendFloat(b, v, 'g', -1, 64)
	case []byte:
		return appendString(b, v)
	case string:
		return appendString(b, v)
	default:
		return appendString(b, fmt.Sprint(v))
	}
}

func appendString[S string | []byte](b []byte, s S) []byte {
	b = append(b, '\'')
	for i := range len(s) {
		if s[i] == '\'' || s[i] == '\\' {
			b = append(b, s[i])
		}
		b = append(b, s[i])
	}
	return append(b, '\'')
}

// isNotSent tells that a statement never left.
func isNotSent(err error) bool { return errors.Is(err, driver.ErrBadConn) }

// explain adds to a refusal what mends it.
func explain(err error) error {
	var why string
	switch ServerCode(err) {
	case 1040, 1203, 1226:
		why = "fewer threads, or a larger max_connections"
	case 1461:
		why = "fewer threads or tables, or a larger max_prepared_stmt_count"
	case 3098:
		why = "group replication takes only tables with a primary key"
	case NoDatabase, 1146:
		why = "the tables are not prepared"
	default:
		return err
	}
	return fmt.Errorf("%w (%s)", err, why)
}

// hooked is a transport that the end of a context closes.
type hooked struct {
	net.Conn
	unhook func() bool
}

func (h hooked) Close() error {
	h.unhook()
	return h.Conn.Close()
}

// dialUntil is t's way to dial, with connections that the end of a context
// closes.
func (t Target) dialUntil(end context.Context) DialFunc {
	dial := t.dialer()
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return hooked{c, context.AfterFunc(end, func() { c.Close() })}, nil
	}
}

// dialer is how t is dialled.
func (t Target) dialer() DialFunc {
	dial := t.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return prompt(c), nil
	}
}

// readAhead holds the rows of a sysbench range query. The driver itself reads
// 4 KiB at a time: four system calls instead of one, an eighth of the client's
// CPU time in oltp_read_only.
const readAhead = 16 << 10

// readAheadConn is a transport that reads as much as there is.
type readAheadConn struct {
	net.Conn
	r *bufio.Reader
}

func (c readAheadConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// buffered is dial, with connections that read ahead.
func buffered(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return readAheadConn{c, bufio.NewReaderSize(c, readAhead)}, nil
	}
}

// DatabaseName is the database that the load uses.
func (t Target) DatabaseName() string {
	if t.Database == "" {
		return DefaultDatabase
	}
	return t.Database
}

// DefaultDatabase is sysbench's.
const DefaultDatabase = "sbtest"

// MakeDatabase makes the target's database if there is none. It asks first: an
// account may use a database that it could not create.
func MakeDatabase(ctx context.Context, t Target) error {
	name := t.DatabaseName()
	t.Database = name
	c, err := Connect(ctx, t)
	if ServerCode(err) == NoDatabase {
		t.Database = ""
		if c, err = Connect(ctx, t); err == nil {
			err = c.Exec(ctx, "CREATE DATABASE IF NOT EXISTS "+QuoteName(name))
		}
	}
	if c != nil {
		c.Close()
	}
	return err
}

// QuoteName makes an SQL identifier of a name.
func QuoteName(name string) string {
	return "`" + strings.ReplaceAll(name, "`", "``") + "`"
}
