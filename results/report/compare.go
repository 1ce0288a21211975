package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/results/stats"
)

// Comparison is two or more runs side by side, the first of which the others
// are compared with.
type Comparison struct {
	Runs []ComparedRun `json:"runs"`
	Rows []ComparedRow `json:"rows"`
	// Apart are rows that stand alone, and why.
	Apart []string `json:"apart"`
	// Differences are what else is not the same, and may be why figures differ.
	Differences []string `json:"differences"`
}

// ComparedRun is one of the runs.
type ComparedRun struct {
	ID       string `json:"run_id"`
	Scenario string `json:"scenario"`
	Profile  string `json:"profile"`
}

// ComparedRow is a row that means the same in every run.
type ComparedRow struct {
	Topology  string `json:"topology"`
	Variant   string `json:"variant,omitempty"`
	Condition string `json:"condition"`
	// TPS, P50 and P95 are the row's figures in each run, in their order.
	TPS []float64 `json:"tps"`
	P50 []float64 `json:"p50_ms"`
	P95 []float64 `json:"p95_ms"`
	// Ratios are TPS over that of the first run, one for each of the others.
	Ratios []results.Ratio `json:"ratios"`
}

// topology is what the row's is called beside others.
func (r ComparedRow) topology() string { return clean(label(r.Topology, r.Variant)) }

// Compare puts rows side by side that mean the same: topology, variant and
// condition of the same name, under the same load, and valid in each run.
func Compare(runs []results.Run) Comparison {
	c := Comparison{Rows: []ComparedRow{}, Apart: []string{}, Differences: []string{}}
	for _, r := range runs {
		c.Runs = append(c.Runs, ComparedRun{r.ID, r.Scenario, r.Profile})
	}
	type key struct{ topology, variant, condition string }
	var keys []key
	rows := make([]map[key]results.Row, len(runs))
	windows := make([]map[key][]float64, len(runs)) // TPS of the valid ones
	for i, run := range runs {
		rows[i], windows[i] = map[key]results.Row{}, map[key][]float64{}
		for _, r := range run.Rows {
			k := key{r.Topology, r.Variant, r.Condition}
			rows[i][k] = r
			if !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
		for _, w := range run.Windows {
			if k := (key{w.Topology, w.Variant, w.Condition}); w.Valid && w.TPS > 0 {
				windows[i][k] = append(windows[i][k], w.TPS)
			}
		}
	}
	for _, k := range keys {
		out := ComparedRow{Topology: k.topology, Variant: k.variant, Condition: k.condition}
		why := ""
		for i, run := range runs {
			row, there := rows[i][k]
			switch {
			case !there:
				why = "no such row"
			case !row.Valid:
				why = "INVALID"
			case len(windows[i][k]) == 0:
				why = "no window has a throughput"
			default:
				why = unlike(runs[0].Workload, run.Workload, rows[0][k], row)
			}
			if why != "" {
				c.Apart = append(c.Apart, fmt.Sprintf("%s %s, run %d: %s", out.topology(), clean(k.condition), i+1, why))
				break
			}
			out.TPS, out.P50, out.P95 = append(out.TPS, row.TPS), append(out.P50, row.Latency.P50), append(out.P95, row.Latency.P95)
			if i > 0 {
				out.Ratios = append(out.Ratios, ratioOver(windows[0][k], windows[i][k]))
				c.settings(out, i, rows[0][k].Settings, row.Settings)
			}
		}
		if why == "" {
			c.Rows = append(c.Rows, out)
		}
	}
	c.differences(runs)
	return c
}

func ratioOver(before, after []float64) results.Ratio {
	s := stats.Independent(before, after)
	r := results.Ratio{Ratio: s.Ratio, Pairs: s.Pairs, Outcome: s.Outcome, Detected: s.Outcome == stats.Detected}
	if s.HasCI {
		r.CI95 = &s.CI
	}
	return r
}

// unlike says why a row does not mean the same as the first run's: "" if it
// does.
func unlike(a, b results.Workload, first, row results.Row) string {
	asked := func(r results.Row) float64 {
		if r.RTT == nil {
			return 0
		}
		return r.RTT.Asked
	}
	a.Threads, b.Threads = 0, 0 // rows have their own
	switch {
	case a.Name != b.Name:
		return "the load is " + clean(b.Name) + " and not " + clean(a.Name)
	case a != b:
		return "the tables are of another size or distribution"
	case first.Threads != row.Threads:
		return fmt.Sprintf("%d threads and not %d", row.Threads, first.Threads)
	case asked(first) != asked(row):
		return fmt.Sprintf("%s ms were added to the links and not %s", rtt(asked(row)), rtt(asked(first)))
	}
	return ""
}

// settings lists where a row had other server variables than in the first run.
func (c *Comparison) settings(r ComparedRow, run int, first, row map[string]string) {
	names := slices.Collect(maps.Keys(first))
	names = slices.AppendSeq(names, maps.Keys(row))
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		a, b := cmp.Or(first[n], none), cmp.Or(row[n], none)
		said := fmt.Sprintf("%s of %s: %s (run 1), %s (run %d)", clean(n), r.topology(), clean(a), clean(b), run+1)
		if a != b && !slices.Contains(c.Differences, said) { // once for all conditions
			c.Differences = append(c.Differences, said)
		}
	}
}

