package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
)

func (c *command) shape() *cli.Command {
	return &cli.Command{
		Name: "shape", Usage: "shape networks that faultlab did not build", ArgsUsage: "set|show|clear",
		Subcommands: []*cli.Command{
			{
				Name: "set", Usage: "what is done to packets that leave an interface", ArgsUsage: "[IMPAIRMENT]",
				Description: `Shaped are the packets that leave --dev of the namespace for one of --to: an
address, a network, or either with a TCP or UDP port, and then the port has to
be the packet's too. Packets that come in are not: shape them where they come
from. A process stays behind that does it until shape clear.

` + impairmentHelp + `

Examples:
   faultlab shape set --netns web --dev eth0 --to 10.0.0.5 'delay 10ms loss 1%'
   faultlab shape set --netns 4711 --dev eth0 --to 10.0.0.0/8:3306 --partition
   faultlab shape set --netns web --dev eth0 --to '[2001:db8::]/32:3306' --rate 10mbit --dry-run
   faultlab shape set --container web --to db:3306 'delay 30ms'
   faultlab shape set --compose shop --container web --to db --loss 1%`,
				Flags: append([]cli.Flag{
					&cli.StringFlag{Name: "netns", Usage: "namespace: a name of ip netns, the number of a process in it, or its path: `NAME|PID`"},
					&cli.StringFlag{Name: "container", Usage: "a Docker container instead, and then --dev may be left out: `NAME`"},
					&cli.StringFlag{Name: "compose", Usage: "the names of --container and --to are services of this Docker Compose `PROJECT`"},
					&cli.StringFlag{Name: "dev", Usage: "the `INTERFACE` that packets leave by"},
					&cli.StringSliceFlag{Name: "to", Usage: "where they go: `CIDR[:PORT]`, or with --container also NAME[:PORT] of a container (repeatable)"},
					&cli.BoolFlag{Name: "incoming", Hidden: true},
					&cli.StringFlag{Name: "name", Usage: "`NAME` of the shape (default: of device and namespace)"},
					&cli.BoolFlag{Name: "foreground", Usage: "stay, and clear the shape on Ctrl-C"},
					&cli.BoolFlag{Name: "dry-run", Usage: "print what would be done, as commands of tc, and do nothing"},
					emulatorFlag, jsonFlag,
				}, impairmentFlags()...),
				Action: c.shapeSet,
			},
			{
				Name: "show", Usage: "what was asked, and what it did", ArgsUsage: "[NAME]",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "measure", Usage: "probe single addresses, and show what is measured beside what was asked"}, jsonFlag},
				Action: c.shapeShow,
			},
			{
				Name: "clear", Usage: "stop shaping", ArgsUsage: "NAME | --all",
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "every shape"}},
				Action: c.shapeClear,
			},
		},
		Action: func(ctx *cli.Context) error {
			if ctx.Args().Present() {
				return unknownCommand("faultlab shape", ctx.Args().First(), ctx.Command.Subcommands)
			}
			return cli.ShowSubcommandHelp(ctx)
		},
	}
}

