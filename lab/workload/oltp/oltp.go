// Package oltp owns the workloads of sysbench 1.0: their tables, statements
// and random distributions, so that figures can be set beside sysbench's and
// either program can use what the other has prepared.
package oltp

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/xrash/smetrics"

	"github.com/faultlab/faultlab/lab/workload"
)

// Config says which workload, on what tables.
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
}

// The limits keep every id of a range, and the number of a table, within
// sysbench's INTEGER.
const (
	maxTables = 10_000
	maxRows   = 1_000_000_000
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
	within := func(what string, n, most int) {
		if n < 1 || n > most {
			errs = append(errs, fmt.Errorf("%s is %d, must be 1 to %d", what, n, most))
		}
	}
	within("tables", c.Tables, maxTables)
	within("rows of a table", c.Rows, maxRows)
	within("range size", c.RangeSize, math.MaxInt32-maxRows)
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
	return &oltp{Config: c, plan: plans[c.Workload]}, nil
}

type oltp struct {
	Config
	plan plan
}

func (o *oltp) Name() string { return o.Workload }

// rowBytes is about what InnoDB takes for a row and its entry in the index:
// 266 in tables of 300,000 rows (information_schema.INNODB_TABLESPACES).
const rowBytes = 270

func (o *oltp) Size() int64 { return int64(o.Tables) * int64(o.Rows) * rowBytes }

// table is the name of the nth table, from 1.
func table(n int) string { return fmt.Sprintf("sbtest%d", n) }
