package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/labtest"
	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/scenarios"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestARunIsWrittenAsPromised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := plan("single", "mgr")
		p.Published = []scenarios.Published{{Topology: "mgr", Condition: "baseline", TPS: 6066, Source: "elsewhere"}}
		run, err := w.run(t, t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		e := json.NewEncoder(&got)
		e.SetIndent("", "  ")
		if err := e.Encode(run); err != nil {
			t.Fatal(err)
		}
		const golden = "testdata/run.golden.json"
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		// The last digits of a figure differ between processors.
		var wantDoc, gotDoc any
		if err := errors.Join(json.Unmarshal(want, &wantDoc), json.Unmarshal(got.Bytes(), &gotDoc)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wantDoc, gotDoc, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
			t.Errorf("run differs (-want +got):\n%s", diff)
		}
		if last := w.sink.saves[len(w.sink.saves)-1]; last.Status != run.Status || len(last.Rows) != len(run.Rows) {
			t.Errorf("the run that was kept is %s with %d rows, the one returned %s with %d", last.Status, len(last.Rows), run.Status, len(run.Rows))
		}
	})
}

// The names are a promise to users and to outside checks: see docs/results.md.
func TestTheDocumentHasEveryPromisedField(t *testing.T) {
	b, err := os.ReadFile("testdata/run.golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	row := func(topology, condition string) map[string]any {
		for _, r := range doc["rows"].([]any) {
			if m := r.(map[string]any); m["topology"] == topology && m["condition"] == condition {
				return m
			}
		}
		t.Fatalf("there is no row %s, %s", topology, condition)
		return nil
	}
	for _, c := range []struct {
		what   string
		in     any
		fields string
	}{
		{"run", doc, "schema run_id scenario profile started finished status environment rows verdicts"},
		{"environment", doc["environment"], "kernel cpus memory_bytes provider emulator servers"},
		{"row", row("mgr", "+0.6ms"), "topology condition threads windows tps tps_ci95 latency_ms rtt_ms vs_baseline vs_single stability errors retries unknown_outcomes server valid invalid_reasons warnings"},
		{"row of single", row("single", "baseline"), "topology condition threads windows tps tps_ci95 latency_ms rtt_ms vs_baseline vs_single stability errors retries unknown_outcomes server valid invalid_reasons warnings"},
		{"latency_ms", row("mgr", "+0.6ms")["latency_ms"], "avg p50 p95 p99 max"},
		{"rtt_ms", row("mgr", "+0.6ms")["rtt_ms"], "asked bare measured_p50 measured_p99"},
		{"vs_baseline", row("mgr", "+0.6ms")["vs_baseline"], "ratio ci95 detected"},
		{"vs_single", row("mgr", "+0.6ms")["vs_single"], "ratio ci95 detected"},
		{"stability", row("mgr", "+0.6ms")["stability"], "cv p5_over_p50 longest_stall_s zero_seconds"},
	} {
		in, ok := c.in.(map[string]any)
		if !ok {
			t.Errorf("%s: got %v, want an object", c.what, c.in)
			continue
		}
		for _, f := range strings.Fields(c.fields) {
			if _, ok := in[f]; !ok {
				t.Errorf("%s has no field %s", c.what, f)
			}
		}
	}
	for _, field := range []string{"rows", "verdicts", "windows", "observer", "labs"} {
		if _, ok := doc[field].([]any); !ok {
			t.Errorf("%s is %v, want a list", field, doc[field])
		}
	}
}

func TestARowSaysWhatWasAskedAndMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tx = 10_370_001 * time.Nanosecond
		run, err := w.run(t, t.Context(), plan("single", "mgr"))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := rowNames(run), []string{"single baseline", "mgr baseline", "mgr +0.6ms"}; !slices.Equal(got, want) {
			t.Fatalf("got rows %q, want %q", got, want)
		}
		single, base, far := run.Rows[0], run.Rows[1], run.Rows[2]
		for _, r := range run.Rows {
			if !r.Valid || len(r.InvalidReasons) > 0 || len(r.Warnings) > 0 || r.Windows != 5 || r.Threads != 2 {
				t.Errorf("%s %s: got valid %v (%q), warnings %q, %d windows, %d threads; want 5 windows of 2 threads and no complaint",
					r.Topology, r.Condition, r.Valid, r.InvalidReasons, r.Warnings, r.Windows, r.Threads)
			}
		}
		if single.RTT != nil || single.VsBaseline != nil || single.VsSingle != nil {
			t.Errorf("single has no links and nothing to be compared with; got rtt %v, vs baseline %v, vs single %v", single.RTT, single.VsBaseline, single.VsSingle)
		}
		near := func(got, want float64) bool { return got > want*0.98 && got < want*1.02 }
		for _, c := range []struct {
			row              results.Row
			rtt, asked, bare float64 // ms
		}{{base, 0.12, 0, 0.12}, {far, 0.72, 0.6, 0.12}} {
			r := c.row.RTT
			if !near(r.MeasuredP50, c.rtt) || r.Asked != c.asked || !near(r.Bare, c.bare) || !near(r.MeasuredP99, c.rtt+0.05) {
				t.Errorf("%s: got %+v, want asked %v above bare %v, measured %v", c.row.Condition, *r, c.asked, c.bare, c.rtt)
			}
			if want := 2 / (0.010370001 + c.rtt/1000); !near(c.row.TPS, want) {
				t.Errorf("%s: got %.1f TPS, want about %.1f", c.row.Condition, c.row.TPS, want)
			}
			if want := 10.37 + c.rtt; !near(c.row.Latency.P50, want) {
				t.Errorf("%s: got a median of %v ms, want about %v", c.row.Condition, c.row.Latency.P50, want)
			}
		}
		if base.VsBaseline != nil {
			t.Errorf("the baseline is compared with itself: %+v", *base.VsBaseline)
		}
		if v := far.VsBaseline; v == nil || !near(v.Ratio, far.TPS/base.TPS) || v.Pairs != 5 || !v.Detected {
			t.Errorf("got vs baseline %+v, want a loss that is detected in 5 pairs", v)
		}
		if v := far.VsSingle; v == nil || !near(v.Ratio, far.TPS/single.TPS) {
			t.Errorf("got vs single %+v, want about %v", v, far.TPS/single.TPS)
		}
		if len(run.Observer) != 1 || run.Observer[0].Ratio.Pairs != 2 || !near(run.Observer[0].EmulatorCPU, 0.25) {
			t.Errorf("got observer effect %+v, want mgr's in 2 pairs at a quarter of a processor", run.Observer)
		}
		if !near(far.EmulatorCPU, 0.25) {
			t.Errorf("got %v of a processor for the emulator, want 0.25", far.EmulatorCPU)
		}
		if got, want := run.Environment.Servers["mysql"], "9.7.4"; got != want || run.Environment.Emulator != "fake" || run.Environment.Provider != "fake" {
			t.Errorf("got environment %+v", run.Environment)
		}
		// A sample a second of every window, observer windows too.
		if got, want := len(w.sink.samples), 3*(5+10+2); got != want {
			t.Errorf("got %d samples, want %d", got, want)
		}
	})
}

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
			p.Conditions = append(p.Conditions, scenarios.Condition{Name: "far", Links: []scenarios.LinkRule{{From: "nodes", To: "nodes", Delay: time.Millisecond}}})
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
			w.mu.Lock()
			defer w.mu.Unlock()
			seen[at.Condition] = -1
			if w.delays != nil {
				seen[at.Condition] = w.delays[hop{"n2", "n3"}]
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

func TestATopologyThatCannotBeMeasuredSaysWhyAndTheRunGoesOn(t *testing.T) {
	no := func(topology string) error {
		if topology == "mgr" {
			return errors.New("no room\nand more of the log")
		}
		return nil
	}
	for _, c := range []struct {
		name    string
		breakIt func(w *world)
		want    string
	}{
		{"bootstrap", func(w *world) { w.bootstrap = func(_ context.Context, s string) error { return no(s) } }, "no room"},
		{"prepare", func(w *world) { w.prepare = func(_ context.Context, s string) error { return no(s) } }, "prepare on n1: no room"},
		{"sessions", func(w *world) { w.session = no }, "starting oltp_write_only: session "},
		{"emulator", func(w *world) { w.emulator = no }, "no room"},
		{"prober", func(w *world) { w.prober = no }, "no room"},
		{"a server", func(w *world) {
			w.provider.OnStart = func(n *labtest.FakeNode, _ lab.Start) error {
				if n.Name() == "n2" {
					return no(w.now().Topology)
				}
				return nil
			}
		}, "node n2: no room"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				c.breakIt(w)
				run, err := w.run(t, t.Context(), plan("mgr", "single"))
				if err != nil || run.Status != results.Complete {
					t.Fatalf("got status %s, %v; want a complete run", run.Status, err)
				}
				want := []string{"mgr baseline", "mgr +0.6ms", "single baseline"}
				if diff := cmp.Diff(want, rowNames(run)); diff != "" {
					t.Errorf("rows (-want +got):\n%s", diff)
				}
				for _, r := range run.Rows {
					if r.Topology != "mgr" {
						if !r.Valid {
							t.Errorf("%s %s is INVALID: %q", r.Topology, r.Condition, r.InvalidReasons)
						}
						continue
					}
					if !slices.ContainsFunc(r.InvalidReasons, func(s string) bool { return strings.HasPrefix(s, c.want) && strings.HasSuffix(s, "no room") }) || r.Valid {
						t.Errorf("%s: got valid %v, reasons %q; want %q", r.Condition, r.Valid, r.InvalidReasons, c.want)
					}
				}
				if got := run.Labs[0].Error; !strings.Contains(got, "no room") || strings.Contains(got, "\n") {
					t.Errorf("the lab's error is %q, want its first line", got)
				}
				if !slices.ContainsFunc(w.sink.events, func(e results.Event) bool {
					return e.Topology == "mgr" && strings.Contains(e.Text, "and more of the log")
				}) {
					t.Error("no event tells the whole of why")
				}
			})
		})
	}
}

