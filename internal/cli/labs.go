package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/mysql"
	"github.com/faultlab/faultlab/lab/server"
	"github.com/faultlab/faultlab/lab/topology"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
	"github.com/faultlab/faultlab/scenarios"
	"github.com/faultlab/faultlab/scenarios/engine"
)

func (c *command) up() *cli.Command {
	return &cli.Command{
		Name: "up", Usage: "start a lab and leave it running", ArgsUsage: "TOPOLOGY",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "name", Usage: "`NAME` of the lab (default: the topology's)"},
			&cli.IntFlag{Name: "nodes", Usage: "`N`umber of nodes (default: the topology's own)"},
			&cli.StringFlag{Name: "sites", Usage: "`A,B`: sites that the nodes are dealt to in turn"},
			&cli.BoolFlag{Name: "foreground", Usage: "stay, and take the lab down on Ctrl-C"},
			providerFlag, emulatorFlag, rootFlag, jsonFlag,
		}, dockerFlags...),
		Action: func(ctx *cli.Context) error {
			if err := exactly(ctx, "TOPOLOGY"); err != nil {
				return err
			}
			t, err := findTopology(ctx.Args().First())
			if err != nil {
				return err
			}
			spec, err := upSpec(ctx, t)
			if err != nil {
				return err
			}
			if ctx.Bool("foreground") {
				return c.hold(ctx, t, spec, func(int) error { return nil })
			}
			return c.background(ctx.Context, func(ready func(int) error) error { return c.hold(ctx, t, spec, ready) })
		},
	}
}

func findTopology(name string) (lab.Topology, error) {
	all := topology.All()
	if t, ok := all[name]; ok {
		return t, nil
	}
	var names []string
	for n := range all {
		names = append(names, n)
	}
	sort.Strings(names)
	return nil, lab.Hint(usage("there is no topology %q", name), scenarios.Suggest(name, names))
}

func upSpec(ctx *cli.Context, t lab.Topology) (lab.Spec, error) {
	spec := lab.Spec{Name: ctx.String("name")}
	if spec.Name == "" {
		spec.Name = t.Name()
	}
	if err := lab.CheckName(spec.Name); err != nil {
		return spec, usage("%s", err)
	}
	n := t.NodeCount()
	if ctx.IsSet("nodes") {
		n = ctx.Int("nodes")
	}
	if err := t.CheckNodes(n); err != nil {
		return spec, usage("%s", err)
	}
	var sites []string
	if s := ctx.String("sites"); s != "" {
		sites = strings.Split(s, ",")
	}
	for i := range n {
		node := lab.NodeSpec{Name: fmt.Sprintf("n%d", i+1), Flavor: t.Flavor()}
		if len(sites) > 0 {
			node.Site = strings.TrimSpace(sites[i%len(sites)])
			if err := lab.CheckName(node.Site); err != nil {
				return spec, usage("site: %s", err)
			}
		}
		spec.Nodes = append(spec.Nodes, node)
	}
	return spec, nil
}

