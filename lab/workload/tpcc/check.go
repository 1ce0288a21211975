package tpcc

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/faultlab/faultlab/lab/workload"
)

// Condition is what a consistency condition of the specification (clause 3.3.2)
// says of the database.
type Condition struct {
	// Number is the specification's, 1 to 12.
	Number int
	// Rule is what must hold.
	Rule string
	// Violations is in how many places it does not.
	Violations int64
	// Examples are the first of them.
	Examples []string
}

// Holds tells whether the condition holds everywhere.
func (c Condition) Holds() bool { return c.Violations == 0 }

// String is a line for each example, or one.
func (c Condition) String() string {
	if c.Holds() {
		return fmt.Sprintf("%2d ok      %s", c.Number, c.Rule)
	}
	lines := []string{fmt.Sprintf("%2d FAILED  %s: not in %d places", c.Number, c.Rule, c.Violations)}
	for _, e := range c.Examples {
		lines = append(lines, "           "+e)
	}
	return strings.Join(lines, "\n")
}

// maxExamples is how many violations a condition tells of.
const maxExamples = 3

// condition is how one is checked in warehouse {w}. The query's rows are the
// violations: where, what is, what should be. {first} is how many orders of a
// district are delivered at first.
type condition struct{ rule, query string }

var conditions = []condition{
	{"W_YTD is the sum of D_YTD",
		`SELECT CONCAT('warehouse ', w_id), w_ytd, ytd
		FROM warehouse LEFT JOIN (SELECT d_w_id, SUM(d_ytd) AS ytd FROM district WHERE d_w_id = {w} GROUP BY d_w_id) AS d ON d_w_id = w_id
		WHERE w_id = {w} AND NOT w_ytd <=> ytd`},
	{"D_NEXT_O_ID - 1 is the last O_ID and, if any is left, the last NO_O_ID",
		`SELECT CONCAT('warehouse ', d_w_id, ' district ', d_id), d_next_o_id - 1, CONCAT(COALESCE(last_o, 'none'), ' and ', COALESCE(last_no, 'none'))
		FROM district
		LEFT JOIN (SELECT o_d_id, MAX(o_id) AS last_o FROM orders WHERE o_w_id = {w} GROUP BY o_d_id) AS o ON o_d_id = d_id
		LEFT JOIN (SELECT no_d_id, MAX(no_o_id) AS last_no FROM new_order WHERE no_w_id = {w} GROUP BY no_d_id) AS n ON no_d_id = d_id
		WHERE d_w_id = {w} AND (NOT d_next_o_id - 1 <=> last_o OR d_next_o_id - 1 <> last_no)`},
	{"the NO_O_ID of a district have no gaps",
		`SELECT CONCAT('warehouse ', no_w_id, ' district ', no_d_id), COUNT(*), MAX(no_o_id) - MIN(no_o_id) + 1
		FROM new_order WHERE no_w_id = {w} GROUP BY no_w_id, no_d_id HAVING COUNT(*) <> MAX(no_o_id) - MIN(no_o_id) + 1`},
	{"the sum of O_OL_CNT is the number of order lines of the district",
		`SELECT CONCAT('warehouse ', d_w_id, ' district ', d_id), cnt, n
		FROM district
		LEFT JOIN (SELECT o_d_id, SUM(o_ol_cnt) AS cnt FROM orders WHERE o_w_id = {w} GROUP BY o_d_id) AS o ON o_d_id = d_id
		LEFT JOIN (SELECT ol_d_id, COUNT(*) AS n FROM order_line WHERE ol_w_id = {w} GROUP BY ol_d_id) AS l ON ol_d_id = d_id
		WHERE d_w_id = {w} AND NOT cnt <=> n`},
	{"O_CARRIER_ID is null just where there is a NEW_ORDER",
		`SELECT CONCAT('warehouse ', o_w_id, ' district ', o_d_id, ' order ', o_id), COALESCE(o_carrier_id, 'null'), IF(no_o_id IS NULL, 'a carrier', 'null')
		FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
		WHERE o_w_id = {w} AND (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)
		UNION ALL
		SELECT CONCAT('warehouse ', no_w_id, ' district ', no_d_id, ' new order ', no_o_id), 'no order', 'an order'
		FROM new_order LEFT JOIN orders ON o_w_id = no_w_id AND o_d_id = no_d_id AND o_id = no_o_id
		WHERE no_w_id = {w} AND o_id IS NULL`},
	{"O_OL_CNT is the number of the order's lines",
		`SELECT CONCAT('warehouse ', o_w_id, ' district ', o_d_id, ' order ', o_id), o_ol_cnt, COALESCE(n, 0)
		FROM orders
		LEFT JOIN (SELECT ol_d_id, ol_o_id, COUNT(*) AS n FROM order_line WHERE ol_w_id = {w} GROUP BY ol_d_id, ol_o_id) AS l
			ON ol_d_id = o_d_id AND ol_o_id = o_id
		WHERE o_w_id = {w} AND o_ol_cnt <> COALESCE(n, 0)`},
	{"OL_DELIVERY_D is null just where O_CARRIER_ID is",
		`SELECT CONCAT('warehouse ', ol_w_id, ' district ', ol_d_id, ' order ', ol_o_id, ' line ', ol_number),
			COALESCE(ol_delivery_d, 'null'), IF(o_carrier_id IS NULL, 'null', 'a date')
		FROM order_line LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
		WHERE ol_w_id = {w} AND (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)`},
	{"W_YTD is the sum of H_AMOUNT",
		`SELECT CONCAT('warehouse ', w_id), w_ytd, amount
		FROM warehouse LEFT JOIN (SELECT h_w_id, SUM(h_amount) AS amount FROM history WHERE h_w_id = {w} GROUP BY h_w_id) AS h ON h_w_id = w_id
		WHERE w_id = {w} AND NOT w_ytd <=> amount`},
	{"D_YTD is the sum of H_AMOUNT",
		`SELECT CONCAT('warehouse ', d_w_id, ' district ', d_id), d_ytd, amount
		FROM district LEFT JOIN (SELECT h_d_id, SUM(h_amount) AS amount FROM history WHERE h_w_id = {w} GROUP BY h_d_id) AS h ON h_d_id = d_id
		WHERE d_w_id = {w} AND NOT d_ytd <=> amount`},
	{"C_BALANCE is the sum of delivered OL_AMOUNT less the sum of H_AMOUNT",
		`SELECT CONCAT('warehouse ', c_w_id, ' district ', c_d_id, ' customer ', c_id), c_balance, COALESCE(delivered, 0) - COALESCE(paid, 0)
		FROM customer ` + joinDelivered + `
		LEFT JOIN (SELECT h_c_d_id, h_c_id, SUM(h_amount) AS paid FROM history WHERE h_c_w_id = {w} GROUP BY h_c_d_id, h_c_id) AS h
			ON h_c_d_id = c_d_id AND h_c_id = c_id
		WHERE c_w_id = {w} AND c_balance <> COALESCE(delivered, 0) - COALESCE(paid, 0)`},
	// The specification has a fixed number here, which holds before the first
	// Delivery. C_DELIVERY_CNT is what has been delivered since.
	{"orders less new orders are those delivered at first and the sum of C_DELIVERY_CNT",
		`SELECT CONCAT('warehouse ', d_w_id, ' district ', d_id), COALESCE(o, 0) - COALESCE(n, 0), {first} + delivered
		FROM district
		LEFT JOIN (SELECT o_d_id, COUNT(*) AS o FROM orders WHERE o_w_id = {w} GROUP BY o_d_id) AS a ON o_d_id = d_id
		LEFT JOIN (SELECT no_d_id, COUNT(*) AS n FROM new_order WHERE no_w_id = {w} GROUP BY no_d_id) AS b ON no_d_id = d_id
		LEFT JOIN (SELECT c_d_id, SUM(c_delivery_cnt) AS delivered FROM customer WHERE c_w_id = {w} GROUP BY c_d_id) AS c ON c_d_id = d_id
		WHERE d_w_id = {w} AND NOT COALESCE(o, 0) - COALESCE(n, 0) <=> {first} + delivered`},
	{"C_BALANCE + C_YTD_PAYMENT is the sum of delivered OL_AMOUNT",
		`SELECT CONCAT('warehouse ', c_w_id, ' district ', c_d_id, ' customer ', c_id), c_balance + c_ytd_payment, COALESCE(delivered, 0)
		FROM customer ` + joinDelivered + `
		WHERE c_w_id = {w} AND c_balance + c_ytd_payment <> COALESCE(delivered, 0)`},
}

