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

func TestALabIsAskedForWithRoomForItsTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newWorld().engine()
		asked := asking{Provider: e.Provider}
		e.Provider = &asked
		if err := e.Preflight(t.Context(), plan("mgr")); err != nil {
			t.Fatal(err)
		}
		if asked.data != fakeSize {
			t.Errorf("a lab with room for %d bytes a node was asked for, want the workload's %d", asked.data, int64(fakeSize))
		}
	})
}

// asking is a provider that remembers what it was asked for.
type asking struct {
	lab.Provider
	data int64
}

func (a *asking) Preflight(ctx context.Context, s lab.Spec) error {
	a.data = s.Data
	return a.Provider.Preflight(ctx, s)
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
