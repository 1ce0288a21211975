package scenarios

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/faultlab/faultlab/netem"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestEveryBadFileIsRefusedWithPlaceAndHint(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("got %d bad files (%v), want at least 20", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Load(filepath.Base(file), text)
			if err == nil {
				t.Fatalf("got no error, want one for\n%s", text)
			}
			got := err.Error() + "\n"
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("errors differ (-want +got):\n%s\ninput:\n%s", diff, text)
			}
		})
	}
}

func TestEveryShippedScenarioResolvesAndIsCalledAsItsFile(t *testing.T) {
	if len(Names()) == 0 {
		t.Fatal("no scenario ships")
	}
	for _, name := range Names() {
		s, err := Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		if s.Name != name || s.Group == "" {
			t.Errorf("got name %q and group %q in %s.yaml", s.Name, s.Group, name)
		}
		for _, p := range s.Profiles() {
			want, err := s.Resolve(p, Overrides{})
			if err != nil {
				t.Errorf("%s, profile %s: %v", name, p, err)
				continue
			}
			// What a run keeps of it asks the same again.
			text, err := want.YAML()
			if err != nil {
				t.Fatal(err)
			}
			again, err := Load(name+" as kept", text)
			if err != nil {
				t.Errorf("%v\n%s", err, text)
				continue
			}
			got, err := again.Resolve(p, Overrides{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, profile %s, kept and read again (-want +got):\n%s", name, p, diff)
			}
		}
	}
}

func TestAResolvedPlanWrittenAndReadAgainIsTheSamePlan(t *testing.T) {
	for _, profile := range profiles {
		want := plan(t, profile, Overrides{Threads: 3, Pairs: 7, Duration: 1500 * time.Millisecond, Topologies: []string{"mgr", "single"}})
		want.Conditions = append(want.Conditions, Condition{Name: "far", Links: []LinkRule{
			{From: "n1", To: "n3", OneWay: true, Impairment: netem.Impairment{Delay: 250 * time.Microsecond}},
			{From: "n2", To: "n3"},
			{From: "n1", To: "n2", Impairment: netem.Impairment{Delay: time.Millisecond, Loss: netem.Random{Chance: netem.Whole / 100}, Seed: 3}},
		}}, Condition{Name: "cut", Timeline: []Step{
			{At: time.Second, Links: []LinkRule{{From: "nodes", To: "n3", Impairment: netem.Impairment{Partition: true}}}},
			{At: 2 * time.Second, Heal: true},
			{At: 5 * time.Second, Every: 5 * time.Second, For: 500 * time.Millisecond, Links: []LinkRule{{From: "n1", To: "n2", OneWay: true, Impairment: netem.Impairment{Rate: 1e6}}}},
		}})
		text, err := want.YAML()
		if err != nil {
			t.Fatal(err)
		}
		s, err := Load("scenario.yaml", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		got, err := s.Resolve(profile, Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("plans differ (-want +got):\n%s\n%s", diff, text)
		}
	}
}

func TestTheLatencyScenarioPutsHalfOfTheRTTOnEachDirection(t *testing.T) {
	p := plan(t, "quick", Overrides{})
	want := []LinkRule{{From: "nodes", To: "nodes", Impairment: netem.Impairment{Delay: 300 * time.Microsecond}}}
	if diff := cmp.Diff(want, p.Conditions[0].Links); diff != "" {
		t.Errorf("links differ (-want +got):\n%s", diff)
	}
	if got, want := p.Baseline.Links[0].Impairment.Delay, 50*time.Microsecond; got != want {
		t.Errorf("baseline: got delay %v, want %v", got, want)
	}
}

func TestAProfileIsLaidOverTheFileAndTheFileOverThePresets(t *testing.T) {
	s, err := Load("mine.yaml", []byte(`
schema: 1
name: mine
question: What?
topologies: [mgr]
workload: {name: oltp_read_only, threads: 8}
measure: {warmup: 0s, window: 90s}
profiles: {quick: {workload: {threads: 2}, measure: {pairs: 1}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Resolve("quick", Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	wantLoad := Workload{Name: "oltp_read_only", Tables: 4, Rows: 10000, Threads: 2, Distribution: "special"}
	wantMeasure := Measure{Warmup: 0, Settle: 500 * time.Millisecond, Window: 90 * time.Second, Pairs: 1, ObserverPairs: 2, RTTTolerance: DefaultTolerance}
	if diff := cmp.Diff(wantLoad, p.Workload); diff != "" {
		t.Errorf("workload differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantMeasure, p.Measure); diff != "" {
		t.Errorf("measure differs (-want +got):\n%s", diff)
	}
	if _, err := s.Resolve("paper", Overrides{}); err == nil {
		t.Error("got a paper profile that the file does not have")
	}
}

func TestTPCCHasWarehousesAndNoTables(t *testing.T) {
	s, err := Load("mine.yaml", []byte(`
schema: 1
name: mine
question: What?
topologies: [mgr]
workload: {name: tpcc, threads: 8}
profiles: {standard: {workload: {warehouses: 20}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for profile, want := range map[string]Workload{
		"quick":    {Name: "tpcc", Threads: 8, Warehouses: 4, Scale: 10},
		"standard": {Name: "tpcc", Threads: 8, Warehouses: 20, Scale: 1},
	} {
		p, err := s.Resolve(profile, Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, p.Workload); diff != "" {
			t.Errorf("%s (-want +got):\n%s", profile, diff)
		}
		text, err := p.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Load("again.yaml", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if q, err := again.Resolve(profile, Overrides{}); err != nil || q.Workload != p.Workload {
			t.Errorf("%s, written and read again: %+v, %v, want %+v", profile, q.Workload, err, p.Workload)
		}
	}
}

func TestTheExampleOfTheDocumentationLoads(t *testing.T) {
	text, err := os.ReadFile("../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	if _, err := Load("docs/scenarios.md", []byte(example)); err != nil {
		t.Errorf("%v\n%s", err, example)
	}
}

func TestImpossibleOverridesAreAllReported(t *testing.T) {
	s, err := Builtin("latency-0.6ms")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Resolve("quick", Overrides{Topologies: []string{"mrg", "single", "single"}, Threads: -1, Pairs: 5000, Duration: time.Millisecond})
	const want = `unknown topology "mrg"
    hint: did you mean "mgr"?
topology "single" is asked for twice
threads must be 1 to 10000, not -1
pairs must be 1 to 1000, not 5000
window 1ms is shorter than 1s`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestAnUnknownScenarioNamesTheNearest(t *testing.T) {
	for _, name := range []string{"latency-0.6", "latency-06ms", "Latency-0.6MS", "latency", "lateny-0.6ms"} {
		_, err := Builtin(name)
		var p *Problem
		if !errors.As(err, &p) || !strings.Contains(p.Hint, `"latency-0.6ms"`) {
			t.Errorf("%s: got %v, want a hint at latency-0.6ms", name, err)
		}
	}
	for _, name := range []string{"", "../scenarios", "x", strings.Repeat("x", 1<<16)} {
		_, err := Builtin(name)
		var p *Problem
		if !errors.As(err, &p) || !strings.HasPrefix(p.Hint, "known: ") {
			t.Errorf("%.20q: got %v, want a hint that lists what is known", name, err)
		}
	}
}

func TestDurationsAreExact(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"250us": 250 * time.Microsecond, "0.6ms": 600 * time.Microsecond, "0.5s": 500 * time.Millisecond,
		"30m": 30 * time.Minute, "0ms": 0, "1ns": 1, "0.000001ms": 1, "2.5 ms": 2500 * time.Microsecond,
		"60µs": 60 * time.Microsecond, "1.1s": 1100 * time.Millisecond, "9223372036854775807ns": 1<<63 - 1, "1.10h": 66 * time.Minute,
	} {
		got, err := ParseDuration(in)
		if err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0", "0.6", "600", "ms", ".5ms", "5.ms", "-1ms", "+1ms", "1m30s", "1e3ms", "0x5ms", "1 000ms", "5MS", "0.1ns", "9223372036854775808ns", "2562048h", "inf", "1ms\n"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("%q: got %v, want an error", in, got)
		}
	}
}

func TestDurationsAreWrittenInTheUnitThatPeopleUse(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0ms": 0, "1ns": 1, "1500ns": 1500, "0.06ms": 60_000, "0.6ms": 600_000, "500ms": 500_000_000,
		"1.5s": 1_500_000_000, "90s": 90 * time.Second, "30m": 30 * time.Minute, "120m": 2 * time.Hour,
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%d ns: got %s, want %s", d, got, want)
		}
	}
}

func TestTheEstimateGrowsWithWhatIsMeasured(t *testing.T) {
	quick := plan(t, "quick", Overrides{})
	if got := quick.Estimate(); got < 3*time.Minute || got > 8*time.Minute {
		t.Errorf("quick: got %v, want 3 to 8 minutes", got)
	}
	if one, all := plan(t, "quick", Overrides{Topologies: []string{"mgr"}}).Estimate(), quick.Estimate(); one >= all/3 {
		t.Errorf("one topology of five: got %v of %v", one, all)
	}
	quick.Measure.Window, quick.Measure.Pairs = 1<<62, 1<<40
	if got := quick.Estimate(); got < 1<<62 {
		t.Errorf("a plan beyond all time: got %v", got)
	}
}

func FuzzLoadNeverPanicsAndWhatItAcceptsCanBeWritten(f *testing.F) {
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	for _, file := range append(files, "latency-0.6ms.yaml") {
		if text, err := os.ReadFile(file); err == nil {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Load("fuzz.yaml", text)
		if err != nil {
			var ps Problems
			if !errors.As(err, &ps) || len(ps) == 0 || ps[0].Line < 1 || ps[0].Column < 1 {
				t.Fatalf("got %#v, want problems with a place", err)
			}
			return
		}
		for _, profile := range s.Profiles() {
			p, err := s.Resolve(profile, Overrides{})
			if err != nil {
				t.Fatal(err)
			}
			text, err := p.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Load("again.yaml", text); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
		}
	})
}

func FuzzParseDurationReadsWhatFormatDurationWrites(f *testing.F) {
	f.Add(int64(600_000))
	f.Fuzz(func(t *testing.T, ns int64) {
		if ns < 0 {
			return
		}
		got, err := ParseDuration(FormatDuration(time.Duration(ns)))
		if err != nil || got != time.Duration(ns) {
			t.Fatalf("got %d, %v; want %d (%s)", got, err, ns, FormatDuration(time.Duration(ns)))
		}
	})
}

func plan(t *testing.T, profile string, o Overrides) Plan {
	t.Helper()
	s, err := Builtin("latency-0.6ms")
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Resolve(profile, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
