package oltp

import (
	"context"
	"database/sql/driver"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/faultlab/faultlab/lab/workload"
)

// query is one of sysbench's statements on one table.
type query int

const (
	pointSelect query = iota
	simpleRange
	sumRange
	orderRange
	distinctRange
	indexUpdate
	nonIndexUpdate
	deleteRow
	insertRow
	queries // how many there are
)

// texts are the statements, %s being the table. sysbench's own text, to the
// letter: it is what performance_schema and slow logs group by.
var texts = [queries]string{
	pointSelect:    "SELECT c FROM %s WHERE id=?",
	simpleRange:    "SELECT c FROM %s WHERE id BETWEEN ? AND ?",
	sumRange:       "SELECT SUM(k) FROM %s WHERE id BETWEEN ? AND ?",
	orderRange:     "SELECT c FROM %s WHERE id BETWEEN ? AND ? ORDER BY c",
	distinctRange:  "SELECT DISTINCT c FROM %s WHERE id BETWEEN ? AND ? ORDER BY c",
	indexUpdate:    "UPDATE %s SET k=k+1 WHERE id=?",
	nonIndexUpdate: "UPDATE %s SET c=? WHERE id=?",
	deleteRow:      "DELETE FROM %s WHERE id=?",
	insertRow:      "INSERT INTO %s (id, k, c, pad) VALUES (?, ?, ?, ?)",
}

// step is some runs of a query, on one table that is drawn for the step. The
// step of deleteRow inserts the row again.
type step struct {
	query query
	runs  int
}

// plan is what a transaction does.
type plan struct {
	steps      []step
	autocommit bool // no BEGIN and COMMIT
}

var (
	reads = []step{{pointSelect, 10}, {simpleRange, 1}, {sumRange, 1}, {orderRange, 1}, {distinctRange, 1}}
	// writes keeps the order of sysbench: it decides who waits for whose locks.
	writes = []step{{indexUpdate, 1}, {nonIndexUpdate, 1}, {deleteRow, 1}}
	plans  = map[string]plan{
		"oltp_read_write":   {steps: slices.Concat(reads, writes)},
		"oltp_read_only":    {steps: reads},
		"oltp_write_only":   {steps: writes},
		"oltp_point_select": {steps: []step{{pointSelect, 1}}, autocommit: true},
	}
)

// Workloads lists the names that Config takes.
func Workloads() []string { return slices.Sorted(maps.Keys(plans)) }

// session is one connection with its statements.
type session struct {
	*oltp
	conn          *workload.Conn
	rng           *rand.Rand
	begin, commit *workload.Stmt            // nil with autocommit
	stmts         [queries][]*workload.Stmt // by table, from 0
	c, pad        []byte                    // written anew for each use
	args          [queries][]driver.Value   // c and pad are in them already
}

func (o *oltp) Session(ctx context.Context, t workload.Target, seed uint64) (workload.Session, error) {
	t.Database = t.DatabaseName()
	conn, err := workload.Connect(ctx, t)
	if err != nil {
		return nil, err
	}
	s := &session{
		oltp: o,
		conn: conn,
		rng:  rand.New(rand.NewPCG(seed, 0)),
		c:    make([]byte, cLength),
		pad:  make([]byte, padLength),
	}
	if err := s.prepare(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// prepare has the server prepare all that the plan will need.
func (s *session) prepare(ctx context.Context) (err error) {
	if !s.plan.autocommit {
		if s.begin, err = s.conn.Prepare(ctx, "BEGIN"); err != nil {
			return err
		}
		if s.commit, err = s.conn.Prepare(ctx, "COMMIT"); err != nil {
			return err
		}
	}
	for _, step := range s.plan.steps {
		need := []query{step.query}
		if step.query == deleteRow {
			need = append(need, insertRow)
		}
		for _, q := range need {
			s.args[q] = s.newArgs(q)
			for n := range s.Tables {
				stmt, err := s.conn.Prepare(ctx, fmt.Sprintf(texts[q], table(n+1)))
				if err != nil {
					return err
				}
				s.stmts[q] = append(s.stmts[q], stmt)
			}
		}
	}
	return nil
}

// newArgs makes the arguments of a query: the strings once for all, so that
// only their bytes change, and place for the numbers.
func (s *session) newArgs(q query) []driver.Value {
	switch q {
	case simpleRange, sumRange, orderRange, distinctRange:
		return make([]driver.Value, 2)
	case nonIndexUpdate:
		return []driver.Value{s.c, nil}
	case insertRow:
		return []driver.Value{nil, nil, s.c, s.pad}
	default:
		return make([]driver.Value, 1)
	}
}

// Transaction implements workload.Session. Its statements are not told of ctx:
// see workload.Stmt.
func (s *session) Transaction(context.Context) (sent workload.Statements, err error) {
	if s.begin != nil {
		sent.Other++
		if err := s.begin.Exec(nil); err != nil {
			return sent, err
		}
	}
	for _, step := range s.plan.steps {
		table := s.rng.IntN(s.Tables)
		for range step.runs {
			if err := s.run(step.query, table, &sent); err != nil {
				return sent, err
			}
		}
	}
	if s.commit != nil {
		sent.Other++
		// A transaction that wrote nothing has no outcome to be unsure of.
		if err := s.commit.Exec(nil); err != nil && sent.Write > 0 && workload.OutcomeHidden(err) {
			return sent, fmt.Errorf("%w: %w", workload.ErrUnknownOutcome, err)
		} else if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// run draws the query's arguments and runs it.
func (s *session) run(q query, table int, sent *workload.Statements) error {
	args := s.args[q]
	id := s.id()
	switch q {
	case pointSelect:
		args[0] = id
		sent.Read++
	case simpleRange, sumRange, orderRange, distinctRange:
		args[0], args[1] = id, id+int64(s.RangeSize)-1
		sent.Read++
	case indexUpdate:
		args[0] = id
		sent.Write++
	case nonIndexUpdate:
		fillGroups(s.rng, s.c)
		args[1] = id
		sent.Write++
	case deleteRow:
		args[0] = id
		sent.Write++
		if err := s.stmts[deleteRow][table].Exec(args); err != nil {
			return err
		}
		q, args = insertRow, s.args[insertRow]
		args[0], args[1] = id, s.id()
		fillGroups(s.rng, s.c)
		fillGroups(s.rng, s.pad)
		sent.Write++
	}
	return s.stmts[q][table].Exec(args)
}

func (s *session) id() int64 { return s.Distribution.draw(s.rng, s.Rows) }

func (s *session) Rollback(ctx context.Context) error { return s.conn.Exec(ctx, "ROLLBACK") }

func (s *session) Close() error { return s.conn.Close() }
