//go:build integration

package probe_test

import (
	"context"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faultlab/faultlab/netem/netemtest"
	"github.com/faultlab/faultlab/netem/netns"
	"github.com/faultlab/faultlab/netem/probe"
)

func TestABareLinkDeliversAStreamWhole(t *testing.T) {
	n := netemtest.Network(t, 2)
	pair := probe.Pair{From: n[0], To: n[1]}
	for name, p := range map[string]probe.Pair{"IPv4": pair, "IPv6": pair.V6()} {
		for size, s := range map[string]probe.Stream{
			"spaced": {Count: 300, Interval: time.Millisecond}, "dense": {Count: 5000}, "MTU": {Count: 200, Size: 1500},
		} {
			f, err := probe.OneWay(context.Background(), p, s)
			t.Logf("%s %s: p50 %v, p99 %v, max %v", name, size, f.P50, f.P99, f.Max)
			if err != nil || f.Sent != s.Count || f.Received != s.Count || f.Lost+f.Duplicates+f.Corrupted+f.Missed+f.Refused > 0 || len(f.Bursts) > 0 {
				f.Arrivals, f.Delays = nil, nil
				t.Errorf("%s, %s: got %+v, %v, want all of %d and nothing else", name, size, f, err, s.Count)
			}
			if f.Min <= 0 || f.P50 > 5*time.Millisecond || len(f.Delays) < f.Received/2 {
				t.Errorf("%s, %s: one-way delays of a bare link from %v, median %v", name, size, f.Min, f.P50)
			}
		}
	}
}

// A burst that is the first thing ever sent to an address: more of it than the
// kernel keeps while it asks for the neighbour.
func TestABurstAtFirstContactArrivesWhole(t *testing.T) {
	for name, of := range map[string]func(probe.Pair) probe.Pair{"IPv4": func(p probe.Pair) probe.Pair { return p }, "IPv6": probe.Pair.V6} {
		n := netemtest.Network(t, 2)
		f, err := probe.OneWay(context.Background(), of(probe.Pair{From: n[0], To: n[1]}), probe.Stream{Count: 300, Size: 1500})
		if err != nil || f.Received != 300 {
			t.Errorf("%s: %d of %d packets arrived, %v", name, f.Received, f.Sent, err)
		}
	}
	n := netemtest.Network(t, 2)
	for _, a := range []netip.Addr{n[1].Addr, n[1].Addr6} {
		if err := netns.Introduce(n[0].Netns, a, n[1].Netns); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("ip", "-n", filepath.Base(n[0].Netns), "neigh", "show", a.String()).Output()
		if err != nil || !strings.Contains(string(out), "lladdr") {
			t.Errorf("before anything is sent, %s is not known: %s, %v", a, out, err)
		}
	}
}

func TestRoundTripsAreMeasuredByIPv6Too(t *testing.T) {
	n := netemtest.Network(t, 2)
	s, err := probe.Measure(context.Background(), probe.Pair{From: n[0], To: n[1]}.V6(), 20, 2*time.Millisecond)
	if err != nil || s.Lost > 0 || len(s.RTTs) == 0 || s.P50 > 5*time.Millisecond {
		t.Errorf("got %+v, %v", s, err)
	}
}
