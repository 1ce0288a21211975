package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/go-sql-driver/mysql"
	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/lab/workload/oltp"
	"github.com/faultlab/faultlab/lab/workload/tpcc"
	"github.com/faultlab/faultlab/scenarios"
)

// dsnEnv keeps a password off the command line.
const dsnEnv = "FAULTLAB_DSN"

func (c *command) load() *cli.Command {
	return &cli.Command{
		Name: "load", Usage: "drive load at a lab or any MySQL-compatible server", ArgsUsage: "WORKLOAD " + loadVerbs,
		Description: "Workloads: " + strings.Join(loads(), ", ") + ".\nTables, statements and options of those named oltp are sysbench's; what one has prepared the other can use.\nThe check is tpcc's.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "dsn", EnvVars: []string{dsnEnv}, Usage: "server, as `user:password@tcp(host:3306)/database`"},
			&cli.StringFlag{Name: "lab", Usage: "the writer of this `LAB` instead of a DSN"},
			&cli.StringFlag{Name: "node", Usage: "this `NODE` of the lab instead of its writer"},
			&cli.IntFlag{Name: "threads", Value: 1, Usage: "`N`umber of connections"},
			&cli.StringFlag{Name: "sweep", Usage: "one measurement for each number of connections: `N,N,...`, such as 1,2,4,8"},
			&cli.StringFlag{Name: "rate", Usage: "transactions that arrive a second, whatever the server does (an open loop): `RATE` such as 500, 100..2000 (rising) or 100,200,400 (in steps)"},
			&cli.StringFlag{Name: "arrivals", Value: string(workload.Exponential), Usage: "how they arrive at that rate: `exponential|fixed`"},
			&cli.IntFlag{Name: "queue", Value: workload.DefaultQueue, Usage: "how many may wait for a connection at that rate, more are dropped: `N`"},
			&cli.DurationFlag{Name: "time", Value: 10 * time.Second, Usage: "`D`uration of the measurement"},
			&cli.DurationFlag{Name: "warmup-time", Usage: "`D`uration of load before it, discarded"},
			&cli.DurationFlag{Name: "report-interval", Usage: "print a line every `D` (0: none)"},
			&cli.Uint64Flag{Name: "rand-seed", Usage: "repeat the random choices of this `SEED` (0: draw one)"},
			jsonFlag,
		}, oltpFlags(), tpccFlags()),
		Action: func(ctx *cli.Context) error {
			if err := exactly(ctx, "WORKLOAD", loadVerbs); err != nil {
				return err
			}
			d, err := loadDriver(ctx)
			if err != nil {
				return err
			}
			t, err := target(ctx)
			if err != nil {
				return err
			}
			switch verb := ctx.Args().Get(1); verb {
			case "prepare":
				return c.prepareLoad(ctx, d, t)
			case "run":
				return c.runLoad(ctx, d, t)
			case "check":
				if d, ok := d.(*tpcc.Driver); ok {
					return c.checkLoad(ctx, d, t)
				}
				return usage("%s has nothing to check: %s has", d.Name(), tpcc.Name)
			case "cleanup":
				return d.Cleanup(ctx.Context, t)
			default:
				return usage("load takes prepare, run, check or cleanup, not %q", verb)
			}
		},
	}
}

const loadVerbs = "prepare|run|check|cleanup"

// loads are the workloads' names.
func loads() []string { return append(oltp.Workloads(), tpcc.Name) }

// loadDriver is the driver of the workload that the arguments name.
func loadDriver(ctx *cli.Context) (workload.Driver, error) {
	name, others := ctx.Args().Get(0), tpccFlags()
	if !slices.Contains(loads(), name) {
		return nil, lab.Hint(usage("unknown workload %q", name), scenarios.Suggest(name, loads()))
	}
	if name == tpcc.Name {
		others = oltpFlags()
	}
	for _, f := range others {
		if n := f.Names()[0]; ctx.IsSet(n) {
			return nil, usage("--%s means nothing to %s", n, name)
		}
	}
	if name == tpcc.Name {
		return tpccDriver(ctx)
	}
	return oltpDriver(ctx)
}

