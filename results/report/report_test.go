package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/results"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var began = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func ptr(lo, hi float64) *[2]float64 { return &[2]float64{lo, hi} }

func ratioOf(r, lo, hi float64, pairs int, outcome string) *results.Ratio {
	return &results.Ratio{Ratio: r, CI95: ptr(lo, hi), Pairs: pairs, Outcome: outcome, Detected: outcome == "detected"}
}

func row(topology, condition string, tps, p50 float64) results.Row {
	r := results.Row{
		Topology: topology, Condition: condition, Threads: 16, Windows: 5, TPS: tps, TPSCI95: ptr(tps*0.96, tps*1.03),
		Latency: results.Latency{Avg: p50 * 1.2, P50: p50, P95: p50 * 2.4, P99: p50 * 4, Max: p50 * 20},
		Valid:   true, Stability: results.Stability{CV: 0.04, P5OverP50: 0.9},
	}
	if topology != single {
		r.RTT = &results.RTT{Bare: 0.112, MeasuredP50: 0.112, MeasuredP99: 0.19, WorstP50: 0.121, Probes: 1520}
		if condition != baseline {
			r.RTT.Asked, r.RTT.MeasuredP50, r.RTT.MeasuredP99, r.RTT.WorstP50 = 0.6, 0.721, 0.84, 0.733
		}
	}
	return r
}

// complete is a run of which everything went well.
func complete() results.Run {
	run := results.Run{
		Schema: 1, ID: "latency-0.6ms-20260304T050607Z", Scenario: "latency-0.6ms", Profile: "quick",
		Question: "What does 0.6 ms between the nodes cost each kind of replication?",
		Started:  began, Finished: began.Add(4*time.Minute + 51*time.Second), Status: results.Complete,
		Environment: results.Environment{Kernel: "6.12.0", CPUs: 2, MemoryBytes: 8 << 30, Provider: "process", Emulator: "user",
			Servers: map[string]string{"mysql": "9.7.4", "mariadb": "10.11.14"}, Faultlab: "0.1.0"},
		Workload: results.Workload{Name: "oltp_write_only", Tables: 4, Rows: 10000, Threads: 16, Distribution: "special"},
		Labs: []results.Lab{
			{Topology: "single", Server: "mysql 9.7.4"}, {Topology: "async", Server: "mysql 9.7.4"}, {Topology: "semisync", Server: "mysql 9.7.4"},
			{Topology: "mgr", Server: "mysql 9.7.4"}, {Topology: "galera", Server: "mariadb 10.11.14"},
		},
		Published: []results.Published{
			{Topology: "single", Condition: baseline, TPS: 10260, ResponseMS: 11.69, VsSingle: 1, Source: "published 2017, other hardware"},
			{Topology: "semisync", Condition: baseline, TPS: 8741, ResponseMS: 13.73, VsSingle: 0.8519, Source: "published 2017, other hardware"},
			{Topology: "pxc", Condition: baseline, TPS: 5884, ResponseMS: 20.39, VsSingle: 0.5735, Source: "published 2017, other hardware"},
			{Topology: "semisync", Condition: "+0.6ms", Text: "TPS about halved and response time about doubled", Source: "published 2017, other hardware"},
			{Topology: "pxc", Condition: "+0.6ms", Text: "almost no change", Source: "published 2017, other hardware"},
		},
		Observer: []results.Observer{
			{Topology: "semisync", Ratio: results.Ratio{Ratio: 0.93, Pairs: 2, Outcome: "inconclusive"}, EmulatorCPU: 0.21},
			{Topology: "galera", Ratio: *ratioOf(0.85, 0.8, 0.9, 5, "detected"), EmulatorCPU: 0.44},
		},
	}
	add := func(r results.Row, vsSingle, vsBaseline *results.Ratio) {
		r.VsSingle, r.VsBaseline = vsSingle, vsBaseline
		run.Rows = append(run.Rows, r)
	}
	add(row("single", baseline, 2531, 5.9), nil, nil)
	add(row("async", baseline, 1402, 10.6), ratioOf(0.55, 0.52, 0.59, 5, "detected"), nil)
	add(row("async", "+0.6ms", 1398, 10.7), ratioOf(0.55, 0.51, 0.6, 5, "detected"), ratioOf(0.998, 0.972, 1.024, 5, "not detected"))
	add(row("semisync", baseline, 1205, 12.4), ratioOf(0.48, 0.45, 0.51, 5, "detected"), nil)
	add(row("semisync", "+0.6ms", 1036, 14.5), ratioOf(0.41, 0.38, 0.44, 5, "detected"), ratioOf(0.86, 0.83, 0.89, 5, "detected"))
	add(row("mgr", baseline, 988, 15.1), ratioOf(0.39, 0.36, 0.42, 5, "detected"), nil)
	add(row("mgr", "+0.6ms", 930, 16.3), ratioOf(0.37, 0.34, 0.4, 5, "detected"), ratioOf(0.942, 0.921, 0.964, 5, "detected"))
	add(row("galera", baseline, 1150, 13), ratioOf(0.97, 0.92, 1.02, 5, "not detected"), nil)
	add(row("galera", "+0.6ms", 1080, 14), ratioOf(0.91, 0.84, 0.97, 5, "detected"), ratioOf(0.94, 0.88, 1.004, 5, "not detected"))
	return run
}

