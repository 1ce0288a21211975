// Package tpcc owns the workload of TPC-C (revision 5.11): its tables, its five
// transactions and its consistency conditions.
//
// It is TPC-C without keying and think times, as such loads are commonly run,
// so its rate of NewOrders says what the server does and is not comparable with
// published results. With less than a warehouse's full tables it calls itself
// tpcc-like. It departs from the specification in these points: every table has
// a primary key, history too; a session draws the warehouse of each transaction
// instead of having one for life; orders' lines are taken in the order of their
// items, so that two orders cannot deadlock on their stock; Delivery is run at
// once, not queued.
package tpcc

import (
	"errors"
	"fmt"
	"slices"

	"github.com/faultlab/faultlab/lab/workload"
)

// Config says how large the database is.
type Config struct {
	// Warehouses is how many there are. 0 is 1.
	Warehouses int
	// Scale divides what a warehouse holds: items, customers, orders and stock
	// together, and with them the ranges of all random choices. 0 is 1, the
	// specification's size. With more than that the workload is tpcc-like.
	Scale int
}

const (
	maxWarehouses = 10_000
	maxScale      = 100 // 30 customers a district
)

// Names of the workload.
const (
	Name     = "tpcc"      // of the full size
	NameLike = "tpcc-like" // of any other
)

// Driver is TPC-C on tables of one size. It is a workload.Driver.
type Driver struct {
	Config
	size size
}

var _ workload.Driver = (*Driver)(nil)

// New is the driver for a database of that size.
func New(c Config) (*Driver, error) {
	if c.Warehouses == 0 {
		c.Warehouses = 1
	}
	if c.Scale == 0 {
		c.Scale = 1
	}
	var errs []error
	if c.Warehouses < 1 || c.Warehouses > maxWarehouses {
		errs = append(errs, fmt.Errorf("warehouses is %d, must be 1 to %d", c.Warehouses, maxWarehouses))
	}
	if c.Scale < 1 || c.Scale > maxScale {
		errs = append(errs, fmt.Errorf("scale is %d, must be 1 (full size) to %d", c.Scale, maxScale))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Driver{c, sizeOf(c.Scale)}, nil
}

// Name implements workload.Driver.
func (d *Driver) Name() string {
	if d.Scale == 1 {
		return Name
	}
	return NameLike
}

// Size implements workload.Driver.
func (d *Driver) Size() int64 {
	return int64(d.Warehouses)*warehouseBytes/int64(d.Scale) + itemBytes*int64(d.size.items)
}

// districts is how many each warehouse has, at any scale: they are what
// transactions contend for.
const districts = 10

// size is how much a warehouse holds, and how its rows are chosen.
type size struct {
	items       int // and rows of stock
	customers   int // of a district, and orders at first
	undelivered int // of those orders
	names       int // last names

	item, customer, name nurand
}

func sizeOf(scale int) size {
	customers := 3000 / scale
	return size{
		items: 100_000 / scale, customers: customers, undelivered: customers * 3 / 10, names: customers / 3,
		item: scaled(8191, cItem, scale), customer: scaled(1023, cCustomer, scale), name: scaled(255, cNameRun, scale),
	}
}

// The kinds of transactions, as windows name them.
const (
	NewOrder    = "new_order"
	Payment     = "payment"
	OrderStatus = "order_status"
	Delivery    = "delivery"
	StockLevel  = "stock_level"
	// NewOrderRollback is a NewOrder with an item that does not exist, which is
	// rolled back as intended. It is not a failure, and no NewOrder either.
	NewOrderRollback = "new_order_rollback"
)

// NewOrdersPerMinute is tpmC: committed NewOrders a minute.
func NewOrdersPerMinute(w workload.Window) float64 {
	return w.Kind(NewOrder).TPS(w) * 60
}

// deck is 100 transactions in the specification's mix. Each session deals from
// its own and shuffles it anew when it is out, so that short windows have the
// mix too.
func deck() []string {
	return slices.Concat(slices.Repeat([]string{NewOrder}, 45), slices.Repeat([]string{Payment}, 43),
		slices.Repeat([]string{OrderStatus}, 4), slices.Repeat([]string{Delivery}, 4), slices.Repeat([]string{StockLevel}, 4))
}