// joinDelivered has what was delivered to each customer.
const joinDelivered = `LEFT JOIN (SELECT o_d_id, o_c_id, SUM(ol_amount) AS delivered
			FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
			WHERE o_w_id = {w} AND ol_delivery_d IS NOT NULL GROUP BY o_d_id, o_c_id) AS o
			ON o_d_id = c_d_id AND o_c_id = c_id`

// Check checks the specification's twelve consistency conditions, all of them
// on one snapshot of the database: the load may be running. progress (may be
// nil) gets how many of the queries are done. A condition that does not hold is
// no error.
func (d *Driver) Check(ctx context.Context, t workload.Target, progress func(done, total int)) ([]Condition, error) {
	out, err := d.check(ctx, t, progress)
	if err != nil {
		return nil, fmt.Errorf("checking %s: %w", d.Name(), err)
	}
	return out, nil
}

func (d *Driver) check(ctx context.Context, t workload.Target, progress func(done, total int)) ([]Condition, error) {
	t.Database = t.DatabaseName()
	c, err := workload.Connect(ctx, t)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, sql := range []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
		"START TRANSACTION WITH CONSISTENT SNAPSHOT",
	} {
		if err := c.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	if err := d.checkSize(ctx, c); err != nil {
		return nil, err
	}
	var out []Condition
	done, total := 0, len(conditions)*d.Warehouses
	for i, condition := range conditions {
		found := Condition{Number: i + 1, Rule: condition.rule}
		for w := 1; w <= d.Warehouses; w++ {
			query := strings.NewReplacer("{w}", strconv.Itoa(w), "{first}", strconv.Itoa(d.size.customers-d.size.undelivered)).Replace(condition.query)
			err := c.Query(ctx, query, make([]driver.Value, 3), func(row []driver.Value) error {
				if found.Violations++; found.Violations <= maxExamples {
					found.Examples = append(found.Examples, fmt.Sprintf("%s: is %s, should be %s", show(row[0]), show(row[1]), show(row[2])))
				}
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("condition %d: %w", found.Number, err)
			}
			if done++; progress != nil {
				progress(done, total)
			}
		}
		out = append(out, found)
	}
	return out, nil
}

// show is a value as people read it.
func show(v driver.Value) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case []byte:
		return string(v)
	default:
		return fmt.Sprint(v)
	}
}

// ErrInconsistent is the error of conditions that do not hold.
var ErrInconsistent = errors.New("the database is not consistent")

// Verdict is ErrInconsistent, with the numbers of those that fail, or nil.
func Verdict(all []Condition) error {
	var failed []string
	for _, c := range all {
		if !c.Holds() {
			failed = append(failed, fmt.Sprint(c.Number))
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("%w: condition %s does not hold", ErrInconsistent, strings.Join(failed, ", "))
}
