package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/results/stats"
	"github.com/faultlab/faultlab/scenarios"
)

const (
	// minBusy is the share of time that threads must have been in
	// transactions: below it the load itself was the limit.
	minBusy = 0.9
	// unevenCPU is the difference in the emulator's share of a processor from
	// which a comparison is warned of.
	unevenCPU = 0.1
	// minProbes makes a median RTT worth its name.
	minProbes = 10
)

// rows judges the windows of a topology and adds the valid ones up.
func (m *measurement) rows() ([]results.Row, []results.Window, *results.Observer) {
	bare := m.bare()
	reasons := make([][]string, len(m.windows))
	for i, w := range m.windows {
		reasons[i] = m.judge(w, bare)
	}
	windows := make([]results.Window, len(m.windows))
	for i, w := range m.windows {
		windows[i] = m.present(w, reasons[i])
	}
	rows := []results.Row{m.row(scenarios.BaselineName, bare, reasons)}
	for _, c := range m.conditions() {
		rows = append(rows, m.row(c.Name, bare, reasons))
	}
	for i := range rows {
		if !rows[0].Valid {
			rows[i].VsBaseline = nil // nor of what it is compared with
		}
		if own := rows[i].EmulatorCPU - rows[0].EmulatorCPU; math.Abs(own) > unevenCPU {
			rows[i].Warnings = append(rows[i].Warnings, fmt.Sprintf("the emulator took %.0f%% of a processor here and %.0f%% in the baseline: some of the difference may be its own",
				100*rows[i].EmulatorCPU, 100*rows[0].EmulatorCPU))
		}
	}
	return rows, windows, m.observer(reasons)
}

// conditions are those that the topology is measured in beside the baseline:
// single has no link between nodes and is measured once.
func (m *measurement) conditions() []scenarios.Condition {
	if m.topology.NodeCount() == 1 || m.net != nil && len(m.net.hops) == 0 {
		return nil
	}
	return m.plan.Conditions
}

// condition finds one by its name; the baseline and no emulator are none.
func (m *measurement) condition(name string) scenarios.Condition {
	for _, c := range m.plan.Conditions {
		if c.Name == name {
			return c
		}
	}
	return scenarios.Condition{}
}

// bare is the round trip of every pair in the baseline condition: the median
// of its windows.
func (m *measurement) bare() map[string]time.Duration {
	all := map[string][]float64{}
	for _, w := range m.windows {
		if w.condition != scenarios.BaselineName {
			continue
		}
		for _, r := range w.longest().rtt {
			all[r.From+" "+r.To] = append(all[r.From+" "+r.To], float64(r.P50))
		}
	}
	out := map[string]time.Duration{}
	for k, v := range all {
		out[k] = time.Duration(stats.Median(v))
	}
	return out
}

// slowBaseline tells which link's baseline, that all else is measured against,
// is itself far slower than the path without emulator and what the baseline
// adds to it: "" for none. What a busy machine adds is in every condition, so
// it is a warning only.
func (m *measurement) slowBaseline(bare map[string]time.Duration) string {
	without := map[string][]float64{}
	for _, w := range m.windows {
		if w.condition == noEmulator {
			for _, r := range w.longest().rtt {
				without[r.From+" "+r.To] = append(without[r.From+" "+r.To], float64(r.P50))
			}
		}
	}
	if len(without) == 0 || m.net == nil {
		return ""
	}
	var worst time.Duration
	out := ""
	for _, p := range m.net.pairs {
		key := p[0] + " " + p[1]
		ways := m.net.ways(moment{}, p)
		if without[key] == nil || ways[0].Queues() || ways[1].Queues() {
			continue
		}
		asked := time.Duration(stats.Median(without[key])) + ways[0].Delay + ways[1].Delay
		allowed := m.plan.Measure.RTTTolerance + ways[0].Jitter + ways[1].Jitter
		if over := bare[key] - asked; over > allowed && over > worst {
			worst = over
			out = fmt.Sprintf("the baseline's rtt %s to %s was %.3f ms: %.3f more than the %.3f of the path and the emulator together",
				p[0], p[1], ms(bare[key]), ms(over), ms(asked))
		}
	}
	return out
}