// hold brings a lab up, says how to connect, and keeps it until ctx ends.
func (c *command) hold(ctx *cli.Context, t lab.Topology, spec lab.Spec, ready func(int) error) (err error) {
	began := time.Now()
	step := func(s string) { fmt.Fprintf(c.stderr, "%6.1f s  %s\n", time.Since(began).Seconds(), s) }
	p, err := provider(ctx, step)
	if err != nil {
		return err
	}
	emulator, err := labEmulator(ctx)
	if err != nil {
		return err
	}
	if err := p.Preflight(ctx.Context, spec); err != nil {
		return err
	}
	step("lab " + spec.Name)
	l, err := p.Open(ctx.Context, spec)
	if err != nil {
		return err
	}
	defer func() {
		dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx.Context), 10*time.Second)
		defer cancel()
		err = errors.Join(err, l.Close(dctx))
	}()
	cluster := &lab.Cluster{Lab: l, Topology: t.Name(), Credentials: engine.NewCredentials()}
	bctx, cancel := context.WithTimeout(ctx.Context, 3*time.Minute)
	defer cancel()
	if err := t.Bootstrap(bctx, cluster, step); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	_, release, err := serveLinks(l.Dir(), emulator)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := lab.SaveState(cluster, p.Name()); err != nil {
		return err
	}
	step("ready")
	s, err := lab.LoadState(filepath.Dir(l.Dir()), spec.Name)
	if err != nil {
		return err
	}
	if ctx.Bool("json") {
		err = json.NewEncoder(c.stdout).Encode(redacted(s))
	} else {
		err = c.howTo(s)
	}
	if err != nil {
		return err
	}
	if err := ready(exitOK); err != nil {
		return err
	}
	<-ctx.Done()
	if ctx.Bool("foreground") {
		return ctx.Err()
	}
	return nil
}

