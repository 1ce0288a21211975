package tpcc

import (
	"errors"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab/workload"
)

func driverOf(t *testing.T, warehouses, scale int) *Driver {
	t.Helper()
	d, err := New(Config{Warehouses: warehouses, Scale: scale})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestOnlyTheFullSizeIsCalledTPCC(t *testing.T) {
	if got := driverOf(t, 0, 0).Name(); got != "tpcc" {
		t.Errorf("full size is called %q", got)
	}
	if got := driverOf(t, 100, 2).Name(); got != "tpcc-like" {
		t.Errorf("half size is called %q", got)
	}
	if full, small := driverOf(t, 10, 1).Size(), driverOf(t, 10, 10).Size(); full < 9*small || full > 11*small {
		t.Errorf("full size takes %d bytes, a tenth %d", full, small)
	}
}

func TestAnImpossibleSizeIsRefused(t *testing.T) {
	_, err := New(Config{Warehouses: -1, Scale: 101})
	const want = "warehouses is -1, must be 1 to 10000\nscale is 101, must be 1 (full size) to 100"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Clause 2.1.6.1: the difference of the constants for last names is 65 to 119,
// and not 96 or 112. The others are any in their range.
func TestTheConstantsOfNURandAreAllowed(t *testing.T) {
	delta := cNameRun - cNameLoad
	if delta < 0 {
		delta = -delta
	}
	if delta < 65 || delta > 119 || delta == 96 || delta == 112 {
		t.Errorf("constants for names differ by %d", delta)
	}
	for _, c := range []struct{ c, a int }{{cNameLoad, 255}, {cNameRun, 255}, {cCustomer, 1023}, {cItem, 8191}} {
		if c.c < 0 || c.c > c.a {
			t.Errorf("constant %d is not among 0 to %d", c.c, c.a)
		}
	}
}

func TestNURandHasTheDistributionOfItsFormula(t *testing.T) {
	for _, tt := range []struct {
		n    nurand
		x, y int
	}{
		{nurand{255, cNameRun}, 0, 999},
		{nurand{1023, cCustomer}, 1, 3000},
		{sizeOf(10).customer, 1, 300},
		{sizeOf(100).name, 0, 9},
	} {
		want := map[int64]float64{} // by counting all pairs
		pairs := float64((tt.n.a + 1) * (tt.y - tt.x + 1))
		for a := 0; a <= tt.n.a; a++ {
			for b := tt.x; b <= tt.y; b++ {
				want[int64((a|b)+tt.n.c)%int64(tt.y-tt.x+1)+int64(tt.x)] += 1 / pairs
			}
		}
		r := rand.New(rand.NewPCG(1, 2))
		const draws = 300_000
		got := map[int64]float64{}
		for range draws {
			got[tt.n.draw(r, tt.x, tt.y)] += 1.0 / draws
		}
		for k := range got {
			if k < int64(tt.x) || k > int64(tt.y) {
				t.Fatalf("%+v drew %d of %d to %d", tt.n, k, tt.x, tt.y)
			}
		}
		var sum, worst float64
		for k := int64(tt.x); k <= int64(tt.y); k++ {
			sum += got[k] - want[k]
			worst = max(worst, math.Abs(sum))
		}
		if worst > 0.004 {
			t.Errorf("%+v of %d to %d is %.4f off its formula", tt.n, tt.x, tt.y, worst)
		}
	}
}

func TestScalingShrinksEverythingTogether(t *testing.T) {
	full := sizeOf(1)
	want := size{
		items: 100_000, customers: 3000, undelivered: 900, names: 1000,
		item: nurand{8191, cItem}, customer: nurand{1023, cCustomer}, name: nurand{255, cNameRun},
	}
	if full != want {
		t.Errorf("full size is %+v, want %+v", full, want)
	}
	for scale := 2; scale <= maxScale; scale++ {
		s := sizeOf(scale)
		for _, of := range []struct {
			what        string
			small, full int
		}{
			{"items", s.items, full.items}, {"customers", s.customers, full.customers},
			{"undelivered orders", s.undelivered, full.undelivered}, {"names", s.names, full.names},
		} {
			if r := float64(of.full) / float64(of.small); of.small < 1 || r < float64(scale)*0.99 || r > float64(scale)*1.15 {
				t.Errorf("%s at scale %d: %d of %d", of.what, scale, of.small, of.full)
			}
		}
		for _, n := range []struct{ small, full nurand }{{s.item, full.item}, {s.customer, full.customer}, {s.name, full.name}} {
			if n.small.a&(n.small.a+1) != 0 || n.small.a < 1 || n.small.c > n.small.a || n.small.a > n.full.a/scale+1 {
				t.Errorf("at scale %d %+v is %+v", scale, n.full, n.small)
			}
		}
	}
}

func TestLastNamesAreTheSpecifications(t *testing.T) {
	for n, want := range map[int]string{0: "BARBARBAR", 40: "BARPRESBAR", 371: "PRICALLYOUGHT", 999: "EINGEINGEING"} {
		if got := lastName(n); got != want {
			t.Errorf("name %d is %s, want %s", n, got, want)
		}
	}
}

func TestAmountsAreWrittenAndReadExactly(t *testing.T) {
	for n, want := range map[int64]string{0: "0.00", 7: "0.07", 10: "0.10", 123: "1.23", -1000: "-10.00", 500000: "5000.00"} {
		if got := money(n); got != want {
			t.Errorf("%d hundredths are written %q, want %q", n, got, want)
		}
		if n < 0 {
			continue
		}
		if got, err := cents([]byte(want)); got != n || err != nil {
			t.Errorf("%q is read as %d, %v", want, got, err)
		}
	}
	if got := string(appendDecimal(nil, 1, 4)); got != "0.0001" {
		t.Errorf("a ten thousandth is written %q", got)
	}
	for _, bad := range []any{nil, int64(3), []byte("12"), []byte("1.2"), []byte("x.00")} {
		if got, err := cents(bad); err == nil {
			t.Errorf("%v was read as %d", bad, got)
		}
	}
}

func TestEveryHundredTransactionsHaveTheMixExactly(t *testing.T) {
	s := &session{rng: rand.New(rand.NewPCG(3, 4)), deck: deck()}
	s.dealt = len(s.deck)
	want := map[string]int{NewOrder: 45, Payment: 43, OrderStatus: 4, Delivery: 4, StockLevel: 4}
	var before []string
	for range 3 {
		got := map[string]int{}
		var order []string
		for range 100 {
			k := s.deal()
			got[k]++
			order = append(order, k)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("mix (-want +got):\n%s", diff)
		}
		if slices.Equal(order, before) {
			t.Error("the deck is not shuffled anew")
		}
		before = order
	}
}

func TestInputsHaveTheSpecificationsProportions(t *testing.T) {
	const n = 100_000
	d := driverOf(t, 5, 1)
	r := rand.New(rand.NewPCG(5, 6))
	var in input
	share := func(what string, got, of int, want float64) {
		t.Helper()
		p := float64(got) / float64(of)
		if sd := math.Sqrt(want * (1 - want) / float64(of)); math.Abs(p-want) > 5*sd {
			t.Errorf("%s: %.4f, want %.4f", what, p, want)
		}
	}
	var rollbacks, lines, remote, homes [6]int
	for range n {
		d.draw(r, NewOrder, &in)
		homes[in.w]++
		if in.kind == NewOrderRollback {
			rollbacks[0]++
			if last := in.lines[len(in.lines)-1].item; last != 100_001 {
				t.Fatalf("the item of a rollback is %d", last)
			}
			in.lines = in.lines[:len(in.lines)-1]
		}
		if len(in.lines) > 15 || len(in.lines) < 4 {
			t.Fatalf("%d lines", len(in.lines))
		}
		for _, l := range in.lines {
			lines[0]++
			if l.supplier != in.w {
				remote[0]++
			}
			if l.item < 1 || l.item > 100_000 || l.quantity < 1 || l.quantity > 10 || l.supplier < 1 || l.supplier > 5 {
				t.Fatalf("line %+v", l)
			}
		}
		if c := in.customer; c.w != in.w || c.d != in.d || c.id < 1 || c.id > 3000 || in.d < 1 || in.d > 10 {
			t.Fatalf("order of %+v in warehouse %d, district %d", c, in.w, in.d)
		}
	}
	share("orders rolled back", rollbacks[0], n, 0.01)
	share("lines from elsewhere", remote[0], lines[0], 0.01)
	if mean := float64(lines[0]+rollbacks[0]) / n; math.Abs(mean-10) > 0.05 {
		t.Errorf("%.3f lines an order, want 10", mean)
	}
	for w := 1; w <= 5; w++ {
		share("orders of one warehouse", homes[w], n, 0.2)
	}

	var away, named int
	for range n {
		d.draw(r, Payment, &in)
		if in.customer.w != in.w {
			away++
		}
		if in.customer.id == 0 {
			named++
		}
		if in.amount < 100 || in.amount > 500_000 {
			t.Fatalf("payment of %d", in.amount)
		}
	}
	share("payments of customers from elsewhere", away, n, 0.15)
	share("payments by name", named, n, 0.6)

	named = 0
	for range n {
		d.draw(r, OrderStatus, &in)
		if in.customer.id == 0 {
			named++
		}
		if in.customer.w != in.w || in.customer.d != in.d {
			t.Fatalf("status of a customer from elsewhere: %+v", in)
		}
	}
	share("status by name", named, n, 0.6)
	for range 1000 {
		d.draw(r, Delivery, &in)
		if in.carrier < 1 || in.carrier > 10 {
			t.Fatalf("carrier %d", in.carrier)
		}
		d.draw(r, StockLevel, &in)
		if in.threshold < 10 || in.threshold > 20 {
			t.Fatalf("threshold %d", in.threshold)
		}
	}
}

func TestOneWarehouseHasNothingFromElsewhere(t *testing.T) {
	d := driverOf(t, 1, 10)
	r := rand.New(rand.NewPCG(7, 8))
	var in input
	for range 10_000 {
		d.draw(r, NewOrder, &in)
		for _, l := range in.lines {
			if l.supplier != 1 || l.item > 10_001 {
				t.Fatalf("line %+v", l)
			}
		}
		d.draw(r, Payment, &in)
		if in.customer.w != 1 || in.customer.id > 300 {
			t.Fatalf("payment of %+v", in.customer)
		}
	}
}

// inserted parses an INSERT into its rows.
func inserted(t *testing.T, d *Driver, c chunk) [][]string {
	t.Helper()
	var b values
	b.begin(c)
	for n := c.first; n <= c.last; n++ {
		c.table.one(d, &b, c, n)
	}
	b.end()
	head := "INSERT IGNORE INTO " + c.table.name + " VALUES ("
	body, ok := strings.CutPrefix(string(b.sql), head)
	body, ok2 := strings.CutSuffix(body, ")")
	if !ok || !ok2 {
		t.Fatalf("got %.100s", b.sql)
	}
	var rows [][]string
	for _, row := range strings.Split(body, "), (") {
		// Within quotes there are letters and digits only.
		rows = append(rows, strings.Split(row, ","))
	}
	if int64(len(rows)) != b.rows {
		t.Errorf("%s has %d rows, counted as %d", c.table.name, len(rows), b.rows)
	}
	return rows
}

func TestTheLoadMakesEveryRowOfAWarehouseOnce(t *testing.T) {
	d := driverOf(t, 3, 50)
	columns := map[string]int{}
	for _, table := range tables {
		columns[table.name] = len(regexp.MustCompile(`(?m)^  [a-z_0-9]+ [A-Z]`).FindAllString(table.columns, -1))
	}
	var total int64
	keys := map[string]bool{}
	rows := map[string]int{}
	buyers := map[string]bool{}
	var carriers int
	for _, c := range append(d.chunks(2), chunk{table: &warehouseRows, w: 2, first: 2, last: 2}) {
		if c.last-c.first >= batch {
			t.Errorf("chunk of %d rows of %s", c.last-c.first+1, c.table.name)
		}
		for _, row := range inserted(t, d, c) {
			if len(row) != columns[c.table.name] {
				t.Fatalf("%s has %d columns, its row %d values: %v", c.table.name, columns[c.table.name], len(row), row)
			}
			total++
			rows[c.table.name]++
			width := map[string]int{"warehouse": 1, "district": 2, "stock": 2, "history": 2, "order_line": 4}[c.table.name]
			if width == 0 {
				width = 3
			}
			key := c.table.name + " " + strings.Join(row[:width], " ")
			if keys[key] || row[0] != "2" {
				t.Fatalf("row %s of warehouse 2 came again, or is of another", key)
			}
			keys[key] = true
			switch c.table.name {
			case "orders":
				buyers[row[1]+" "+row[3]] = true
				if row[5] != "NULL" {
					carriers++
				}
			}
		}
	}
	if want := d.rows(2); total != want {
		t.Errorf("%d rows, announced %d", total, want)
	}
	want := map[string]int{"warehouse": 1, "district": 10, "customer": 600, "history": 600, "orders": 600, "new_order": 180, "stock": 2000}
	for table, n := range want {
		if rows[table] != n {
			t.Errorf("%d rows of %s, want %d", rows[table], table, n)
		}
	}
	if len(buyers) != 600 || carriers != 420 {
		t.Errorf("%d customers have an order and %d orders a carrier, want 600 and 420", len(buyers), carriers)
	}
}

func TestTheSameRowsAreMadeEachTime(t *testing.T) {
	d := driverOf(t, 2, 100)
	a, b := d.chunks(1), d.chunks(1)
	for i := range a {
		if x, y := inserted(t, d, a[i]), inserted(t, d, b[i]); !cmp.Equal(x, y) {
			t.Fatalf("%s: %v and %v", a[i].table.name, x[0], y[0])
		}
	}
	first, other := inserted(t, d, d.chunks(1)[0]), inserted(t, d, d.chunks(2)[0])
	if cmp.Equal(first[0][3:], other[0][3:]) {
		t.Errorf("two warehouses have the same stock: %v", first[0])
	}
}

func TestOneTextInTenIsOriginal(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	var found int
	const n = 20_000
	for range n {
		s := string(appendData(nil, r))
		if len(s) < 26 || len(s) > 50 {
			t.Fatalf("%q has %d characters", s, len(s))
		}
		if strings.Contains(s, original) {
			found++
		}
	}
	if p := float64(found) / n; math.Abs(p-0.1) > 0.01 {
		t.Errorf("%.3f of the texts have %s, want 0.1", p, original)
	}
}

func TestAVerdictNamesTheConditionsThatFail(t *testing.T) {
	ok, bad := Condition{Number: 1, Rule: "so"}, Condition{Number: 7, Rule: "thus", Violations: 5, Examples: []string{"here", "there"}}
	if err := Verdict([]Condition{ok}); err != nil {
		t.Error(err)
	}
	err := Verdict([]Condition{ok, bad, {Number: 12, Violations: 1}})
	if !errors.Is(err, ErrInconsistent) || !strings.Contains(err.Error(), "condition 7, 12") {
		t.Errorf("got %v", err)
	}
	if got, want := bad.String(), " 7 FAILED  thus: not in 5 places\n           here\n           there"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestOnlyCommittedNewOrdersAreCounted(t *testing.T) {
	w := workload.Window{Start: time.Unix(0, 0), End: time.Unix(30, 0), Kinds: []workload.Kind{
		{Name: NewOrder, Transactions: 100}, {Name: NewOrderRollback, Transactions: 1}, {Name: Payment, Transactions: 90},
	}}
	if got := NewOrdersPerMinute(w); got != 200 {
		t.Errorf("got %v a minute, want 200", got)
	}
}

func TestStatementsHaveAPlaceForEachColumn(t *testing.T) {
	for q, s := range texts {
		columns := 0
		if rest, ok := strings.CutPrefix(s.text, "SELECT "); ok {
			list, _, _ := strings.Cut(rest, " FROM ")
			list = regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(list, "")
			columns = strings.Count(list, ",") + 1
		}
		if s.text == "" || columns != s.columns {
			t.Errorf("statement %d has %d columns and %d places: %s", q, columns, s.columns, s.text)
		}
	}
}
