package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/results/report"
	"github.com/faultlab/faultlab/results/store"
	"github.com/faultlab/faultlab/scenarios"
)

func (c *command) run() *cli.Command {
	return &cli.Command{
		Name: "run", Usage: "build clusters, inject faults, measure what they cost", ArgsUsage: "SCENARIO|FILE",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "profile", Value: "standard", Usage: "how much is measured: `" + strings.Join(scenarios.Profiles(), "|") + "`"},
			&cli.StringFlag{Name: "topologies", Usage: "only these: `A,B`"},
			&cli.IntFlag{Name: "threads", Usage: "`N`umber of client threads instead of the profile's"},
			&cli.DurationFlag{Name: "duration", Usage: "`D`uration of a window instead of the profile's"},
			&cli.IntFlag{Name: "pairs", Usage: "`N`umber of pairs of windows instead of the profile's"},
			providerFlag, emulatorFlag, rootFlag,
			&cli.StringFlag{Name: "out", Value: "faultlab-runs", Usage: "folder for the run's folder: `DIR`"},
			&cli.BoolFlag{Name: "json", Usage: "print the run as one JSON document on standard output, all else on standard error"},
			&cli.BoolFlag{Name: "keep", Usage: "leave the labs running; faultlab down --all takes them down"},
		}, dockerFlags...),
		Action: func(ctx *cli.Context) error {
			if err := exactly(ctx, "SCENARIO|FILE"); err != nil {
				return err
			}
			plan, err := resolve(ctx)
			if err != nil {
				return err
			}
			if ctx.Bool("keep") {
				return c.background(ctx.Context, func(ready func(int) error) error { return c.runKept(ctx, plan, ready) })
			}
			run, err := c.measure(ctx, plan, nil)
			return verdict(ctx.Context, run, err)
		},
	}
}

// resolve makes the plan that the flags ask for.
func resolve(ctx *cli.Context) (scenarios.Plan, error) {
	s, err := findScenario(ctx.Args().First())
	if err != nil {
		return scenarios.Plan{}, err
	}
	o := scenarios.Overrides{Threads: ctx.Int("threads"), Duration: ctx.Duration("duration"), Pairs: ctx.Int("pairs")}
	for _, n := range []string{"threads", "pairs"} {
		if ctx.IsSet(n) && ctx.Int(n) < 1 {
			return scenarios.Plan{}, usage("--%s must be at least 1, not %d", n, ctx.Int(n))
		}
	}
	if ctx.IsSet("duration") && o.Duration <= 0 {
		return scenarios.Plan{}, usage("--duration must be longer than nothing")
	}
	if t := ctx.String("topologies"); t != "" {
		for name := range strings.SplitSeq(t, ",") {
			o.Topologies = append(o.Topologies, strings.TrimSpace(name))
		}
	}
	return s.Resolve(ctx.String("profile"), o)
}

// measure runs the plan and reports it. keep, if not nil, is handed every
// lab, which then stays.
func (c *command) measure(ctx *cli.Context, plan scenarios.Plan, keep func(*lab.Cluster)) (results.Run, error) {
	p := newProgress(c.stderr)
	e, err := newEngine(ctx, p.Note)
	if err != nil {
		return results.Run{}, err
	}
	e.Progress, e.Keep = p.Tell, keep
	// Whether the machine can is found out before a folder is made.
	if err := e.Preflight(ctx.Context, plan); err != nil {
		return results.Run{}, err
	}
	st, err := store.Create(ctx.String("out"), plan.Scenario, time.Now())
	if err != nil {
		return results.Run{}, err
	}
	defer st.Close()
	yaml, err := plan.YAML()
	if err == nil {
		err = st.Scenario(yaml)
	}
	if err != nil {
		return results.Run{}, err
	}
	e.Sink = st
	p.Note(fmt.Sprintf("%s, %s profile, about %s; results in %s", plan.Scenario, plan.Profile, about(plan.Estimate()), st.Dir()))
	run, err := e.Run(ctx.Context, results.Run{ID: st.ID(), Environment: environment()}, plan)
	p.Done()
	if rerr := c.present(ctx, st); rerr != nil && err == nil {
		err = rerr
	}
	return run, err
}

