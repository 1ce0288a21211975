//go:build integration

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netemtest"
	"github.com/faultlab/faultlab/netem/netns"
	"github.com/faultlab/faultlab/netem/probe"
	"github.com/faultlab/faultlab/netem/wire"
)

// asked are the links that link show or shape show tells, by their ends.
func (u *user) asked(args ...string) map[string]string {
	u.t.Helper()
	type shown struct {
		Links []struct{ From, To, Asked string }
	}
	text := u.must(append(args, "--json")...)
	var all []shown
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		var one shown
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			u.t.Fatalf("%v: %v\n%s", args, err, text)
		}
		all = []shown{one}
	}
	out := map[string]string{}
	for _, s := range all {
		for _, l := range s.Links {
			out[l.From+" to "+l.To] = l.Asked
		}
	}
	return out
}

// helpers are the user's emulators in user space.
func (u *user) helpers() []int {
	var out []int
	for _, pid := range processesWith(u.state) {
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(cmd, []byte("__wire")) {
			out = append(out, pid)
		}
	}
	return out
}

func (u *user) owner(name string) int {
	u.t.Helper()
	var s struct{ PID int }
	b, err := os.ReadFile(filepath.Join(u.state, "faultlab", "labs", name, "lab.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil || s.PID == 0 {
		u.t.Fatalf("owner of %s: %v, %s", name, err, b)
	}
	return s.PID
}

func kill(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("kill %d: %v", pid, err)
		}
	}
}

func TestLinksOfARunningLabAreShapedMeasuredAndCleared(t *testing.T) {
	u := newUser(t)
	name := "k" + fmt.Sprint(os.Getpid())
	u.must("up", "async", "--name", name)
	if got := u.must("link", "show", name); !strings.Contains(got, "no link is shaped") {
		t.Errorf("before anything is shaped:\n%s", got)
	}
	if len(u.helpers()) > 0 {
		t.Error("there is an emulator before anything is shaped")
	}

	u.must("link", "set", name, "n1", "n2", "rtt 40ms loss 10%")
	u.must("link", "set", name, "n1", "n3", "--delay", "30ms", "--one-way")
	want := map[string]string{"n1 to n2": "delay 20ms loss 10%", "n2 to n1": "delay 20ms loss 10%", "n1 to n3": "delay 30ms"}
	if got := u.asked("link", "show", name); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// Of a thousand figures one is out of its interval by chance, and a busy
	// machine may delay a whole measurement: once may be bad luck.
	shown, code := u.run("link", "show", name, "--measure")
	if code == 4 {
		t.Logf("measured again:\n%s", shown)
		shown, code = u.run("link", "show", name, "--measure")
	}
	if code != 0 || strings.Contains(shown, "WRONG") || strings.Count(shown, "10%") < 2 || !strings.Contains(shown, "rtt") {
		t.Errorf("link show --measure: exit %d\n%s", code, shown)
	}
	if status := u.must("status", name); !strings.Contains(status, "delay 20ms loss 10%") {
		t.Errorf("status does not show the links:\n%s", status)
	}

	// What is impossible changes nothing, nor does a change of one link touch another.
	for _, args := range [][]string{{"n1", "n2", "delay 301s"}, {"n1", "n9", "delay 1ms"}, {"n1", "n2", "--loss", "x"}, {"nodes", "nodes", "rtt 1ms los 1%"}} {
		if out, code := u.run(append([]string{"link", "set", name}, args...)...); code != 2 {
			t.Errorf("link set %v: exit %d\n%s", args, code, out)
		}
	}
	u.must("link", "set", name, "n2", "n1", "none", "--one-way")
	want["n2 to n1"] = "none"
	if got := u.asked("link", "show", name); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}

	// A partition holds up replication to one node, and heals.
	u.must("link", "set", name, "n1", "n2", "--partition", "--one-way")
	u.must("sql", name, "n1", "CREATE DATABASE behind")
	has := func(node string) bool { return strings.Contains(u.must("sql", name, node, "SHOW DATABASES"), "behind") }
	wait(t, 20*time.Second, "the database on n3", func() bool { return has("n3") })
	if has("n2") {
		t.Error("n2 has the database across a partition")
	}
	u.must("link", "clear", name, "n1", "n2")
	delete(want, "n2 to n1")
	if got := u.asked("link", "show", name); got["n1 to n2"] != "none" || got["n1 to n3"] != "delay 30ms" {
		t.Errorf("after n1 n2 were cleared: got %v", got)
	}
	wait(t, time.Minute, "the database on n2 after the partition", func() bool { return has("n2") })

	// An emulator that dies cuts its links; that is said, and clear opens them.
	kill(t, u.helpers()...)
	wait(t, 10*time.Second, "the loss of the emulator is told", func() bool {
		out, code := u.run("link", "show", name)
		return code == 1 && strings.Contains(out, "hint: faultlab link clear "+name)
	})
	u.must("link", "clear", name)
	u.must("sql", name, "n1", "CREATE DATABASE again")
	wait(t, time.Minute, "a database on n3 after the emulator's death", func() bool {
		return strings.Contains(u.must("sql", name, "n3", "SHOW DATABASES"), "again")
	})
	u.must("link", "set", name, "all", "all", "rtt 1ms")
	if got := u.asked("link", "show", name); len(got) != 12 {
		t.Errorf("all to all: got %v, want 12 links", got)
	}
	u.must("link", "clear", name)
	if got := u.asked("link", "show", name); len(got) != 0 || len(u.helpers()) > 0 {
		t.Errorf("after clear: got %v and emulators %v", got, u.helpers())
	}
	u.must("down", name)
	u.nothingLeft()
}