// invalid has rows that failed their proof, too few pairs, a lab that never
// was, and text that tries to be more than text.
func invalid() results.Run {
	run := complete()
	run.Status = results.Complete
	find := func(topology, condition string) *results.Row {
		for i, r := range run.Rows {
			if r.Topology == topology && r.Condition == condition {
				return &run.Rows[i]
			}
		}
		panic(topology)
	}
	r := find("mgr", "+0.6ms")
	r.Valid, r.InvalidReasons = false, []string{"n2: not a member of the group (state ERROR)", "rtt n1 to n3 was 0.312 ms: -0.400 ms from the asked 0.600 above the bare 0.112 (tolerance 0.060)"}
	r = find("galera", baseline)
	r.Valid, r.InvalidReasons = false, []string{"n3 left the cluster: <script>alert(1)</script> \x1b[31m|pipes|\nand lines"}
	r = find("semisync", "+0.6ms")
	r.VsBaseline = &results.Ratio{Ratio: 0.86, CI95: ptr(0.6, 1.2), Pairs: 3, Outcome: "inconclusive"}
	r.Stability.LongestStallS, r.Errors, r.Unknown, r.Warnings = 2, 12, 1, []string{"2 of 5 windows were INVALID and left out: emulator lost 3 packets"}
	run.Labs = append(run.Labs, results.Lab{Topology: "pxc", Error: "server n1 did not answer within 60 s"})
	run.Notes = []string{"no PXC server at hand: galera is measured in its place"}
	run.Verdicts = []results.Verdict{{Expect: "semisync loses", Outcome: "inconclusive", Why: "3 pairs"}}
	return run
}

func interrupted() results.Run {
	run := complete()
	run.Status, run.Finished = results.Interrupted, began.Add(63*time.Second)
	run.Rows, run.Labs, run.Observer, run.Published = run.Rows[:2], run.Labs[:2], nil, nil
	return run
}

func empty() results.Run {
	return results.Run{Schema: 1, ID: "latency-0.6ms-20260304T050607Z", Scenario: "latency-0.6ms", Profile: "quick", Started: began, Status: results.Running}
}

func runs() map[string]results.Run {
	return map[string]results.Run{"complete": complete(), "invalid": invalid(), "interrupted": interrupted(), "empty": empty()}
}

// samples are seconds for the windows of every row, with one stall.
func samples(run results.Run) []results.Sample {
	var out []results.Sample
	at := began
	for _, t := range []string{"single", "async", "semisync", "mgr", "galera"} {
		for pair := 1; pair <= 5; pair++ {
			for _, c := range []string{baseline, "+0.6ms"} {
				for _, r := range run.Rows {
					if r.Topology != t || r.Condition != c {
						continue
					}
					for s := range 3 {
						tps := r.TPS * (1 + 0.05*math.Sin(float64(7*pair+3*s)))
						if t == "mgr" && pair == 3 && s == 1 {
							tps = 20
						}
						out = append(out, results.Sample{Time: at, Topology: t, Condition: c, Pair: pair, Second: s, TPS: tps})
						at = at.Add(time.Second)
					}
				}
			}
		}
	}
	return out
}

var formats = map[string]func(io.Writer, View) error{
	"txt":  func(w io.Writer, v View) error { return Text(w, v, Style{}) },
	"ansi": func(w io.Writer, v View) error { return Text(w, v, Style{Color: true, Width: 120}) },
	"md":   Markdown, "csv": CSV, "json": JSON, "html": HTML,
}