// howTo says how to reach a lab.
func (c *command) howTo(s lab.State) error {
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nNODE\tSITE\tADDRESS\tNAMESPACE\n")
	for _, n := range s.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", n.Name, orDash(n.Site), n.Addr, netnsName(n.Endpoint))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, `
shell      faultlab sql %[1]s %[2]s
load       faultlab load oltp_write_only prepare --lab %[1]s
           faultlab load oltp_write_only run --lab %[1]s
programs   %[3]s COMMAND     (user and password: %[4]s)
links      faultlab link set %[1]s client nodes 'rtt 1ms'
take down  faultlab down %[1]s
`, s.Name, s.Nodes[0].Name, enter(s.Client.Endpoint), filepath.Join(lab.StateDir(), s.Name, "lab.json"))
	return nil
}

// netnsName is how people call an endpoint's network namespace: by name, or by
// its path if it has none.
func netnsName(e netem.Endpoint) string {
	if name := filepath.Base(e.Netns); e.Netns == netns.Path(name) {
		return name
	}
	return e.Netns
}

// enter is the command that runs another in the endpoint's network namespace.
func enter(e netem.Endpoint) string {
	if name := netnsName(e); name != e.Netns {
		return "ip netns exec " + name
	}
	return "nsenter --net=" + e.Netns
}

// redacted is a state without its password: that stays in the lab's own file.
func redacted(s lab.State) lab.State {
	s.Credentials.Password = ""
	return s
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// attach makes a cluster of a lab that another process owns.
func attach(s lab.State) *lab.Cluster {
	a := &attached{state: s}
	for _, n := range s.Nodes {
		a.nodes = append(a.nodes, attachedNode{n, make(chan struct{})})
	}
	return &lab.Cluster{Lab: a, Topology: s.Topology, Credentials: s.Credentials}
}

// attached is a lab seen from outside: it can be asked, not changed.
type attached struct {
	state lab.State
	nodes []lab.Node
}

var errAttached = errors.New("the lab belongs to another process")

func (a *attached) Name() string                { return a.state.Name }
func (a *attached) Dir() string                 { return filepath.Join(lab.StateDir(), a.state.Name) }
func (a *attached) Nodes() []lab.Node           { return a.nodes }
func (a *attached) Client() lab.Client          { return attachedClient{a.state.Client.Endpoint} }
func (a *attached) Close(context.Context) error { return errAttached }

type attachedClient struct{ endpoint netem.Endpoint }

func (c attachedClient) Endpoint() netem.Endpoint { return c.endpoint }
func (c attachedClient) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return netns.Dial(ctx, c.endpoint.Netns, network, addr)
}

type attachedNode struct {
	state lab.StateNode
	done  chan struct{} // never closed: whether it answers is all that is known
}

func (n attachedNode) Name() string                           { return n.state.Name }
func (n attachedNode) Site() string                           { return n.state.Site }
func (n attachedNode) Endpoint() netem.Endpoint               { return n.state.Endpoint }
func (n attachedNode) Addr() string                           { return n.state.Addr }
func (n attachedNode) Flavor() lab.Flavor                     { return n.state.Flavor }
func (n attachedNode) Start(context.Context, lab.Start) error { return errAttached }
func (n attachedNode) Stop(context.Context) error             { return errAttached }
func (n attachedNode) Kill() error                            { return errAttached }
func (n attachedNode) Done() <-chan struct{}                  { return n.done }
func (n attachedNode) Log(int) string                         { return "" }

func (c *command) status() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "nodes, roles, health and shaped links of running labs", ArgsUsage: "[LAB]",
		Flags: []cli.Flag{jsonFlag},
		Action: func(ctx *cli.Context) error {
			if err := exactly(ctx, "[LAB]"); err != nil {
				return err
			}
			if ctx.NArg() == 0 {
				return c.statusAll(ctx)
			}
			s, err := lab.LoadState(lab.StateDir(), ctx.Args().First())
			if err != nil {
				return err
			}
			if s.Shape != nil {
				return c.shapeShow(ctx)
			}
			t, err := findTopology(s.Topology)
			if err != nil {
				return err
			}
			h := t.Health(ctx.Context, attach(s))
			links, linksErr := shapedLinks(ctx.Context, s)
			if ctx.Bool("json") {
				return writeJSON(c.stdout, struct {
					lab.State
					Health lab.Health `json:"health"`
					Links  []linkRow  `json:"links"`
				}{redacted(s), h, links})
			}
			w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintf(w, "NODE\tROLE\tSTATE\tADDRESS\tBEHIND\tVERSION\tPROBLEMS\n")
			for i, n := range h.Nodes {
				lag := "-"
				if n.Lag >= 0 {
					lag = fmt.Sprint(n.Lag)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, n.Role, n.State, s.Nodes[i].Addr, lag, orDash(n.Version), orDash(strings.Join(n.Problems, "; ")))
			}
			if err := w.Flush(); err != nil {
				return err
			}
			if linksErr != nil {
				fmt.Fprintf(c.stdout, "\nlinks: %s\n", linksErr)
			} else if len(links) > 0 {
				fmt.Fprintln(c.stdout)
				if err := linkTable(c.stdout, links); err != nil {
					return err
				}
			}
			if p := h.Problems(); len(p) > 0 {
				return &exit{exitFailed, nil}
			}
			return nil
		},
	}
}

func (c *command) statusAll(ctx *cli.Context) error {
	labs, err := lab.Labs(lab.StateDir())
	if err != nil {
		return err
	}
	type entry struct {
		Name     string    `json:"name"`
		Topology string    `json:"topology,omitempty"`
		Nodes    int       `json:"nodes,omitempty"`
		Started  time.Time `json:"started,omitzero"`
		Alive    bool      `json:"alive"`
	}
	out := []entry{}
	for name, alive := range labs {
		e := entry{Name: name, Alive: alive}
		if s, err := lab.LoadState(lab.StateDir(), name); err == nil {
			e.Topology, e.Nodes, e.Started = s.Topology, len(s.Nodes), s.Started
			if s.Shape != nil {
				e.Topology = "shape of " + s.Shape.Interface + " in " + s.Shape.Name
			}
		}
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	if ctx.Bool("json") {
		return writeJSON(c.stdout, out)
	}
	if len(out) == 0 {
		fmt.Fprintln(c.stdout, "no labs; start one: faultlab up mgr")
		return nil
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "LAB\tTOPOLOGY\tNODES\tUP\tOWNER\n")
	for _, e := range out {
		owner, up, nodes := "dead (faultlab clean)", "-", "-"
		if e.Alive {
			owner = "alive"
		}
		if !e.Started.IsZero() {
			up = time.Since(e.Started).Round(time.Second).String()
		}
		if e.Nodes > 0 {
			nodes = fmt.Sprint(e.Nodes)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.Name, orDash(e.Topology), nodes, up, owner)
	}
	return w.Flush()
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (c *command) sql() *cli.Command {
	return &cli.Command{
		Name: "sql", Usage: "client shell on a node, or one statement", ArgsUsage: "LAB NODE [SQL]",
		Flags: []cli.Flag{jsonFlag, rootFlag},
		Action: func(ctx *cli.Context) error {
			if err := exactly(ctx, "LAB", "NODE", "[SQL]"); err != nil {
				return err
			}
			s, err := loadLab(ctx.Args().Get(0))
			if err != nil {
				return err
			}
			cluster := attach(s)
			n, err := node(s, cluster, ctx.Args().Get(1))
			if err != nil {
				return err
			}
			if ctx.NArg() == 3 {
				return c.statement(ctx, cluster, n, ctx.Args().Get(2))
			}
			return c.shell(ctx, s, n)
		},
	}
}

// node is the lab's node of that name.
func node(s lab.State, c *lab.Cluster, name string) (lab.Node, error) {
	n, ok := c.Node(name)
	if !ok {
		var names []string
		for _, n := range s.Nodes {
			names = append(names, n.Name)
		}
		return nil, lab.Hint(usage("lab %s has no node %q", s.Name, name), "nodes: "+strings.Join(names, ", "))
	}
	return n, nil
}

// statement runs one statement and prints its rows.
func (c *command) statement(ctx *cli.Context, cluster *lab.Cluster, n lab.Node, query string) error {
	db, err := mysql.OpenNode(cluster, n, 0)
	if err != nil {
		return err
	}
	defer db.Close()
	columns, rows, err := mysql.Table(ctx.Context, db, query)
	if err != nil {
		return err
	}
	if ctx.Bool("json") {
		out := make([]map[string]*string, len(rows))
		for i, r := range rows {
			out[i] = map[string]*string{}
			for j, col := range columns {
				out[i][col] = r[j]
			}
		}
		return writeJSON(c.stdout, out)
	}
	if len(columns) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, v := range r {
			cells[i] = "NULL"
			if v != nil {
				cells[i] = strings.NewReplacer("\t", `\t`, "\n", `\n`).Replace(*v)
			}
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// shell runs the server's own client program from the lab's client.
func (c *command) shell(ctx *cli.Context, s lab.State, n lab.Node) error {
	srv, err := servers(ctx).Find(ctx.Context, n.Flavor())
	if err != nil {
		return err
	}
	if srv.Client == "" {
		return lab.Hint(fmt.Errorf("%s %s has no client program", srv.Flavor, srv.Version),
			fmt.Sprintf("give the statement: faultlab sql %s %s 'SELECT 1'", s.Name, n.Name()))
	}
	in, inOK := c.stdin.(*os.File)
	out, outOK := c.stdout.(*os.File)
	errs, errsOK := c.stderr.(*os.File)
	if !inOK || !outOK || !errsOK {
		return errors.New("a client shell needs a terminal or files")
	}
	// The password goes through a pipe: command lines and environments can be
	// read by others.
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	host, port, _ := net.SplitHostPort(n.Addr())
	fmt.Fprintf(w, "[client]\nuser=%s\npassword=%s\nhost=%s\nport=%s\n", s.Credentials.User, s.Credentials.Password, host, port)
	w.Close()
	// The client opens it by its name, as the user that it has become.
	if err := r.Chown(server.UID, server.GID); err != nil {
		return err
	}
	p, err := server.Jail{
		Root: srv.Root, Netns: s.Client.Endpoint.Netns, Hostname: "client", Foreground: true,
		Args:  []string{srv.Client, fmt.Sprintf("--defaults-extra-file=/dev/fd/%d", server.ExtraFD), "--prompt=" + n.Name() + "> "},
		Env:   []string{"TERM=" + os.Getenv("TERM"), "MYSQL_HISTFILE=/dev/null"},
		Stdin: in, Stdout: out, Stderr: errs, Extra: []*os.File{r},
	}.Start()
	if err != nil {
		return err
	}
	<-p.Done()
	if p.Err() != nil {
		return &exit{exitFailed, nil}
	}
	return nil
}

func (c *command) down() *cli.Command {
	return &cli.Command{
		Name: "down", Usage: "take a lab down", ArgsUsage: "LAB | --all",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "every lab that was started with up or kept by run, and every shape"}},
		Action: func(ctx *cli.Context) error {
			labs, err := lab.Labs(lab.StateDir())
			if err != nil {
				return err
			}
			var names []string
			switch {
			case ctx.Bool("all") && ctx.NArg() == 0:
				for name := range labs {
					// A lab without a state belongs to a run, or is being built.
					if _, err := lab.LoadState(lab.StateDir(), name); err == nil || !labs[name] {
						names = append(names, name)
					}
				}
				sort.Strings(names)
			case !ctx.Bool("all") && ctx.NArg() > 0:
				names = ctx.Args().Slice()
				for _, n := range names {
					if _, ok := labs[n]; !ok {
						_, err := lab.LoadState(lab.StateDir(), n)
						return err
					}
				}
			default:
				return lab.Hint(usage("down takes the name of a lab, or --all"), "faultlab status lists the labs")
			}
			owners, err := ownersOf(names, labs)
			if err != nil {
				return err
			}
			for pid, owned := range owners {
				if err := endOwner(ctx.Context, pid, owned); err != nil {
					return err
				}
			}
			if _, err := lab.Clean(ctx.Context, lab.StateDir(), undo()); err != nil {
				return err
			}
			// Labs that one run kept go together.
			for _, owned := range owners {
				names = append(names, owned...)
			}
			slices.Sort(names)
			for _, n := range slices.Compact(names) {
				fmt.Fprintf(c.stderr, "%s is down\n", n)
			}
			if len(names) == 0 {
				fmt.Fprintln(c.stderr, "no labs to take down")
			}
			return nil
		},
	}
}

// ownersOf finds the processes that own the living labs among names, and for
// each all the labs that it owns.
func ownersOf(names []string, labs map[string]bool) (map[int][]string, error) {
	owned := map[int][]string{}
	for name, alive := range labs {
		if s, err := lab.LoadState(lab.StateDir(), name); alive && err == nil {
			owned[s.PID] = append(owned[s.PID], name)
		}
	}
	out := map[int][]string{}
	for _, name := range names {
		if !labs[name] {
			continue
		}
		s, err := lab.LoadState(lab.StateDir(), name)
		if err != nil {
			return nil, lab.Hint(fmt.Errorf("lab %s belongs to a run, or is being built", name), "stop that with Ctrl-C")
		}
		if !holds(s.PID, filepath.Join(lab.StateDir(), name)) {
			return nil, fmt.Errorf("lab %s: process %d does not own it", name, s.PID)
		}
		out[s.PID] = owned[s.PID]
	}
	return out, nil
}

// endOwner asks the process that owns labs to take them down, waits until it
// has ended, and ends it if it does not.
func endOwner(ctx context.Context, pid int, labs []string) error {
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("labs %s: end their owner, process %d: %w", strings.Join(labs, ", "), pid, err)
	}
	deadline := time.Now().Add(10*time.Second + 5*time.Second*time.Duration(len(labs)))
	for running(pid) {
		if time.Now().After(deadline) {
			// What it leaves, Clean removes.
			if holds(pid, lab.StateDir()) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// running reports whether a process has not ended: one that nobody has waited
// for yet has.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// holds reports whether a process has a file of the lab's folder open: a
// number alone could be anybody's by now.
func holds(pid int, dir string) bool {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return false
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, dir+"/") {
			return true
		}
	}
	return false
}
