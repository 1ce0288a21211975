//go:build integration && kernel

// These run under a kernel that has netem: make test-kernel.

package qdisc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netemtest"
)

var ctx = context.Background()

// leaverArg makes the program apply links and die of it.
const leaverArg = "__leaver"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == leaverArg {
		var links []netem.Link
		err := json.Unmarshal([]byte(os.Args[2]), &links)
		if err == nil {
			err = Open().Apply(ctx, links)
		}
		if err == nil {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestContract(t *testing.T) {
	netemtest.Backend(t, func(t *testing.T) netem.Backend { return Open() })
}

func open(t testing.TB) *Backend {
	t.Helper()
	b := Open()
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func link(t testing.TB, from, to netem.Endpoint, text string) netem.Link {
	t.Helper()
	return netem.Link{From: from, To: to, Impairment: parse(t, text)}
}

func apply(t testing.TB, b *Backend, links ...netem.Link) {
	t.Helper()
	if err := b.Apply(ctx, links); err != nil {
		t.Fatalf("Apply(%v): %v", links, err)
	}
}

// connect is for looking at an endpoint's queues behind the backend's back.
func connect(t testing.TB, e netem.Endpoint) *conn {
	t.Helper()
	c, err := dial(e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

func read(t testing.TB, c *conn) *tree {
	t.Helper()
	got, err := c.read()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// shown is what the backend shows, by names.
func shown(t testing.TB, b *Backend) map[string]string {
	t.Helper()
	all, err := b.Show(ctx)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, s := range all {
		out[s.From.Name+" to "+target(s.Link)] = s.Impairment.String()
	}
	return out
}

func want(t testing.TB, got map[string]string, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("links are %v, want %v", got, want)
	}
}

// tc runs it in an endpoint's namespace.
func tc(t testing.TB, e netem.Endpoint, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", append([]string{"netns", "exec", filepath.Base(e.Netns), "tc"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("tc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// What was asked is read back after every change, from whatever was before it;
// the kernel keeps everything exactly.
func TestEveryClauseIsReadBackAndShown(t *testing.T) {
	n := netemtest.Network(t, 2)
	b := open(t)
	all := vocabulary()
	for _, text := range append(all, all[len(all)-1], "none") {
		apply(t, b, link(t, n[0], n[1], text))
		want(t, shown(t, b), map[string]string{"n1 to n2": parse(t, text).String()})
	}
	got := read(t, connect(t, n[0])).branches[1]
	if text := got.differs(shaperOf(netem.Impairment{}, n0Frame), optionsOf(netem.Impairment{})); text != "" {
		t.Errorf("after all that, none: %s", text)
	}
	table := netem.Distribution{Name: "wan.dist", Text: "-8192 -4096 0 4096 8192"}
	own := link(t, n[0], n[1], "delay 10ms jitter 1ms")
	own.Impairment.Distribution = table
	apply(t, b, own)
	if s, err := b.Show(ctx); err != nil || len(s) != 1 || s[0].Impairment.Distribution != table {
		t.Errorf("Show = %v, %v, want the link with its own table", s, err)
	}
}

const n0Frame = 1500 + headers

// A person who runs the commands gets what Apply makes.
func TestTheCommandsOfADryRunMakeTheSameTree(t *testing.T) {
	n := netemtest.Network(t, 3)
	var links []netem.Link
	for i, text := range vocabulary() {
		l := netem.Link{From: n[0], Impairment: parse(t, text), Match: []netem.Selector{
			{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, 0, byte(i)}), 32)},
			{Prefix: netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("2001:2:0:1::%x", i)), 128), Port: 3306},
		}}
		links = append(links, l)
	}
	b := open(t)
	apply(t, b, links...)
	asked := read(t, connect(t, n[0]))

	for i := range links {
		links[i].From = n[1]
	}
	// All at once: starting programs is slow here.
	prefix := inside(n[1].Netns) + " tc "
	batch := exec.Command("sh", "-c", prefix+"-batch -")
	batch.Stdin = strings.NewReader(strings.ReplaceAll(strings.Join(Commands(links), "\n"), prefix, ""))
	if out, err := batch.CombinedOutput(); err != nil {
		t.Fatalf("tc: %v\n%s", err, out)
	}
	made := read(t, connect(t, n[1]))
	if len(made.branches) != len(links) {
		t.Fatalf("%d branches, want %d", len(made.branches), len(links))
	}
	for id, a := range asked.branches {
		m := made.branches[id]
		if links[id-1].Impairment.Seed == 0 {
			a.options.seed, m.options.seed = 0, 0 // the kernel's own
		}
		if a.options.duplicateCorr != 0 && m.options.duplicateCorr == 0 {
			a.options.duplicateCorr = 0 // tc forgets it
		}
		// As text: tc rounds shares in its own way.
		if got, want := m.options.String(), a.options.String(); got != want {
			t.Errorf("%s: tc has made %s of it, Apply %s", links[id-1].Impairment, got, want)
		}
		if m.shaper != a.shaper {
			t.Errorf("%s: tc has made tbf %s of it, Apply %s", links[id-1].Impairment, m.shaper, a.shaper)
		}
	}
	sorted := func(all []standing) []string {
		var out []string
		for _, f := range all {
			out = append(out, f.same())
		}
		slices.Sort(out)
		return out
	}
	if a, m := sorted(asked.filters), sorted(made.filters); !slices.Equal(a, m) {
		t.Errorf("tc has made the filters\n%s\nApply\n%s", strings.Join(m, "\n"), strings.Join(a, "\n"))
	}
	if err := Detach(n[1]); err != nil {
		t.Error(err)
	}
}

func TestTheRootQdiscOfSomebodyElseIsRefusedAndLeftAlone(t *testing.T) {
	n := netemtest.Network(t, 3)
	b := open(t)
	apply(t, b, link(t, n[1], n[2], "delay 5ms"))
	tc(t, n[0], "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "prio")
	before := tc(t, n[0], "qdisc", "show")
	err := b.Apply(ctx, []netem.Link{link(t, n[1], n[2], "delay 9ms"), link(t, n[1], n[0], "delay 9ms"), link(t, n[0], n[1], "delay 9ms")})
	var foreign *ForeignError
	if !errors.As(err, &foreign) || foreign.Kind != "prio" || foreign.Handle != "1:" || !strings.Contains(err.Error(), "eth0 in "+n[0].Netns) {
		t.Errorf("Apply = %v, want an error that names prio 1: and the interface", err)
	}
	want(t, shown(t, b), map[string]string{"n2 to n3": "delay 5ms"})
	if err := Detach(n[0]); err != nil {
		t.Errorf("Detach = %v", err)
	}
	if after := tc(t, n[0], "qdisc", "show"); after != before {
		t.Errorf("qdiscs were\n%sand are\n%s", before, after)
	}
}

// Interfaces that are cards have a qdisc by default, and get it back.
func TestADefaultQdiscMakesRoomAndComesBack(t *testing.T) {
	n := netemtest.Network(t, 2)
	card := n[0]
	card.Interface = "card0"
	if out, err := exec.Command("ip", "-n", filepath.Base(card.Netns), "link", "add", "card0", "numtxqueues", "2", "type", "ifb").CombinedOutput(); err != nil {
		t.Fatalf("ip link add: %v\n%s", err, out)
	}
	tc(t, card, "qdisc", "replace", "dev", "card0", "root", "pfifo_fast")
	if out, err := exec.Command("ip", "-n", filepath.Base(card.Netns), "link", "set", "card0", "up").CombinedOutput(); err != nil {
		t.Fatalf("ip link set: %v\n%s", err, out)
	}
	tc(t, card, "qdisc", "del", "dev", "card0", "root")
	before := tc(t, card, "qdisc", "show", "dev", "card0")
	if !strings.Contains(before, " 0: root") {
		t.Fatalf("card0 has %q, want a default qdisc", before)
	}
	b := open(t)
	apply(t, b, link(t, card, n[1], "delay 5ms"))
	if err := b.Clear(ctx); err != nil {
		t.Error(err)
	}
	if after := tc(t, card, "qdisc", "show", "dev", "card0"); after != before {
		t.Errorf("qdiscs were\n%sand are\n%s", before, after)
	}
}

// However far an Apply has come, when it fails nothing has changed.
func TestAFailureHalfwayChangesNothing(t *testing.T) {
	n := netemtest.Network(t, 3)
	b := open(t)
	apply(t, b, link(t, n[0], n[1], "delay 5ms loss 1% seed 7"), link(t, n[0], n[2], "none"))
	before := read(t, connect(t, n[0]))
	unchanged := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", what)
		}
		t.Log(what+":", err)
		after := read(t, connect(t, n[0]))
		for id, was := range before.branches {
			is := after.branches[id]
			if was.options.seed != 7 {
				was.options.seed, is.options.seed = 0, 0 // the kernel's own
			}
			if is.options != was.options || is.shaper != was.shaper {
				t.Errorf("%s: class %d was %v, %v and is %v, %v", what, id, was.shaper, was.options, is.shaper, is.options)
			}
		}
		if len(after.branches) != len(before.branches) || len(after.filters) != len(before.filters) {
			t.Errorf("%s: %d branches and %d filters, there were %d and %d", what, len(after.branches), len(after.filters), len(before.branches), len(before.filters))
		}
		if read(t, connect(t, n[1])).there {
			t.Errorf("%s: the other interface has got a tree", what)
		}
		want(t, shown(t, b), map[string]string{"n1 to n2": "delay 5ms loss 1% seed 7", "n1 to n3": "none"})
	}

	// A class that is in the way.
	c := connect(t, n[0])
	if err := c.do(unix.RTM_NEWTCLASS, create, message{handle: classOf(3), parent: root, kind: "htb", options: encodeClass()}); err != nil {
		t.Fatal(err)
	}
	toNew := netem.Link{From: n[0], Match: []netem.Selector{{Prefix: netip.MustParsePrefix("198.19.0.0/16")}}, Impairment: parse(t, "delay 1ms")}
	err := b.Apply(ctx, []netem.Link{link(t, n[1], n[0], "delay 1ms"), link(t, n[0], n[1], "rate 10mbit burst 32kb"), toNew})
	unchanged("a class in the way", err)
	if !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), "fa17:3") {
		t.Errorf("Apply = %v, want an error that names class fa17:3", err)
	}
	if err := c.prune(3); err != nil {
		t.Fatal(err)
	}

	// More filters than a table takes, when the rest is done.
	many := toNew
	many.Match = nil
	for i := range 5000 {
		many.Match = append(many.Match, netem.Selector{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}), 32)})
	}
	unchanged("too many filters", b.Apply(ctx, []netem.Link{link(t, n[1], n[0], "delay 1ms"), link(t, n[0], n[1], "delay 70ms jitter 1ms"), many}))

	if out, err := exec.Command("ip", "-n", filepath.Base(n[0].Netns), "link", "set", "eth0", "mtu", "9000").CombinedOutput(); err != nil {
		t.Fatalf("ip link set: %v\n%s", err, out)
	}
	unchanged("a burst too small for the MTU", b.Apply(ctx, []netem.Link{link(t, n[1], n[0], "delay 1ms"), link(t, n[0], n[1], "delay 70ms"), link(t, n[0], n[2], "rate 10mbit burst 2kb")}))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	unchanged("an ended context", b.Apply(gone, []netem.Link{link(t, n[1], n[0], "delay 1ms"), link(t, n[0], n[1], "delay 70ms")}))

	// And it still works.
	apply(t, b, link(t, n[0], n[1], "delay 9ms"), toNew)
	want(t, shown(t, b), map[string]string{"n1 to n2": "delay 9ms", "n1 to n3": "none", "n1 to " + target(toNew): "delay 1ms"})
}

