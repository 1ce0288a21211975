package tpcc

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
	// loaders is how many connections fill the tables.
	loaders = 4
	// batch is how many rows an INSERT has at most, and with that a transaction:
	// 600 KB of customers.
	batch = 1000
)

// chunk is rows of one table that one INSERT makes: numbers first to last of
// what the table has, of all warehouses or of one, or of one of its districts.
type chunk struct {
	table       *filling
	w, d        int
	first, last int
	// left counts the chunks of the warehouse that are still to be filled. Who
	// fills the last adds the warehouse itself.
	left *atomic.Int64
}

// filling is how a table is filled.
type filling struct {
	name string
	// one appends the row of a number, or its rows.
	one func(d *Driver, b *values, c chunk, n int)
}

// Prepare implements workload.Driver. It makes the database too. What rows hold
// depends on their place alone, and a warehouse's own row comes last, so a load
// that was interrupted is finished by the next. A database may grow to more
// warehouses later; one that has more than it should is refused.
func (d *Driver) Prepare(ctx context.Context, t workload.Target, progress func(done, total int64)) error {
	if err := d.prepare(ctx, t, progress); err != nil {
		return fmt.Errorf("preparing %s: %w", d.Name(), err)
	}
	return nil
}

func (d *Driver) prepare(ctx context.Context, t workload.Target, progress func(done, total int64)) error {
	if err := workload.MakeDatabase(ctx, t); err != nil {
		return err
	}
	t.Database = t.DatabaseName()
	c, err := workload.Connect(ctx, t)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := d.makeTables(ctx, c); err != nil {
		return err
	}
	there, items, err := d.loaded(ctx, c)
	if err != nil {
		return err
	}
	l := &loader{Driver: d, report: progress, total: int64(d.size.items)}
	for w := 1; w <= d.Warehouses; w++ {
		l.total += d.rows(w)
		if there[w] {
			l.done += d.rows(w)
		}
	}
	if items == int64(d.size.items) {
		l.done += items
	}
	l.add(0)

	chunks := make(chan chunk)
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(chunks)
		if items < int64(d.size.items) {
			if err := send(gctx, chunks, cut(chunk{table: &itemRows}, d.size.items, batch), new(atomic.Int64)); err != nil {
				return err
			}
		}
		for w := 1; w <= d.Warehouses; w++ {
			if there[w] {
				continue
			}
			todo := d.chunks(w)
			left := new(atomic.Int64)
			left.Store(int64(len(todo)))
			if err := send(gctx, chunks, todo, left); err != nil {
				return err
			}
		}
		return nil
	})
	for range loaders {
		group.Go(func() error { return l.fill(gctx, t, chunks) })
	}
	return group.Wait()
}

