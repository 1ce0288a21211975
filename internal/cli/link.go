package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/remote"
	"github.com/faultlab/faultlab/scenarios"
)

// Words for more than one end of a link.
const (
	allNodes = "nodes"
	allEnds  = "all"
)

// manyLinks are more than anyone reads line by line when all are the same.
const manyLinks = 30

// changeTimeout is longer than any change of links takes.
const changeTimeout = 30 * time.Second

const endsHelp = `FROM and TO are names of nodes, client, nodes (every node) or all (nodes and
client).`

func (c *command) link() *cli.Command {
	return &cli.Command{
		Name: "link", Usage: "shape the links of a running lab", ArgsUsage: "set|show|clear LAB",
		Subcommands: []*cli.Command{
			{
				Name: "set", Usage: "what is done to the packets from one node to another", ArgsUsage: "LAB FROM TO [IMPAIRMENT]",
				Description: endsHelp + " Both directions are shaped, unless --one-way is given. Links that\nare not named keep what they have.\n\n" + impairmentHelp + `

Examples:
   faultlab link set mylab n1 n2 'rtt 0.6ms'
   faultlab link set mylab client nodes --delay 300us --loss 0.1%
   faultlab link set mylab n1 nodes partition
   faultlab link set mylab n2 n1 --rate 10mbit --one-way`,
				Flags:  append(impairmentFlags(), &cli.BoolFlag{Name: "one-way", Usage: "only from FROM to TO"}, jsonFlag),
				Action: c.linkSet,
			},
			{
				Name: "show", Usage: "what was asked of links, and what they did", ArgsUsage: "LAB [FROM TO]",
				Description: endsHelp + ` --measure sends packets of its own for some seconds a
link, and fills those that have a rate. Exit code 4 says that something measured
is not what was asked.`,
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "measure", Usage: "probe the links, and show what is measured beside what was asked"}, jsonFlag},
				Action: c.linkShow,
			},
			{
				Name: "clear", Usage: "undo what was asked of links", ArgsUsage: "LAB [FROM TO]",
				Description: endsHelp + ` Both directions are cleared, unless --one-way is
given. Without names all are, and packets pass as if there were no emulator.`,
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "one-way", Usage: "only from FROM to TO"}},
				Action: c.linkClear,
			},
		},
		Action: func(ctx *cli.Context) error {
			if ctx.Args().Present() {
				return unknownCommand("faultlab link", ctx.Args().First(), ctx.Command.Subcommands)
			}
			return cli.ShowSubcommandHelp(ctx)
		},
	}
}

func (c *command) linkSet(ctx *cli.Context) error {
	if ctx.NArg() < 3 {
		return exactly(ctx, "LAB", "FROM", "TO", "[IMPAIRMENT]")
	}
	asked, roundTrip, err := askedFor(ctx, strings.Join(ctx.Args().Slice()[3:], " "))
	if err != nil {
		return err
	}
	oneWay := ctx.Bool("one-way")
	if oneWay && roundTrip {
		return lab.Hint(usage("rtt is there and back, and --one-way asks for one direction"),
			"write delay: --delay "+netem.FormatDuration(asked.Delay)+" is half of that rtt")
	}
	s, err := loadLab(ctx.Args().First())
	if err != nil {
		return err
	}
	links, err := linksOf(s, ctx.Args().Get(1), ctx.Args().Get(2), oneWay)
	if err != nil {
		return err
	}
	for i := range links {
		links[i].Impairment = asked
		if err := links[i].Validate(); err != nil {
			return usage("%s", err)
		}
	}
	b, err := dialLinks(s)
	if err != nil {
		return err
	}
	defer b.Close()
	states, err := change(ctx.Context, b, links)
	if err != nil {
		return lab.Hint(err, "faultlab link clear "+s.Name+" takes the emulator out of the way", "faultlab doctor shows what this machine can do")
	}
	if ctx.Bool("json") {
		return writeJSON(c.stdout, shown{Name: s.Name, Emulator: b.Name(), Links: rowsOf(states)})
	}
	if len(states) > manyLinks {
		fmt.Fprintf(c.stdout, "%d links, each: %s\n", len(states), asked)
		return nil
	}
	return linkTable(c.stdout, rowsOf(states))
}