func (c *command) shapeSet(ctx *cli.Context) error {
	const outgoing = "shape acts on packets that leave --dev; to shape those that come in, shape the interface that they leave by"
	asked, roundTrip, err := askedFor(ctx, strings.Join(ctx.Args().Slice(), " "))
	switch {
	case ctx.IsSet("container") && ctx.IsSet("netns"):
		return usage("--netns and --container are two ways to say the same: give one")
	case ctx.IsSet("compose") && !ctx.IsSet("container"):
		return lab.Hint(usage("--compose needs --container, a service of that project"), ctx.Command.HelpName+" --help shows how it is used")
	case ctx.IsSet("incoming"):
		return lab.Hint(usage("shape has no option --incoming"), outgoing)
	case err != nil:
		return err
	case roundTrip:
		return lab.Hint(usage("rtt is there and back, and a shape acts on one direction"),
			"write delay: --delay "+netem.FormatDuration(asked.Delay)+" is half of that rtt", outgoing)
	}
	if n := ctx.String("name"); n != "" {
		if err := lab.CheckName(n); err != nil {
			return usage("--name: %s", err)
		}
	}
	find := namedPlace
	if ctx.IsSet("container") {
		find = containerPlace
	}
	at, link, err := find(ctx)
	if err != nil {
		return err
	}
	link.Impairment = asked
	name := ctx.String("name")
	if name == "" {
		name = shapeName(at.Interface, at.Name)
	}
	if err := link.Validate(); err != nil {
		return usage("%s", err)
	}
	if ctx.Bool("dry-run") {
		return c.dryRun(ctx.String("emulator"), link)
	}
	kind, err := chooseEmulator(ctx.String("emulator"), emulators())
	if err != nil {
		return err
	}
	at.Emulator = kind.name
	hold := func(ready func(int) error) error { return c.holdShape(ctx, name, at, kind, link, ready) }
	if os.Getenv(backgroundEnv) != "" {
		return c.background(ctx.Context, hold) // whoever started it has looked
	}
	// Until the shape is there for others to see: two would undo each other.
	unlock, err := at.lock(ctx.Context)
	if err != nil {
		return err
	}
	defer unlock()
	there, err := shapesAt(at)
	if err != nil {
		return err
	}
	for _, s := range there {
		switch {
		case !s.alive:
			// What a dead owner left is in the way.
			if err := lab.CleanLab(ctx.Context, lab.StateDir(), s.Name, undo()); err != nil {
				return err
			}
		case ctx.IsSet("name") && s.Name != name:
			return lab.Hint(usage("%s of %s is shaped already, under the name %s", at.Interface, at.Name, s.Name), "leave out --name, or use that one")
		default:
			link.From = *s.Shape
			return c.reshape(ctx, s.State, link)
		}
	}
	if ctx.Bool("foreground") {
		return hold(func(int) error { unlock(); return nil })
	}
	return c.background(ctx.Context, hold)
}

// namedPlace finds what --netns, --dev and --to name.
func namedPlace(ctx *cli.Context) (at place, link netem.Link, err error) {
	for _, n := range []string{"netns", "dev", "to"} {
		if !ctx.IsSet(n) || n != "to" && ctx.String(n) == "" {
			return at, link, lab.Hint(usage("shape set needs --%s", n), ctx.Command.HelpName+" --help shows how it is used")
		}
	}
	to, err := targets(ctx.StringSlice("to"))
	if err != nil {
		return at, link, err
	}
	if at, err = findPlace(ctx.String("netns"), ctx.String("dev")); err != nil {
		return at, link, err
	}
	return at, netem.Link{From: at.Endpoint, To: to.endpoint(), Match: to}, nil
}

// reshape changes or adds a link of a shape that another process owns.
func (c *command) reshape(ctx *cli.Context, s lab.State, link netem.Link) error {
	b, err := dialLinks(s)
	if err != nil {
		return err
	}
	defer b.Close()
	states, err := change(ctx.Context, b, []netem.Link{link})
	if err != nil {
		return lab.Hint(err, "begin anew: faultlab shape clear "+s.Name)
	}
	return c.showShape(ctx, s.Name, b.Name(), states)
}