// judge lists why a window is not what it claims to be.
func (m *measurement) judge(w window, bare map[string]time.Duration) []string {
	out := slices.Clone(w.problems)
	// Where links are cut, a load that stands still is what was to be seen.
	cut := m.condition(w.condition).Partitions()
	if w.load.Transactions == 0 && !cut {
		out = append(out, "no transaction was committed")
	}
	if w.load.Busy < minBusy && !cut {
		out = append(out, fmt.Sprintf("load kept its threads busy only %.0f%% of the time", 100*w.load.Busy))
	}
	if w.emulator.Overrun > 0 {
		out = append(out, fmt.Sprintf("emulator lost %d packets that it was not asked to drop", w.emulator.Overrun))
	}
	if w.condition == noEmulator {
		return out
	}
	if m.net == nil {
		return out
	}
	for _, p := range w.phases {
		out = append(out, m.judgePhase(p, bare)...)
	}
	return out
}

// judgePhase lists what of a phase's links was not as asked. A phase that is
// too short for its probes to tell is not judged, unless it is the only one.
func (m *measurement) judgePhase(ph phase, bare map[string]time.Duration) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	measured := map[[2]string]RTT{}
	for _, r := range ph.rtt {
		measured[[2]string{r.From, r.To}] = r
	}
	for _, p := range m.net.pairs {
		r, name := measured[p], p[0]+" to "+p[1]
		there, back := m.net.ways(ph.moment, p)[0], m.net.ways(ph.moment, p)[1]
		short := ph.length > 0 && ph.length < shortPhase && m.plan.Measure.Window > shortPhase
		if there.Partition || back.Partition {
			switch {
			case r.Sent > r.Lost:
				say("%d of %d probes %s passed a link that was cut", r.Sent-r.Lost, r.Sent, name)
			case r.Sent == 0 && !short:
				say("no probes %s: nothing proves that the link was cut", name)
			}
			continue
		}
		if off := lossOff(r, name, there, back); off != "" {
			say("%s", off)
		}
		if r.Sent-r.Lost < minProbes {
			if !short {
				say("only %d probes %s: too few to prove its rtt", r.Sent-r.Lost, name)
			}
			continue
		}
		tolerance := m.plan.Measure.RTTTolerance + there.Jitter + back.Jitter
		// An emulator that is not in the path is missed in the baseline too,
		// which is its own measure in all else.
		if least := there.Delay + back.Delay; !there.Overtakes() && !back.Overtakes() && r.P50 < least-tolerance {
			say("rtt %s was %.3f ms, less than the %.3f that the emulator was asked to add (tolerance %.3f)",
				name, ms(r.P50), ms(least), ms(tolerance))
			continue
		}
		b, ok := bare[p[0]+" "+p[1]]
		if !ok {
			say("no baseline window yet to measure the rtt %s against", name)
			continue
		}
		asked := m.net.asked(ph.moment, p)
		if off := r.P50 - b - asked; !there.Queues() && !back.Queues() && !there.Overtakes() && !back.Overtakes() && r.within(b+asked) > tolerance {
			say("rtt %s was %.3f ms: %+.3f ms from the asked %.3f above the bare %.3f (tolerance %.3f)",
				name, ms(r.P50), ms(off), ms(asked), ms(b), ms(tolerance))
		}
	}
	return out
}

// shortPhase is below which a phase may have too few probes to prove anything.
const shortPhase = 2 * time.Second

