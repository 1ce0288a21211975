// Package netemtest owns the contract of netem.Backend as a test suite that
// every emulator passes, and the small networks that it runs in.
package netemtest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
	"github.com/faultlab/faultlab/netem/probe"
)

// Network makes n nodes on one switch, each in a namespace of its own and with
// addresses of both kinds, that end with the test. Without root the test is
// skipped.
func Network(t testing.TB, n int) []netem.Endpoint {
	t.Helper()
	return network(t, n, 0)
}

// network has packets of an MTU, 0 being the kernel's choice of 1,500.
func network(t testing.TB, n, mtu int) []netem.Endpoint {
	t.Helper()
	sw := newSwitch(t)
	var nodes []netem.Endpoint
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("n%d", i)
		e := endpoint(0, i, name, newNamespace(t, name))
		join(t, sw, e)
		if mtu > 0 {
			setMTU(t, sw, e.Name, mtu)
			setMTU(t, e.Netns, e.Interface, mtu)
		}
		nodes = append(nodes, e)
	}
	return nodes
}

func setMTU(t testing.TB, netns, name string, mtu int) {
	t.Helper()
	h := handle(t, netns)
	l, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetMTU(l, mtu)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// handle is a netlink connection into a namespace, for the time of the test.
func handle(t testing.TB, path string) *netlink.Handle {
	t.Helper()
	ns, err := vnetns.GetFromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// endpoint is a node's interface in one of several networks.
func endpoint(network, i int, name, netns string) netem.Endpoint {
	return netem.Endpoint{
		Name: name, Netns: netns, Interface: fmt.Sprintf("eth%d", network),
		Addr:  netip.AddrFrom4([4]byte{198, 18, byte(network), byte(i)}),
		Addr6: netip.MustParseAddr(fmt.Sprintf("2001:2:0:%x::%x", network, i)),
	}
}

func newNamespace(t testing.TB, suffix string) (path string) {
	t.Helper()
	name := fmt.Sprintf("flt-%d-%x-%s", os.Getpid(), serial.Add(1), suffix)
	t.Cleanup(func() {
		if err := netns.Delete(name); err != nil {
			t.Error(err)
		}
	})
	err := netns.Create(name)
	if errors.Is(err, netns.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return netns.Path(name)
}

func newSwitch(t testing.TB) (path string) {
	t.Helper()
	sw := newNamespace(t, "sw")
	if err := netns.Bridge(sw, "br0"); err != nil {
		t.Fatal(err)
	}
	return sw
}

func join(t testing.TB, sw string, e netem.Endpoint) {
	t.Helper()
	addrs := []netip.Prefix{netip.PrefixFrom(e.Addr, 24), netip.PrefixFrom(e.Addr6, 64)}
	if err := netns.Join(sw, "br0", e.Name, e.Netns, e.Interface, addrs, nil); err != nil {
		t.Fatal(err)
	}
}

var serial atomic.Uint32

// Link is one direction with a delay.
func Link(from, to netem.Endpoint, delay time.Duration) netem.Link {
	return netem.Link{From: from, To: to, Impairment: netem.Impairment{Delay: delay}}
}

// Both is a link and its way back, each with half of rtt.
func Both(a, b netem.Endpoint, rtt time.Duration) []netem.Link {
	return []netem.Link{Link(a, b, rtt/2), Link(b, a, rtt/2)}
}

// RTT is what n probes from a to b saw. None may be lost.
func RTT(t testing.TB, a, b netem.Endpoint, n int) probe.Stat {
	t.Helper()
	s, err := probe.Measure(context.Background(), probe.Pair{From: a, To: b}, n, 4*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if s.Lost > 0 {
		t.Errorf("%s to %s: %d of %d probes lost", a.Name, b.Name, s.Lost, s.Sent)
	}
	return s
}

// Backend runs the contract over an emulator; open gives a fresh one, which the
// suite closes. It takes some two minutes, and more where the kernel is slow.
//
// What is random is judged by exact binomial intervals of 99.9999%: the suite
// makes some hundred such judgements, so that not one run of ten thousand
// fails by chance, and every emulator that is off by a factor shows. What is a
// time has the tolerance of a shared machine, said beside it.
func Backend(t *testing.T, open func(t *testing.T) netem.Backend) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			e := &env{T: t, ctx: t.Context(), nodes: Network(t, c.nodes), b: open(t)}
			t.Cleanup(func() {
				if err := e.b.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			c.run(e)
		})
	}
}

// A contract is one thing that every emulator does.
type contract struct {
	name  string
	nodes int
	run   func(*env)
}

func cases() []contract {
	return slices.Concat(delayCases(), lossCases(), fateCases(), rateCases(), partitionCases(), changeCases(), linkCases())
}

// env is one case under way: a fresh emulator and a fresh network.
type env struct {
	*testing.T
	ctx   context.Context
	b     netem.Backend
	nodes []netem.Endpoint
}

// confidence of intervals, see Backend.
const confidence = 0.999999

// set makes the one direction from node 0 to node 1 as the text says.
func (e *env) set(text string) {
	e.Helper()
	e.apply(e.link(0, 1, text))
}

// link is from one node to another, with an impairment as text.
func (e *env) link(from, to int, text string) netem.Link {
	e.Helper()
	i, _, err := netem.Parse(text)
	if err != nil {
		e.Fatalf("%s: %v", text, err)
	}
	return netem.Link{From: e.nodes[from], To: e.nodes[to], Impairment: i}
}

func (e *env) apply(links ...netem.Link) {
	e.Helper()
	if err := e.b.Apply(e.ctx, links); err != nil {
		var all []string
		for _, l := range links {
			all = append(all, fmt.Sprintf("%s to %s: %s", l.From.Name, l.To.Name, l.Impairment))
		}
		e.Fatalf("Apply(%s): %v", strings.Join(all, ", "), err)
	}
}

func (e *env) clear() {
	e.Helper()
	if err := e.b.Clear(e.ctx); err != nil {
		e.Fatalf("Clear: %v", err)
	}
}

func (e *env) counters() netem.Counters {
	e.Helper()
	c, err := e.b.Counters(e.ctx)
	if err != nil {
		e.Fatalf("Counters: %v", err)
	}
	return c
}

// flow is what became of a stream from node 0 to node 1.
func (e *env) flow(s probe.Stream) probe.Flow {
	e.Helper()
	return e.flowOf(probe.Pair{From: e.nodes[0], To: e.nodes[1]}, s)
}

// flowOf also judges that the sender meets silence, whatever becomes of its
// packets.
func (e *env) flowOf(p probe.Pair, s probe.Stream) probe.Flow {
	e.Helper()
	f := e.overflow(p, s)
	if f.Refused > 0 {
		e.Errorf("the sender got an error for %d of %d packets, want silence", f.Refused, f.Sent)
	}
	return f
}

// overflow is a flow that may find a queue full. Where the queue is its own
// kernel's, the sender learns of that.
func (e *env) overflow(p probe.Pair, s probe.Stream) probe.Flow {
	e.Helper()
	f, err := probe.OneWay(e.ctx, p, s)
	if err != nil {
		e.Fatal(err)
	}
	if f.Missed > 0 {
		e.Fatalf("the measurement missed %d packets", f.Missed)
	}
	return f
}

func (e *env) rtt(a, b, n int) probe.Stat {
	e.Helper()
	return RTT(e.T, e.nodes[a], e.nodes[b], n)
}

// within judges a count of cases out of n by what its share was asked to be.
func (e *env) within(what string, k, n int, asked float64) {
	e.Helper()
	low, high := probe.Binomial(k, n, confidence)
	e.Logf("%s: %d of %d, %.3f%%, asked %.3f%%", what, k, n, 100*float64(k)/float64(n), 100*asked)
	if asked < low || asked > high {
		e.Errorf("%s: %d of %d, which is between %.3f%% and %.3f%%, asked %.3f%%", what, k, n, 100*low, 100*high, 100*asked)
	}
}

// nothingElse judges that a flow was delayed and nothing more.
func (e *env) nothingElse(f probe.Flow) {
	e.Helper()
	if f.Received != f.Sent || f.Duplicates+f.Reordered+f.Corrupted > 0 {
		e.Errorf("of %d packets %d were lost, %d doubled, %d reordered, %d corrupted, want none", f.Sent, f.Lost, f.Duplicates, f.Reordered, f.Corrupted)
	}
}