// holdShape shapes until ctx ends.
func (c *command) holdShape(ctx *cli.Context, name string, at place, kind emulatorKind, link netem.Link, ready func(int) error) (err error) {
	j, err := lab.NewJournal(lab.StateDir(), name)
	if err != nil {
		return err
	}
	defer func() {
		uctx, cancel := context.WithTimeout(context.WithoutCancel(ctx.Context), 10*time.Second)
		defer cancel()
		err = errors.Join(err, j.Undo(uctx, undo()))
	}()
	if err := at.look(); err != nil {
		return err
	}
	if err := at.announce(j); err != nil {
		return err
	}
	b, release, err := serveLinks(j.Dir(), func() (emulatorKind, error) { return kind, nil })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	states, err := change(ctx.Context, b, []netem.Link{link})
	if err != nil {
		return err
	}
	if sameFile(at.Netns, "/proc/1/ns/net") {
		fmt.Fprintln(c.stderr, "note: this is the machine's own network")
	}
	s := lab.State{Name: name, PID: os.Getpid(), Started: time.Now().UTC(), Shape: &at.Endpoint}
	if err := s.Save(j.Dir()); err != nil {
		return err
	}
	if err := c.showShape(ctx, name, b.Name(), states); err != nil {
		return err
	}
	if err := ready(exitOK); err != nil {
		return err
	}
	if at.Container != "" {
		if err := followContainer(ctx.Context, j, b, s, at, []netem.Link{link}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	if ctx.Bool("foreground") {
		return ctx.Err()
	}
	return nil
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// showShape tells what shape set has done.
func (c *command) showShape(ctx *cli.Context, name, emulator string, states []netem.LinkState) error {
	if ctx.Bool("json") {
		return writeJSON(c.stdout, shown{Name: name, Emulator: emulator, Links: rowsOf(states)})
	}
	if err := linkTable(c.stdout, rowsOf(states)); err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "\nthese packets only, on their way out; undo: faultlab shape clear %s\n", name)
	return nil
}

// shapeName is a name that says where it is.
func shapeName(dev, ns string) string {
	name := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower("shape-"+dev+"-"+filepath.Base(ns)), "-")
	return strings.Trim(name[:min(len(name), 48)], "-")
}

// foreign is a shape, seen from outside.
type foreign struct {
	lab.State
	place
	alive bool
}

// shapes lists those that there are, by name.
func shapes() ([]foreign, error) {
	labs, err := lab.Labs(lab.StateDir())
	if err != nil {
		return nil, err
	}
	var out []foreign
	for name, alive := range labs {
		entries, err := lab.ReadJournal(lab.StateDir(), name)
		if err != nil {
			continue // it has just gone
		}
		i := len(entries) - 1 // the last is where it is now
		for i >= 0 && entries[i].Kind != undoPlace {
			i--
		}
		if i < 0 {
			continue
		}
		f := foreign{State: lab.State{Name: name}, alive: alive}
		if err := json.Unmarshal([]byte(entries[i].ID), &f.place); err != nil {
			return nil, fmt.Errorf("journal of %s: %w", name, err)
		}
		if s, err := lab.LoadState(lab.StateDir(), name); err == nil {
			f.State = s
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b foreign) int { return strings.Compare(a.State.Name, b.State.Name) })
	return out, nil
}

// shapesAt are those at the place.
func shapesAt(p place) ([]foreign, error) {
	all, err := shapes()
	return slices.DeleteFunc(all, func(f foreign) bool {
		return f.Dev != p.Dev || f.Ino != p.Ino || f.place.Interface != p.Interface
	}), err
}

func (c *command) shapeShow(ctx *cli.Context) error {
	if err := exactly(ctx, "[NAME]"); err != nil {
		return err
	}
	all, err := shapes()
	if err != nil {
		return err
	}
	if ctx.NArg() == 1 {
		if all, err = shapesNamed(all, ctx.Args().Slice()); err != nil {
			return err
		}
	}
	type entry struct {
		shown
		Netns  string `json:"netns"`
		Device string `json:"dev"`
		Alive  bool   `json:"alive"`
		// Of a container that was started anew.
		Restarts int       `json:"restarts,omitempty"`
		Since    time.Time `json:"since,omitzero"`
	}
	out := []entry{}
	var found []measured
	for _, f := range all {
		e := entry{Netns: f.Netns, Device: f.place.Interface, Alive: f.alive, Restarts: f.Restarts, Since: f.Since}
		e.Links = []linkRow{}
		if f.alive {
			b, err := dialLinks(f.State)
			if err != nil {
				return err
			}
			e.shown, err = look(ctx.Context, b)
			b.Close()
			if err != nil {
				return lab.Hint(err, "faultlab shape clear "+f.State.Name)
			}
			sortLinks(e.states, nil)
			e.Links = rowsOf(e.states)
			if ctx.Bool("measure") {
				if e.Measured, err = c.measureLinks(ctx.Context, e.states); err != nil {
					return err
				}
				found = append(found, e.Measured...)
			}
		}
		e.Name = f.State.Name
		out = append(out, e)
	}
	if ctx.Bool("json") {
		if err := writeJSON(c.stdout, out); err != nil {
			return err
		}
		return verdictOf(found)
	}
	if len(out) == 0 {
		fmt.Fprintln(c.stdout, "nothing is shaped; shape something: faultlab shape set --netns NAME --dev eth0 --to CIDR 'delay 1ms'")
		return nil
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SHAPE\tNETNS\tDEV\tTO\tPACKETS\tDROPPED\tASKED")
	for _, e := range out {
		why := "nothing: the interface is gone (faultlab shape clear " + e.Name + ")"
		if !e.Alive {
			why = "dead (faultlab clean)"
		}
		if len(e.Links) == 0 {
			fmt.Fprintf(w, "%s\t%s\t%s\t-\t-\t-\t%s\n", e.Name, filepath.Base(e.Netns), e.Device, why)
		}
		for _, r := range e.Links {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", e.Name, r.From, e.Device, r.To, r.Packets, r.Dropped, r.Asked)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, e := range out {
		if e.Restarts > 0 {
			fmt.Fprintf(c.stdout, "%s: the container was started anew (times: %d), and last shaped again at %s: what it sent before was not\n",
				e.Name, e.Restarts, e.Since.Local().Format(time.TimeOnly))
		}
		if e.Overrun > 0 {
			fmt.Fprintf(c.stdout, "%s: the emulator lost %d packets that nobody asked it to drop\n", e.Name, e.Overrun)
		}
	}
	if ctx.Bool("measure") {
		return c.tellMeasured(found)
	}
	return nil
}

// shapesNamed picks shapes by their names.
func shapesNamed(all []foreign, names []string) (out []foreign, err error) {
	var known []string
	for _, f := range all {
		known = append(known, f.State.Name)
	}
	for _, n := range names {
		i := slices.Index(known, n)
		if i < 0 {
			hint := "nothing is shaped"
			if len(known) > 0 {
				hint = "there are: " + strings.Join(known, ", ")
			}
			return nil, lab.Hint(fmt.Errorf("there is no shape %q", n), hint)
		}
		out = append(out, all[i])
	}
	return out, nil
}

func (c *command) shapeClear(ctx *cli.Context) error {
	if ctx.Bool("all") == ctx.Args().Present() {
		return lab.Hint(usage("shape clear takes the name of a shape, or --all"), "faultlab shape show lists them")
	}
	all, err := shapes()
	if err == nil && !ctx.Bool("all") {
		all, err = shapesNamed(all, ctx.Args().Slice())
	}
	if err != nil {
		return err
	}
	for _, f := range all {
		if f.alive {
			if f.PID == 0 || !holds(f.PID, filepath.Join(lab.StateDir(), f.State.Name)) {
				return fmt.Errorf("shape %s is just being made", f.State.Name)
			}
			if err := endOwner(ctx.Context, f.PID, []string{f.State.Name}); err != nil {
				return err
			}
		}
		if err := lab.CleanLab(ctx.Context, lab.StateDir(), f.State.Name, undo()); err != nil {
			return err
		}
		fmt.Fprintf(c.stderr, "%s is cleared\n", f.State.Name)
	}
	if len(all) == 0 {
		fmt.Fprintln(c.stderr, "nothing is shaped")
	}
	return nil
}
