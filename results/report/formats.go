package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/faultlab/faultlab/results"
)

// JSON writes the run as run.json has it.
func JSON(w io.Writer, v View) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v.document)
}

var csvHeader = []string{
	"topology", "condition", "threads", "windows", "tps", "tps_lo95", "tps_hi95",
	"avg_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms",
	"vs_single", "vs_single_lo95", "vs_single_hi95", "vs_single_outcome",
	"vs_baseline", "vs_baseline_lo95", "vs_baseline_hi95", "vs_baseline_outcome", "pairs",
	"rtt_asked_ms", "rtt_bare_ms", "rtt_p50_ms", "rtt_p99_ms",
	"cv", "longest_stall_s", "errors", "retries", "unknown_outcomes", "valid", "invalid_reasons", "variant",
}

// CSV writes one line for each row, with figures as they are. A cell is empty
// where there is no figure; of an INVALID row that is all but its proof.
func CSV(w io.Writer, v View) error {
	out := csv.NewWriter(w)
	out.UseCRLF = false
	if err := out.Write(csvHeader); err != nil {
		return err
	}
	b := builder{run: v.Run}
	for i := range v.Run.Rows {
		row := csvRow(b, &v.Run.Rows[i])
		kept := v.document.Rows[i]
		row[0] = clean(kept.Topology)
		if err := out.Write(append(row, clean(kept.Variant))); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func csvRow(b builder, r *results.Row) []string {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	pair := func(ci *[2]float64) []string {
		if ci == nil {
			return []string{"", ""}
		}
		return []string{number(ci[0]), number(ci[1])}
	}
	figures := func(xs ...float64) (out []string) {
		for _, x := range xs {
			if r.Valid {
				out = append(out, number(x))
			} else {
				out = append(out, "")
			}
		}
		return out
	}
	ratio := func(x *results.Ratio, against *results.Row) []string {
		if x == nil || !r.Valid || against == nil {
			return []string{"", "", "", ""}
		}
		return append(append([]string{number(x.Ratio)}, pair(x.CI95)...), x.Outcome)
	}

	row := []string{clean(r.Topology), clean(r.Condition), strconv.Itoa(r.Threads), strconv.Itoa(r.Windows)}
	row = append(row, figures(r.TPS)...)
	if r.Valid {
		row = append(row, pair(r.TPSCI95)...)
	} else {
		row = append(row, "", "")
	}
	row = append(row, figures(r.Latency.Avg, r.Latency.P50, r.Latency.P95, r.Latency.P99, r.Latency.Max)...)
	row = append(row, ratio(r.VsSingle, b.valid(single, baseline))...)
	row = append(row, ratio(r.VsBaseline, b.valid(r.Topology, baseline))...)
	pairs := ""
	if r.VsBaseline != nil && r.Valid && b.valid(r.Topology, baseline) != nil {
		pairs = strconv.Itoa(r.VsBaseline.Pairs)
	}
	row = append(row, pairs)
	if p := r.RTT; p != nil {
		row = append(row, number(p.Asked), number(p.Bare), number(p.MeasuredP50), number(p.MeasuredP99))
	} else {
		row = append(row, "", "", "", "")
	}
	row = append(row, figures(r.Stability.CV, float64(r.Stability.LongestStallS), float64(r.Errors), float64(r.Retries), float64(r.Unknown))...)
	return append(row, strconv.FormatBool(r.Valid), clean(strings.Join(r.InvalidReasons, "; ")))
}

// Markdown writes the view for an issue or a wiki.
func Markdown(w io.Writer, v View) error {
	var b strings.Builder
	m := func(s string) string { return markdown.Replace(s) }
	table := func(header []string, align string, rows [][]string) {
		b.WriteString("\n| " + strings.Join(header, " | ") + " |\n|")
		for _, a := range align {
			b.WriteString(map[rune]string{'l': " --- |", 'r': " ---: |"}[a])
		}
		b.WriteString("\n")
		for _, row := range rows {
			for i := range row {
				row[i] = m(row[i])
			}
			b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		}
	}
	list := func(heading string, items []string) {
		if len(items) == 0 {
			return
		}
		b.WriteString("\n## " + heading + "\n\n")
		for _, i := range items {
			b.WriteString("- " + m(i) + "\n")
		}
	}

	fmt.Fprintf(&b, "# %s\n\n%s\n\n", m(v.Title), m(v.Status))
	for _, f := range v.Facts {
		fmt.Fprintf(&b, "- %s: %s\n", f.Name, m(f.Value))
	}
	if len(v.Rows) == 0 {
		b.WriteString("\nNothing was measured.\n")
	} else {
		var rows [][]string
		for _, r := range v.Rows {
			valid := r.Valid
			rows = append(rows, []string{r.Topology, r.Condition, r.TPS, r.Interval, r.Latency, r.VsSingle, r.VsBaseline, r.RTT, valid})
		}
		table([]string{"topology", "condition", "TPS", "95% interval", "p50/p95 ms", "TPS vs single", "TPS vs baseline", "RTT added ms, asked/got", "valid"}, "llrrrrrrl", rows)
	}
	for _, f := range v.Footnotes {
		b.WriteString("\n" + m(f) + "\n")
	}
	list("INVALID", v.Invalid)
	list("In words", v.Headlines)
	list("What the emulator itself costs", v.Observer)
	list("Notes", v.Notes)
	if len(v.Published) > 0 {
		fmt.Fprintf(&b, "\n## Beside others' figures\n\n%s: compare the shape, not the height.\n", m(v.Source))
		var rows [][]string
		for _, p := range v.Published {
			rows = append(rows, []string{p.Topology, p.Condition, p.Theirs, p.Ours})
		}
		table([]string{"topology", "condition", "theirs", "ours"}, "llll", rows)
	}
	if len(v.Proof) > 0 {
		b.WriteString("\n## Proof of the links\n\nRTT in ms over all links between nodes. Off is measured less bare less asked.\n")
		var rows [][]string
		for _, p := range v.Proof {
			rows = append(rows, []string{p.Topology, p.Condition, p.Asked, p.Bare, p.P50, p.P99, p.Off, p.Worst, p.Probes, p.Lost})
		}
		table([]string{"topology", "condition", "asked", "bare", "p50", "p99", "off us", "worst link p50", "probes", "lost"}, "llrrrrrrrr", rows)
	}
	b.WriteString("\n## Repeat it\n\n")
	for _, c := range v.Repeat {
		b.WriteString("    " + c + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown keeps text text.
var markdown = strings.NewReplacer(
	`\`, `\\`, "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "<", "&lt;", "[", `\[`, "#", `\#`,
)
