package cli

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/server"
)

func (c *command) servers() *cli.Command {
	return &cli.Command{
		Name: "servers", Usage: "server roots in the cache", ArgsUsage: "list|install|image|remove",
		Action: func(ctx *cli.Context) error {
			if ctx.Args().Present() {
				return unknownCommand("faultlab servers", ctx.Args().First(), ctx.Command.Subcommands)
			}
			return cli.ShowSubcommandHelp(ctx)
		},
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "servers at hand", Flags: []cli.Flag{jsonFlag, rootFlag},
				Action: func(ctx *cli.Context) error {
					if err := exactly(ctx); err != nil {
						return err
					}
					return c.serversList(ctx)
				},
			},
			{
				Name: "install", Usage: "make server roots from Debian packages", ArgsUsage: "FLAVOR...",
				Action: func(ctx *cli.Context) error {
					flavors, err := flavorArgs(ctx)
					if err != nil {
						return err
					}
					g, gctx := errgroup.WithContext(ctx.Context)
					began := time.Now()
					for _, f := range flavors {
						g.Go(func() error {
							srv, err := servers(ctx).Install(gctx, f, func(step string) {
								fmt.Fprintf(c.stderr, "%6.1f s  %s: %s\n", time.Since(began).Seconds(), f, step)
							})
							if err != nil {
								return err
							}
							_, err = servers(ctx).Seed(gctx, srv, func(step string) {
								fmt.Fprintf(c.stderr, "%6.1f s  %s: %s\n", time.Since(began).Seconds(), f, step)
							})
							if err != nil {
								return err
							}
							fmt.Fprintf(c.stderr, "%6.1f s  %s: %s is ready\n", time.Since(began).Seconds(), f, srv.Version)
							return nil
						})
					}
					return g.Wait()
				},
			},
			{
				Name: "image", Usage: "make local Docker images of server roots", ArgsUsage: "FLAVOR...", Flags: []cli.Flag{rootFlag},
				Action: c.serversImage,
			},
			{
				Name: "remove", Usage: "delete server roots from the cache", ArgsUsage: "FLAVOR...",
				Action: func(ctx *cli.Context) error {
					flavors, err := flavorArgs(ctx)
					if err != nil {
						return err
					}
					for _, f := range flavors {
						if err := servers(ctx).Remove(ctx.Context, f); err != nil {
							return err
						}
						fmt.Fprintf(c.stderr, "%s is removed\n", f)
					}
					return nil
				},
			},
		},
	}
}

// flavorArgs reads flavors from the arguments and refuses what cannot be
// installed.
func flavorArgs(ctx *cli.Context) ([]lab.Flavor, error) {
	var known []string
	for _, f := range server.Installable() {
		known = append(known, string(f))
	}
	if ctx.NArg() == 0 {
		return nil, lab.Hint(usage("%s takes one or more of %s", ctx.Command.Name, strings.Join(known, ", ")))
	}
	var out []lab.Flavor
	for _, a := range ctx.Args().Slice() {
		ok := false
		for _, k := range known {
			ok = ok || a == k
		}
		if !ok {
			return nil, lab.Hint(usage("no server root can be made for %q", a), "known: "+strings.Join(known, ", "))
		}
		out = append(out, lab.Flavor(a))
	}
	return out, nil
}

func (c *command) serversList(ctx *cli.Context) error {
	out := []server.Server{}
	for _, f := range []lab.Flavor{lab.MySQL, lab.MariaDB, lab.PXC} {
		s, err := servers(ctx).Find(ctx.Context, f)
		if errors.Is(err, lab.ErrNoServer) {
			continue
		}
		if err != nil {
			return err
		}
		out = append(out, s)
	}
	if ctx.Bool("json") {
		return writeJSON(c.stdout, out)
	}
	if len(out) == 0 {
		fmt.Fprintln(c.stdout, "no servers; install them: faultlab servers install mysql mariadb")
		return nil
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FLAVOR\tVERSION\tGALERA\tROOT")
	for _, s := range out {
		galera := "-"
		if s.Galera != "" {
			galera = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Flavor, s.Version, galera, s.Root)
	}
	return w.Flush()
}

func (c *command) clean() *cli.Command {
	return &cli.Command{
		Name: "clean", Usage: "remove whatever dead runs left behind", Flags: []cli.Flag{jsonFlag},
		Action: func(ctx *cli.Context) error {
			if err := exactly(ctx); err != nil {
				return err
			}
			done, err := lab.Clean(ctx.Context, lab.StateDir(), undo())
			installs, ierr := servers(ctx).Clean()
			done, err = append(done, installs...), errors.Join(err, ierr)
			if ctx.Bool("json") {
				if done == nil {
					done = []string{}
				}
				if werr := writeJSON(c.stdout, done); werr != nil {
					return werr
				}
				return err
			}
			for _, name := range done {
				fmt.Fprintf(c.stdout, "removed %s\n", name)
			}
			if len(done) == 0 && err == nil {
				fmt.Fprintln(c.stdout, "nothing to clean")
			}
			return err
		},
	}
}