// lossOff tells where the probes lost are not as many as asked: outside of the
// 99.9% interval of a binomial distribution, wider where losses cluster.
func lossOff(r RTT, name string, there, back netem.Impairment) string {
	pass := (1 - there.LossRate()) * (1 - back.LossRate())
	pass *= (1 - there.CorruptRate()) * (1 - back.CorruptRate())
	if pass == 1 && !there.Queues() && !back.Queues() {
		if r.Lost > 0 {
			return fmt.Sprintf("%d of %d probes %s were lost", r.Lost, r.Sent, name)
		}
		return ""
	}
	n, p := float64(r.Sent), 1-pass
	variance := n * p * (1 - p) * max(there.LossSpread(), back.LossSpread())
	off := float64(r.Lost) - n*p
	if there.Queues() || back.Queues() { // a full queue loses too
		off = min(off, 0)
	}
	if math.Abs(off) > 3.3*math.Sqrt(variance)+2 {
		return fmt.Sprintf("%d of %d probes %s were lost, which is not the asked %.3g%%", r.Lost, r.Sent, name, 100*p)
	}
	return ""
}

// within is how far the median certainly is from want: of the medians that the
// probes leave possible, the nearest counts. A few dozen probes under load do
// not tell a median to the microsecond, and that is not the link's fault.
func (r RTT) within(want time.Duration) time.Duration {
	lo, hi := r.P50, r.P50
	if r.P50High > 0 {
		lo, hi = r.P50Low, r.P50High
	}
	return max(lo-want, want-hi, 0)
}

// present puts a window into the words of results.
func (m *measurement) present(w window, reasons []string) results.Window {
	out := results.Window{
		Topology: m.topology.Name(), Variant: m.variant.Name, Condition: w.condition, Pair: w.round,
		Start: w.start.Seconds(), Seconds: w.load.End.Sub(w.load.Start).Seconds(),
		TPS: w.load.TPS(), Latency: w.latency,
		Busy: w.load.Busy, EmulatorCPU: w.emulatorCPU(),
		Valid: len(reasons) == 0, InvalidReasons: orEmpty(reasons),
	}
	// As its row has it, of which it is a part.
	if rtt := m.rtt(w.condition, []window{w}, nil); rtt != nil {
		out.RTTP50, out.RTTP99 = rtt.MeasuredP50, rtt.MeasuredP99
	}
	return out
}

// emulatorCPU is the emulator's share of one processor.
func (w window) emulatorCPU() float64 {
	d := w.load.End.Sub(w.load.Start)
	if d <= 0 {
		return 0
	}
	return w.emulator.CPU.Seconds() / d.Seconds()
}

// seconds is the TPS of every second of the window.
func (w window) seconds() []float64 {
	var out []float64
	for _, s := range w.load.Samples {
		if d := s.Length.Seconds(); d > 0 {
			out = append(out, float64(s.Transactions)/d)
		}
	}
	return out
}

