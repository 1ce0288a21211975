package oltp

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"github.com/faultlab/faultlab/lab/workload"
)

const (
	// loaders is how many tables are filled at once.
	loaders = 4
	// batch is how many rows an INSERT has, and with that a transaction: 200 KB,
	// far from what Galera and Group Replication refuse or stall on, and from
	// max_allowed_packet.
	batch = 1000
	// noDatabase is the server's code for a database that does not exist.
	noDatabase = 1049
)

// Prepare implements workload.Driver. It makes the database too. A table whose
// rows are 1 to some n is filled up from there, whoever began it; one that has
// more rows than it should, or gaps, is refused and left alone.
func (o *oltp) Prepare(ctx context.Context, t workload.Target, progress func(done, total int64)) error {
	if err := makeDatabase(ctx, t); err != nil {
		return fmt.Errorf("preparing %s: %w", o.Workload, err)
	}
	t.Database = t.DatabaseName()
	p := &progressSum{total: int64(o.Tables) * int64(o.Rows), report: progress}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(loaders)
	for n := 1; n <= o.Tables; n++ {
		group.Go(func() error {
			if err := o.prepareTable(gctx, t, n, p.add); err != nil {
				return fmt.Errorf("preparing %s.%s: %w", t.Database, table(n), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// Cleanup implements workload.Driver. It leaves the database.
func (o *oltp) Cleanup(ctx context.Context, t workload.Target) error {
	t.Database = t.DatabaseName()
	c, err := workload.Connect(ctx, t)
	if is(err, noDatabase) {
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	for n := 1; n <= o.Tables; n++ {
		if err := c.Exec(ctx, "DROP TABLE IF EXISTS "+table(n)); err != nil {
			return fmt.Errorf("dropping %s.%s: %w", t.Database, table(n), err)
		}
	}
	return nil
}

// makeDatabase makes the database if there is none. It asks first: an account
// may use a database that it could not create.
func makeDatabase(ctx context.Context, t workload.Target) error {
	name := t.DatabaseName()
	t.Database = name
	c, err := workload.Connect(ctx, t)
	if is(err, noDatabase) {
		t.Database = ""
		if c, err = workload.Connect(ctx, t); err == nil {
			err = c.Exec(ctx, "CREATE DATABASE IF NOT EXISTS "+workload.QuoteName(name))
		}
	}
	if c != nil {
		c.Close()
	}
	return err
}

func is(err error, code uint16) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && e.Number == code
}

// prepareTable makes the table, then its rows, then its index.
func (o *oltp) prepareTable(ctx context.Context, t workload.Target, n int, done func(rows int64)) error {
	c, err := workload.Connect(ctx, t)
	if err != nil {
		return err
	}
	defer c.Close()
	// InnoDB and a primary key are what Group Replication and Galera ask for.
	err = c.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+table(n)+` (
  id INTEGER NOT NULL AUTO_INCREMENT,
  k INTEGER DEFAULT '0' NOT NULL,
  c CHAR(120) DEFAULT '' NOT NULL,
  pad CHAR(60) DEFAULT '' NOT NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB`)
	if err != nil {
		return err
	}
	have, err := o.rows(ctx, c, n)
	if err != nil {
		return err
	}
	done(have)
	if err := o.fill(ctx, c, n, have, done); err != nil {
		return err
	}
	return makeIndex(ctx, c, n)
}

// rows is how many rows the table has. Theirs are the ids from 1 to that.
func (o *oltp) rows(ctx context.Context, c *workload.Conn, n int) (int64, error) {
	got := make([]driver.Value, 2)
	if err := c.QueryRow(ctx, "SELECT COUNT(*), COALESCE(MAX(id), 0) FROM "+table(n), got); err != nil {
		return 0, err
	}
	count, last, err := int64s(got)
	if err != nil {
		return 0, err
	}
	switch {
	case count > int64(o.Rows):
		return 0, fmt.Errorf("has %d rows, more than the %d asked for: clean up first, or ask for %d", count, o.Rows, count)
	case count != last:
		return 0, fmt.Errorf("has %d rows with ids up to %d: clean up first", count, last)
	}
	return count, nil
}

// fill inserts the rows after the first have ones.
func (o *oltp) fill(ctx context.Context, c *workload.Conn, n int, have int64, done func(rows int64)) error {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(have)))
	text, pad := make([]byte, cLength), make([]byte, padLength)
	var sql []byte
	for id := have + 1; id <= int64(o.Rows); {
		last := min(id+batch-1, int64(o.Rows))
		rows := last - id + 1
		sql = append(sql[:0], "INSERT INTO "+table(n)+" (id, k, c, pad) VALUES"...)
		for sep := " "; id <= last; id, sep = id+1, ", " {
			fillGroups(rng, text)
			fillGroups(rng, pad)
			sql = fmt.Appendf(sql, "%s(%d, %d, '%s', '%s')", sep, id, o.Distribution.draw(rng, o.Rows), text, pad)
		}
		if err := c.Exec(ctx, string(sql)); err != nil {
			return err
		}
		done(rows)
	}
	return nil
}

// makeIndex makes the index on k, which is quicker over rows that are there.
func makeIndex(ctx context.Context, c *workload.Conn, n int) error {
	name := fmt.Sprintf("k_%d", n)
	got := make([]driver.Value, 2)
	err := c.QueryRow(ctx, "SELECT COUNT(*), 0 FROM information_schema.statistics WHERE table_schema = DATABASE()"+
		" AND table_name = '"+table(n)+"' AND index_name = '"+name+"'", got)
	if err != nil {
		return err
	}
	if count, _, err := int64s(got); count > 0 || err != nil {
		return err
	}
	return c.Exec(ctx, "CREATE INDEX "+name+" ON "+table(n)+"(k)")
}

// int64s reads the two numbers of a row.
func int64s(row []driver.Value) (a, b int64, err error) {
	a, okA := row[0].(int64)
	b, okB := row[1].(int64)
	if !okA || !okB {
		return 0, 0, fmt.Errorf("server answered %v where two numbers were asked for", row)
	}
	return a, b, nil
}

// progressSum adds up the rows of all tables.
type progressSum struct {
	total  int64
	report func(done, total int64)

	mu   sync.Mutex
	done int64
}

func (p *progressSum) add(rows int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += rows
	if p.report != nil {
		p.report(p.done, p.total)
	}
}