// ReportedFault03: kill -9 leaves rules, and a rerun says "File exists".
func TestReportedFault03WhatAKilledProcessLeavesIsTakenOver(t *testing.T) {
	n := netemtest.Network(t, 3)
	left := []netem.Link{link(t, n[0], n[1], "delay 30ms loss 1%"), link(t, n[0], n[2], "delay 20ms")}
	leave := func() {
		t.Helper()
		spec, err := json.Marshal(left)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("/proc/self/exe", leaverArg, string(spec)).CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("leaver: %v\n%s", err, out)
		}
	}
	leave()
	if s := netemtest.RTT(t, n[0], n[2], 3); s.P50 < 20*time.Millisecond {
		t.Errorf("round trip %v, want 20ms of the killed process", s.P50)
	}
	leave() // the same again

	// Traces of one that was killed in the middle.
	c := connect(t, n[0])
	if err := c.do(unix.RTM_NEWTCLASS, create, message{handle: classOf(9), parent: root, kind: "htb", options: encodeClass()}); err != nil {
		t.Fatal(err)
	}
	if err := c.addFilter(filtersOf(netem.Selector{Prefix: netip.MustParsePrefix("198.18.0.9/32")}, classOf(9))[0]); err != nil {
		t.Fatal(err)
	}
	if err := c.grow(10, shaperOf(netem.Impairment{}, n0Frame), optionsOf(netem.Impairment{}), nil); err != nil {
		t.Fatal(err)
	}

	b := open(t)
	if err := b.Find(ctx, n); err != nil {
		t.Fatal(err)
	}
	want(t, shown(t, b), map[string]string{"n1 to [198.18.0.2/32 2001:2::2/128]": "delay 30ms loss 1%", "n1 to [198.18.0.3/32 2001:2::3/128]": "delay 20ms"})
	apply(t, b, link(t, n[0], n[1], "delay 40ms"))
	want(t, shown(t, b), map[string]string{"n1 to n2": "delay 40ms", "n1 to [198.18.0.3/32 2001:2::3/128]": "delay 20ms"})
	if got := read(t, c); len(got.filters) != 7 || len(got.branches) != 2 {
		t.Errorf("%d filters and %d branches, want 2 for each of 2 links and 3 of neighbour discovery", len(got.filters), len(got.branches))
	}
	if is := read(t, c).branches[1].options.latency; is != int64(40*time.Millisecond) {
		t.Errorf("class 1 has a delay of %d ns, want the same link's 40ms", is)
	}
	if s := netemtest.RTT(t, n[0], n[1], 3); s.P50 < 40*time.Millisecond || s.P50 > 60*time.Millisecond {
		t.Errorf("round trip %v, want 40ms", s.P50)
	}

	// A link by name whose addresses were another's takes them.
	wider := netem.Link{From: n[0], To: netem.Endpoint{Name: "both"}, Impairment: parse(t, "delay 10ms"), Match: []netem.Selector{
		{Prefix: netip.MustParsePrefix("198.18.0.3/32")}, {Prefix: netip.MustParsePrefix("198.18.0.4/32")},
	}}
	apply(t, b, wider)
	want(t, shown(t, b), map[string]string{"n1 to n2": "delay 40ms", "n1 to both": "delay 10ms"})

	b.Leave()
	for range 2 {
		if err := Detach(n[0]); err != nil {
			t.Errorf("Detach: %v", err)
		}
	}
	if read(t, c).there {
		t.Error("there is a tree after Detach")
	}
	if s := netemtest.RTT(t, n[0], n[1], 3); s.P50 > 20*time.Millisecond {
		t.Errorf("round trip %v after Detach", s.P50)
	}
}

