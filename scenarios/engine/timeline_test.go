package engine

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/scenarios"
)

// cutPlan is a window of 10 s in which n3 is cut off from the third second to
// the sixth.
func cutPlan() scenarios.Plan {
	p := plan("mgr")
	cut := []scenarios.LinkRule{{From: "n3", To: "nodes", Impairment: netem.Impairment{Partition: true}}}
	p.Conditions = []scenarios.Condition{{Name: "cut", Timeline: []scenarios.Step{
		{At: 3 * time.Second, Links: cut}, {At: 6 * time.Second, Heal: true},
	}}}
	p.Measure.Window = 10 * time.Second
	p.Measure.Pairs = 2
	p.Measure.ObserverPairs = 0
	return p
}

func TestATimelineChangesTheLinksDuringTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		run, err := w.run(t, t.Context(), cutPlan())
		if err != nil {
			t.Fatal(err)
		}
		if r := rowOf(t, run, "mgr", "cut"); !r.Valid || r.Windows != 2 {
			t.Errorf("row %+v", r)
		}
		var at []time.Duration // of cuts and healings
		for i, s := range w.states {
			is, was := s.faults[hop{"n1", "n3"}].Partition, i > 0 && w.states[i-1].faults[hop{"n1", "n3"}].Partition
			if is != was {
				at = append(at, s.at.Sub(w.states[0].at).Round(time.Second))
			}
			if is && s.faults[hop{"n1", "n2"}].Partition {
				t.Error("n1 to n2 was cut too")
			}
		}
		if len(at) != 4 || at[1]-at[0] != 3*time.Second || at[3]-at[2] != 3*time.Second {
			t.Errorf("cut and healed at %v, want twice for 3 s", at)
		}
		if !w.sink.told("cut: at 3s n1 to n3 partition, n3 to n1 partition, n2 to n3 partition, n3 to n2 partition") || !w.sink.told("cut: at 6s links: baseline") {
			t.Errorf("events %+v", w.sink.events)
		}
	})
}

func TestTroubleOfAClusterWhoseLinksWereCutIsAResultAndNotItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var troubled time.Time // n3 is away for 20 s from its cut on
		w.health = func(at Progress, h *lab.Health) {
			if len(h.Nodes) < 3 {
				return
			}
			if w.faultsAt(time.Now())[hop{"n1", "n3"}].Partition {
				troubled = time.Now()
			}
			if !troubled.IsZero() && time.Since(troubled) < 20*time.Second {
				h.Nodes[2].Problems = []string{"is UNREACHABLE"}
			}
		}
		run, err := w.run(t, t.Context(), cutPlan())
		if err != nil {
			t.Fatal(err)
		}
		r := rowOf(t, run, "mgr", "cut")
		if !r.Valid || r.Windows != 2 || !slices.Contains(r.Warnings, "while links were cut: n3: is UNREACHABLE") {
			t.Errorf("row %+v", r)
		}
		if b := rowOf(t, run, "mgr", "baseline"); !b.Valid || b.Windows != 2 {
			t.Errorf("baseline %+v", b)
		}
	})
}

func TestAClusterThatStaysBrokenAfterACutEndsItsRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		broken := false
		w.health = func(at Progress, h *lab.Health) {
			broken = broken || w.faultsAt(time.Now())[hop{"n1", "n3"}].Partition
			if broken && len(h.Nodes) == 3 {
				h.Nodes[2].Problems = []string{"is ERROR"}
			}
		}
		run, err := w.run(t, t.Context(), cutPlan())
		if err != nil {
			t.Fatal(err)
		}
		r := rowOf(t, run, "mgr", "cut")
		if want := "the cluster was not whole again 1m0s after its links: n3: is ERROR"; r.Valid || !slices.Contains(r.InvalidReasons, want) {
			t.Errorf("reasons %q, want %q", r.InvalidReasons, want)
		}
	})
}

func TestACutThatProbesPassIsInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.rtt = func(at Progress, r []RTT) []RTT {
			for i := range r {
				r[i].Lost = 0
			}
			return r
		}
		run, err := w.run(t, t.Context(), cutPlan())
		if err != nil {
			t.Fatal(err)
		}
		r := rowOf(t, run, "mgr", "cut")
		if r.Valid || !strings.Contains(strings.Join(r.InvalidReasons, "\n"), "60 of 60 probes n1 to n3 passed a link that was cut") {
			t.Errorf("reasons %q", r.InvalidReasons)
		}
	})
}

func TestLostProbesAreJudgedByWhatWasAsked(t *testing.T) {
	parse := func(s string) netem.Impairment {
		i, _, err := netem.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	for _, c := range []struct {
		there, back string
		sent, lost  int64
		want        string
	}{
		{"delay 5ms", "delay 5ms", 100, 0, ""},
		{"delay 5ms", "delay 5ms", 100, 1, "1 of 100 probes n1 to n2 were lost"},
		{"loss 10%", "none", 400, 40, ""},
		{"loss 10%", "none", 400, 55, ""},
		{"loss 10%", "none", 400, 90, "90 of 400 probes n1 to n2 were lost, which is not the asked 10%"},
		{"loss 10%", "none", 400, 0, "0 of 400 probes n1 to n2 were lost, which is not the asked 10%"},
		{"loss 10%", "loss 10%", 400, 76, ""},
		{"loss gemodel 1% 10%", "none", 400, 90, ""},
		{"rate 1mbit", "none", 400, 90, ""},
		{"corrupt 20%", "none", 400, 80, ""},
		{"loss 50%", "rate 1mbit", 400, 20, "20 of 400 probes n1 to n2 were lost, which is not the asked 50%"},
	} {
		got := lossOff(RTT{Sent: c.sent, Lost: c.lost}, "n1 to n2", parse(c.there), parse(c.back))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s there, %s back, %d of %d: %s", c.there, c.back, c.lost, c.sent, diff)
		}
	}
}

func TestALoadThatStandsStillBehindACutIsAResult(t *testing.T) {
	still := second("+0.6ms", 1, 0, time.Millisecond, 0)
	still.load.Busy = 0.3
	for _, cut := range []bool{false, true} {
		m := fixed(still)
		m.plan.Conditions[0].Links = []scenarios.LinkRule{{From: "n1", To: "nodes", Impairment: netem.Impairment{Partition: cut}}}
		got := strings.Join(m.judge(m.windows[0], nil), "; ")
		if none := !strings.Contains(got, "no transaction") && !strings.Contains(got, "threads busy"); none != cut {
			t.Errorf("cut %v: %s", cut, got)
		}
	}
}