// present writes the HTML report into the run's folder and the table, or the
// JSON document, to the user: also of a run that was cut short.
func (c *command) present(ctx *cli.Context, st *store.Store) error {
	r, err := store.Load(st.Dir())
	if err != nil {
		return err
	}
	v := report.Build(r.Run, r.Samples)
	if err := st.Report(func(w io.Writer) error { return report.HTML(w, v) }); err != nil {
		return err
	}
	if ctx.Bool("json") {
		if err := report.JSON(c.stdout, v); err != nil {
			return err
		}
		return report.Text(c.stderr, v, style(c.stderr))
	}
	if err := report.Text(c.stdout, v, style(c.stdout)); err != nil {
		return err
	}
	fmt.Fprintf(c.stderr, "\nreport: %s\n", filepath.Join(st.Dir(), store.ReportFile))
	return nil
}

// runKept measures, and then holds the labs until it is told to end.
func (c *command) runKept(ctx *cli.Context, plan scenarios.Plan, ready func(int) error) (err error) {
	var kept []*lab.Cluster
	defer func() {
		for _, k := range slices.Backward(kept) {
			dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx.Context), 10*time.Second)
			err = errors.Join(err, k.Close(dctx))
			cancel()
		}
	}()
	run, err := c.measure(ctx, plan, func(k *lab.Cluster) { kept = append(kept, k) })
	if err != nil {
		return verdict(ctx.Context, run, err)
	}
	for _, k := range kept {
		emulator, err := labEmulator(ctx)
		if err != nil {
			return err
		}
		_, release, err := serveLinks(k.Dir(), emulator)
		if err != nil {
			return err
		}
		defer release()
		if err := lab.SaveState(k, run.Environment.Provider); err != nil {
			return err
		}
		fmt.Fprintf(c.stderr, "kept: %s\n", k.Name())
	}
	code := exitOK
	var e *exit
	if errors.As(verdict(ctx.Context, run, nil), &e) {
		code = e.code
	}
	if err := ready(code); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// verdict turns how a run ended into an exit code.
func verdict(ctx context.Context, run results.Run, err error) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return &exit{exitInterrupted, errors.New("interrupted; what was measured is kept")}
	case err != nil:
		return err
	}
	if slices.ContainsFunc(run.Verdicts, func(v results.Verdict) bool { return v.Outcome == "fail" }) {
		return &exit{exitVerdict, nil}
	}
	if slices.ContainsFunc(run.Rows, func(r results.Row) bool { return !r.Valid }) {
		return &exit{exitInvalid, nil}
	}
	return nil
}

// style is what a stream can show.
func style(w io.Writer) report.Style {
	if f, ok := w.(*os.File); ok {
		return report.Terminal(f)
	}
	return report.Style{}
}

// writeFile makes or replaces a file; "-" is not special.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

const whatIsARun = "RUN is the folder that faultlab run wrote its results to"

func loadRun(folder string) (store.Record, error) {
	r, err := store.Load(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return r, lab.Hint(&exit{exitUsage, err}, whatIsARun)
	}
	return r, err
}

func (c *command) report() *cli.Command {
	return &cli.Command{
		Name: "report", Usage: "show a run again, in another form", ArgsUsage: "RUN",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Aliases: []string{"f"}, Value: "text", Usage: "`text|html|md|csv|json`"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` instead of standard output"},
		},
		Action: func(ctx *cli.Context) error {
			if err := exactly(ctx, "RUN"); err != nil {
				return err
			}
			r, err := loadRun(ctx.Args().First())
			if err != nil {
				return err
			}
			v := report.Build(r.Run, r.Samples)
			var write func(io.Writer) error
			switch f := ctx.String("format"); f {
			case "text":
				write = func(w io.Writer) error { return report.Text(w, v, style(w)) }
			case "html":
				write = func(w io.Writer) error { return report.HTML(w, v) }
			case "md":
				write = func(w io.Writer) error { return report.Markdown(w, v) }
			case "csv":
				write = func(w io.Writer) error { return report.CSV(w, v) }
			case "json":
				write = func(w io.Writer) error { return report.JSON(w, v) }
			default:
				return usage("format %q is not text, html, md, csv or json", f)
			}
			if path := ctx.String("output"); path != "" {
				return writeFile(path, write)
			}
			return write(c.stdout)
		},
	}
}
