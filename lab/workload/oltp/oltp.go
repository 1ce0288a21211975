// Package oltp owns the workloads of sysbench: their tables, statements and
// random distributions, so that figures can be set beside sysbench's and either
// program can use what the other has prepared.
package oltp

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/xrash/smetrics"

	"github.com/faultlab/faultlab/lab/workload"
)

// Config says which workload, on what tables. Fields with no unit or default
// said are as the option of that name in sysbench 1.0.
type Config struct {
	// Workload is one of Workloads().
	Workload string
	// Tables is how many tables there are, sbtest1 and on. 0 is 1.
	Tables int
	// Rows is the size of each table. 0 is 10000.
	Rows int
	// RangeSize is how many ids a range query covers. 0 is 100.
	RangeSize int
	// Distribution says how ids are drawn. "" is Special, as in sysbench 1.0.
	Distribution Distribution
	// Shape are its parameters.
	Shape Shape
	// Counts says how many statements of each kind a transaction has. nil is
	// DefaultCounts.
	Counts *Counts
	// Text sends every statement as text, its values written into it:
	// --db-ps-mode=disable. Otherwise servers prepare what sysbench has them
	// prepare: all but the statements of oltp_insert and oltp.
	Text bool
	// SkipTrx has every statement commit by itself.
	SkipTrx bool
	// Secondary makes id an index that is not the primary key. Group Replication
	// and PXC refuse such tables.
	Secondary bool
	// NoAutoInc makes tables whose ids the client chooses. oltp_insert then
	// starts with empty tables and draws ids from all of INTEGER.
	NoAutoInc bool
	// NoCreateSecondary leaves out the index on k.
	NoCreateSecondary bool
}

// Counts is how many statements of each kind a transaction has, where its
// workload has that kind at all: write counts mean nothing to oltp_read_only.
// oltp_point_select, oltp_insert and oltp_delete have one statement always.
type Counts struct {
	PointSelects, SimpleRanges, SumRanges, OrderRanges, DistinctRanges int
	IndexUpdates, NonIndexUpdates                                      int
	DeleteInserts                                                      int // pairs
}

// DefaultCounts are sysbench's.
func DefaultCounts() Counts {
	return Counts{
		PointSelects: 10, SimpleRanges: 1, SumRanges: 1, OrderRanges: 1, DistinctRanges: 1,
		IndexUpdates: 1, NonIndexUpdates: 1, DeleteInserts: 1,
	}
}

// The limits keep every id of a range, and the number of a table, within
// sysbench's INTEGER.
const (
	maxTables = 10_000
	maxRows   = 1_000_000_000
	maxCount  = 10_000 // statements of a kind
)

// withDefaults fills in what was left out.
func (c Config) withDefaults() Config {
	if c.Tables == 0 {
		c.Tables = 1
	}
	if c.Rows == 0 {
		c.Rows = 10_000
	}
	if c.RangeSize == 0 {
		c.RangeSize = 100
	}
	if c.Distribution == "" {
		c.Distribution = Special
	}
	c.Shape = c.Shape.withDefaults()
	if c.Counts == nil {
		n := DefaultCounts()
		c.Counts = &n
	}
	return c
}

// validate tells all that is wrong with c.
func (c Config) validate() error {
	var errs []error
	if !slices.Contains(Workloads(), c.Workload) {
		errs = append(errs, unknownName("workload", c.Workload, Workloads()))
	}
	if !slices.Contains(Distributions(), c.Distribution) {
		errs = append(errs, unknownName("distribution", c.Distribution, Distributions()))
	}
	within := func(what string, n, least, most int) {
		if n < least || n > most {
			errs = append(errs, fmt.Errorf("%s is %d, must be %d to %d", what, n, least, most))
		}
	}
	within("tables", c.Tables, 1, maxTables)
	within("rows of a table", c.Rows, 1, maxRows)
	within("range size", c.RangeSize, 1, math.MaxInt32-maxRows)
	within("rounds of a bell (rand-spec-iter)", c.Shape.SpecIter, 1, 1000)
	within("hot window in percent (rand-spec-pct)", c.Shape.SpecPct, 1, 100)
	within("draws of the hot window in percent (rand-spec-res)", c.Shape.SpecRes, 1, 99)
	if h := c.Shape.ParetoH; !(h > 0 && h < 1) {
		errs = append(errs, fmt.Errorf("pareto share is %v, must be between 0 and 1", h))
	}
	if e := c.Shape.ZipfianExp; !(e > 0 && e <= 100) {
		errs = append(errs, fmt.Errorf("zipfian exponent is %v, must be more than 0 and at most 100", e))
	}
	n := *c.Counts
	within("point selects", n.PointSelects, 0, maxCount)
	within("simple ranges", n.SimpleRanges, 0, maxCount)
	within("sum ranges", n.SumRanges, 0, maxCount)
	within("order ranges", n.OrderRanges, 0, maxCount)
	within("distinct ranges", n.DistinctRanges, 0, maxCount)
	within("index updates", n.IndexUpdates, 0, maxCount)
	within("non-index updates", n.NonIndexUpdates, 0, maxCount)
	within("delete-inserts", n.DeleteInserts, 0, maxCount)
	if len(errs) == 0 && len(c.plan().steps) == 0 {
		errs = append(errs, fmt.Errorf("a transaction of %s has no statement left", c.Workload))
	}
	return errors.Join(errs...)
}

// unknownName is the error for a name that is not one of names.
func unknownName[T ~string](what string, name T, names []T) error {
	if name == "" {
		return fmt.Errorf("no %s: choose one of %s", what, join(names))
	}
	nearest := slices.MinFunc(names, func(a, b T) int { return distance(name, a) - distance(name, b) })
	if distance(name, nearest) > len(nearest)/3 {
		return fmt.Errorf("unknown %s %q: choose one of %s", what, name, join(names))
	}
	return fmt.Errorf("unknown %s %q: did you mean %q?", what, name, nearest)
}

func distance[T ~string](a, b T) int {
	return smetrics.WagnerFischer(strings.ToLower(string(a)), string(b), 1, 1, 1)
}

func join[T ~string](names []T) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = string(n)
	}
	return strings.Join(all, ", ")
}

// New is the driver of one workload. The error names everything that is wrong
// with the configuration.
func New(c Config) (workload.Driver, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	o := &oltp{Config: c, plan: c.plan(), ids: newSampler(c.Distribution, c.Shape, c.Rows)}
	o.unique.Store(rand.Uint32())
	return o, nil
}

type oltp struct {
	Config
	plan plan
	ids  *sampler
	// unique counts the ids that sessions made up, so that no two make the same.
	unique atomic.Uint32
}

func (o *oltp) Name() string { return o.Workload }

// rowBytes is about what InnoDB takes for a row and its entry in the index:
// 266 in tables of 300,000 rows (information_schema.INNODB_TABLESPACES).
const rowBytes = 270

func (o *oltp) Size() int64 { return int64(o.Tables) * int64(o.Rows) * rowBytes }

// table is the name of the nth table, from 1.
func table(n int) string { return fmt.Sprintf("sbtest%d", n) }
