//go:build integration

package wire_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netemtest"
	"github.com/faultlab/faultlab/netem/probe"
	"github.com/faultlab/faultlab/netem/wire"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == wire.Arg {
		if err := wire.Main(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
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

	for _, e := range n {
		for range 2 {
			if err := wire.Detach(e); err != nil {
				t.Errorf("Detach(%s): %v", e.Name, err)
			}
		}
	}
	netemtest.RTT(t, n[0], n[1], 3)
	// A new helper takes over where one was killed.
	b2 := open(t)
	if err := b2.Apply(ctx, netemtest.Both(n[0], n[1], 30*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if s := netemtest.RTT(t, n[0], n[1], 5); s.P50 < 29*time.Millisecond {
		t.Errorf("round trip %v with a new helper's 30ms", s.P50)
	}
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
			if l.Name() == "faultlab0" {
				t.Error("the probe's device is in the host's namespace")
			}
		}
	}
}