func TestSingleHasOneRowAlsoWhenItCannotBeMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.bootstrap = func(context.Context, string) error { return errors.New("no") }
		run, err := w.run(t, t.Context(), plan("single"))
		if err != nil {
			t.Fatal(err)
		}
		if got := rowNames(run); !slices.Equal(got, []string{"single baseline"}) || run.Rows[0].Valid {
			t.Errorf("got rows %q, want one that is INVALID", got)
		}
	})
}

// A lab that does not open leaves no network to say which links there are.
func TestALabThatDoesNotOpenHasItsRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.provider.OpenError = errors.New("no namespaces here")
		run, err := w.run(t, t.Context(), plan("single", "mgr"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"single baseline", "mgr baseline", "mgr +0.6ms"}, rowNames(run)); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
		for _, r := range run.Rows {
			if !slices.Equal(r.InvalidReasons, []string{"no namespaces here"}) {
				t.Errorf("%s %s: got reasons %q", r.Topology, r.Condition, r.InvalidReasons)
			}
		}
	})
}

// What is shaped between client and nodes leaves single a single row too.
func TestALinkToTheClientGivesSingleNoConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := plan("single", "mgr")
		p.Baseline.Links = []scenarios.LinkRule{{From: "client", To: "nodes", Delay: 50 * time.Microsecond}}
		p.Conditions[0].Links = []scenarios.LinkRule{{From: "client", To: "nodes", Delay: 300 * time.Microsecond}}
		run, err := w.run(t, t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"single baseline", "mgr baseline", "mgr +0.6ms"}, rowNames(run)); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
		for _, x := range run.Windows {
			if x.Topology == "single" && x.Condition != "baseline" {
				t.Errorf("a window of single, %s, was measured for no row", x.Condition)
			}
		}
	})
}

