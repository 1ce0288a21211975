//go:build integration

package probe_test

import (
	"context"
	"testing"
	"time"

	"github.com/faultlab/faultlab/netem/netemtest"
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

func TestRoundTripsAreMeasuredByIPv6Too(t *testing.T) {
	n := netemtest.Network(t, 2)
	s, err := probe.Measure(context.Background(), probe.Pair{From: n[0], To: n[1]}.V6(), 20, 2*time.Millisecond)
	if err != nil || s.Lost > 0 || len(s.RTTs) == 0 || s.P50 > 5*time.Millisecond {
		t.Errorf("got %+v, %v", s, err)
	}
}
