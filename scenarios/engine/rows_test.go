package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/labtest"
	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/scenarios"
)

// fixed is a measurement of two nodes, n1 and n2, with windows whose figures
// the test gives.
func fixed(windows ...window) *measurement {
	p := plan("mgr")
	p.Measure.Pairs = 5
	ends := []string{"n1", "n2"}
	n := &network{hops: []hop{{"n1", "n2"}, {"n2", "n1"}}, pairs: [][2]string{{"n1", "n2"}}, conditions: map[string][]moment{}}
	n.baseline, _ = resolve(p.Baseline.Links, ends)
	added, _ := resolve(p.Conditions[0].Links, ends)
	n.conditions["+0.6ms"] = []moment{{added: added}}
	w := newWorld()
	return &measurement{runner: &runner{Engine: w.engine(), plan: p}, topology: w.topologies["mgr"], net: n, windows: windows}
}

// second is a window of one second: its transactions, each of which took
// latency, and the round trip met.
func second(condition string, round int, transactions int64, latency, rtt time.Duration) window {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := hdrhistogram.New(1, time.Hour.Microseconds(), 3)
	if transactions > 0 {
		h.RecordValues(latency.Microseconds(), transactions)
	}
	w := window{condition: condition, round: round, counters: map[string]float64{"n1.com_commit": float64(transactions)},
		emulator: netem.Counters{CPU: 100 * time.Millisecond},
		load: workload.Window{Start: start, End: start.Add(time.Second), Latency: h, Transactions: transactions, Busy: 0.99,
			Samples: []workload.Sample{{Length: time.Second, Transactions: transactions}}}}
	if rtt > 0 {
		w.phases = []phase{{length: time.Second, rtt: []RTT{{From: "n1", To: "n2", Sent: 40, P50: rtt, P99: 2 * rtt}}}}
		if condition == "+0.6ms" {
			ways := netem.Impairment{Delay: 300 * time.Microsecond}
			w.phases[0].moment.added = faults{{"n1", "n2"}: ways, {"n2", "n1"}: ways}
		}
	}
	return w
}

func TestRowsAreMediansOfValidWindowsAndRatiosArePairs(t *testing.T) {
	const bare, far = 150 * time.Microsecond, 760 * time.Microsecond
	m := fixed(
		second("+0.6ms", 1, 80, 2*time.Millisecond, far), second("baseline", 1, 100, time.Millisecond, bare),
		second("baseline", 2, 200, time.Millisecond, bare), second("+0.6ms", 2, 160, 2*time.Millisecond, far),
		second("baseline", 3, 110, time.Millisecond, bare), second("+0.6ms", 3, 88, 4*time.Millisecond, far),
	)
	m.windows[3].load.Errors = map[string]int64{"1105": 2, "connection": 1}
	m.windows[3].load.Retries, m.windows[5].load.Unknown = 5, 1
	rows, windows, observer := m.rows()
	if len(windows) != 6 || observer != nil {
		t.Errorf("got %d windows and observer effect %v, want 6 and none", len(windows), observer)
	}
	if len(rows) != 2 || rows[0].Condition != "baseline" || rows[1].Condition != "+0.6ms" {
		t.Fatalf("got rows %+v, want baseline and +0.6ms", rows)
	}
	got := rows[1]
	want := results.Row{
		Topology: "mgr", Condition: "+0.6ms", Threads: 2, Windows: 3, TPS: 88, Valid: true,
		Latency: results.Latency{Avg: 2.537, P50: 2, P95: 4, P99: 4, Max: 4},
		RTT:     &results.RTT{Asked: 0.6, Bare: 0.15, MeasuredP50: 0.76, MeasuredP99: 1.52, WorstP50: 0.76, Probes: 120},
		// Each pair loses a fifth, however its level differs from the others'.
		VsBaseline: &results.Ratio{Ratio: 0.8, CI95: &[2]float64{0.8, 0.8}, Pairs: 3, Outcome: "inconclusive"},
		Errors:     3, Retries: 5, Unknown: 1, EmulatorCPU: 0.1, Server: map[string]float64{"n1.com_commit": 328},
		Stability:      results.Stability{P5OverP50: 1},
		InvalidReasons: []string{}, Warnings: []string{},
	}
	if got.TPSCI95 == nil || got.TPSCI95[0] > 88 || got.TPSCI95[1] < 88 {
		t.Errorf("the interval %v does not hold the median", got.TPSCI95)
	}
	got.TPSCI95 = nil
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0.002, 0)); diff != "" {
		t.Errorf("row differs (-want +got):\n%s", diff)
	}
	if rows[0].TPS != 110 || rows[0].VsBaseline != nil || rows[0].RTT.Asked != 0 {
		t.Errorf("got baseline %+v", rows[0])
	}
}