func TestAnInterruptedRunKeepsWhatWasMeasuredAndTakesItsLabsDown(t *testing.T) {
	for _, c := range []struct {
		name   string
		when   func(at Progress) bool
		rounds int // whole rounds of mgr that are kept
	}{
		{"while a cluster forms", func(at Progress) bool { return at.Topology == "mgr" && at.Step == "settle" && at.Pair == 0 }, 0},
		{"in the warm-up", func(at Progress) bool { return at.Topology == "mgr" && at.Step == "warm-up" }, 0},
		{"in a window", func(at Progress) bool { return at.Topology == "mgr" && at.Pair == 4 && at.Step == "measure" }, 3},
		{"between windows", func(at Progress) bool { return at.Topology == "mgr" && at.Pair == 3 && at.Step == "settle" }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var cut time.Time
				w.progress = func(at Progress) {
					if cut.IsZero() && c.when(at) {
						cut = time.Now()
						cancel()
					}
				}
				w.bootstrap = func(ctx context.Context, _ string) error { return ctx.Err() }
				run, err := w.run(t, ctx, plan("single", "mgr", "async"))
				if !errors.Is(err, context.Canceled) || run.Status != results.Interrupted {
					t.Fatalf("got %v, status %s; want an interrupted run", err, run.Status)
				}
				if took := time.Since(cut); took > 10*time.Second {
					t.Errorf("it took %v to end", took)
				}
				if run.Finished.IsZero() {
					t.Error("the end has no time")
				}
				if r := rowOf(t, run, "single", "baseline"); !r.Valid || r.Windows != 5 {
					t.Errorf("single was measured before, and has %d windows, reasons %q", r.Windows, r.InvalidReasons)
				}
				if slices.ContainsFunc(run.Rows, func(r results.Row) bool { return r.Topology == "async" }) {
					t.Error("async was begun after the interrupt")
				}
				for _, condition := range []string{"baseline", "+0.6ms"} {
					r := rowOf(t, run, "mgr", condition)
					if r.Windows < c.rounds || r.Windows > c.rounds+1 || r.Valid != (r.Windows > 0) {
						t.Errorf("mgr %s: got %d windows, valid %v; want those of %d rounds", condition, r.Windows, r.Valid, c.rounds)
					}
					if !r.Valid && !slices.Equal(r.InvalidReasons, []string{"interrupted before its first window"}) {
						t.Errorf("mgr %s: got reasons %q", condition, r.InvalidReasons)
					}
					if r.Valid && !slices.Contains(r.Warnings, fmt.Sprintf("interrupted after %d of 5 windows", r.Windows)) {
						t.Errorf("mgr %s: got warnings %q", condition, r.Warnings)
					}
				}
				if last := w.sink.saves[len(w.sink.saves)-1]; last.Status != results.Interrupted || len(last.Windows) != len(run.Windows) {
					t.Errorf("kept is a run %s with %d windows, want %d", last.Status, len(last.Windows), len(run.Windows))
				}
			})
		})
	}
}

// A run that is killed has only what was saved; and a condition whose baseline
// comes later in the round has yet nothing to be judged against.
func TestEveryFinishedWindowIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		if _, err := w.run(t, t.Context(), plan("mgr")); err != nil {
			t.Fatal(err)
		}
		most := 0
		for _, s := range w.sink.saves {
			if len(s.Windows) > most+1 {
				t.Errorf("a save has %d windows, the one before %d", len(s.Windows), most)
			}
			most = max(most, len(s.Windows))
			for _, r := range s.Rows {
				for _, why := range r.InvalidReasons {
					if strings.HasPrefix(why, "rtt") {
						t.Errorf("after %d windows %s is INVALID for %q", len(s.Windows), r.Condition, why)
					}
				}
			}
		}
		if most != 12 {
			t.Errorf("got %d windows in the last save, want 12", most)
		}
	})
}

