package cli

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/lab/workload/oltp"
)

// oltpFlags are the options of the OLTP workloads, by sysbench's names.
func oltpFlags() []cli.Flag {
	var distributions []string
	for _, d := range oltp.Distributions() {
		distributions = append(distributions, string(d))
	}
	n := oltp.DefaultCounts()
	count := func(name string, value int, what string) cli.Flag {
		return &cli.IntFlag{Name: name, Value: value, Usage: "`N`umber of " + what + " a transaction", Category: oltpCategory}
	}
	onOff := func(name, value, what string) cli.Flag {
		return &cli.StringFlag{Name: name, Value: value, Usage: what + ": `on|off`", Category: oltpCategory}
	}
	return []cli.Flag{
		&cli.IntFlag{Name: "tables", Value: 1, Usage: "`N`umber of tables", Category: oltpCategory},
		&cli.IntFlag{Name: "table-size", Value: 10000, Usage: "`N`umber of rows in each", Category: oltpCategory},
		&cli.IntFlag{Name: "range-size", Value: 100, Usage: "`N`umber of rows of a range query", Category: oltpCategory},
		count("point-selects", n.PointSelects, "rows read by id"),
		count("simple-ranges", n.SimpleRanges, "ranges read"),
		count("sum-ranges", n.SumRanges, "ranges added up"),
		count("order-ranges", n.OrderRanges, "ranges sorted"),
		count("distinct-ranges", n.DistinctRanges, "ranges without duplicates"),
		count("index-updates", n.IndexUpdates, "updates of an indexed column"),
		count("non-index-updates", n.NonIndexUpdates, "updates of another column"),
		count("delete-inserts", n.DeleteInserts, "rows deleted and inserted again"),
		onOff("range-selects", "on", "range queries of all four kinds"),
		onOff("skip-trx", "off", "every statement commits by itself"),
		onOff("auto-inc", "on", "the server numbers rows"),
		onOff("secondary", "off", "id is not the primary key"),
		onOff("create-secondary", "on", "an index on k"),
		&cli.StringFlag{Name: "db-ps-mode", Value: "auto", Usage: "prepared statements: `auto|disable`", Category: oltpCategory},
		&cli.StringFlag{Name: "rand-type", Value: string(oltp.Special), Usage: "how rows are drawn: `" + strings.Join(distributions, "|") + "`", Category: oltpCategory},
		&cli.IntFlag{Name: "rand-spec-iter", Value: 12, Usage: "uniform draws that the bell of special and gaussian is the mean of: `N`", Category: oltpCategory},
		&cli.IntFlag{Name: "rand-spec-pct", Value: 1, Usage: "`P`ercentage of the table in special's hot window", Category: oltpCategory},
		&cli.IntFlag{Name: "rand-spec-res", Value: 75, Usage: "`P`ercentage of the draws that go there", Category: oltpCategory},
		&cli.Float64Flag{Name: "rand-pareto-h", Value: 0.2, Usage: "share of the rows that gets a share 1-`H` of pareto's draws", Category: oltpCategory},
		&cli.Float64Flag{Name: "rand-zipfian-exp", Value: 0.8, Usage: "`E`xponent of zipfian", Category: oltpCategory},
	}
}

const oltpCategory = "oltp, as sysbench has them"

// oltpDriver is the driver that the options describe.
func oltpDriver(ctx *cli.Context) (workload.Driver, error) {
	// 0 is for the library's defaults, and no number to ask for here.
	for _, n := range []string{"tables", "table-size", "range-size", "rand-spec-iter", "rand-spec-pct", "rand-spec-res"} {
		if ctx.Int(n) < 1 {
			return nil, usage("--%s must be at least 1, not %d", n, ctx.Int(n))
		}
	}
	for _, n := range []string{"rand-pareto-h", "rand-zipfian-exp"} {
		if !(ctx.Float64(n) > 0) {
			return nil, usage("--%s must be more than 0, not %v", n, ctx.Float64(n))
		}
	}
	on := map[string]bool{}
	for _, n := range []string{"range-selects", "skip-trx", "auto-inc", "secondary", "create-secondary"} {
		switch v := ctx.String(n); v {
		case "on", "off":
			on[n] = v == "on"
		default:
			return nil, usage("--%s is on or off, not %q", n, v)
		}
	}
	if v := ctx.String("db-ps-mode"); v != "auto" && v != "disable" {
		return nil, usage("--db-ps-mode is auto or disable, not %q", v)
	}
	counts := oltp.Counts{
		PointSelects: ctx.Int("point-selects"), SimpleRanges: ctx.Int("simple-ranges"), SumRanges: ctx.Int("sum-ranges"),
		OrderRanges: ctx.Int("order-ranges"), DistinctRanges: ctx.Int("distinct-ranges"),
		IndexUpdates: ctx.Int("index-updates"), NonIndexUpdates: ctx.Int("non-index-updates"), DeleteInserts: ctx.Int("delete-inserts"),
	}
	if !on["range-selects"] {
		counts.SimpleRanges, counts.SumRanges, counts.OrderRanges, counts.DistinctRanges = 0, 0, 0, 0
	}
	d, err := oltp.New(oltp.Config{
		Workload: ctx.Args().Get(0), Tables: ctx.Int("tables"), Rows: ctx.Int("table-size"), RangeSize: ctx.Int("range-size"),
		Distribution: oltp.Distribution(ctx.String("rand-type")),
		Shape: oltp.Shape{SpecIter: ctx.Int("rand-spec-iter"), SpecPct: ctx.Int("rand-spec-pct"), SpecRes: ctx.Int("rand-spec-res"),
			ParetoH: ctx.Float64("rand-pareto-h"), ZipfianExp: ctx.Float64("rand-zipfian-exp")},
		Counts: &counts, Text: ctx.String("db-ps-mode") == "disable", SkipTrx: on["skip-trx"],
		Secondary: on["secondary"], NoAutoInc: !on["auto-inc"], NoCreateSecondary: !on["create-secondary"],
	})
	if err != nil {
		return nil, &exit{exitUsage, err}
	}
	return d, nil
}
