// Package labtest owns the stand-ins for real labs: a provider whose nodes
// live in memory, and the contract suite that every provider passes.
package labtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
)

// Fake is a provider that needs no rights. Its nodes run no server: who
// connects is served by Serve. The zero value is ready to use; set fields before
// the first call.
type Fake struct {
	// PreflightError and OpenError, when set, are what these calls return.
	PreflightError, OpenError error
	// OnStart is called by every Start; an error is what Start returns, and
	// the node does not run.
	OnStart func(n *FakeNode, s lab.Start) error
	// OnStop is called by every Stop, before the node ends.
	OnStop func(n *FakeNode) error
	// Serve talks to one client and is told by conn when the node ends. Nil
	// greets and hangs up.
	Serve func(n *FakeNode, conn net.Conn)

	mu   sync.Mutex
	labs map[string]*fakeLab
}

var _ lab.Provider = (*Fake)(nil)

func (f *Fake) Name() string { return "fake" }

func (f *Fake) Preflight(ctx context.Context, spec lab.Spec) error {
	return errors.Join(check(spec), f.PreflightError)
}

func check(spec lab.Spec) error {
	if err := lab.CheckName(spec.Name); err != nil {
		return err
	}
	if len(spec.Nodes) == 0 {
		return fmt.Errorf("lab %s has no nodes", spec.Name)
	}
	var names []string
	for _, n := range spec.Nodes {
		if err := lab.CheckName(n.Name); err != nil {
			return err
		}
		if slices.Contains(names, n.Name) {
			return fmt.Errorf("lab %s: node name %s is used twice", spec.Name, n.Name)
		}
		names = append(names, n.Name)
	}
	return nil
}

// OpenLabs are the names of the labs that are open.
func (f *Fake) OpenLabs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for n := range f.labs {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (f *Fake) Open(ctx context.Context, spec lab.Spec) (lab.Lab, error) {
	if err := errors.Join(check(spec), ctx.Err(), f.OpenError); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.labs[spec.Name] != nil {
		return nil, fmt.Errorf("%w: %s", lab.ErrTaken, spec.Name)
	}
	dir, err := os.MkdirTemp("", "faultlab-fake-")
	if err != nil {
		return nil, err
	}
	l := &fakeLab{fake: f, name: spec.Name, dir: dir}
	for i, ns := range spec.Nodes {
		a := lab.Subnet4.Addr().As4()
		a[3] = byte(11 + i)
		l.nodes = append(l.nodes, &FakeNode{fake: f, lab: l, spec: ns, addr: netip.AddrFrom4(a)})
	}
	if f.labs == nil {
		f.labs = map[string]*fakeLab{}
	}
	f.labs[spec.Name] = l
	return l, nil
}

type fakeLab struct {
	fake  *Fake
	name  string
	dir   string
	nodes []*FakeNode
}

func (l *fakeLab) Name() string       { return l.name }
func (l *fakeLab) Dir() string        { return l.dir }
func (l *fakeLab) Client() lab.Client { return fakeClient{l} }

func (l *fakeLab) Nodes() []lab.Node {
	nodes := make([]lab.Node, len(l.nodes))
	for i, n := range l.nodes {
		nodes[i] = n
	}
	return nodes
}

func (l *fakeLab) Close(ctx context.Context) error {
	for _, n := range l.nodes {
		n.mu.Lock()
		n.closed = true
		n.mu.Unlock()
		n.Kill()
	}
	l.fake.mu.Lock()
	if l.fake.labs[l.name] == l {
		delete(l.fake.labs, l.name)
	}
	l.fake.mu.Unlock()
	return os.RemoveAll(l.dir)
}

type fakeClient struct{ lab *fakeLab }

func (c fakeClient) Endpoint() netem.Endpoint {
	a := lab.Subnet4.Addr().As4()
	a[3] = 9
	return c.lab.endpoint("client", netip.AddrFrom4(a))
}

func (l *fakeLab) endpoint(name string, a netip.Addr) netem.Endpoint {
	return netem.Endpoint{Name: name, Netns: filepath.Join(l.dir, name), Interface: "eth0", Addr: a}
}

func (c fakeClient) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = syscall.ECONNREFUSED
		for _, n := range c.lab.nodes {
			if n.Addr() == to.String() {
				if conn, ok := n.connect(); ok {
					return conn, nil
				}
			}
		}
	}
	return nil, &net.OpError{Op: "dial", Net: network, Err: err}
}

// FakeNode is a node that runs no server.
type FakeNode struct {
	fake *Fake
	lab  *fakeLab
	spec lab.NodeSpec
	addr netip.Addr

	mu     sync.Mutex
	closed bool
	done   chan struct{} // nil before the first Start
	conns  []net.Conn
	starts []lab.Start
	log    strings.Builder
}

var _ lab.Node = (*FakeNode)(nil)

func (n *FakeNode) Name() string             { return n.spec.Name }
func (n *FakeNode) Site() string             { return n.spec.Site }
func (n *FakeNode) Flavor() lab.Flavor       { return n.spec.Flavor }
func (n *FakeNode) Addr() string             { return netip.AddrPortFrom(n.addr, 3306).String() }
func (n *FakeNode) Endpoint() netem.Endpoint { return n.lab.endpoint(n.Name(), n.addr) }

// Starts is what the node was started with, each time.
func (n *FakeNode) Starts() []lab.Start {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.starts)
}

// running reports whether the node runs; n.mu is held.
func (n *FakeNode) running() bool {
	if n.done == nil {
		return false
	}
	select {
	case <-n.done:
		return false
	default:
		return true
	}
}

func (n *FakeNode) Start(ctx context.Context, s lab.Start) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.fake.OnStart != nil {
		if err := n.fake.OnStart(n, s); err != nil {
			return fmt.Errorf("node %s: %w", n.Name(), err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fmt.Errorf("node %s: the lab is closed", n.Name())
	}
	if n.running() {
		return fmt.Errorf("node %s runs already", n.Name())
	}
	n.done = make(chan struct{})
	n.starts = append(n.starts, s)
	fmt.Fprintf(&n.log, "start %d\n", len(n.starts))
	return nil
}

func (n *FakeNode) connect() (net.Conn, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.running() {
		return nil, false
	}
	ours, theirs := net.Pipe()
	n.conns = append(n.conns, ours)
	go func() {
		defer ours.Close()
		if n.fake.Serve != nil {
			n.fake.Serve(n, ours)
			return
		}
		fmt.Fprintf(ours, "%s of %s\n", n.Name(), n.lab.name)
	}()
	return theirs, true
}

func (n *FakeNode) Stop(ctx context.Context) error {
	if n.fake.OnStop != nil {
		if err := n.fake.OnStop(n); err != nil {
			return fmt.Errorf("node %s: %w", n.Name(), err)
		}
	}
	return n.Kill()
}

func (n *FakeNode) Kill() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running() {
		close(n.done)
		n.log.WriteString("end\n")
	}
	for _, c := range n.conns {
		c.Close()
	}
	n.conns = nil
	return nil
}

func (n *FakeNode) Done() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.done
}

func (n *FakeNode) Log(max int) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.log.String()
	return s[len(s)-min(max, len(s)):]
}