// Another link's qdisc draws a new seed whenever it is touched.
func TestAChangeOfOneLinkDoesNotTouchOthers(t *testing.T) {
	n := netemtest.Network(t, 3)
	b := open(t)
	apply(t, b, link(t, n[0], n[1], "delay 5ms loss 1%"), link(t, n[0], n[2], "delay 7ms loss 2%"))
	c := connect(t, n[0])
	before := read(t, c)
	apply(t, b, link(t, n[0], n[1], "delay 6ms"))
	apply(t, b, netem.Link{From: n[0], Match: []netem.Selector{{Prefix: netip.MustParsePrefix("198.19.0.0/16"), Port: 80}}, Impairment: parse(t, "rate 10mbit")})
	after := read(t, c)
	if was, is := before.branches[2], after.branches[2]; was.options != is.options || was.shaper != is.shaper {
		t.Errorf("the other link was %v and is %v", was, is)
	}
	for _, f := range before.filters {
		if !slices.ContainsFunc(after.filters, func(g standing) bool { return g.handle == f.handle && g.same() == f.same() }) {
			t.Errorf("filter %v is not the same any more", f)
		}
	}
}

// Somebody who changes or removes what was set up is found out.
func TestWhatSomebodyElseHasChangedIsShown(t *testing.T) {
	n := netemtest.Network(t, 3)
	b := open(t)
	apply(t, b, link(t, n[0], n[1], "delay 5ms"))
	tc(t, n[0], "qdisc", "change", "dev", "eth0", "handle", "4001:", "parent", "8001:1", "netem", "delay", "6ms", "limit", "100000")
	want(t, shown(t, b), map[string]string{"n1 to n2": "delay 6ms"})
	tc(t, n[0], "filter", "del", "dev", "eth0", "parent", "fa17:")
	if s, err := b.Show(ctx); err == nil {
		t.Errorf("Show = %v after the filters were taken away", s)
	}
	tc(t, n[0], "qdisc", "del", "dev", "eth0", "root")
	if c, err := b.Counters(ctx); err == nil {
		t.Errorf("Counters = %v after the qdiscs were taken away", c)
	}
	if err := b.Apply(ctx, []netem.Link{link(t, n[0], n[2], "delay 5ms")}); err == nil {
		t.Error("Apply succeeds after the qdiscs were taken away")
	}
	if err := b.Clear(ctx); err != nil {
		t.Errorf("Clear: %v", err)
	}
	apply(t, b, link(t, n[0], n[2], "delay 5ms"))
	want(t, shown(t, b), map[string]string{"n1 to n3": "delay 5ms"})
}