func TestARatioIsMadeOfPairsWithTwoValidWindows(t *testing.T) {
	const bare, far = 150 * time.Microsecond, 750 * time.Microsecond
	var ws []window
	for round := 1; round <= 5; round++ {
		ws = append(ws, second("baseline", round, 100, time.Millisecond, bare), second("+0.6ms", round, 90, time.Millisecond, far))
	}
	ws[2].emulator.Overrun = 1          // baseline of round 2
	ws[5].load.Busy = 0.5               // condition of round 3
	ws[3].load.Transactions = 1_000_000 // beside an invalid baseline: counts in the row, not in the ratio
	ws = slices.Delete(ws, 8, 9)        // baseline of round 5 was not measured yet
	rows, _, _ := fixed(ws...).rows()
	r := rows[1].VsBaseline
	if r == nil || r.Pairs != 2 || r.Ratio < 0.899 || r.Ratio > 0.901 {
		t.Fatalf("got %+v, want 0.9 over the pairs 1 and 4", r)
	}
	if rows[0].Windows != 3 || rows[1].Windows != 4 {
		t.Errorf("got %d and %d valid windows, want 3 and 4", rows[0].Windows, rows[1].Windows)
	}
}

func TestARowWithTooFewValidWindowsIsInvalid(t *testing.T) {
	for _, c := range []struct {
		bad   int
		valid bool
	}{{0, true}, {2, true}, {3, false}, {5, false}} {
		var ws []window
		for round := 1; round <= 5; round++ {
			w := second("baseline", round, 100, time.Millisecond, 120*time.Microsecond)
			if round <= c.bad {
				w.load.Busy = 0.3
			}
			ws = append(ws, w)
		}
		rows, _, _ := fixed(ws...).rows()
		if rows[0].Valid != c.valid || rows[0].Windows != 5-c.bad {
			t.Errorf("%d of 5 windows bad: got valid %v with %d windows (%q), want %v", c.bad, rows[0].Valid, rows[0].Windows, rows[0].InvalidReasons, c.valid)
		}
	}
}

func TestAWindowWithoutATransactionIsInvalid(t *testing.T) {
	m := fixed(second("baseline", 1, 0, 0, 120*time.Microsecond))
	rows, windows, _ := m.rows()
	if want := []string{"no transaction was committed"}; !slices.Equal(windows[0].InvalidReasons, want) || rows[0].Valid {
		t.Errorf("got reasons %q, row valid %v; want %q", windows[0].InvalidReasons, rows[0].Valid, want)
	}
	if rows[0].TPS != 0 || rows[0].TPSCI95 != nil {
		t.Errorf("got %v TPS of no window", rows[0].TPS)
	}
}

func TestANodeThatFallsEverFurtherBehindIsWarnedOf(t *testing.T) {
	m := fixed(second("baseline", 1, 100, time.Millisecond, 120*time.Microsecond))
	m.windows[0].lag = 150 // more than a second's work
	rows, _, _ := m.rows()
	if len(rows[0].Warnings) != 1 || !rows[0].Valid {
		t.Errorf("got warnings %q, valid %v; want one of a valid row", rows[0].Warnings, rows[0].Valid)
	}
}

