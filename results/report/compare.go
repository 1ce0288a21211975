package report

import (
	"bufio"
	"fmt"
	"io"
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
	Condition string `json:"condition"`
	// TPS, P50 and P95 are the row's figures in each run, in their order.
	TPS []float64 `json:"tps"`
	P50 []float64 `json:"p50_ms"`
	P95 []float64 `json:"p95_ms"`
	// Ratios are TPS over that of the first run, one for each of the others.
	Ratios []results.Ratio `json:"ratios"`
}

// Compare puts rows side by side that mean the same: topology and condition of
// the same name, under the same load, and valid in each run.
func Compare(runs []results.Run) Comparison {
	runs = slices.Clone(runs)
	for i := range runs {
		runs[i], _ = labelled(runs[i], nil)
	}
	c := Comparison{Rows: []ComparedRow{}, Apart: []string{}, Differences: []string{}}
	for _, r := range runs {
		c.Runs = append(c.Runs, ComparedRun{r.ID, r.Scenario, r.Profile})
	}
	type key struct{ topology, condition string }
	var keys []key
	for _, r := range runs {
		for _, row := range r.Rows {
			if k := (key{row.Topology, row.Condition}); !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	for _, k := range keys {
		name := clean(k.topology) + " " + clean(k.condition)
		out := ComparedRow{Topology: k.topology, Condition: k.condition}
		var windows [][]float64
		why := ""
		for i, run := range runs {
			at := slices.IndexFunc(run.Rows, func(r results.Row) bool { return r.Topology == k.topology && r.Condition == k.condition })
			if at < 0 {
				why = fmt.Sprintf("%s: run %d has no such row", name, i+1)
				break
			}
			row := run.Rows[at]
			if !row.Valid {
				why = fmt.Sprintf("%s: INVALID in run %d", name, i+1)
				break
			}
			if i > 0 {
				if other := unlike(runs[0], run, out, row); other != "" {
					why = fmt.Sprintf("%s: %s in run %d", name, other, i+1)
					break
				}
			}
			out.TPS, out.P50, out.P95 = append(out.TPS, row.TPS), append(out.P50, row.Latency.P50), append(out.P95, row.Latency.P95)
			var tps []float64
			for _, w := range run.Windows {
				if w.Topology == k.topology && w.Condition == k.condition && w.Valid {
					tps = append(tps, w.TPS)
				}
			}
			windows = append(windows, tps)
		}
		if why != "" {
			c.Apart = append(c.Apart, why)
			continue
		}
		for _, w := range windows[1:] {
			s := stats.Independent(windows[0], w)
			r := results.Ratio{Ratio: s.Ratio, Pairs: s.Pairs, Outcome: s.Outcome, Detected: s.Outcome == stats.Detected}
			if s.HasCI {
				r.CI95 = &[2]float64{s.CI[0], s.CI[1]}
			}
			out.Ratios = append(out.Ratios, r)
		}
		c.Rows = append(c.Rows, out)
	}
	c.differences(runs)
	return c
}

// unlike says why a row of another run does not mean the same: "" if it does.
func unlike(first, run results.Run, have ComparedRow, row results.Row) string {
	a, b := first.Workload, run.Workload
	var threads int
	var asked float64
	for _, r := range first.Rows {
		if r.Topology == have.Topology && r.Condition == have.Condition {
			threads = r.Threads
			if r.RTT != nil {
				asked = r.RTT.Asked
			}
		}
	}
	other := 0.0
	if row.RTT != nil {
		other = row.RTT.Asked
	}
	a.Threads, b.Threads = 0, 0
	switch {
	case a.Name != b.Name:
		return "the load is " + clean(b.Name) + " and not " + clean(a.Name)
	case a != b:
		return "the tables are of another size or distribution"
	case threads != row.Threads:
		return fmt.Sprintf("%d threads and not %d", row.Threads, threads)
	case asked != other:
		return fmt.Sprintf("%s ms were added to the links and not %s", rtt(other), rtt(asked))
	}
	return ""
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

// Below lists the rows whose throughput is, beyond doubt, less than share of
// the first run's.
func (c Comparison) Below(share float64) []string {
	var out []string
	for _, r := range c.Rows {
		for i, x := range r.Ratios {
			if x.CI95 != nil && x.CI95[1] < share {
				out = append(out, fmt.Sprintf("%s %s: run %d has %s throughput against run 1", clean(r.Topology), clean(r.Condition), i+2, changes(x.Ratio, x.CI95)))
			}
		}
	}
	return out
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
		topology := clean(r.Topology)
		if topology == last {
			topology = ""
		}
		last = clean(r.Topology)
		row := table.Row{topology, clean(r.Condition)}
		for _, x := range r.TPS {
			row = append(row, rate(x))
		}
		for i := range r.P50 {
			row = append(row, millis(r.P50[i])+"/"+millis(r.P95[i]))
		}
		for _, x := range r.Ratios {
			switch {
			case x.Outcome == stats.NotDetected:
				row = append(row, s.tone(Quiet, "no difference detected ("+bounds(x.CI95)+")"))
			case x.Outcome == stats.Inconclusive:
				row = append(row, s.tone(Quiet, changes(x.Ratio, x.CI95)+", too few windows"))
			case x.Ratio < 1:
				row = append(row, s.tone(Bad, changes(x.Ratio, x.CI95)))
			default:
				row = append(row, s.tone(Good, changes(x.Ratio, x.CI95)))
			}
		}
		t.AppendRow(row)
	}
	return trim(t.Render())
}

// bounds are those of an interval of ratios.
func bounds(ci *[2]float64) string {
	p := percents(ci[0], ci[1])
	return p[0] + ".." + p[1]
}