// target is the server that the flags name.
func target(ctx *cli.Context) (workload.Target, error) {
	dsn, name := ctx.String("dsn"), ctx.String("lab")
	switch {
	case name == "" && ctx.IsSet("node"):
		return workload.Target{}, usage("--node is one of a --lab")
	case name != "" && ctx.IsSet("dsn") && os.Getenv(dsnEnv) == "":
		return workload.Target{}, usage("--dsn and --lab both name a server: give one")
	case name != "":
		s, err := loadLab(name)
		if err != nil {
			return workload.Target{}, err
		}
		topo, err := findTopology(s.Topology)
		if err != nil {
			return workload.Target{}, err
		}
		cluster := attach(s)
		n := topo.Writer(cluster)
		if of := ctx.String("node"); of != "" {
			if n, err = node(s, cluster, of); err != nil {
				return workload.Target{}, err
			}
		}
		return workload.Target{Addr: n.Addr(), User: s.Credentials.User, Password: s.Credentials.Password,
			Database: "sbtest", Dial: cluster.Client().Dial}, nil
	case dsn == "":
		return workload.Target{}, lab.Hint(usage("load needs a server"), "--lab NAME, --dsn 'user:password@tcp(host:3306)/sbtest', or the DSN in "+dsnEnv)
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return workload.Target{}, lab.Hint(usage("dsn: %s", err), "its form is user:password@tcp(host:3306)/database")
	}
	if cfg.Net != "tcp" {
		return workload.Target{}, lab.Hint(usage("dsn: load speaks tcp only"), "its form is user:password@tcp(host:3306)/database")
	}
	if strings.Contains(dsn, "?") {
		return workload.Target{}, usage("dsn: load takes no parameters behind a question mark: it speaks without TLS, in the server's defaults")
	}
	if cfg.DBName == "" {
		cfg.DBName = "sbtest"
	}
	return workload.Target{Addr: cfg.Addr, User: cfg.User, Password: cfg.Passwd, Database: cfg.DBName}, nil
}

