// Package process owns the provider that needs nothing but Linux and root:
// servers are processes of this machine, each in a network namespace of its
// own, on a bridge in a private switch namespace. The machine's own network is
// never touched.
package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/server"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

// NodeArg is the hidden argument that starts NodeMain.
const NodeArg = server.JailArg

// NodeMain is what the program runs when its first argument is NodeArg: a
// node's server in the making. It does not return.
func NodeMain() { server.JailMain() }

// Provider builds labs of processes in network namespaces.
type Provider struct {
	Servers server.Store
	// StateDir holds a folder for every lab; empty is lab.StateDir().
	StateDir string
	// Report, which may be nil, is told of steps that take long.
	Report func(step string)
}

var _ lab.Provider = (*Provider)(nil)

func (p *Provider) Name() string { return "process" }

func (p *Provider) stateDir() string {
	if p.StateDir != "" {
		return p.StateDir
	}
	return lab.StateDir()
}

const (
	bridge = "br0"
	iface  = "eth0"
)

// Preflight says why this machine cannot run the lab. It makes nothing.
func (p *Provider) Preflight(ctx context.Context, spec lab.Spec) error {
	if err := check(spec); err != nil {
		return err
	}
	if err := checkNamespaces(); err != nil {
		return err
	}
	for _, f := range flavors(spec) {
		if _, err := p.Servers.Find(ctx, f); err != nil {
			return err
		}
	}
	if err := lab.CheckMemory(len(spec.Nodes)); err != nil {
		return err
	}
	if err := lab.CheckDisk(p.stateDir(), spec, "keep labs elsewhere: XDG_STATE_HOME=DIR"); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(p.stateDir(), spec.Name)); err == nil {
		return taken(spec.Name)
	}
	return checkNames(spec)
}

// check says what is wrong with the spec itself.
func check(spec lab.Spec) error {
	if err := lab.CheckName(spec.Name); err != nil {
		return err
	}
	if len(spec.Nodes) == 0 || len(spec.Nodes) > 200 {
		return fmt.Errorf("lab %s: %d nodes, want 1 to 200", spec.Name, len(spec.Nodes))
	}
	seen := map[string]bool{switchName: true, clientName: true}
	for _, n := range spec.Nodes {
		if err := lab.CheckName(n.Name); err != nil {
			return err
		}
		if seen[n.Name] {
			return fmt.Errorf("lab %s: node name %s is used twice or reserved", spec.Name, n.Name)
		}
		seen[n.Name] = true
	}
	return nil
}

const (
	switchName = "switch"
	clientName = "client"
)

// namespace is the name of a lab member's network namespace.
func namespace(labName, member string) string { return "faultlab-" + labName + "-" + member }

func namespaces(spec lab.Spec) []string {
	names := []string{namespace(spec.Name, switchName), namespace(spec.Name, clientName)}
	for _, n := range spec.Nodes {
		names = append(names, namespace(spec.Name, n.Name))
	}
	return names
}

// checkNames fails if one of the lab's namespaces exists: whoever made it, it
// is not this lab's.
func checkNames(spec lab.Spec) error {
	for _, n := range namespaces(spec) {
		if _, err := os.Lstat(netns.Path(n)); err == nil {
			return lab.Hint(fmt.Errorf("%w: network namespace %s exists", lab.ErrTaken, n),
				"choose another lab name (--name), remove what dead runs left (faultlab clean), or remove it yourself: ip netns del "+n)
		}
	}
	return nil
}

func taken(name string) error {
	return lab.Hint(fmt.Errorf("%w: %s", lab.ErrTaken, name),
		"choose another name, or remove it: faultlab down "+name+", or faultlab clean if its owner is dead")
}

// checkNamespaces tries on a thread of its own, which then ends and takes with
// it what it made.
func checkNamespaces() error {
	err := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		err <- unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC)
	}()
	if err := <-err; err != nil {
		return lab.Hint(fmt.Errorf("%w make namespaces: %w", lab.ErrCannot, err), "run it as root: sudo faultlab ...")
	}
	return nil
}

func flavors(spec lab.Spec) []lab.Flavor {
	var out []lab.Flavor
	for _, n := range spec.Nodes {
		if !slices.Contains(out, n.Flavor) {
			out = append(out, n.Flavor)
		}
	}
	return out
}

// place is a lab member's name and addresses.
type place struct {
	name   string
	v4, v6 netip.Prefix
}