// change applies links and reads them back: what is shown as done was found
// done.
func change(ctx context.Context, b netem.Backend, links []netem.Link) ([]netem.LinkState, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if err := b.Apply(ctx, links); err != nil {
		return nil, err
	}
	states, err := b.Show(ctx)
	if err != nil {
		return nil, err
	}
	var out []netem.LinkState
	for _, l := range links {
		i := slices.IndexFunc(states, func(s netem.LinkState) bool { return sameLink(s.Link, l) })
		if i < 0 {
			return nil, fmt.Errorf("link %s to %s is not shaped, though nothing failed", l.From.Name, l.To.Name)
		}
		out = append(out, states[i])
	}
	return out, nil
}

func sameLink(a, b netem.Link) bool { return a.From.Name == b.From.Name && a.To.Name == b.To.Name }

// loadLab finds a lab by its name; what shape has made is none.
func loadLab(name string) (lab.State, error) {
	s, err := lab.LoadState(lab.StateDir(), name)
	if err == nil && s.Shape != nil {
		return s, lab.Hint(usage("%s is no lab: it shapes a network that faultlab did not build", name), "faultlab shape show "+name)
	}
	return s, err
}

// linksOf lists the links that names of ends stand for, each direction by
// itself, with nothing asked of them.
func linksOf(s lab.State, from, to string, oneWay bool) ([]netem.Link, error) {
	a, err := ends(s, from)
	if err != nil {
		return nil, err
	}
	b, err := ends(s, to)
	if err != nil {
		return nil, err
	}
	var out []netem.Link
	add := func(x, y netem.Endpoint) {
		l := netem.Link{From: x, To: y}
		if x.Name != y.Name && !slices.ContainsFunc(out, func(o netem.Link) bool { return sameLink(o, l) }) {
			out = append(out, l)
		}
	}
	for _, x := range a {
		for _, y := range b {
			add(x, y)
			if !oneWay {
				add(y, x)
			}
		}
	}
	if len(out) == 0 {
		return nil, lab.Hint(usage("a link from %s to %s leads nowhere", from, to), "name two different ends: "+strings.Join(endNames(s), ", "))
	}
	return out, nil
}

func ends(s lab.State, name string) ([]netem.Endpoint, error) {
	var nodes []netem.Endpoint
	for _, n := range s.Nodes {
		if n.Name == name {
			return []netem.Endpoint{n.Endpoint}, nil
		}
		nodes = append(nodes, n.Endpoint)
	}
	switch name {
	case s.Client.Name:
		return []netem.Endpoint{s.Client.Endpoint}, nil
	case allNodes:
		return nodes, nil
	case allEnds:
		return append(nodes, s.Client.Endpoint), nil
	}
	return nil, lab.Hint(usage("lab %s has no node %q", s.Name, name), scenarios.Suggest(name, endNames(s)))
}

func endNames(s lab.State) []string {
	var out []string
	for _, n := range s.Nodes {
		out = append(out, n.Name)
	}
	return append(out, s.Client.Name, allNodes, allEnds)
}

func (c *command) linkShow(ctx *cli.Context) error {
	s, only, err := namedLinks(ctx, false)
	if err != nil {
		return err
	}
	b, err := dialLinks(s)
	if err != nil {
		return err
	}
	defer b.Close()
	out, err := look(ctx.Context, b)
	if err != nil {
		return lab.Hint(err, "faultlab link clear "+s.Name+" takes the emulator out of the way")
	}
	out.Name = s.Name
	states := slices.DeleteFunc(out.states, func(l netem.LinkState) bool {
		return only != nil && !slices.ContainsFunc(only, func(o netem.Link) bool { return sameLink(o, l.Link) })
	})
	sortLinks(states, endNames(s))
	out.Links = rowsOf(states)
	if ctx.Bool("measure") {
		if out.Measured, err = c.measureLinks(ctx.Context, states); err != nil {
			return err
		}
	}
	if ctx.Bool("json") {
		if err := writeJSON(c.stdout, out); err != nil {
			return err
		}
		return verdictOf(out.Measured)
	}
	if len(out.Links) == 0 {
		fmt.Fprintf(c.stdout, "no link is shaped; shape one: faultlab link set %s n1 %s 'rtt 1ms'\n", s.Name, allNodes)
		return nil
	}
	if err := linkTable(c.stdout, out.Links); err != nil {
		return err
	}
	if out.Overrun > 0 {
		fmt.Fprintf(c.stdout, "the emulator lost %d packets that nobody asked it to drop\n", out.Overrun)
	}
	if ctx.Bool("measure") {
		return c.tellMeasured(out.Measured)
	}
	return nil
}