func write(t *testing.T, format string, v View) string {
	t.Helper()
	var b bytes.Buffer
	if err := formats[format](&b, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestEveryFormatOfEveryKindOfRunIsAsAgreed(t *testing.T) {
	for name, run := range runs() {
		v := Build(run, samples(run))
		for format := range formats {
			t.Run(name+"/"+format, func(t *testing.T) {
				got := write(t, format, v)
				golden := filepath.Join("testdata", name+"."+format)
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
					t.Errorf("%s differs (-want +got):\n%s", golden, diff)
				}
			})
		}
	}
}

func TestTextFitsItsWidth(t *testing.T) {
	for name, run := range runs() {
		for _, width := range []int{0, 100, 120, 200} {
			var b bytes.Buffer
			if err := Text(&b, Build(run, nil), Style{Width: width}); err != nil {
				t.Fatal(err)
			}
			for _, line := range strings.Split(b.String(), "\n") {
				if n := utf8.RuneCountInString(line); n > 120 {
					t.Errorf("%s at width %d: got a line of %d columns, want at most 120: %s", name, width, n, line)
				}
			}
		}
	}
}

func TestColourIsHelpAndNeverTheMessage(t *testing.T) {
	escape := regexp.MustCompile("\x1b\\[[0-9]*m")
	for name, run := range runs() {
		v := Build(run, nil)
		var plain, coloured bytes.Buffer
		if err := Text(&plain, v, Style{Width: 110}); err != nil {
			t.Fatal(err)
		}
		if err := Text(&coloured, v, Style{Width: 110, Color: true}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plain.String(), escape.ReplaceAllString(coloured.String(), "")); diff != "" {
			t.Errorf("%s: without its colours the text differs (-plain +coloured):\n%s", name, diff)
		}
		if strings.Contains(plain.String(), "\x1b") {
			t.Errorf("%s: got an escape sequence in plain text:\n%q", name, plain.String())
		}
	}
}

func TestAnInvalidRowNeverShowsARatio(t *testing.T) {
	run := complete()
	for i := range run.Rows {
		run.Rows[i].Valid = false
	}
	for _, r := range Build(run, nil).Rows {
		if r.VsSingle != none || r.VsBaseline != none || r.TPS != none {
			t.Errorf("got %+v, want no figures", r)
		}
	}
	// Nor does a valid one whose other half is invalid.
	run = complete()
	for i := range run.Rows {
		run.Rows[i].Valid = run.Rows[i].Condition != baseline
	}
	for _, r := range Build(run, nil).Rows {
		if r.VsSingle != none || r.VsBaseline != none {
			t.Errorf("got %+v, want no ratio to an invalid baseline", r)
		}
	}
}

func TestTheJSONOfARunIsTheRun(t *testing.T) {
	var got results.Run
	if err := json.Unmarshal([]byte(write(t, "json", Build(complete(), nil))), &got); err != nil {
		t.Fatal(err)
	}
	if got.ID != complete().ID || len(got.Rows) != len(complete().Rows) {
		t.Errorf("got %d rows of %s", len(got.Rows), got.ID)
	}
}

func TestTheHTMLNeedsNoNetworkAndRunsNothing(t *testing.T) {
	for name, run := range runs() {
		html := write(t, "html", Build(run, samples(run)))
		for _, bad := range []string{"http://", "https://", "<script", "src=", "@import", "url(", "NaN", "Inf"} {
			if strings.Contains(html, bad) {
				t.Errorf("%s: got %q in the HTML", name, bad)
			}
		}
	}
}

func TestRatiosAreWrittenAsDifferences(t *testing.T) {
	for _, c := range []struct {
		ratio float64
		ci    *[2]float64
		want  string
	}{
		{0.86, ptr(0.83, 0.89), "-14% (-17..-11)"},
		{0.942, ptr(0.921, 0.964), "-5.8% (-7.9..-3.6)"},
		{1.25, ptr(1.1, 1.4), "+25% (+10..+40)"},
		{0.9999, nil, "0%"}, {1, nil, "0%"}, {2.5, nil, "+150%"}, {0, nil, "-100%"},
	} {
		if got := changes(c.ratio, c.ci); got != c.want {
			t.Errorf("%v %v: got %s, want %s", c.ratio, c.ci, got, c.want)
		}
	}
}

func TestFiguresHaveTheDigitsThatTheyDeserve(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{rate(12345.6), "12,346"}, {rate(100), "100"}, {rate(99.94), "99.9"}, {rate(0), "0.0"}, {rate(math.NaN()), "-"},
		{rate(1234567), "1,234,567"}, {thousands(-1234), "-1,234"}, {thousands(-12), "-12"},
		{millis(0.853), "0.85"}, {millis(12.34), "12.3"}, {millis(1234.5), "1,235"}, // half away from zero
		{rtt(0.6), "0.6"}, {rtt(0.7214), "0.721"}, {rtt(0), "0"}, {rtt(150.26), "150.3"},
		{span(291 * time.Second), "4 min 51 s"}, {span(9 * time.Second), "9 s"}, {span(3 * time.Hour), "3 h 0 min"},
		{memory(8 << 30), "8.0 GiB"}, {count(1, "pair"), "1 pair"}, {count(0, "pair"), "0 pairs"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

func TestAnAxisIsRoundAndHasFewTicks(t *testing.T) {
	for _, most := range []float64{0, 0.003, 1, 6.01, 14, 99.9, 100, 2607, 59_999, 1e9} {
		end, step := axis(most)
		if n := end / step; end < most || n > 7 || most > 0 && end > 2*most {
			t.Errorf("up to %v: got an end of %v in steps of %v", most, end, step)
		}
	}
}

// Runs that no engine makes, but a damaged or newer run.json may hold.
func TestNoRunIsTooOddToReport(t *testing.T) {
	odd := complete()
	for i := range odd.Rows {
		r := &odd.Rows[i]
		switch i % 4 {
		case 0:
			r.TPS, r.TPSCI95, r.RTT, r.VsBaseline = 0, nil, nil, nil
		case 1:
			r.TPS, r.TPSCI95 = math.Inf(1), ptr(math.Inf(-1), math.NaN())
			r.Latency.P50 = math.NaN()
		case 2:
			r.VsSingle = &results.Ratio{Ratio: math.NaN(), Outcome: "detected"}
			r.VsBaseline = &results.Ratio{Outcome: "some new word"}
		case 3:
			r.TPS, r.TPSCI95 = -5, ptr(5, -5)
			r.Condition, r.Topology = "", strings.Repeat("x", 300)
		}
	}
	s := samples(complete())
	s[0].TPS, s[1].TPS, s[2].Time = math.NaN(), math.Inf(1), time.Time{}
	for _, run := range []results.Run{odd, {}, {Rows: make([]results.Row, 3), Observer: make([]results.Observer, 1), Labs: make([]results.Lab, 2), Published: make([]results.Published, 1)}} {
		v := Build(run, s)
		for format, write := range formats {
			if format == "json" {
				continue // has no word for NaN and says so
			}
			var b bytes.Buffer
			if err := write(&b, v); err != nil {
				t.Errorf("%s: %v", format, err)
			}
			if format == "html" && strings.Contains(b.String(), "ZgotmplZ") {
				t.Error("html: a value was refused by the template")
			}
		}
	}
}

func TestVariantsTellRowsApartInPictureAndTextAndAreAColumnOfTheCSV(t *testing.T) {
	run := complete()
	run.Rows = run.Rows[3:5] // semisync
	for _, v := range []string{"4 threads", "64 threads"} {
		for _, r := range run.Rows[:2] {
			r.Variant, r.Threads, r.VsSingle = v, map[string]int{"4 threads": 4, "64 threads": 64}[v], nil
			run.Rows = append(run.Rows, r)
		}
	}
	run.Rows = run.Rows[2:]
	v := Build(run, nil)
	for format, wants := range map[string][]string{
		"txt":  {"semisync, 4 threads ", "semisync, 64 threads ", "4 to 64 threads"},
		"html": {"semisync, 4 threads", "semisync, 64 threads"},
		"csv":  {"\nsemisync,baseline,4,", ",4 threads\n", ",64 threads\n"},
		"json": {`"topology": "semisync"`, `"variant": "64 threads"`},
	} {
		got := write(t, format, v)
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %q:\n%s", format, want, got)
			}
		}
	}
	if run.Rows[0].Topology != "semisync" {
		t.Error("the run that was given has changed")
	}
}
