package cli

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/lab/workload/tpcc"
)

const tpccCategory = tpcc.Name

// tpccFlags are the options of TPC-C.
func tpccFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "warehouses", Value: 1, Usage: "`N`umber of warehouses, of about 140 MB each", Category: tpccCategory},
		&cli.IntFlag{Name: "scale", Value: 1, Usage: "make everything in a warehouse `N` times smaller: tpcc-like", Category: tpccCategory},
	}
}

// tpccDriver is the driver that the options describe.
func tpccDriver(ctx *cli.Context) (*tpcc.Driver, error) {
	for _, n := range []string{"warehouses", "scale"} { // 0 is for the library's defaults
		if ctx.Int(n) < 1 {
			return nil, usage("--%s must be at least 1, not %d", n, ctx.Int(n))
		}
	}
	d, err := tpcc.New(tpcc.Config{Warehouses: ctx.Int("warehouses"), Scale: ctx.Int("scale")})
	if err != nil {
		return nil, &exit{exitUsage, err}
	}
	return d, nil
}

// checkLoad checks that the database is consistent.
func (c *command) checkLoad(ctx *cli.Context, d *tpcc.Driver, t workload.Target) error {
	began, shown := time.Now(), time.Now()
	all, err := d.Check(ctx.Context, t, func(done, total int) {
		if time.Since(shown) > time.Second {
			shown = time.Now()
			fmt.Fprintf(c.stderr, "%6.1f s  %d of %d queries\n", time.Since(began).Seconds(), done, total)
		}
	})
	if err != nil {
		return err
	}
	if ctx.Bool("json") {
		out := checkJSON{Workload: d.Name(), Warehouses: d.Warehouses, Scale: d.Scale, Consistent: tpcc.Verdict(all) == nil}
		for _, k := range all {
			out.Conditions = append(out.Conditions, conditionJSON{k.Number, k.Rule, k.Violations, append([]string{}, k.Examples...)})
		}
		if err := writeJSON(c.stdout, out); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(c.stdout, "Consistency of %s (warehouses: %d):\n", d.Name(), d.Warehouses)
		for _, k := range all {
			fmt.Fprintln(c.stdout, k)
		}
	}
	return tpcc.Verdict(all)
}

// checkJSON is what `load tpcc check --json` prints.
type checkJSON struct {
	Workload   string          `json:"workload"`
	Warehouses int             `json:"warehouses"`
	Scale      int             `json:"scale"`
	Consistent bool            `json:"consistent"`
	Conditions []conditionJSON `json:"conditions"`
}

type conditionJSON struct {
	Number     int      `json:"number"`
	Rule       string   `json:"rule"`
	Violations int64    `json:"violations"`
	Examples   []string `json:"examples"`
}

// newOrders is the line of TPC-C's own figure.
func newOrders(d *tpcc.Driver, w workload.Window) string {
	name := "tpmC, NewOrders a minute:"
	if d.Name() != tpcc.Name {
		name = fmt.Sprintf("NewOrders a minute, %s at 1/%d:", d.Name(), d.Scale)
	}
	return fmt.Sprintf("\n%-40s %.1f (no keying or think times)\n", name, tpcc.NewOrdersPerMinute(w))
}