// row adds up the valid windows of one condition.
func (m *measurement) row(condition string, bare map[string]time.Duration, reasons [][]string) results.Row {
	row := results.Row{
		Topology: m.topology.Name(), Variant: m.variant.Name, Condition: condition, Threads: m.threads(), Settings: m.settings(),
		InvalidReasons: []string{}, Warnings: []string{}, Server: map[string]float64{},
	}
	hist := hdrhistogram.New(1, (10 * time.Hour).Microseconds(), 3)
	var tps, cpu []float64
	var seconds [][]float64 // by window
	var used []window
	taken, broken := 0, 0
	var why []string
	var troubles []string
	lag := int64(0)
	for i, w := range m.windows {
		if w.condition != condition {
			continue
		}
		taken++
		if len(reasons[i]) > 0 {
			why = append(why, reasons[i]...)
			if len(w.problems) > 0 {
				broken++
			}
			continue
		}
		used = append(used, w)
		troubles = append(troubles, w.troubles...)
		tps = append(tps, w.load.TPS())
		cpu = append(cpu, w.emulatorCPU())
		hist.Merge(w.load.Latency)
		seconds = append(seconds, w.seconds())
		for _, n := range w.load.Errors {
			row.Errors += n
		}
		row.Retries += w.load.Retries
		row.Unknown += w.load.Unknown
		for k, v := range w.counters {
			row.Server[k] += v
		}
		lag = max(lag, w.lag)
	}
	row.Windows = len(used)
	row.TPS = medianOr0(tps)
	row.TPSCI95 = interval(stats.Center(tps))
	row.EmulatorCPU = medianOr0(cpu)
	row.Latency = latency(hist)
	steady := stats.Steady(seconds)
	row.Stability = results.Stability{CV: steady.CV, P5OverP50: steady.P5OverP50, LongestStallS: steady.LongestStall, ZeroSeconds: steady.ZeroSeconds}
	row.RTT = m.rtt(condition, used, bare)
	if condition != scenarios.BaselineName {
		row.VsBaseline = m.versus(scenarios.BaselineName, condition, reasons)
	} else if slow := m.slowBaseline(bare); slow != "" {
		row.Warnings = append(row.Warnings, slow)
	}

	why = unique(why)
	switch {
	case m.failure != nil:
		row.InvalidReasons = append(row.InvalidReasons, firstLine(m.failure))
		for _, w := range why {
			row.InvalidReasons = append(row.InvalidReasons, w)
		}
	case broken > 0, 2*len(used) < taken:
		row.InvalidReasons = append(row.InvalidReasons, why...)
	case taken == 0 && m.interrupted:
		row.InvalidReasons = append(row.InvalidReasons, "interrupted before its first window")
	case taken == 0:
		row.InvalidReasons = append(row.InvalidReasons, "not measured yet")
	}
	if troubles = unique(troubles); len(troubles) > 0 {
		row.Warnings = append(row.Warnings, "while links were cut: "+strings.Join(troubles, "; "))
	}
	if row.Windows > 0 && row.Windows < taken {
		row.Warnings = append(row.Warnings, fmt.Sprintf("%d of %d windows were INVALID and left out: %s", taken-row.Windows, taken, why[0]))
	}
	if m.interrupted && taken < m.plan.Measure.Pairs {
		row.Warnings = append(row.Warnings, fmt.Sprintf("interrupted after %d of %d windows", taken, m.plan.Measure.Pairs))
	}
	row.InvalidReasons = orEmpty(unique(row.InvalidReasons))
	row.Valid = len(row.InvalidReasons) == 0
	if row.TPS > 0 && float64(lag) > row.TPS {
		row.Warnings = append(row.Warnings, fmt.Sprintf("a node was up to %d transactions behind at the end of a window: it does not keep up with the load", lag))
	}
	if !row.Valid {
		row.VsBaseline = nil // a ratio is never made of what is not valid
	}
	return row
}

// rtt is the proof of a row. Its figures are of the links that the condition asks
// most of: those of links it leaves as they are would tell nothing of it.
func (m *measurement) rtt(condition string, used []window, bare map[string]time.Duration) *results.RTT {
	if m.net == nil || len(m.net.pairs) == 0 {
		return nil
	}
	asked := func(p [2]string) float64 {
		if len(used) > 0 {
			return ms(m.net.asked(used[0].longest().moment, p))
		}
		if c := m.net.course(condition); len(c) == 1 {
			return ms(m.net.asked(c[0], p))
		}
		return 0
	}
	out := &results.RTT{}
	for _, p := range m.net.pairs {
		out.Asked = max(out.Asked, asked(p))
	}
	var bares, p50s, p99s []float64
	worst := 0.0
	for _, p := range m.net.pairs {
		b := ms(bare[p[0]+" "+p[1]])
		most := asked(p) == out.Asked
		if most {
			bares = append(bares, b)
		}
		var own []float64
		for _, w := range used {
			for _, r := range w.longest().rtt {
				if r.From != p[0] || r.To != p[1] {
					continue
				}
				out.Probes += r.Sent
				out.Lost += r.Lost
				if r.Sent == r.Lost { // a link that was cut has no round trip
					continue
				}
				own = append(own, ms(r.P50))
				if most {
					p50s = append(p50s, ms(r.P50))
					p99s = append(p99s, ms(r.P99))
				}
			}
		}
		if len(own) > 0 {
			if off := math.Abs(stats.Median(own) - b - asked(p)); off >= worst {
				worst, out.WorstP50 = off, stats.Median(own)
			}
		}
	}
	out.Bare, out.MeasuredP50, out.MeasuredP99 = medianOr0(bares), medianOr0(p50s), medianOr0(p99s)
	return out
}