// rtt is the median round trip of a few echoes, and whether they came back.
func rtt(t *testing.T, from, to netem.Endpoint) (time.Duration, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := probe.Measure(ctx, probe.Pair{From: from, To: to}, 5, 4*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return s.P50, s.Lost < s.Sent
}

func TestANetworkThatFaultlabDidNotBuildIsShaped(t *testing.T) {
	u := newUser(t)
	n := netemtest.Network(t, 3)
	place := []string{"--netns", filepath.Base(n[0].Netns), "--dev", n[0].Interface, "--to"}
	set := func(more ...string) string {
		return u.must(append(append([]string{"shape", "set"}, place...), more...)...)
	}
	const far = 40 * time.Millisecond
	is := func(what string, to netem.Endpoint, shaped bool) {
		t.Helper()
		if d, ok := rtt(t, n[0], to); !ok || (d >= far-time.Millisecond) != shaped {
			t.Errorf("%s: round trip to %s is %v (%v), want shaped: %v", what, to.Name, d, ok, shaped)
		}
	}
	out := set(n[1].Addr.String(), "delay 40ms", "--name", "web")
	if !strings.Contains(out, "undo: faultlab shape clear web") {
		t.Errorf("it does not say how to undo it:\n%s", out)
	}
	is("after set", n[1], true)
	is("after set", n[2], false)
	// Once more, and another address: each its own link.
	set(n[1].Addr.String(), "delay 45ms")
	set(n[2].Addr.String(), "--delay", "50ms")
	is("after a second link", n[1], true)
	is("after a second link", n[2], true)
	set(n[2].Addr.String(), "none")
	is("after the second was set to none", n[1], true)
	is("after the second was set to none", n[2], false)
	if got := u.asked("shape", "show", "web"); len(got) != 2 {
		t.Errorf("shape show: got %v, want two links", got)
	}
	if got := u.must("status"); !strings.Contains(got, "shape of eth0") {
		t.Errorf("status:\n%s", got)
	}
	if out, code := u.run("shape", "show", "--measure"); code != 0 || !strings.Contains(out, "rtt") {
		t.Errorf("shape show --measure: exit %d\n%s", code, out)
	}
	// What is impossible changes nothing.
	if out, code := u.run(append(append([]string{"shape", "set"}, place...), n[1].Addr.String(), "delay 1h")...); code != 2 {
		t.Errorf("delay 1h: exit %d\n%s", code, out)
	}
	is("after a refusal", n[1], true)
	u.must("shape", "clear", "web")
	is("after clear", n[1], false)
	u.nothingLeft()

	// A dry run does nothing.
	if out := set(n[1].Addr.String(), "delay 40ms", "--dry-run"); !strings.Contains(out, "tc ") {
		t.Errorf("dry run:\n%s", out)
	}
	is("after a dry run", n[1], false)
	u.nothingLeft()

	// In the foreground it lasts until Ctrl-C, and a namespace may be named by a process in it.
	cmd, shown := u.start(append(append([]string{"shape", "set", "--foreground"}, place...), n[1].Addr.String(), "delay 40ms")...)
	wait(t, 10*time.Second, "the shape in the foreground", func() bool { d, _ := rtt(t, n[0], n[1]); return d >= far-time.Millisecond })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("exit %d, want 130\n%s", cmd.ProcessState.ExitCode(), shown)
	}
	is("after Ctrl-C", n[1], false)
	u.nothingLeft()
}