// layout gives everyone an address: node i of site s is 198.18.s.(10+i), and
// the client, at a site of its own or a node's, is the 9.
func layout(spec lab.Spec) (client place, nodes []place) {
	sites := []string{spec.Nodes[0].Site}
	count := map[string]int{}
	at := func(name, site string, host byte) place {
		s := slices.Index(sites, site)
		if s < 0 {
			s = len(sites)
			sites = append(sites, site)
		}
		a4, a6 := lab.Subnet4.Addr().As4(), lab.Subnet6.Addr().As16()
		a4[2], a4[3] = byte(s), host
		a6[7], a6[15] = byte(s), host
		return place{name, netip.PrefixFrom(netip.AddrFrom4(a4), lab.Subnet4.Bits()),
			netip.PrefixFrom(netip.AddrFrom16(a6), lab.Subnet6.Bits())}
	}
	for _, n := range spec.Nodes {
		nodes = append(nodes, at(n.Name, n.Site, byte(11+count[n.Site])))
		count[n.Site]++
	}
	site := spec.ClientSite
	if site == "" {
		site = spec.Nodes[0].Site
	}
	return at(clientName, site, 9), nodes
}

// Open makes the namespaces, the wires between them and a data directory for
// every node.
func (p *Provider) Open(ctx context.Context, spec lab.Spec) (_ lab.Lab, err error) {
	if err := check(spec); err != nil {
		return nil, err
	}
	l := &processLab{name: spec.Name, undo: Undo()}
	servers := map[lab.Flavor]server.Server{}
	seeds := map[lab.Flavor]string{}
	defer func() {
		if err != nil {
			l.release()
		}
	}()
	for _, f := range flavors(spec) {
		if servers[f], err = p.Servers.Find(ctx, f); err != nil {
			return nil, err
		}
		release, err := p.Servers.Hold(servers[f])
		if err != nil {
			return nil, err
		}
		l.releases = append(l.releases, release)
		if seeds[f], err = p.Servers.Seed(ctx, servers[f], p.Report); err != nil {
			return nil, err
		}
	}
	if err := checkNames(spec); err != nil {
		return nil, err
	}
	if l.journal, err = lab.NewJournal(p.stateDir(), spec.Name); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			// ctx may be what ended it.
			err = errors.Join(err, l.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err := l.build(ctx, spec, servers, seeds); err != nil {
		return nil, fmt.Errorf("lab %s: %w", spec.Name, err)
	}
	return l, nil
}

func (l *processLab) build(ctx context.Context, spec lab.Spec, servers map[lab.Flavor]server.Server, seeds map[lab.Flavor]string) error {
	clientPlace, places := layout(spec)
	hosts := ""
	for _, pl := range append([]place{clientPlace}, places...) {
		hosts += fmt.Sprintf("%s %s\n%s %s\n", pl.v4.Addr(), pl.name, pl.v6.Addr(), pl.name)
	}
	for _, pl := range append([]place{{name: switchName}, clientPlace}, places...) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.namespace(namespace(spec.Name, pl.name)); err != nil {
			return err
		}
	}
	sw := netns.Path(namespace(spec.Name, switchName))
	if err := netns.Bridge(sw, bridge); err != nil {
		return err
	}
	for i, pl := range append([]place{clientPlace}, places...) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := netns.Join(sw, bridge, fmt.Sprintf("port%d", i), netns.Path(namespace(spec.Name, pl.name)), iface,
			[]netip.Prefix{pl.v4, pl.v6}, mac(pl.v4.Addr()))
		if err != nil {
			return err
		}
	}
	l.client = client{endpoint(spec.Name, clientPlace)}

	nodesDir := filepath.Join(l.Dir(), "nodes")
	if err := os.Mkdir(nodesDir, 0o755); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	for i, ns := range spec.Nodes {
		n := &node{
			spec: ns, endpoint: endpoint(spec.Name, places[i]), hosts: hosts,
			dir: filepath.Join(nodesDir, ns.Name), server: servers[ns.Flavor],
		}
		l.nodes = append(l.nodes, n)
		g.Go(func() error { return n.prepare(gctx, seeds[ns.Flavor]) })
	}
	return g.Wait()
}

// namespace makes a namespace that the journal knows of. Should the name turn
// out to be taken this late, its owner keeps it.
func (l *processLab) namespace(name string) error {
	if err := l.journal.Add(undoNetns, name); err != nil {
		return err
	}
	err := netns.Create(name)
	if errors.Is(err, fs.ErrExist) {
		remove := l.undo[undoNetns]
		l.undo[undoNetns] = func(ctx context.Context, id string) error {
			if id == name {
				return nil
			}
			return remove(ctx, id)
		}
		return fmt.Errorf("%w: %w", lab.ErrTaken, err)
	}
	return err
}

// mac is locally administered and follows the address, so that captures of
// two runs look alike.
func mac(a netip.Addr) net.HardwareAddr {
	b := a.As4()
	return net.HardwareAddr{0x02, 0xfa, b[0], b[1], b[2], b[3]}
}

func endpoint(labName string, pl place) netem.Endpoint {
	return netem.Endpoint{Name: pl.name, Netns: netns.Path(namespace(labName, pl.name)), Interface: iface,
		Addr: pl.v4.Addr(), Addr6: pl.v6.Addr()}
}