func TestNothingIsCreatedWhenAPlanCannotBeCarriedOut(t *testing.T) {
	for _, c := range []struct {
		name    string
		breakIt func(w *world, p *scenarios.Plan)
		want    string
	}{
		{"provider", func(w *world, _ *scenarios.Plan) { w.provider.PreflightError = lab.ErrCannot }, "single: this machine cannot"},
		{"topology", func(_ *world, p *scenarios.Plan) { p.Topologies = append(p.Topologies, "ring") }, "topology ring is not known"},
		{"workload", func(_ *world, p *scenarios.Plan) { p.Workload.Name = "tpcc" }, `unknown workload "tpcc"`},
		{"node", func(_ *world, p *scenarios.Plan) { p.Conditions[0].Links[0].To = "n7" }, `condition +0.6ms: there is no node "n7"`},
		{"no server", func(w *world, _ *scenarios.Plan) {
			w.provider.PreflightError = fmt.Errorf("mysql: %w", lab.ErrNoServer)
		}, "no server at hand"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.emulator = func(string) error { t.Error("an emulator was opened"); return nil }
				w.provider.OnStart = func(*labtest.FakeNode, lab.Start) error { t.Error("a server was started"); return nil }
				p := plan("single", "mgr")
				c.breakIt(w, &p)
				for what, err := range map[string]error{
					"Preflight": w.engine().Preflight(t.Context(), p),
					"Run":       func() error { _, err := w.run(t, t.Context(), p); return err }(),
				} {
					if err == nil || !strings.Contains(err.Error(), c.want) {
						t.Errorf("%s: got %v, want %q", what, err, c.want)
					}
				}
				if len(w.sink.saves) > 0 || len(w.sink.events) > 0 {
					t.Errorf("%d saves and %d events of a run that never began", len(w.sink.saves), len(w.sink.events))
				}
			})
		})
	}
}

func TestGaleraStandsInForPXCUnderItsOwnName(t *testing.T) {
	for _, c := range []struct {
		topologies []string
		want       []string
	}{
		{[]string{"pxc"}, []string{"galera baseline", "galera +0.6ms"}},
		{[]string{"galera", "pxc"}, []string{"galera baseline", "galera +0.6ms"}},
		{[]string{"pxc", "galera"}, []string{"galera baseline", "galera +0.6ms"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			e := w.engine()
			e.Provider = noPXC{&w.provider}
			run, err := e.Run(t.Context(), results.Run{ID: "x"}, plan(c.topologies...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, rowNames(run)); diff != "" {
				t.Errorf("%v: rows (-want +got):\n%s", c.topologies, diff)
			}
			if len(run.Notes) != 1 || !strings.Contains(run.Notes[0], "galera") {
				t.Errorf("%v: got notes %q, want one that says so", c.topologies, run.Notes)
			}
		})
	}
}

// noPXC is a provider without a PXC server.
type noPXC struct{ lab.Provider }

func (n noPXC) Preflight(ctx context.Context, s lab.Spec) error {
	if s.Nodes[0].Flavor == lab.PXC {
		return fmt.Errorf("pxc: %w", lab.ErrNoServer)
	}
	return n.Provider.Preflight(ctx, s)
}

func TestPXCIsMeasuredWhereThereIsAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run, err := newWorld().run(t, t.Context(), plan("pxc"))
		if err != nil {
			t.Fatal(err)
		}
		if got := rowNames(run); !slices.Equal(got, []string{"pxc baseline", "pxc +0.6ms"}) || len(run.Notes) > 0 {
			t.Errorf("got rows %q, notes %q", got, run.Notes)
		}
	})
}

func TestARunWhoseResultsCannotBeKeptEnds(t *testing.T) {
	full := errors.New("no space left on device")
	for _, at := range []int{1, 2, 5, 9} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.keep = func(*lab.Cluster) { t.Errorf("save %d: a lab was kept of a run that failed", at) }
			w.sink.fail = func(n int) error {
				if n >= at {
					return full
				}
				return nil
			}
			w.topologies = map[string]lab.Topology{"mgr": w.topologies["mgr"], "async": w.topologies["async"]}
			run, err := w.run(t, t.Context(), plan("mgr", "async"))
			if !errors.Is(err, full) {
				t.Errorf("save %d: got %v, want the sink's error", at, err)
			}
			if at > 1 && run.Status != results.Failed {
				t.Errorf("save %d: status is %s, want failed", at, run.Status)
			}
			if slices.ContainsFunc(run.Rows, func(r results.Row) bool { return r.Topology == "async" }) {
				t.Errorf("save %d: the run went on to async", at)
			}
		})
	}
}