// versus is the TPS of one condition over another's, pair by pair.
func (m *measurement) versus(base, condition string, reasons [][]string) *results.Ratio {
	at := func(c string) map[int]float64 {
		out := map[int]float64{}
		for i, w := range m.windows {
			if w.condition == c && len(reasons[i]) == 0 {
				out[w.round] = w.load.TPS()
			}
		}
		return out
	}
	b, c := at(base), at(condition)
	var bs, cs []float64
	for round := 1; round <= m.plan.Measure.Pairs; round++ {
		if b[round] > 0 && c[round] > 0 {
			bs, cs = append(bs, b[round]), append(cs, c[round])
		}
	}
	if len(bs) == 0 {
		return nil
	}
	return ratio(stats.Compare(bs, cs, 0))
}

// observer is what the emulator costs: the LAN baseline over no emulator.
func (m *measurement) observer(reasons [][]string) *results.Observer {
	r := m.versus(noEmulator, scenarios.BaselineName, reasons)
	if r == nil {
		return nil
	}
	var cpu []float64
	for _, w := range m.windows {
		if w.condition == scenarios.BaselineName {
			cpu = append(cpu, w.emulatorCPU())
		}
	}
	return &results.Observer{Topology: m.topology.Name(), Variant: m.variant.Name, Ratio: *r, EmulatorCPU: medianOr0(cpu)}
}

// versusSingle compares every valid row with single's baseline. The windows
// are not neighbours: the machine's drift between the two labs is in the
// interval.
func versusSingle(rows []results.Row, all []*measurement) {
	windows := func(topology, variant, condition string) []float64 {
		var out []float64
		for _, m := range all {
			if m.topology.Name() != topology || m.variant.Name != variant {
				continue
			}
			bare := m.bare()
			for _, w := range m.windows {
				if w.condition == condition && len(m.judge(w, bare)) == 0 {
					out = append(out, w.load.TPS())
				}
			}
		}
		return out
	}
	for i := range rows {
		r := &rows[i]
		valid := slices.ContainsFunc(rows, func(s results.Row) bool { return s.Topology == "single" && s.Variant == r.Variant && s.Valid })
		if r.Topology == "single" || !r.Valid || !valid {
			continue
		}
		r.VsSingle = ratio(stats.Compare(windows("single", r.Variant, scenarios.BaselineName), windows(r.Topology, r.Variant, r.Condition), 0))
	}
}

func ratio(c stats.Comparison) *results.Ratio {
	if c.Pairs == 0 {
		return nil
	}
	return &results.Ratio{Ratio: c.Ratio, CI95: interval(c.CI, c.HasCI), Detected: c.Outcome == stats.Detected, Pairs: c.Pairs, Outcome: c.Outcome}
}

func interval(ci [2]float64, ok bool) *[2]float64 {
	if !ok {
		return nil
	}
	return &ci
}

func latency(h *hdrhistogram.Histogram) results.Latency {
	if h == nil || h.TotalCount() == 0 {
		return results.Latency{}
	}
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	return results.Latency{Avg: h.Mean() / 1000, P50: at(50), P95: at(95), P99: at(99), Max: float64(h.Max()) / 1000}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func medianOr0(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return stats.Median(v)
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
