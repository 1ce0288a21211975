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

// step is some runs of a query. The step of deleteRow in a transaction inserts
// the row again.
type step struct {
	query query
	runs  int
}

// plan is what a transaction does.
type plan struct {
	steps    []step
	trx      bool // BEGIN and COMMIT around it
	oneTable bool // one draw of a table for all steps, not one for each
	reinsert bool // what deleteRow deletes
	text     bool // no prepared statements
}

// kinds are the workloads, and which statements of Counts each takes.
var kinds = map[string]struct{ reads, writes bool }{
	"oltp":                  {true, true}, // sysbench 0.5's oltp.lua
	"oltp_read_write":       {true, true},
	"oltp_read_only":        {true, false},
	"oltp_write_only":       {false, true},
	"oltp_point_select":     {},
	"oltp_update_index":     {},
	"oltp_update_non_index": {},
	"oltp_insert":           {},
	"oltp_delete":           {},
}

// Workloads lists the names that Config takes.
func Workloads() []string { return slices.Sorted(maps.Keys(kinds)) }

// plan is what a transaction of c does. The order is sysbench's: it decides who
// waits for whose locks.
func (c Config) plan() plan {
	n := c.Counts
	switch c.Workload {
	case "oltp_point_select":
		return plan{steps: []step{{pointSelect, 1}}, text: c.Text}
	case "oltp_update_index":
		return plan{steps: some(step{indexUpdate, n.IndexUpdates}), text: c.Text}
	case "oltp_update_non_index":
		return plan{steps: some(step{nonIndexUpdate, n.NonIndexUpdates}), text: c.Text}
	case "oltp_insert":
		return plan{steps: []step{{insertRow, 1}}, text: true}
	case "oltp_delete":
		return plan{steps: []step{{deleteRow, 1}}, text: c.Text}
	}
	var steps []step
	if kinds[c.Workload].reads {
		steps = append(steps, step{pointSelect, n.PointSelects}, step{simpleRange, n.SimpleRanges},
			step{sumRange, n.SumRanges}, step{orderRange, n.OrderRanges}, step{distinctRange, n.DistinctRanges})
	}
	if kinds[c.Workload].writes {
		steps = append(steps, step{indexUpdate, n.IndexUpdates}, step{nonIndexUpdate, n.NonIndexUpdates},
			step{deleteRow, n.DeleteInserts})
	}
	old := c.Workload == "oltp"
	return plan{steps: some(steps...), trx: !c.SkipTrx, oneTable: old, reinsert: true, text: c.Text || old}
}

// some are the steps that do anything.
func some(steps ...step) []step {
	return slices.DeleteFunc(steps, func(s step) bool { return s.runs == 0 })
}

// session is one connection with its statements.
type session struct {
	*oltp
	conn          *workload.Conn
	rng           *rand.Rand
	begin, commit *workload.Stmt            // nil without plan.trx
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
	prepare := s.conn.Prepare
	if s.plan.text {
		prepare = func(_ context.Context, query string) (*workload.Stmt, error) { return s.conn.Text(query), nil }
	}
	if s.plan.trx {
		if s.begin, err = prepare(ctx, "BEGIN"); err != nil {
			return err
		}
		if s.commit, err = prepare(ctx, "COMMIT"); err != nil {
			return err
		}
	}
	for _, step := range s.plan.steps {
		need := []query{step.query}
		if step.query == deleteRow && s.plan.reinsert {
			need = append(need, insertRow)
		}
		for _, q := range need {
			s.args[q] = s.newArgs(q)
			for n := range s.Tables {
				stmt, err := prepare(ctx, fmt.Sprintf(texts[q], table(n+1)))
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
	if s.plan.trx {
		sent.Other++
		if err := s.begin.Exec(nil); err != nil {
			return sent, err
		}
	}
	table := s.rng.IntN(s.Tables)
	for i, step := range s.plan.steps {
		if i > 0 && !s.plan.oneTable {
			table = s.rng.IntN(s.Tables)
		}
		for range step.runs {
			if err := s.run(step.query, table, &sent); err != nil {
				return sent, err
			}
		}
	}
	if s.plan.trx {
		sent.Other++
		if err := s.commit.Exec(nil); err != nil {
			// A transaction that wrote nothing has no outcome to be unsure of.
			return sent, hidden(err, sent.Write > 0)
		}
	}
	return sent, nil
}

// run draws the query's arguments and runs it.
func (s *session) run(q query, table int, sent *workload.Statements) error {
	args := s.args[q]
	switch q {
	case pointSelect:
		args[0] = s.id()
		return s.read(q, table, args, sent)
	case simpleRange, sumRange, orderRange, distinctRange:
		id := s.id()
		args[0], args[1] = id, id+int64(s.RangeSize)-1
		return s.read(q, table, args, sent)
	case nonIndexUpdate:
		fillGroups(s.rng, s.c)
		args[1] = s.id()
		return s.write(q, table, args, sent)
	case insertRow:
		return s.insert(s.newID(), table, sent)
	case deleteRow:
		id := s.id()
		args[0] = id
		if err := s.write(q, table, args, sent); err != nil || !s.plan.reinsert {
			return err
		}
		return s.insert(id, table, sent)
	default: // indexUpdate
		args[0] = s.id()
		return s.write(q, table, args, sent)
	}
}

// insert inserts a row.
func (s *session) insert(id int64, table int, sent *workload.Statements) error {
	args := s.args[insertRow]
	args[0], args[1] = id, s.id()
	fillGroups(s.rng, s.c)
	fillGroups(s.rng, s.pad)
	return s.write(insertRow, table, args, sent)
}

func (s *session) read(q query, table int, args []driver.Value, sent *workload.Statements) error {
	sent.Read++
	return s.stmts[q][table].Exec(args)
}

func (s *session) write(q query, table int, args []driver.Value, sent *workload.Statements) error {
	sent.Write++
	err := s.stmts[q][table].Exec(args)
	// Without a transaction around it each write is a commit.
	return hidden(err, !s.plan.trx)
}

// hidden marks the error of a commit that may have succeeded all the same.
func hidden(err error, wrote bool) error {
	if err != nil && wrote && workload.OutcomeHidden(err) {
		return fmt.Errorf("%w: %w", workload.ErrUnknownOutcome, err)
	}
	return err
}

func (s *session) id() int64 { return s.ids.draw(s.rng) }

// newID is the id of a row that oltp_insert adds. 0 has the server choose.
func (s *session) newID() int64 {
	if s.NoAutoInc {
		return uniqueID(s.unique.Add(1))
	}
	return 0
}

func (s *session) Rollback(ctx context.Context) error { return s.conn.Exec(ctx, "ROLLBACK") }

func (s *session) Close() error { return s.conn.Close() }
