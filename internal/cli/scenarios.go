package cli

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/scenarios"
)

func (c *command) list() *cli.Command {
	return &cli.Command{
		Name: "list", Usage: "scenarios that ship", Flags: []cli.Flag{jsonFlag},
		Action: func(ctx *cli.Context) error {
			if err := exactly(ctx); err != nil {
				return err
			}
			type entry struct {
				Name     string            `json:"name"`
				Group    string            `json:"group"`
				Question string            `json:"question"`
				Profiles map[string]string `json:"profiles"` // name -> about how long it takes
			}
			var out []entry
			for _, name := range scenarios.Names() {
				s, err := scenarios.Builtin(name)
				if err != nil {
					return err
				}
				e := entry{s.Name, s.Group, s.Question, map[string]string{}}
				for _, p := range s.Profiles() {
					plan, err := s.Resolve(p, scenarios.Overrides{})
					if err != nil {
						return err
					}
					e.Profiles[p] = about(plan.Estimate())
				}
				out = append(out, e)
			}
			if ctx.Bool("json") {
				return writeJSON(c.stdout, out)
			}
			longest := len("  SCENARIO")
			var groups []string
			for _, e := range out {
				longest = max(longest, len("  "+e.Name))
				if !slices.Contains(groups, e.Group) {
					groups = append(groups, e.Group)
				}
			}
			line := func(name string, quick, standard, paper, question string) {
				fmt.Fprintf(c.stdout, "%-*s  %-7s  %-8s  %-6s  %s\n", longest, name, quick, standard, paper, question)
			}
			line("SCENARIO", "QUICK", "STANDARD", "PAPER", "QUESTION")
			for _, g := range groups {
				fmt.Fprintf(c.stdout, "\n%s\n", g)
				for _, e := range out {
					if e.Group == g {
						line("  "+e.Name, e.Profiles["quick"], e.Profiles["standard"], e.Profiles["paper"], e.Question)
					}
				}
			}
			return nil
		},
	}
}

// about rounds a duration to what an estimate is worth.
func about(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return d.Round(10 * time.Second).String()
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute).Minutes()))
	}
	return fmt.Sprintf("%d h", int(d.Round(time.Hour).Hours()))
}

func (c *command) show() *cli.Command {
	return &cli.Command{
		Name: "show", Usage: "a scenario's YAML", ArgsUsage: "SCENARIO",
		Action: func(ctx *cli.Context) error {
			if err := exactly(ctx, "SCENARIO"); err != nil {
				return err
			}
			b, err := scenarios.Source(ctx.Args().First())
			if err != nil {
				return &exit{exitUsage, err}
			}
			_, err = c.stdout.Write(b)
			return err
		},
	}
}

func (c *command) check() *cli.Command {
	return &cli.Command{
		Name: "check", Usage: "validate a scenario file", ArgsUsage: "FILE",
		Action: func(ctx *cli.Context) error {
			if err := exactly(ctx, "FILE"); err != nil {
				return err
			}
			name := ctx.Args().First()
			b, err := os.ReadFile(name)
			if err != nil {
				return &exit{exitUsage, err}
			}
			s, err := scenarios.Load(name, b)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.stdout, "%s: ok: %s\n", name, s.Name)
			for _, p := range s.Profiles() {
				plan, err := s.Resolve(p, scenarios.Overrides{})
				if err != nil {
					return err
				}
				fmt.Fprintf(c.stdout, "  %-9s about %s\n", p, about(plan.Estimate()))
			}
			return nil
		},
	}
}