func TestRowsThatWereNotReachedSaySo(t *testing.T) {
	rows, _, _ := fixed().rows()
	for _, r := range rows {
		if !slices.Equal(r.InvalidReasons, []string{"not measured yet"}) || r.Valid {
			t.Errorf("%s: got valid %v, reasons %q", r.Condition, r.Valid, r.InvalidReasons)
		}
	}
}

func TestConditionsResolveToHops(t *testing.T) {
	us := time.Microsecond
	rule := func(from, to string, oneWay bool, d time.Duration) scenarios.LinkRule {
		return scenarios.LinkRule{From: from, To: to, OneWay: oneWay, Impairment: netem.Impairment{Delay: d}}
	}
	d := func(d time.Duration) netem.Impairment { return netem.Impairment{Delay: d} }
	for _, c := range []struct {
		name  string
		rules []scenarios.LinkRule
		nodes []string
		want  faults
	}{
		{"between nodes, each direction once", []scenarios.LinkRule{rule("nodes", "nodes", false, 50*us)}, []string{"n1", "n2"},
			faults{{"n1", "n2"}: d(50 * us), {"n2", "n1"}: d(50 * us)}},
		{"one way", []scenarios.LinkRule{rule("n1", "nodes", true, 50*us)}, []string{"n1", "n2", "n3"},
			faults{{"n1", "n2"}: d(50 * us), {"n1", "n3"}: d(50 * us)}},
		{"client", []scenarios.LinkRule{rule("client", "nodes", false, 9*us)}, []string{"n1"},
			faults{{"client", "n1"}: d(9 * us), {"n1", "client"}: d(9 * us)}},
		{"the later rule holds", []scenarios.LinkRule{rule("nodes", "nodes", false, 50*us), rule("n1", "n2", true, 7*us)}, []string{"n1", "n2"},
			faults{{"n1", "n2"}: d(7 * us), {"n2", "n1"}: d(50 * us)}},
		{"one node has no links to others", []scenarios.LinkRule{rule("nodes", "nodes", false, 50*us), rule("n2", "n3", false, us)}, []string{"n1"}, faults{}},
		{"nothing added is still emulated", []scenarios.LinkRule{rule("n1", "n2", true, 0)}, []string{"n1", "n2"}, faults{{"n1", "n2"}: d(0)}},
	} {
		got, err := resolve(c.rules, c.nodes)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestLabNamesTellRunsApartAndAreValid(t *testing.T) {
	for _, c := range []struct{ run, topology, want string }{
		{"latency-0.6ms-20260102T030405Z-ab12", "mgr", "latency-0-6ms-20260102t030405z-ab12-mgr"},
		// The end tells two runs apart.
		{"a-scenario-with-quite-a-long-name-20260102T030405Z-ab12", "semisync", "ith-quite-a-long-name-20260102t030405z-ab12-semisync"},
		{"-ab12", "single", "ab12-single"},
	} {
		got := labName(c.run, c.topology)
		if len(got) > 48 {
			t.Errorf("labName(%q, %q) = %q has %d characters, want at most 48", c.run, c.topology, got, len(got))
		}
		if len(c.want) <= 48 && got != c.want {
			t.Errorf("labName(%q, %q) = %q, want %q", c.run, c.topology, got, c.want)
		}
	}
}

func TestALinkIsOffOnlyWhenItsProbesRuleOutThatItIsNot(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		r    RTT
		want time.Duration
	}{
		{RTT{P50: 780 * us}, 80 * us},
		{RTT{P50: 620 * us}, 80 * us},
		{RTT{P50: 780 * us, P50Low: 740 * us, P50High: 800 * us}, 40 * us},
		{RTT{P50: 620 * us, P50Low: 600 * us, P50High: 690 * us}, 10 * us},
		{RTT{P50: 720 * us, P50Low: 650 * us, P50High: 760 * us}, 0},
	} {
		if got := c.r.within(700 * us); got != c.want {
			t.Errorf("%+v: got %v from 700µs, want %v", c.r, got, c.want)
		}
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
		p.Baseline.Links = []scenarios.LinkRule{{From: "client", To: "nodes", Impairment: netem.Impairment{Delay: 50 * time.Microsecond}}}
		p.Conditions[0].Links = []scenarios.LinkRule{{From: "client", To: "nodes", Impairment: netem.Impairment{Delay: 300 * time.Microsecond}}}
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

func TestABaselineThatIsSlowerThanItsPathIsWarnedOf(t *testing.T) {
	const path, lan = 20 * time.Microsecond, 100 * time.Microsecond
	for _, c := range []struct {
		bare time.Duration
		warn bool
	}{{path + lan, false}, {path + lan + 55*time.Microsecond, false}, {400 * time.Microsecond, true}} {
		m := fixed(second(noEmulator, 1, 100, time.Millisecond, path), second("baseline", 1, 100, time.Millisecond, c.bare))
		rows, _, _ := m.rows()
		if got := strings.Contains(strings.Join(rows[0].Warnings, " "), "the baseline's rtt n1 to n2 was 0.400 ms: 0.280 more than"); got != c.warn {
			t.Errorf("baseline of %v: warnings %v, want one: %v", c.bare, rows[0].Warnings, c.warn)
		}
		if !rows[0].Valid {
			t.Errorf("baseline of %v is INVALID: %v", c.bare, rows[0].InvalidReasons)
		}
	}
}

func TestEachVariantHasALabAndRowsOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := plan("single", "mgr")
		p.Variants = []scenarios.Variant{
			{Name: "few", Threads: 3, Settings: map[string]map[string]string{"all": {"a": "1", "b": "1"}, "mgr": {"b": "2"}}},
			{Name: "many", Threads: 7},
		}
		run, err := w.run(t, t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range run.Rows {
			got = append(got, fmt.Sprintf("%s %s %s %d %v", r.Topology, r.Variant, r.Condition, r.Threads, r.Settings))
			if !r.Valid || r.Topology == "mgr" && r.VsSingle == nil {
				t.Errorf("row %+v", r)
			}
		}
		want := []string{
			"single few baseline 3 map[a:1 b:1]", "single many baseline 7 map[]",
			"mgr few baseline 3 map[a:1 b:2]", "mgr few +0.6ms 3 map[a:1 b:2]", "mgr many baseline 7 map[]", "mgr many +0.6ms 7 map[]",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
		if len(run.Labs) != 4 {
			t.Errorf("%d labs, want 4", len(run.Labs))
		}
	})
}

func TestTheRoundTripOfARowIsOfTheLinksThatItsConditionAsksMostOf(t *testing.T) {
	near := RTT{From: "n1", To: "n2", Sent: 40, P50: 150 * time.Microsecond, P99: 200 * time.Microsecond}
	far := RTT{From: "n1", To: "n3", Sent: 40, P50: 20160 * time.Microsecond, P99: 20500 * time.Microsecond}
	m := fixed()
	m.net.pairs = append(m.net.pairs, [2]string{"n1", "n3"})
	w := second("+0.6ms", 1, 100, time.Millisecond, near.P50)
	way := netem.Impairment{Delay: 10 * time.Millisecond}
	w.phases[0] = phase{length: time.Second, rtt: []RTT{near, far}, moment: moment{added: faults{{"n1", "n3"}: way, {"n3", "n1"}: way}}}
	got := m.rtt("+0.6ms", []window{w}, map[string]time.Duration{"n1 n2": 140 * time.Microsecond, "n1 n3": 160 * time.Microsecond})
	want := &results.RTT{Asked: 20, Bare: 0.16, MeasuredP50: 20.16, MeasuredP99: 20.5, WorstP50: 0.15, Probes: 80}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
