package cli

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/results/report"
)

func (c *command) compare() *cli.Command {
	return &cli.Command{
		Name: "compare", Usage: "runs side by side: what differs, and whether that can be told from chance", ArgsUsage: "RUN RUN...",
		Flags: []cli.Flag{
			&cli.Float64Flag{Name: "fail-below", Usage: "exit 3 where a row's throughput is, beyond doubt, below this `SHARE` of the first run's, such as 0.95; exit 4 where that cannot be told of a row"},
			jsonFlag,
		},
		Action: func(ctx *cli.Context) error {
			if ctx.NArg() < 2 {
				return lab.Hint(usage("compare needs two runs or more"), whatIsARun)
			}
			share := ctx.Float64("fail-below")
			if ctx.IsSet("fail-below") && !(share > 0 && share <= 10) { // not a number is neither
				return usage("--fail-below must be a share above 0 and up to 10, such as 0.95, not %g", share)
			}
			var runs []results.Run
			for _, name := range ctx.Args().Slice() {
				r, err := loadRun(name)
				if err != nil {
					return err
				}
				runs = append(runs, r.Run)
			}
			k := report.Compare(runs)
			var err error
			if ctx.Bool("json") {
				err = writeJSON(c.stdout, k)
			} else {
				err = report.CompareText(c.stdout, k, style(c.stdout))
			}
			if err != nil {
				return err
			}
			if !ctx.IsSet("fail-below") {
				return nil
			}
			below, unknown := k.Below(share)
			for _, b := range below {
				fmt.Fprintln(c.stderr, "below:", b)
			}
			for _, u := range unknown {
				fmt.Fprintln(c.stderr, "cannot be told:", u)
			}
			switch {
			case len(below) > 0:
				return &exit{exitVerdict, nil}
			case len(unknown) > 0: // a row that was lost is no row that is as good
				return &exit{exitInvalid, nil}
			}
			return nil
		},
	}
}