// loaded tells which warehouses are complete, and how many items there are.
func (d *Driver) loaded(ctx context.Context, c *workload.Conn) (there map[int]bool, items int64, err error) {
	there = map[int]bool{}
	err = c.Query(ctx, "SELECT w_id FROM warehouse", make([]driver.Value, 1), func(row []driver.Value) error {
		w, ok := row[0].(int64)
		if !ok || w < 1 || w > int64(d.Warehouses) {
			return fmt.Errorf("there is a warehouse %v beside the %d asked for: clean up first, or ask for as many as there are", row[0], d.Warehouses)
		}
		there[int(w)] = true
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	got := make([]driver.Value, 1)
	if err := c.QueryRow(ctx, "SELECT COUNT(*) FROM item", got); err != nil {
		return nil, 0, err
	}
	items, _ = got[0].(int64)
	return there, items, nil
}

// rows is how many rows the warehouse has, its own included.
func (d *Driver) rows(w int) int64 {
	n := int64(d.size.items + 1)
	for district := 1; district <= districts; district++ {
		n += int64(1 + 3*d.size.customers + d.size.undelivered) // customer, history, orders
		for _, lines := range d.lines(w, district) {
			n += int64(lines)
		}
	}
	return n
}

// chunks are all that the warehouse is made of, except its own row.
func (d *Driver) chunks(w int) []chunk {
	all := cut(chunk{table: &stockRows, w: w}, d.size.items, batch)
	all = append(all, cut(chunk{table: &districtRows, w: w}, districts, batch)...)
	for district := 1; district <= districts; district++ {
		c := chunk{w: w, d: district}
		for _, of := range []struct {
			table *filling
			rows  int
			batch int
		}{
			{&customerRows, d.size.customers, batch},
			{&historyRows, d.size.customers, batch},
			{&orderRows, d.size.customers, batch},
			{&orderLineRows, d.size.customers, batch / 10}, // orders, with 10 lines each
			{&newOrderRows, d.size.undelivered, batch},
		} {
			c.table = of.table
			all = append(all, cut(c, of.rows, of.batch)...)
		}
	}
	return all
}

// cut makes chunks of 1 to n.
func cut(c chunk, n, batch int) (all []chunk) {
	for c.first = 1; c.first <= n; c.first = c.last + 1 {
		c.last = min(c.first+batch-1, n)
		all = append(all, c)
	}
	return all
}

func send(ctx context.Context, to chan<- chunk, all []chunk, left *atomic.Int64) error {
	for _, c := range all {
		c.left = left
		select {
		case to <- c:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// loader fills tables and tells how far it is.
type loader struct {
	*Driver
	report func(done, total int64)
	total  int64

	mu   sync.Mutex
	done int64
}

func (l *loader) add(rows int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done += rows
	if l.report != nil {
		l.report(l.done, l.total)
	}
}

// fill inserts chunks, and the warehouses whose last it has inserted.
func (l *loader) fill(ctx context.Context, t workload.Target, chunks <-chan chunk) error {
	c, err := workload.Connect(ctx, t)
	if err != nil {
		return err
	}
	defer c.Close()
	var b values
	for m := range chunks {
		if err := l.insert(ctx, c, &b, m); err != nil {
			return err
		}
		if m.left.Add(-1) == 0 && m.w > 0 {
			if err := l.insert(ctx, c, &b, chunk{table: &warehouseRows, w: m.w, first: m.w, last: m.w}); err != nil {
				return err
			}
		}
	}
	return nil
}

// insert inserts a chunk, where its rows are not there yet.
func (l *loader) insert(ctx context.Context, c *workload.Conn, b *values, m chunk) error {
	b.begin(m)
	for n := m.first; n <= m.last; n++ {
		m.table.one(l.Driver, b, m, n)
	}
	b.end()
	if err := c.Exec(ctx, string(b.sql)); err != nil {
		return fmt.Errorf("filling %s: %w", m.table.name, err)
	}
	l.add(b.rows)
	return nil
}

// values is an INSERT that is being written.
type values struct {
	sql  []byte
	rows int64
	rng  *rand.Rand
	sep  string // before the next value

	// Of the district that the rows are in: see buyers and lines.
	buyers []int
	lines  []uint8
}

// begin begins the INSERT of a chunk. Its random choices follow from its place.
func (b *values) begin(m chunk) {
	var table uint64
	for _, c := range []byte(m.table.name) {
		table = table<<5 ^ uint64(c) ^ table>>59
	}
	b.rng = rand.New(rand.NewPCG(table, uint64(m.w)<<40|uint64(m.d)<<32|uint64(m.first)))
	b.sql = append(append(append(b.sql[:0], "INSERT IGNORE INTO "...), m.table.name...), " VALUES "...)
	b.rows, b.sep = 0, "("
}

// row begins a row with its numbers.
func (b *values) row(numbers ...int) {
	if b.rows > 0 {
		b.sql = append(b.sql, "), "...)
	}
	b.rows++
	b.sep = "("
	for _, n := range numbers {
		b.int(n)
	}
}

func (b *values) raw(s string) {
	b.sql = append(append(b.sql, b.sep...), s...)
	b.sep = ","
}

func (b *values) int(n int) {
	b.raw("")
	b.sql = strconv.AppendInt(b.sql, int64(n), 10)
}

// decimal is n with that many digits after the point.
func (b *values) decimal(n, digits int) {
	b.raw("")
	b.sql = appendDecimal(b.sql, int64(n), digits)
}

// quoted is text without anything that needs escaping.
func (b *values) quoted(text func(to []byte) []byte) {
	b.raw("'")
	b.sql = append(text(b.sql), '\'')
}

func (b *values) string(s string) {
	b.quoted(func(to []byte) []byte { return append(to, s...) })
}

// text is x to y random letters and digits.
func (b *values) text(x, y int) {
	b.quoted(func(to []byte) []byte { return appendText(to, b.rng, x, y) })
}

func (b *values) data() {
	b.quoted(func(to []byte) []byte { return appendData(to, b.rng) })
}

// address is street_1, street_2, city, state and zip.
func (b *values) address() {
	b.text(10, 20)
	b.text(10, 20)
	b.text(10, 20)
	b.text(2, 2)
	b.quoted(func(to []byte) []byte { return append(appendDigits(to, b.rng, 4), "11111"...) })
}

func (b *values) end() { b.sql = append(b.sql, ')') }

// appendDecimal appends n, a number of hundredths if digits is 2.
func appendDecimal(b []byte, n int64, digits int) []byte {
	if n < 0 {
		b, n = append(b, '-'), -n
	}
	from := len(b)
	b = strconv.AppendInt(b, n, 10)
	for len(b)-from <= digits { // at least one before the point
		b = append(b, 0)
		copy(b[from+1:], b[from:])
		b[from] = '0'
	}
	b = append(b, 0)
	point := len(b) - 1 - digits
	copy(b[point+1:], b[point:])
	b[point] = '.'
	return b
}

// The tables' rows at first (clause 4.3.3.1). Amounts are in hundredths, rates
// in ten thousandths.
var (
	itemRows = filling{"item", func(_ *Driver, b *values, _ chunk, n int) {
		b.row(n, between(b.rng, 1, 10_000))
		b.text(14, 24)
		b.decimal(between(b.rng, 100, 100_00), 2)
		b.data()
	}}
	warehouseRows = filling{"warehouse", func(d *Driver, b *values, _ chunk, n int) {
		b.row(n)
		b.text(6, 10)
		b.address()
		b.decimal(between(b.rng, 0, 2000), 4)
		b.decimal(districts*d.size.customers*firstPayment, 2)
	}}
	districtRows = filling{"district", func(d *Driver, b *values, c chunk, n int) {
		b.row(c.w, n)
		b.text(6, 10)
		b.address()
		b.decimal(between(b.rng, 0, 2000), 4)
		b.decimal(d.size.customers*firstPayment, 2)
		b.int(d.size.customers + 1)
	}}
	customerRows = filling{"customer", func(d *Driver, b *values, c chunk, n int) {
		b.row(c.w, c.d, n)
		b.text(8, 16)
		b.string("OE")
		name := n - 1
		if n > d.size.names {
			name = int(nurand{d.size.name.a, cNameLoad & d.size.name.a}.draw(b.rng, 0, d.size.names-1))
		}
		b.string(lastName(name))
		b.address()
		b.quoted(func(to []byte) []byte { return appendDigits(to, b.rng, 16) })
		b.raw("NOW()")
		if b.rng.IntN(10) == 0 {
			b.string(badCredit)
		} else {
			b.string("GC")
		}
		b.decimal(50_000_00, 2)
		b.decimal(between(b.rng, 0, 5000), 4)
		b.decimal(-firstPayment, 2)
		b.decimal(firstPayment, 2)
		b.int(1)
		b.int(0)
		b.text(300, 500)
	}}
	historyRows = filling{"history", func(d *Driver, b *values, c chunk, n int) {
		b.row(c.w, (c.d-1)*d.size.customers+n, c.d, c.w, c.d, n)
		b.raw("NOW()")
		b.decimal(firstPayment, 2)
		b.text(12, 24)
	}}
	orderRows = filling{"orders", func(d *Driver, b *values, c chunk, n int) {
		if n == c.first {
			b.buyers, b.lines = d.buyers(c.w, c.d), d.lines(c.w, c.d)
		}
		b.row(c.w, c.d, n, b.buyers[n-1]+1)
		b.raw("NOW()")
		if d.delivered(n) {
			b.int(between(b.rng, 1, 10))
		} else {
			b.raw("NULL")
		}
		b.int(int(b.lines[n-1]))
		b.int(1)
	}}
	orderLineRows = filling{"order_line", func(d *Driver, b *values, c chunk, n int) {
		if n == c.first {
			b.lines = d.lines(c.w, c.d)
		}
		for line := 1; line <= int(b.lines[n-1]); line++ {
			b.row(c.w, c.d, n, line, between(b.rng, 1, d.size.items), c.w)
			if d.delivered(n) {
				b.raw("NOW()")
				b.int(5)
				b.decimal(0, 2)
			} else {
				b.raw("NULL")
				b.int(5)
				b.decimal(between(b.rng, 1, 9999_99), 2)
			}
			b.text(24, 24)
		}
	}}
	newOrderRows = filling{"new_order", func(d *Driver, b *values, c chunk, n int) {
		b.row(c.w, c.d, d.size.customers-d.size.undelivered+n)
	}}
	stockRows = filling{"stock", func(_ *Driver, b *values, c chunk, n int) {
		b.row(c.w, n, between(b.rng, 10, 100))
		for range districts {
			b.text(24, 24)
		}
		b.int(0)
		b.int(0)
		b.int(0)
		b.data()
	}}
)

// firstPayment is what each customer has paid at first.
const firstPayment = 10_00

const badCredit = "BC"

// delivered tells whether the nth order of a district is delivered at first.
func (d *Driver) delivered(n int) bool { return n <= d.size.customers-d.size.undelivered }

// lines are how many lines the orders of a district have at first: 5 to 15.
func (d *Driver) lines(w, district int) []uint8 {
	r := rand.New(rand.NewPCG(1, uint64(w)<<8|uint64(district)))
	all := make([]uint8, d.size.customers)
	for i := range all {
		all[i] = uint8(between(r, 5, 15))
	}
	return all
}

// buyers are the customers, from 0, of a district's orders at first: each has one.
func (d *Driver) buyers(w, district int) []int {
	return rand.New(rand.NewPCG(2, uint64(w)<<8|uint64(district))).Perm(d.size.customers)
}
