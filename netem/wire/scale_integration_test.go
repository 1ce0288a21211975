//go:build integration

package wire_test

import (
	"testing"
	"time"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netemtest"
)

// mesh is every directed link between nodes, each with a delay of its own.
func mesh(n []netem.Endpoint, step time.Duration) (links []netem.Link) {
	for i := range n {
		for j := range n {
			if i != j {
				links = append(links, netemtest.Link(n[i], n[j], time.Duration(1+(7*i+3*j)%50)*step))
			}
		}
	}
	return links
}

// The figures are in the log; the bounds are far from noise.
func TestAFullMeshOfThirtyNodesIsMadeAndChangedQuickly(t *testing.T) {
	n := netemtest.Network(t, 30)
	b := open(t)
	for _, c := range []struct {
		what  string
		step  time.Duration
		bound time.Duration
	}{{"made", time.Millisecond, 15 * time.Second}, {"changed", 2 * time.Millisecond, 5 * time.Second}} {
		links := mesh(n, c.step)
		start := time.Now()
		apply(t, b, links...)
		took := time.Since(start)
		t.Logf("%d links %s in %v", len(links), c.what, took)
		if took > c.bound {
			t.Errorf("%d links %s in %v, want less than %v", len(links), c.what, took, c.bound)
		}
		for _, p := range [][2]int{{0, 1}, {7, 22}, {29, 28}, {15, 3}} {
			there, back := time.Duration(1+(7*p[0]+3*p[1])%50)*c.step, time.Duration(1+(7*p[1]+3*p[0])%50)*c.step
			if s := netemtest.RTT(t, n[p[0]], n[p[1]], 3); s.Min < there+back-time.Millisecond || s.P50 > there+back+50*time.Millisecond {
				t.Errorf("round trip %v of %s and %s, want %v", s.P50, s.From, s.To, there+back)
			}
		}
	}
	start := time.Now()
	if all, err := b.Show(ctx); err != nil || len(all) != 870 {
		t.Errorf("Show has %d links, %v, want 870", len(all), err)
	}
	t.Logf("shown in %v", time.Since(start))
	start = time.Now()
	if err := b.Clear(ctx); err != nil {
		t.Error(err)
	}
	t.Logf("cleared in %v", time.Since(start))
}
