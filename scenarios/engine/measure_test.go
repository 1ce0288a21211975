package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/scenarios"
)

// windows lists the windows of a topology by round.
func windows(run results.Run, topology string) map[int][]string {
	out := map[int][]string{}
	for _, w := range run.Windows {
		if w.Topology == topology {
			out[w.Pair] = append(out[w.Pair], w.Condition)
		}
	}
	return out
}

func TestEveryRoundHoldsAllConditionsInRandomOrder(t *testing.T) {
	order := func(seed uint64) map[int][]string {
		var out map[int][]string
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.seed = seed
			p := plan("mgr")
			p.Measure.Pairs, p.Measure.ObserverPairs = 9, 2
			p.Conditions = append(p.Conditions, scenarios.Condition{Name: "far", Links: []scenarios.LinkRule{{From: "nodes", To: "nodes", Impairment: netem.Impairment{Delay: time.Millisecond}}}})
			run, err := w.run(t, t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			out = windows(run, "mgr")
		})
		return out
	}
	first := order(1)
	orders := map[string]bool{}
	for round := 1; round <= 9; round++ {
		want := []string{"+0.6ms", "baseline", "far"}
		if round <= 2 {
			want = append(want, noEmulator)
		} else {
			orders[strings.Join(first[round], ",")] = true
		}
		got := slices.Sorted(slices.Values(first[round]))
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("round %d has windows %q, want each of %q once", round, got, want)
		}
	}
	if len(orders) < 2 {
		t.Errorf("all rounds have the same order: %v", orders)
	}
	if diff := cmp.Diff(first, order(1)); diff != "" {
		t.Errorf("the same seed gave another order:\n%s", diff)
	}
	if cmp.Equal(first, order(2)) {
		t.Error("another seed gave the same order of 9 rounds")
	}
}

func TestTheBaselineGoesThroughTheEmulatorAndTheObserverWindowDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		seen := map[string]time.Duration{}
		w.judge = func(at Progress) []string {
			seen[at.Condition] = -1
			if f := w.faultsAt(time.Now()); f != nil {
				seen[at.Condition] = f[hop{"n2", "n3"}].Delay
			}
			return nil
		}
		if _, err := w.run(t, t.Context(), plan("mgr")); err != nil {
			t.Fatal(err)
		}
		want := map[string]time.Duration{"baseline": 50 * time.Microsecond, "+0.6ms": 350 * time.Microsecond, noEmulator: -1}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("one-way delay by condition, -1 for no emulator (-want +got):\n%s", diff)
		}
	})
}

// during is a hook's condition: the last seconds of a window of mgr.
func during(at Progress, condition string) bool {
	return at.Topology == "mgr" && at.Condition == condition && at.Step == "measure"
}

