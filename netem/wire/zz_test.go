//go:build integration

package wire_test

import (
	"context"
	"testing"
	"time"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netemtest"
	"github.com/faultlab/faultlab/netem/probe"
)

func TestZZ(t *testing.T) {
	n := netemtest.Network(t, 2)
	b := open(t)
	i, _, _ := netem.Parse("delay 10ms rate 1mbit")
	b.Apply(context.Background(), []netem.Link{{From: n[0], To: n[1], Impairment: i}})
	p := probe.Pair{From: n[0], To: n[1]}
	for range 2 {
	f, _ := probe.OneWay(context.Background(), p, probe.Stream{Count: 50, Size: 1000})
	for _, a := range f.Arrivals { t.Log(a.Seq, a.At.Add(-a.Delay).Format("05.000000000"), a.At.Format("05.000000000"), a.Delay) }
	time.Sleep(time.Second)
	}
}