// Two that set the same interface would take each other's filters away.
func TestShapesThatAreSetAtOnceAreOne(t *testing.T) {
	u := newUser(t)
	n := netemtest.Network(t, 4)
	var all errgroup.Group
	for _, to := range n[1:] {
		all.Go(func() error {
			out, code := u.run("shape", "set", "--netns", filepath.Base(n[0].Netns), "--dev", n[0].Interface, "--to", to.Addr.String(), "delay 30ms")
			if code != 0 {
				return fmt.Errorf("shape set to %s: exit %d\n%s", to.Name, code, out)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, to := range n[1:] {
		if d, ok := rtt(t, n[0], to); !ok || d < 29*time.Millisecond {
			t.Errorf("round trip to %s is %v (%v), want at least 30ms", to.Name, d, ok)
		}
	}
	if out := u.must("status"); strings.Count(out, "shape of") != 1 {
		t.Errorf("more than one shape:\n%s", out)
	}
	u.must("shape", "clear", "--all")
	if d, ok := rtt(t, n[0], n[1]); !ok || d > 29*time.Millisecond {
		t.Errorf("after clear the round trip is %v (%v)", d, ok)
	}
}

// Rules stay behind when other tools are killed, and the next start says "File
// exists".
func TestReportedFault03AfterKillNineAShapeIsSetAgainOrCleanedAway(t *testing.T) {
	u := newUser(t)
	n := netemtest.Network(t, 2)
	args := []string{"shape", "set", "--name", "web", "--netns", filepath.Base(n[0].Netns), "--dev", "eth0", "--to", n[1].Addr.String(), "delay 40ms"}
	shaped := func(what string, want bool) {
		t.Helper()
		if d, ok := rtt(t, n[0], n[1]); !ok || (d >= 39*time.Millisecond) != want {
			t.Errorf("%s: round trip %v (%v), want shaped: %v", what, d, ok, want)
		}
	}
	// The worst: the owner and its emulator die at once.
	killed := func() {
		t.Helper()
		owner, helpers := u.owner("web"), u.helpers()
		kill(t, append(helpers, owner)...)
		wait(t, 10*time.Second, "the end of the killed", func() bool { return len(processesWith(u.state)) == 0 })
		if d, ok := rtt(t, n[0], n[1]); ok && d < 39*time.Millisecond {
			t.Errorf("packets pass unshaped after kill -9: round trip %v", d)
		}
		if out := u.must("shape", "show"); !strings.Contains(out, "dead (faultlab clean)") {
			t.Errorf("shape show does not tell of the dead:\n%s", out)
		}
	}
	u.must(args...)
	shaped("after set", true)
	killed()
	u.must(args...)
	shaped("after kill -9 and set", true)
	u.must(args...)
	shaped("after set twice", true)
	killed()
	if out := u.must("clean"); !strings.Contains(out, "removed web") {
		t.Errorf("clean:\n%s", out)
	}
	shaped("after kill -9 and clean", false)
	if bare, err := wire.Bare(n[0]); err != nil || !bare {
		t.Errorf("after clean the interface is not as it was before: %v, %v", bare, err)
	}
	u.nothingLeft()

	// The owner alone: its emulator goes with it.
	u.must(args...)
	kill(t, u.owner("web"))
	wait(t, 10*time.Second, "the end of the emulator", func() bool { return len(processesWith(u.state)) == 0 })
	u.must("clean")
	shaped("after the owner's death and clean", false)
	// What it shaped may be gone by then.
	u.must(args...)
	owner, helpers := u.owner("web"), u.helpers()
	kill(t, append(helpers, owner)...)
	if err := netns.Delete(filepath.Base(n[0].Netns)); err != nil {
		t.Fatal(err)
	}
	wait(t, 10*time.Second, "the end of the killed", func() bool { return len(processesWith(u.state)) == 0 })
	u.must("down", "--all")
	u.nothingLeft()
}

// Other tools shape what has the address or the port, and take incoming for
// outgoing.
func TestReportedFault10OnlyWhatLeavesForTheAddressAndThePortIsShaped(t *testing.T) {
	u := newUser(t)
	n := netemtest.Network(t, 3)
	listen := func(at netem.Endpoint, port uint16) {
		t.Helper()
		var l net.Listener
		err := netns.Do(at.Netns, func() (err error) {
			l, err = net.Listen("tcp", netip.AddrPortFrom(at.Addr, port).String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	for _, e := range n {
		listen(e, 7001)
		listen(e, 7002)
	}
	reaches := func(from, to netem.Endpoint, port uint16, want bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		c, err := netns.Dial(ctx, from.Netns, "tcp", netip.AddrPortFrom(to.Addr, port).String())
		if err == nil {
			c.Close()
		}
		if (err == nil) != want {
			t.Errorf("%s to port %d of %s: got %v, want it to connect: %v", from.Name, port, to.Name, err, want)
		}
	}
	u.must("shape", "set", "--netns", filepath.Base(n[0].Netns), "--dev", "eth0", "--to", n[1].Addr.String()+":7001", "--partition")
	reaches(n[0], n[1], 7001, false)
	reaches(n[0], n[1], 7002, true) // the address alone
	reaches(n[0], n[2], 7001, true) // the port alone
	reaches(n[1], n[0], 7001, true) // what comes in
	reaches(n[2], n[1], 7001, true) // bystanders
	u.must("shape", "clear", "--all")
	reaches(n[0], n[1], 7001, true)
}

// Without sch_netem other tools report success and do nothing.
func TestReportedFault08KernelNetemShapesOrIsRefusedBeforeAnythingIsMade(t *testing.T) {
	u := newUser(t)
	n := netemtest.Network(t, 2)
	out, code := u.run("shape", "set", "--emulator", "kernel", "--netns", filepath.Base(n[0].Netns), "--dev", "eth0", "--to", n[1].Addr.String(), "delay 40ms")
	d, ok := rtt(t, n[0], n[1])
	switch {
	case code == 0:
		if !ok || d < 39*time.Millisecond {
			t.Errorf("it said it shapes, and the round trip is %v (%v)", d, ok)
		}
		if out := u.must("shape", "show", "--json"); !strings.Contains(out, `"emulator": "kernel"`) {
			t.Errorf("shape show:\n%s", out)
		}
		u.must("shape", "clear", "--all")
	case code != 1 || !strings.Contains(out, "CONFIG_NET_SCH_NETEM") || !strings.Contains(out, "hint: "):
		t.Errorf("exit %d, want 1, what is missing and how to mend it\n%s", code, out)
	default:
		for _, args := range [][]string{{"up", "single"}, {"run", "latency-0.6ms"}} {
			if out, code := u.run(append(args, "--emulator", "kernel")...); code != 1 || !strings.Contains(out, "CONFIG_NET_SCH_NETEM") {
				t.Errorf("%v: exit %d\n%s", args, code, out)
			}
		}
		if doctor, _ := u.run("doctor"); !strings.Contains(doctor, "CONFIG_NET_SCH_NETEM") || !strings.Contains(doctor, "takes user") {
			t.Errorf("doctor:\n%s", doctor)
		}
	}
	if d, ok := rtt(t, n[0], n[1]); !ok || d > 20*time.Millisecond {
		t.Errorf("at the end the round trip is %v (%v)", d, ok)
	}
	u.nothingLeft()
}