// namedLinks reads LAB [FROM TO]; links is nil where no names were given.
func namedLinks(ctx *cli.Context, oneWay bool) (s lab.State, links []netem.Link, err error) {
	if err := exactly(ctx, "LAB", "[FROM", "[TO]]"); err != nil {
		return s, nil, err
	}
	if ctx.NArg() == 2 {
		return s, nil, lab.Hint(usage("%s needs TO beside FROM", strings.TrimPrefix(ctx.Command.HelpName, "faultlab ")), ctx.Command.HelpName+" --help shows how it is used")
	}
	if s, err = loadLab(ctx.Args().First()); err == nil && ctx.NArg() == 3 {
		links, err = linksOf(s, ctx.Args().Get(1), ctx.Args().Get(2), oneWay)
	}
	return s, links, err
}

func (c *command) linkClear(ctx *cli.Context) error {
	s, links, err := namedLinks(ctx, ctx.Bool("one-way"))
	if err != nil {
		return err
	}
	b, err := dialLinks(s)
	if err != nil {
		return err
	}
	defer b.Close()
	bctx, cancel := context.WithTimeout(ctx.Context, changeTimeout)
	defer cancel()
	if links == nil {
		if err := b.Clear(bctx); err != nil {
			return err
		}
		fmt.Fprintf(c.stderr, "links of %s are clear\n", s.Name)
		return nil
	}
	states, err := b.Show(bctx)
	if err != nil {
		return lab.Hint(err, "faultlab link clear "+s.Name+" clears all")
	}
	links, rest := toClear(states, links)
	switch {
	case len(links) == 0:
		fmt.Fprintln(c.stderr, "they were clear")
		return nil
	case rest == 0:
		err = b.Clear(bctx)
	default:
		_, err = change(bctx, b, links)
	}
	if err != nil {
		return err
	}
	for _, l := range links {
		fmt.Fprintf(c.stderr, "%s to %s is clear\n", l.From.Name, l.To.Name)
	}
	return nil
}

// toClear picks those of the links that are shaped, and counts what is asked of
// others: while there are any, what is cleared stays in the emulator's path,
// since nobody can leave it without a packet overtaking.
func toClear(states []netem.LinkState, named []netem.Link) (links []netem.Link, rest int) {
	for _, s := range states {
		if slices.ContainsFunc(named, func(n netem.Link) bool { return sameLink(n, s.Link) }) {
			l := s.Link
			l.Impairment = netem.Impairment{}
			links = append(links, l)
		} else if s.Impairment != (netem.Impairment{}) {
			rest++
		}
	}
	return links, rest
}

// shown is what link show and shape show tell as JSON.
type shown struct {
	Name     string    `json:"name"`
	Emulator string    `json:"emulator"`
	Links    []linkRow `json:"links"`
	// Overrun counts packets that the emulator lost without being asked to.
	Overrun  uint64     `json:"overrun"`
	Measured []measured `json:"measured,omitempty"`

	states []netem.LinkState
}

// linkRow is one directed link.
type linkRow struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Asked   string `json:"asked"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Dropped uint64 `json:"dropped"`
}

func look(ctx context.Context, b *remote.Client) (shown, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	states, err := b.Show(ctx)
	if err != nil {
		return shown{}, err
	}
	n, err := b.Counters(ctx)
	return shown{Emulator: b.Name(), Overrun: n.Overrun, states: states}, err
}

// shapedLinks are the rows of a lab's links that are shaped.
func shapedLinks(ctx context.Context, s lab.State) ([]linkRow, error) {
	b, err := dialLinks(s)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	out, err := look(ctx, b)
	if err != nil {
		return nil, err
	}
	sortLinks(out.states, endNames(s))
	return rowsOf(out.states), nil
}

// sortLinks orders links as the names of their ends are.
func sortLinks(states []netem.LinkState, names []string) {
	at := map[string]int{}
	for i, n := range names {
		at[n] = i
	}
	slices.SortFunc(states, func(a, b netem.LinkState) int {
		return cmp.Or(at[a.From.Name]-at[b.From.Name], at[a.To.Name]-at[b.To.Name],
			strings.Compare(a.From.Name, b.From.Name), strings.Compare(a.To.Name, b.To.Name))
	})
}

// rowsOf puts states into words.
func rowsOf(states []netem.LinkState) []linkRow {
	out := []linkRow{}
	for _, s := range states {
		out = append(out, linkRow{s.From.Name, s.To.Name, s.Impairment.String(), s.Packets, s.Bytes, s.Dropped})
	}
	return out
}

func linkTable(to io.Writer, rows []linkRow) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FROM\tTO\tPACKETS\tDROPPED\tASKED")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", r.From, r.To, r.Packets, r.Dropped, r.Asked)
	}
	return w.Flush()
}
