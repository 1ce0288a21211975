//go:build integration

package wire_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netemtest"
	"github.com/faultlab/faultlab/netem/netns"
	"github.com/faultlab/faultlab/netem/probe"
	"github.com/faultlab/faultlab/netem/wire"
)

const parentArg = "__parent"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == wire.Arg {
		if err := wire.Main(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == parentArg {
		fmt.Fprintln(os.Stderr, parent(os.Args[2]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func open(t testing.TB) *wire.Backend {
	t.Helper()
	b, err := wire.Open(context.Background(), wire.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestContract(t *testing.T) {
	netemtest.Backend(t, func(t *testing.T) netem.Backend { return open(t) })
}

// A short delay beside a long one: while packets wait their long time, what
// might arrive on the short link must not keep the engine awake.
func TestALongDelayBesideAShortOneLetsTheEngineSleep(t *testing.T) {
	ctx := context.Background()
	n := netemtest.Network(t, 3)
	b := open(t)
	links := append(netemtest.Both(n[0], n[1], 100*time.Microsecond), netemtest.Both(n[0], n[2], 200*time.Millisecond)...)
	if err := b.Apply(ctx, links); err != nil {
		t.Fatal(err)
	}
	before, err := b.Counters(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Every 20 ms, so that there is always a packet under way.
	if _, err := probe.Measure(ctx, probe.Pair{From: n[0], To: n[2]}, 50, 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	after, err := b.Counters(ctx)
	if err != nil {
		t.Fatal(err)
	}
	packets, wakeups := after.Packets-before.Packets, after.Wakeups-before.Wakeups
	// One for the arrival and one for the deadline, and room for chatter.
	if packets < 100 || wakeups > 10*packets {
		t.Errorf("%d wake-ups for %d packets, want at most ten for each of at least 100", wakeups, packets)
	}
	if cpu := after.CPU - before.CPU; cpu > 500*time.Millisecond {
		t.Errorf("%v of processor time for %d packets in about a second", cpu, packets)
	}
}

func TestADeadHelperCutsItsLinksUntilDetach(t *testing.T) {
	ctx := context.Background()
	n := netemtest.Network(t, 3)
	b := open(t)
	if err := b.Apply(ctx, netemtest.Both(n[0], n[1], time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	netemtest.RTT(t, n[0], n[1], 3)
	if err := syscall.Kill(b.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("Done is not closed after the helper's death")
	}
	if err := b.Apply(ctx, netemtest.Both(n[0], n[1], 0)); !errors.Is(err, wire.ErrDead) {
		t.Errorf("Apply = %v, want ErrDead", err)
	}
	if _, err := b.Counters(ctx); !errors.Is(err, wire.ErrDead) {
		t.Errorf("Counters = %v, want ErrDead", err)
	}
	s, err := probe.Measure(ctx, probe.Pair{From: n[0], To: n[1]}, 3, time.Millisecond)
	if err != nil || s.Lost != s.Sent {
		t.Errorf("a dead helper's link passed %d of %d probes (%v)", s.Sent-s.Lost, s.Sent, err)
	}
	netemtest.RTT(t, n[0], n[2], 3) // others live on

	// A new helper takes over where one was killed.
	b2 := open(t)
	if err := b2.Apply(ctx, netemtest.Both(n[0], n[1], 30*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if s := netemtest.RTT(t, n[0], n[1], 5); s.P50 < 29*time.Millisecond {
		t.Errorf("round trip %v with a new helper's 30ms", s.P50)
	}
	if err := syscall.Kill(b2.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-b2.Done()
	for _, e := range n {
		for range 2 {
			if err := wire.Detach(e); err != nil {
				t.Errorf("Detach(%s): %v", e.Name, err)
			}
		}
	}
	netemtest.RTT(t, n[0], n[1], 3)
}

func TestAKilledParentLeavesNoHelperAndNoFilter(t *testing.T) {
	n := netemtest.Network(t, 2)
	spec, err := json.Marshal(netemtest.Both(n[0], n[1], 40*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self, parentArg, string(spec))
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var helper int
	_, err = fmt.Fscanln(out, &helper)
	if err == nil {
		if s := netemtest.RTT(t, n[0], n[1], 3); s.P50 < 39*time.Millisecond {
			t.Errorf("round trip %v before the parent's death, want 40ms", s.P50)
		}
	}
	parent.Process.Kill()
	parent.Wait()
	if err != nil {
		t.Fatalf("the parent did not say its helper's pid: %v", err)
	}
	for deadline := time.Now().Add(10 * time.Second); syscall.Kill(helper, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", helper)); strings.Contains(string(status), ") Z ") {
			break // dead, and nobody's child to reap here
		}
		if time.Now().After(deadline) {
			syscall.Kill(helper, syscall.SIGKILL)
			t.Fatal("the helper outlives its parent")
		}
	}
	if s := netemtest.RTT(t, n[0], n[1], 5); s.P50 > 20*time.Millisecond {
		t.Errorf("round trip %v after the parent's death", s.P50)
	}
}

// parent is the process to be killed in the test above.
func parent(spec string) error {
	var links []netem.Link
	if err := json.Unmarshal([]byte(spec), &links); err != nil {
		return err
	}
	b, err := wire.Open(context.Background(), wire.Options{})
	if err != nil {
		return err
	}
	if err := b.Apply(context.Background(), links); err != nil {
		return err
	}
	fmt.Println(b.Pid())
	<-b.Done()
	return nil
}

func TestPacketsThatAHelperCannotTakeAreCounted(t *testing.T) {
	ctx := context.Background()
	n := netemtest.Network(t, 2)
	b := open(t)
	if err := b.Apply(ctx, netemtest.Both(n[0], n[1], time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	netemtest.RTT(t, n[0], n[1], 3)
	var fd int
	err := netns.Do(n[0].Netns, func() (err error) {
		fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	// A stopped helper does not empty its ring.
	if err := syscall.Kill(b.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	const sent = 5000
	for range sent {
		syscall.Sendto(fd, []byte("x"), 0, &syscall.SockaddrInet4{Port: 9, Addr: n[1].Addr.As4()})
	}
	if err := syscall.Kill(b.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	c, err := b.Counters(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if c.Overrun == 0 || c.Packets+c.Overrun < sent {
		t.Errorf("%d delivered and %d overrun of %d sent", c.Packets, c.Overrun, sent)
	}
	netemtest.RTT(t, n[0], n[1], 3)
}

func TestProbeFindsThisMachineFitAndLeavesNothing(t *testing.T) {
	if err := wire.Probe(); err != nil {
		if errors.Is(err, wire.ErrUnsupported) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	if links, err := os.ReadDir("/sys/class/net"); err == nil {
		for _, l := range links {
			if strings.HasPrefix(l.Name(), "faultlab") {
				t.Error("the probe's device is in the host's namespace")
			}
		}
	}
}