func (c *command) prepareLoad(ctx *cli.Context, d workload.Driver, t workload.Target) error {
	began := time.Now()
	shown := time.Time{}
	err := d.Prepare(ctx.Context, t, func(done, total int64) {
		if done == total || time.Since(shown) > time.Second {
			shown = time.Now()
			fmt.Fprintf(c.stderr, "%6.1f s  %d of %d rows\n", time.Since(began).Seconds(), done, total)
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stderr, "%6.1f s  tables of %s are ready\n", time.Since(began).Seconds(), d.Name())
	return nil
}

func (c *command) runLoad(ctx *cli.Context, d workload.Driver, t workload.Target) error {
	opt, err := loadOptions(ctx)
	if err != nil {
		return err
	}
	sweep := []int{ctx.Int("threads")}
	if ctx.IsSet("sweep") {
		if sweep, err = sweepOf(ctx); err != nil {
			return err
		}
	}
	var results []loadJSON
	for _, threads := range sweep {
		opt.Threads = threads
		w, err := c.measureLoad(ctx, d, t, opt)
		if err == nil || w.Transactions > 0 {
			results = append(results, loadResult(d, opt, w))
			if !ctx.Bool("json") && !ctx.IsSet("sweep") {
				fmt.Fprint(c.stdout, workload.FormatSummary(w))
				if d, ok := d.(*tpcc.Driver); ok {
					fmt.Fprint(c.stdout, newOrders(d, w))
				}
			}
		}
		if err != nil {
			// What was measured until then is not lost.
			return errors.Join(err, c.tellLoad(ctx, results))
		}
	}
	return c.tellLoad(ctx, results)
}

// loadOptions reads what a load is to be, but for its threads.
func loadOptions(ctx *cli.Context) (workload.Options, error) {
	opt := workload.Options{Seed: ctx.Uint64("rand-seed"), Interval: ctx.Duration("report-interval"), Arrivals: workload.Arrivals(ctx.String("arrivals")), Queue: ctx.Int("queue")}
	switch {
	case ctx.Duration("time") <= 0:
		return opt, usage("--time must be longer than nothing")
	case ctx.Int("threads") < 1:
		return opt, usage("--threads must be at least 1")
	case ctx.IsSet("threads") && ctx.IsSet("sweep"):
		return opt, usage("--threads is one number of connections and --sweep several: give one of them")
	case !ctx.IsSet("rate") && (ctx.IsSet("arrivals") || ctx.IsSet("queue")):
		return opt, lab.Hint(usage("--arrivals and --queue are of a load that has a --rate"), "such as --rate 500")
	case opt.Arrivals != workload.Exponential && opt.Arrivals != workload.Fixed:
		return opt, usage("--arrivals %s is not exponential or fixed", opt.Arrivals)
	case opt.Queue < 1 || opt.Queue > 10_000_000:
		return opt, usage("--queue must be 1 to 10000000, not %d", opt.Queue)
	}
	if ctx.IsSet("rate") {
		var err error
		if opt.Rate, err = workload.ParseRate(ctx.String("rate")); err != nil {
			return opt, lab.Hint(usage("--%s", err), "write 500, 100..2000 (rising) or 100,200,400 (in steps): transactions a second")
		}
	}
	return opt, nil
}

func sweepOf(ctx *cli.Context) ([]int, error) {
	var out []int
	for _, s := range strings.Split(ctx.String("sweep"), ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 1 || n > 100_000 {
			return nil, lab.Hint(usage("--sweep: %q is not a number of connections", s), "such as --sweep 1,2,4,8,16")
		}
		out = append(out, n)
	}
	return out, nil
}

// measureLoad is one measurement, its lines shown as they come.
func (c *command) measureLoad(ctx *cli.Context, d workload.Driver, t workload.Target, opt workload.Options) (workload.Window, error) {
	interval := opt.Interval
	var elapsed time.Duration
	opt.OnSample = func(s workload.Sample) {
		elapsed += s.Length
		if interval > 0 {
			line := workload.FormatInterval(elapsed, opt.Threads, s)
			if len(opt.Rate) > 0 {
				line += fmt.Sprintf(" queue: %d dropped/s: %.2f", s.Queue, float64(s.Dropped)/s.Length.Seconds())
			}
			fmt.Fprintln(c.stderr, line)
		}
	}
	r, err := workload.Start(ctx.Context, d, t, opt)
	if err != nil {
		return workload.Window{}, err
	}
	defer r.Stop()
	if warmup := ctx.Duration("warmup-time"); warmup > 0 {
		select {
		case <-ctx.Done():
			return workload.Window{}, ctx.Err()
		case <-time.After(warmup):
		}
	}
	return r.Measure(ctx.Context, ctx.Duration("time"))
}

// tellLoad writes what is not told yet: the document, or the table of a sweep.
func (c *command) tellLoad(ctx *cli.Context, all []loadJSON) error {
	sweep := ctx.IsSet("sweep")
	switch {
	case len(all) == 0:
		return nil
	case ctx.Bool("json") && sweep:
		return writeJSON(c.stdout, struct {
			Sweep []loadJSON `json:"sweep"`
		}{all})
	case ctx.Bool("json"):
		return writeJSON(c.stdout, all[0])
	case !sweep:
		return nil
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "THREADS\tTPS\tp50 ms\tp95 ms\tp99 ms\tmax ms\tERRORS\tRETRIES\tBUSY\t")
	for _, r := range all {
		errs := r.Unknown
		for _, n := range r.Errors {
			errs += n
		}
		fmt.Fprintf(w, "%d\t%.1f\t%.2f\t%.2f\t%.2f\t%.1f\t%d\t%d\t%.0f%%\t\n",
			r.Threads, r.TPS, r.LatencyMS.P50, r.LatencyMS.P95, r.LatencyMS.P99, r.LatencyMS.Max, errs, r.Retries, 100*r.Busy)
	}
	return w.Flush()
}

// loadJSON is what `load run --json` prints.
type loadJSON struct {
	Workload     string           `json:"workload"`
	Threads      int              `json:"threads"`
	Seconds      float64          `json:"seconds"`
	Transactions int64            `json:"transactions"`
	TPS          float64          `json:"tps"`
	LatencyMS    latencyJSON      `json:"latency_ms"`
	Retries      int64            `json:"retries"`
	Errors       map[string]int64 `json:"errors"`
	Unknown      int64            `json:"unknown_outcomes"`
	Busy         float64          `json:"busy"`

	// Of an open loop only: the most that waited, and what found no room.
	Rate    string `json:"rate,omitempty"`
	Queue   int    `json:"queue,omitempty"`
	Dropped int64  `json:"dropped,omitempty"`

	// Of tpcc only.
	Warehouses         int                 `json:"warehouses,omitempty"`
	Scale              int                 `json:"scale,omitempty"`
	NewOrdersPerMinute float64             `json:"new_orders_per_minute,omitempty"`
	Kinds              map[string]kindJSON `json:"kinds,omitempty"`
}

// kindJSON is one kind of transactions.
type kindJSON struct {
	Transactions int64       `json:"transactions"`
	TPS          float64     `json:"tps"`
	LatencyMS    latencyJSON `json:"latency_ms"`
	Retries      int64       `json:"retries"`
	Errors       int64       `json:"errors"`
	Unknown      int64       `json:"unknown_outcomes"`
}

type latencyJSON struct {
	Avg float64 `json:"avg"`
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func latencies(h *hdrhistogram.Histogram) latencyJSON {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	return latencyJSON{Avg: h.Mean() / 1000, P50: at(50), P95: at(95), P99: at(99), Max: float64(h.Max()) / 1000}
}

func loadResult(d workload.Driver, opt workload.Options, w workload.Window) loadJSON {
	out := loadJSON{
		Workload: d.Name(), Threads: opt.Threads, Seconds: w.End.Sub(w.Start).Seconds(),
		Transactions: w.Transactions, TPS: w.TPS(), Retries: w.Retries, Errors: w.Errors, Unknown: w.Unknown, Busy: w.Busy,
		LatencyMS: latencies(w.Latency), Rate: opt.Rate.String(), Queue: w.Queue, Dropped: w.Dropped,
	}
	if d, ok := d.(*tpcc.Driver); ok {
		out.Warehouses, out.Scale, out.NewOrdersPerMinute = d.Warehouses, d.Scale, tpcc.NewOrdersPerMinute(w)
	}
	for _, k := range w.Kinds {
		if out.Kinds == nil {
			out.Kinds = map[string]kindJSON{}
		}
		out.Kinds[k.Name] = kindJSON{k.Transactions, k.TPS(w), latencies(k.Latency), k.Retries, k.Errors, k.Unknown}
	}
	return out
}