func TestAWindowThatFailsItsProofIsLeftOutOrSpoilsItsRow(t *testing.T) {
	type rows map[string][]string // condition -> reasons; none is valid
	for _, c := range []struct {
		name     string
		breakIt  func(w *world)
		want     rows
		warnings string // of the condition's row
	}{
		{"rtt too long", func(w *world) {
			w.rtt = func(at Progress, r []RTT) []RTT {
				if during(at, "+0.6ms") {
					r[1].P50 += 80 * time.Microsecond
				}
				return r
			}
		}, rows{"+0.6ms": {"rtt n1 to n3 was 0.800 ms: +0.080 ms from the asked 0.600 above the bare 0.120 (tolerance 0.060)"}}, ""},
		{"rtt within tolerance", func(w *world) {
			w.rtt = func(at Progress, r []RTT) []RTT {
				if during(at, "+0.6ms") {
					r[1].P50 += 59 * time.Microsecond
				}
				return r
			}
		}, rows{}, ""},
		{"latency that is not there", func(w *world) {
			w.rtt = func(at Progress, r []RTT) []RTT {
				for i := range r {
					if at.Topology == "mgr" {
						r[i].P50 = wire
					}
				}
				return r
			}
		}, rows{"+0.6ms": {
			"rtt n1 to n2 was 0.020 ms, less than the 0.700 that the emulator was asked to add (tolerance 0.060)",
			"rtt n1 to n3 was 0.020 ms, less than the 0.700 that the emulator was asked to add (tolerance 0.060)",
			"rtt n2 to n3 was 0.020 ms, less than the 0.700 that the emulator was asked to add (tolerance 0.060)",
		}, "baseline": {
			"rtt n1 to n2 was 0.020 ms, less than the 0.100 that the emulator was asked to add (tolerance 0.060)",
			"rtt n1 to n3 was 0.020 ms, less than the 0.100 that the emulator was asked to add (tolerance 0.060)",
			"rtt n2 to n3 was 0.020 ms, less than the 0.100 that the emulator was asked to add (tolerance 0.060)",
		}}, ""},
		{"emulator overrun", func(w *world) {
			w.counters = func(at Progress, c *netem.Counters) {
				if during(at, "+0.6ms") {
					c.Overrun = 7
				}
			}
		}, rows{"+0.6ms": {"emulator lost 7 packets that it was not asked to drop"}}, ""},
		{"lost probes", func(w *world) {
			w.rtt = func(at Progress, r []RTT) []RTT {
				if during(at, "baseline") {
					r[0].Lost = 2
				}
				return r
			}
		}, rows{"baseline": {"2 of 60 probes n1 to n2 were lost"}}, ""},
		{"too few probes", func(w *world) {
			w.rtt = func(at Progress, r []RTT) []RTT {
				if during(at, "+0.6ms") {
					r[2].Sent = 9
				}
				return r
			}
		}, rows{"+0.6ms": {"only 9 probes n2 to n3: too few to prove its rtt"}}, ""},
		{"a link that was not probed", func(w *world) {
			w.rtt = func(at Progress, r []RTT) []RTT {
				if during(at, "+0.6ms") {
					return r[:2]
				}
				return r
			}
		}, rows{"+0.6ms": {"only 0 probes n2 to n3: too few to prove its rtt"}}, ""},
		{"idle threads", func(w *world) {
			w.transact = func(at Progress) error {
				if during(at, "+0.6ms") {
					return errors.New("connection refused")
				}
				return nil
			}
		}, rows{"+0.6ms": {"load kept its threads busy only 1% of the time"}}, ""},
		{"one bad window of five", func(w *world) {
			w.counters = func(at Progress, c *netem.Counters) {
				if during(at, "+0.6ms") && at.Pair == 3 {
					c.Overrun = 1
				}
			}
		}, rows{}, "1 of 5 windows were INVALID and left out: emulator lost 1 packets that it was not asked to drop"},
		{"a node that left and came back", func(w *world) {
			told := false // it is whole again when it is asked the next time
			w.health = func(at Progress, h *lab.Health) {
				if during(at, "+0.6ms") && at.Pair == 3 && !told {
					told = true
					h.Nodes[2].Problems = []string{"server ended"}
				}
			}
		}, rows{
			"baseline": {"cluster failed in the +0.6ms window of pair 3: n3: server ended"},
			"+0.6ms":   {"cluster failed in the +0.6ms window of pair 3: n3: server ended", "n3: server ended"},
		}, ""},
		{"a role that moved", func(w *world) {
			moved := false
			w.health = func(at Progress, h *lab.Health) {
				if moved = moved || during(at, "+0.6ms") && at.Pair == 3; moved && at.Topology == "mgr" {
					h.Nodes[0].Role, h.Nodes[1].Role = "replica", "source"
				}
			}
		}, rows{
			"baseline": {"cluster failed in the +0.6ms window of pair 3: n1: role changed from source to replica"},
			"+0.6ms": {"cluster failed in the +0.6ms window of pair 3: n1: role changed from source to replica",
				"n1: role changed from source to replica", "n2: role changed from replica to source"},
		}, ""},
		{"counters that belie it", func(w *world) {
			w.judge = func(at Progress) []string {
				if during(at, "+0.6ms") && at.Pair == 3 {
					return []string{"n1: semisync fell back to async: 4 commits were not acknowledged by a replica"}
				}
				return nil
			}
		}, rows{
			"baseline": {"cluster failed in the +0.6ms window of pair 3: n1: semisync fell back to async: 4 commits were not acknowledged by a replica"},
			"+0.6ms": {"cluster failed in the +0.6ms window of pair 3: n1: semisync fell back to async: 4 commits were not acknowledged by a replica",
				"n1: semisync fell back to async: 4 commits were not acknowledged by a replica"},
		}, ""},
		{"a replica that does not catch up", func(w *world) {
			w.health = func(at Progress, h *lab.Health) {
				if at.Topology == "mgr" && at.Pair == 2 {
					h.Nodes[2].Lag = 5
				}
			}
		}, rows{"baseline": {"replicas did not catch up within 30s"}, "+0.6ms": {"replicas did not catch up within 30s"}}, ""},
		{"a node that is gone before a window", func(w *world) {
			gone := false
			w.judge = func(at Progress) []string { // the last word on a window
				gone = at.Topology == "mgr" && at.Pair == 2
				return nil
			}
			w.health = func(at Progress, h *lab.Health) {
				if gone && at.Topology == "mgr" {
					h.Nodes[1].Problems = []string{"server ended"}
				}
			}
		}, rows{
			"baseline": {"cluster is not healthy before a window: n2: server ended"},
			"+0.6ms":   {"cluster is not healthy before a window: n2: server ended"},
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				c.breakIt(w)
				p := plan("mgr", "single")
				p.Measure.ObserverPairs = 0
				run, err := w.run(t, t.Context(), p)
				if err != nil {
					t.Fatal(err)
				}
				if run.Status != results.Complete {
					t.Errorf("status is %s, want complete: what is invalid is no failure of the run", run.Status)
				}
				if r := rowOf(t, run, "single", "baseline"); !r.Valid || r.Windows != 5 {
					t.Errorf("single was measured after it and is spoiled: %q", r.InvalidReasons)
				}
				for _, condition := range []string{"baseline", "+0.6ms"} {
					r := rowOf(t, run, "mgr", condition)
					if diff := cmp.Diff(append([]string{}, c.want[condition]...), r.InvalidReasons); diff != "" {
						t.Errorf("reasons of %s (-want +got):\n%s", condition, diff)
					}
					if r.Valid != (len(r.InvalidReasons) == 0) {
						t.Errorf("%s: valid is %v with reasons %q", condition, r.Valid, r.InvalidReasons)
					}
					if !r.Valid && (r.VsBaseline != nil || r.VsSingle != nil) {
						t.Errorf("%s is INVALID and has ratios: %v, %v", condition, r.VsBaseline, r.VsSingle)
					}
				}
				if got := strings.Join(rowOf(t, run, "mgr", "+0.6ms").Warnings, "; "); c.warnings != "" && got != c.warnings {
					t.Errorf("got warnings %q, want %q", got, c.warnings)
				}
			})
		})
	}
}
