package engine

import (
	"fmt"
	"math"
	"slices"

	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/results/stats"
	"github.com/faultlab/faultlab/scenarios"
)

// verdicts judges what the plan expects by the run as it stands.
func verdicts(run results.Run, expect []scenarios.Expectation) []results.Verdict {
	out := []results.Verdict{}
	for _, e := range expect {
		outcome, why := e.Judge(figures{run})
		out = append(out, results.Verdict{Expect: e.Text, Outcome: outcome, Why: why})
	}
	return out
}

// figures are a run's, for expectations.
type figures struct{ run results.Run }

// row is a row that may be believed.
func (f figures) row(r scenarios.Reference) (results.Row, error) {
	for _, row := range f.run.Rows {
		if row.Topology != r.Topology || row.Variant != r.Variant || row.Condition != r.Condition {
			continue
		}
		if !row.Valid {
			return row, fmt.Errorf("%s is INVALID", rowName(r))
		}
		return row, nil
	}
	return results.Row{}, fmt.Errorf("%s was not measured", rowName(r))
}

// rowName is the row of a figure, as the report calls it.
func rowName(r scenarios.Reference) string {
	if r.Variant != "" {
		return fmt.Sprintf("%s, %s %s", r.Topology, r.Variant, r.Condition)
	}
	return r.Topology + " " + r.Condition
}

// Figure implements scenarios.Figures. The interval of what is measured in each
// window comes from the row's valid windows; counts are what they are.
func (f figures) Figure(r scenarios.Reference) (scenarios.Estimate, error) {
	row, err := f.row(r)
	if err != nil {
		return scenarios.Estimate{}, err
	}
	exactly := func(v float64) (scenarios.Estimate, error) { return scenarios.Estimate{Mid: v, Lo: v, Hi: v}, nil }
	estimate := func(mid float64, of func(results.Window) float64) (scenarios.Estimate, error) {
		e := scenarios.Estimate{Mid: mid, Lo: math.NaN(), Hi: math.NaN()}
		var all []float64
		for _, w := range f.windows(r) {
			all = append(all, of(w))
		}
		switch ci, ok := stats.Center(all); {
		case ok:
			// The middle of many windows put together need not lie within.
			e.Lo, e.Hi = min(ci[0], mid), max(ci[1], mid)
		case len(all) > 1 && len(slices.Compact(all)) == 1:
			e.Lo, e.Hi = mid, mid // the same each time, as coarse figures can be
		}
		return e, nil
	}
	switch r.Figure {
	case "tps":
		return estimate(row.TPS, func(w results.Window) float64 { return w.TPS })
	case "avg":
		return estimate(row.Latency.Avg, func(w results.Window) float64 { return w.Latency.Avg })
	case "p50":
		return estimate(row.Latency.P50, func(w results.Window) float64 { return w.Latency.P50 })
	case "p95":
		return estimate(row.Latency.P95, func(w results.Window) float64 { return w.Latency.P95 })
	case "p99":
		return estimate(row.Latency.P99, func(w results.Window) float64 { return w.Latency.P99 })
	case "max":
		return exactly(row.Latency.Max)
	case "rtt":
		if row.RTT == nil {
			return scenarios.Estimate{}, fmt.Errorf("%s %s has no measured links", r.Topology, r.Condition)
		}
		return estimate(row.RTT.MeasuredP50, func(w results.Window) float64 { return w.RTTP50 })
	case "cv":
		return exactly(row.Stability.CV)
	case "longest_stall":
		return exactly(1000 * float64(row.Stability.LongestStallS))
	case "zero_seconds":
		return exactly(float64(row.Stability.ZeroSeconds))
	case "errors":
		return exactly(float64(row.Errors))
	case "retries":
		return exactly(float64(row.Retries))
	case "unknown":
		return exactly(float64(row.Unknown))
	}
	return scenarios.Estimate{}, fmt.Errorf("a row has no figure %q", r.Figure)
}

// windows are the valid windows of a row.
func (f figures) windows(r scenarios.Reference) []results.Window {
	var out []results.Window
	for _, w := range f.run.Windows {
		if w.Topology == r.Topology && w.Variant == r.Variant && w.Condition == r.Condition && w.Valid {
			out = append(out, w)
		}
	}
	return out
}

// Ratio implements scenarios.Figures for the throughput of two conditions of a
// topology, whose windows are pairs.
func (f figures) Ratio(a, b scenarios.Reference) (scenarios.Estimate, bool) {
	if a.Topology != b.Topology || a.Variant != b.Variant || a.Figure != "tps" || b.Figure != "tps" || a.Condition == b.Condition {
		return scenarios.Estimate{}, false
	}
	for _, r := range []scenarios.Reference{a, b} {
		if _, err := f.row(r); err != nil {
			return scenarios.Estimate{}, false
		}
	}
	var as, bs []float64
	for _, x := range f.windows(a) {
		for _, y := range f.windows(b) {
			if x.Pair == y.Pair && x.TPS > 0 && y.TPS > 0 {
				as, bs = append(as, x.TPS), append(bs, y.TPS)
			}
		}
	}
	if len(as) == 0 {
		return scenarios.Estimate{}, false
	}
	r := ratio(stats.Compare(bs, as, 0))
	e := scenarios.Estimate{Mid: r.Ratio, Lo: math.NaN(), Hi: math.NaN()}
	if r.CI95 != nil {
		e.Lo, e.Hi = r.CI95[0], r.CI95[1]
	}
	return e, true
}
