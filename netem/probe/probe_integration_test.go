//go:build integration

package probe_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/faultlab/faultlab/netem/netemtest"
	"github.com/faultlab/faultlab/netem/probe"
)

func TestTheFirstProbesOfANewNetworkAreAnswered(t *testing.T) {
	for range 5 {
		n := netemtest.Network(t, 2)
		if s := netemtest.RTT(t, n[0], n[1], 10); s.P50 > 5*time.Millisecond {
			t.Errorf("round trip on a bare link: %v", s.P50)
		}
	}
}

func TestBusyProcessorsAreNotInTheRoundTrip(t *testing.T) {
	n := netemtest.Network(t, 2)
	stop := make(chan struct{})
	defer close(stop)
	for range 4 * runtime.NumCPU() {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
	}
	// A prober that had to be scheduled would see milliseconds.
	if s := netemtest.RTT(t, n[0], n[1], 200); s.P50 > time.Millisecond {
		t.Errorf("round trip on a bare link, processors busy: %v", s.P50)
	}
}

func TestABackgroundProberCountsEveryPair(t *testing.T) {
	n := netemtest.Network(t, 3)
	nobody := n[2]
	nobody.Addr = nobody.Addr.Next()
	p, err := probe.Open([]probe.Pair{{From: n[0], To: n[1]}, {From: n[1], To: n[2]}, {From: n[0], To: nobody}}, 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 2 {
		time.Sleep(300 * time.Millisecond)
		stats := p.Take()
		for _, s := range stats[:2] {
			if s.Sent == 0 || s.Lost != 0 || len(s.RTTs) != s.Sent || s.P50 <= 0 || s.Min > s.P50 || s.P50 > s.P99 || s.P99 > s.Max {
				t.Errorf("%s to %s: %+v", s.From, s.To, s)
			}
		}
		if s := stats[2]; s.Sent == 0 || s.Lost != s.Sent {
			t.Errorf("nobody answered %d of %d probes", s.Sent-s.Lost, s.Sent)
		}
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAnEndedContextEndsTheMeasurement(t *testing.T) {
	n := netemtest.Network(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	s, err := probe.Measure(ctx, probe.Pair{From: n[0], To: n[1]}, 1000, 10*time.Millisecond)
	if err != context.DeadlineExceeded || s.Sent == 0 || s.Sent > 100 {
		t.Errorf("Measure = %d sent, %v", s.Sent, err)
	}
}