// It takes half a second here, mostly waiting for the kernel that is a process.
func TestHundredsOfLinksOfAnInterfaceAreSetQuickly(t *testing.T) {
	n := netemtest.Network(t, 2)
	b := open(t)
	var links []netem.Link
	for i := range 300 {
		links = append(links, netem.Link{From: n[0], Match: []netem.Selector{
			{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}), 32)},
		}, Impairment: netem.Impairment{Delay: time.Duration(i) * time.Microsecond}})
	}
	links = append(links, link(t, n[0], n[1], "none"))
	start := time.Now()
	apply(t, b, links...)
	set := time.Since(start)
	start = time.Now()
	for i := range links {
		links[i].Impairment.Delay += time.Millisecond
	}
	apply(t, b, links...)
	t.Logf("%d links set in %v, changed in %v", len(links), set, time.Since(start))
	if took := time.Since(start); set > 10*time.Second || took > 5*time.Second {
		t.Errorf("%d links set in %v, changed in %v", len(links), set, took)
	}
	if got := len(shown(t, b)); got != len(links) {
		t.Errorf("%d links are shown, want %d", got, len(links))
	}
}

func TestThisKernelCanDoAll(t *testing.T) {
	if err := Probe(); err != nil {
		t.Errorf("Probe: %v", err)
	}
	if lacks, err := Lacks(); err != nil || len(lacks) > 0 {
		t.Errorf("Lacks = %q, %v", lacks, err)
	}
}