// differences lists what else the runs differ in.
func (c *Comparison) differences(runs []results.Run) {
	say := func(what string, of func(results.Run) string) {
		var all []string
		same := true
		for i, r := range runs {
			all = append(all, fmt.Sprintf("%s (run %d)", of(r), i+1))
			same = same && of(r) == of(runs[0])
		}
		if !same {
			c.Differences = append(c.Differences, what+": "+strings.Join(all, ", "))
		}
	}
	say("scenario", func(r results.Run) string { return clean(r.Scenario) })
	say("profile", func(r results.Run) string { return clean(r.Profile) })
	say("provider", func(r results.Run) string { return clean(r.Environment.Provider) })
	say("emulator", func(r results.Run) string { return clean(r.Environment.Emulator) })
	say("kernel", func(r results.Run) string { return clean(r.Environment.Kernel) })
	say("processors", func(r results.Run) string { return fmt.Sprint(r.Environment.CPUs) })
	for _, flavor := range []string{"mysql", "mariadb", "pxc"} {
		say(flavor, func(r results.Run) string {
			if v := r.Environment.Servers[flavor]; v != "" {
				return clean(v)
			}
			return none
		})
	}
}

// Below lists the rows whose throughput is, beyond doubt, less than share of the
// first run's, and those of which that cannot be told.
func (c Comparison) Below(share float64) (below, unknown []string) {
	unknown = slices.Clone(c.Apart)
	for _, r := range c.Rows {
		for i, x := range r.Ratios {
			text := fmt.Sprintf("%s %s, run %d: %s against run 1", r.topology(), clean(r.Condition), i+2, changes(x.Ratio, x.CI95))
			switch {
			case x.CI95 == nil:
				unknown = append(unknown, text+", too few windows")
			case x.CI95[1] < share:
				below = append(below, text)
			}
		}
	}
	return below, unknown
}

// CompareText writes the comparison as a person at a terminal reads it.
func CompareText(w io.Writer, c Comparison, s Style) error {
	out := &textWriter{Writer: bufio.NewWriter(w), style: s}
	for i, r := range c.Runs {
		out.line(out.style.paint(faint, fmt.Sprintf("%-9s", fmt.Sprintf("run %d", i+1))) + " " + clean(r.ID) + ", profile " + clean(r.Profile))
	}
	out.line("")
	if len(c.Rows) == 0 {
		out.line("No row means the same in all of them.")
	} else {
		out.line(compareTable(c, s))
	}
	out.list("Not compared", c.Apart)
	out.list("What else differs", c.Differences)
	out.line("")
	out.item("Intervals hold what windows of a run differ by. Two runs of the same differ by more, since they begin anew: for an effect of a setting, several runs of each.")
	return out.Flush()
}

func compareTable(c Comparison, s Style) string {
	t := plain()
	header := table.Row{"\ntopology", "\ncondition"}
	for i := range c.Runs {
		header = append(header, fmt.Sprintf("TPS\nrun %d", i+1))
	}
	for i := range c.Runs {
		header = append(header, fmt.Sprintf("ms, p50/p95\nrun %d", i+1))
	}
	for i := range c.Runs[1:] {
		header = append(header, fmt.Sprintf("TPS, run %d\nvs run 1", i+2))
	}
	t.AppendHeader(header)
	var columns []table.ColumnConfig
	for n := 3; n <= len(header); n++ {
		columns = append(columns, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	last := ""
	for _, r := range c.Rows {
		topology := r.topology()
		if topology == last {
			topology = ""
		}
		last = r.topology()
		row := table.Row{topology, clean(r.Condition)}
		for _, x := range r.TPS {
			row = append(row, rate(x))
		}
		for i := range r.P50 {
			row = append(row, millis(r.P50[i])+"/"+millis(r.P95[i]))
		}
		for _, x := range r.Ratios {
			switch {
			case x.Outcome == inconclusive:
				row = append(row, s.tone(Quiet, changes(x.Ratio, x.CI95)+", too few windows"))
			case x.Outcome == notDetected:
				row = append(row, s.tone(Quiet, versus(&x)))
			case x.Ratio < 1:
				row = append(row, s.tone(Bad, versus(&x)))
			default:
				row = append(row, s.tone(Good, versus(&x)))
			}
		}
		t.AppendRow(row)
	}
	return trim(t.Render())
}
