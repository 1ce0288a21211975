package oltp

import (
	"context"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/faultlab/faultlab/lab/workload"
)

const (
	// loaders is how many connections fill tables at once. One alone leaves the
	// server waiting for its disk, and a second processor without work.
	loaders = 4
	// batch is how many rows an INSERT has, and with that a transaction: 200 KB,
	// far from what Galera and Group Replication refuse or stall on, and from
	// max_allowed_packet.
	batch = 1000
)

// Prepare implements workload.Driver. It makes the database too. What is
// missing of a table's rows, 1 to Rows, is filled in, whoever began it and
// whatever was interrupted; a table with other rows than those is refused and
// left alone, except by oltp_insert, which makes them.
func (o *oltp) Prepare(ctx context.Context, t workload.Target, progress func(done, total int64)) error {
	if err := workload.MakeDatabase(ctx, t); err != nil {
		return fmt.Errorf("preparing %s: %w", o.Workload, err)
	}
	t.Database = t.DatabaseName()
	p := &progressSum{total: int64(o.Tables) * int64(o.filled()), report: progress}
	chunks := make(chan chunk)
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(chunks)
		return o.makeTables(gctx, t, chunks, p.add)
	})
	for range min(loaders, o.Tables*(1+o.filled()/batch)) {
		group.Go(func() error {
			return o.fill(gctx, t, chunks, p.add)
		})
	}
	return group.Wait()
}

// filled is how many rows a table has before the load.
func (o *oltp) filled() int {
	if o.Workload == "oltp_insert" && o.NoAutoInc {
		return 0 // a row there could have an id that the load will make up
	}
	return o.Rows
}

// Cleanup implements workload.Driver. It leaves the database.
func (o *oltp) Cleanup(ctx context.Context, t workload.Target) error {
	t.Database = t.DatabaseName()
	c, err := workload.Connect(ctx, t)
	if workload.ServerCode(err) == workload.NoDatabase {
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

// chunk is a row of ids that a table lacks, all or in part.
type chunk struct {
	table       int
	first, last int64
	// left counts the chunks of the table that are not filled yet. Who fills
	// the last makes the index.
	left *atomic.Int64
}

// makeTables makes the tables and sends what they lack.
func (o *oltp) makeTables(ctx context.Context, t workload.Target, chunks chan<- chunk, done func(rows int64)) error {
	c, err := workload.Connect(ctx, t)
	if err != nil {
		return err
	}
	defer c.Close()
	for n := 1; n <= o.Tables; n++ {
		missing, have, err := o.makeTable(ctx, c, n)
		if err != nil {
			return fmt.Errorf("preparing %s.%s: %w", t.Database, table(n), err)
		}
		done(have)
		left := new(atomic.Int64)
		left.Store(int64(len(missing)))
		for _, m := range missing {
			m.left = left
			select {
			case chunks <- m:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if len(missing) == 0 {
			if err := o.makeIndex(ctx, c, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeTable makes the table if there is none, and tells what it lacks and how
// many rows it has.
func (o *oltp) makeTable(ctx context.Context, c *workload.Conn, n int) (missing []chunk, have int64, err error) {
	auto, key := " AUTO_INCREMENT", "PRIMARY KEY"
	if o.NoAutoInc {
		auto = ""
	}
	if o.Secondary {
		key = "KEY xid"
	}
	// InnoDB is what Group Replication and Galera ask for.
	if err := c.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+table(n)+` (
  id INTEGER NOT NULL`+auto+`,
  k INTEGER DEFAULT '0' NOT NULL,
  c CHAR(120) DEFAULT '' NOT NULL,
  pad CHAR(60) DEFAULT '' NOT NULL,
  `+key+` (id)
) ENGINE = InnoDB`); err != nil {
		return nil, 0, err
	}
	rows := int64(o.filled())
	if o.Workload != "oltp_insert" {
		got := make([]driver.Value, 1)
		err := c.QueryRow(ctx, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE id < 1 OR id > %d", table(n), rows), got)
		if err != nil {
			return nil, 0, err
		}
		if got[0] != int64(0) {
			return nil, 0, fmt.Errorf("has %v rows that are not among the %d asked for: clean up first, or ask for as many as there are", got[0], rows)
		}
	}
	return o.missing(ctx, c, n, rows)
}

// missing finds the chunks of ids from 1 to rows that are not all there.
func (o *oltp) missing(ctx context.Context, c *workload.Conn, n int, rows int64) (chunks []chunk, have int64, err error) {
	next := int64(1) // the first id not yet known to be there
	skip := func(to int64) {
		for ; next < to; next += batch {
			chunks = append(chunks, chunk{table: n, first: next, last: min(next+batch-1, rows)})
		}
	}
	err = c.Query(ctx, fmt.Sprintf("SELECT (id - 1) DIV %d AS chunk, COUNT(*) FROM %s WHERE id BETWEEN 1 AND %d GROUP BY chunk ORDER BY chunk",
		batch, table(n), rows), make([]driver.Value, 2), func(row []driver.Value) error {
		number, count, err := int64s(row)
		if err != nil {
			return err
		}
		have += count
		first := number*batch + 1
		skip(first)
		if count == min(batch, rows-first+1) {
			next = first + batch
		}
		return nil
	})
	skip(rows + 1)
	return chunks, have, err
}

// fill inserts the rows of chunks, and makes the index of each table whose last
// it filled.
func (o *oltp) fill(ctx context.Context, t workload.Target, chunks <-chan chunk, done func(rows int64)) error {
	c, err := workload.Connect(ctx, t)
	if err != nil {
		return err
	}
	defer c.Close()
	text, pad := make([]byte, cLength), make([]byte, padLength)
	var sql []byte
	for m := range chunks {
		// What a row holds depends on its place alone, whoever fills it in.
		rng := rand.New(rand.NewPCG(uint64(m.table), uint64(m.first)))
		// IGNORE passes over what is there of a chunk.
		sql = append(sql[:0], "INSERT IGNORE INTO "+table(m.table)+" (id, k, c, pad) VALUES"...)
		for id, sep := m.first, " "; id <= m.last; id, sep = id+1, ", " {
			fillGroups(rng, text)
			fillGroups(rng, pad)
			sql = append(sql, sep...)
			sql = append(sql, '(')
			sql = strconv.AppendInt(sql, id, 10)
			sql = append(sql, ", "...)
			sql = strconv.AppendInt(sql, o.ids.draw(rng), 10)
			sql = append(sql, ", '"...)
			sql = append(sql, text...)
			sql = append(sql, "', '"...)
			sql = append(sql, pad...)
			sql = append(sql, "')"...)
		}
		rows, err := c.ExecRows(ctx, string(sql))
		if err != nil {
			return fmt.Errorf("filling %s.%s: %w", t.Database, table(m.table), err)
		}
		done(rows)
		if m.left.Add(-1) == 0 {
			if err := o.makeIndex(ctx, c, m.table); err != nil {
				return fmt.Errorf("preparing %s.%s: %w", t.Database, table(m.table), err)
			}
		}
	}
	return nil
}

// makeIndex makes the index on k, which is quicker over rows that are there.
func (o *oltp) makeIndex(ctx context.Context, c *workload.Conn, n int) error {
	if o.NoCreateSecondary {
		return nil
	}
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