func TestLabsAreKeptOnlyWhenTheyWereMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var kept []string
		w.keep = func(c *lab.Cluster) {
			kept = append(kept, c.Topology)
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		w.bootstrap = func(_ context.Context, topology string) error {
			if topology == "mgr" {
				return errors.New("no")
			}
			return nil
		}
		if _, err := w.run(t, t.Context(), plan("single", "mgr", "async")); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(kept, []string{"single", "async"}) {
			t.Errorf("kept %q, want single and async", kept)
		}
	})
}

func TestALabThatWasMeasuredAndNotTakenDownCleanlyKeepsItsRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine()
		e.Provider = sticky{&w.provider}
		run, err := e.Run(t.Context(), results.Run{ID: "x"}, plan("mgr"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range run.Rows {
			if !r.Valid {
				t.Errorf("%s is INVALID: %q", r.Condition, r.InvalidReasons)
			}
		}
		if len(run.Notes) != 1 || !strings.Contains(run.Notes[0], "device or resource busy") {
			t.Errorf("got notes %q, want one that tells why the lab is not down", run.Notes)
		}
	})
}

// sticky is a provider whose labs do not close without complaint.
type sticky struct{ lab.Provider }

type stickyLab struct{ lab.Lab }

func (s sticky) Open(ctx context.Context, spec lab.Spec) (lab.Lab, error) {
	l, err := s.Provider.Open(ctx, spec)
	return stickyLab{l}, err
}

func (s stickyLab) Close(ctx context.Context) error {
	return errors.Join(s.Lab.Close(ctx), errors.New("device or resource busy"))
}

func TestALoadThatFailsNowAndThenIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		n := 0
		w.transact = func(at Progress) error {
			if n++; during(at, "+0.6ms") && n%50 == 0 {
				return workload.ErrUnknownOutcome
			}
			return nil
		}
		p := plan("mgr")
		p.Workload.Threads = 1
		run, err := w.run(t, t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		base, far := rowOf(t, run, "mgr", "baseline"), rowOf(t, run, "mgr", "+0.6ms")
		if base.Unknown != 0 || far.Unknown == 0 {
			t.Errorf("got %d unknown outcomes in the baseline and %d beyond, want none and some", base.Unknown, far.Unknown)
		}
	})
}

func TestProgressCountsDownAndNamesWhatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		last := time.Duration(1<<63 - 1)
		var steps []string
		w.progress = func(p Progress) {
			if p.Left > last {
				t.Errorf("%s: time left rose from %v to %v", p.Step, last, p.Left)
			}
			last = p.Left
			if p.Count != 2 || p.Index < 1 || p.Index > 2 || p.Topology == "" || p.Step == "" {
				t.Errorf("got %+v", p)
			}
			if p.Step == "measure" && p.TPS == 0 && p.Topology == "mgr" {
				t.Errorf("no TPS in a window: %+v", p)
			}
			if len(steps) == 0 || steps[len(steps)-1] != p.Step {
				steps = append(steps, p.Step)
			}
		}
		if _, err := w.run(t, t.Context(), plan("single", "mgr")); err != nil {
			t.Fatal(err)
		}
		want := []string{"lab", "start", "settle", "prepare", "warm-up", "settle", "measure"}
		if got := steps[:min(len(want), len(steps))]; !slices.Equal(got, want) {
			t.Errorf("got steps %q, want %q first", got, want)
		}
	})
}

func TestEachLabHasANewPassword(t *testing.T) {
	a, b := NewCredentials(), NewCredentials()
	if a.Password == b.Password || len(a.Password) < 20 || a.User == "" {
		t.Errorf("got passwords of %d and %d characters, equal: %v", len(a.Password), len(b.Password), a.Password == b.Password)
	}
	if strings.ContainsAny(a.Password, `'"\ `) {
		t.Errorf("a password must stand in quotes as it is: %q", a.Password)
	}
}
