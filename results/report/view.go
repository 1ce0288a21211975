// Package report owns what people read of a run: one view of it, written as
// terminal text, Markdown, CSV, JSON or a single HTML file.
//
// Figures become words once, in the view; the formats only lay them out. A row
// that is INVALID shows its reason and never a ratio.
package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/results/stats"
)

const (
	baseline     = "baseline"
	single       = "single"
	inconclusive = stats.Inconclusive
	notDetected  = stats.NotDetected
	detected     = stats.Detected
)

// View is a run in words. Every text is ready to print, without markup.
type View struct {
	Run     results.Run // its topologies called by their variants too
	Samples []results.Sample

	Title   string // the question, else the scenario
	Status  string // "complete in 4 min 51 s"
	Facts   []Fact // what was measured on what
	Rows    []Row
	Invalid []string // why each INVALID row is
	// Footnotes explain the marks in the table.
	Footnotes []string
	Headlines []string // one for each topology and condition, in plain words
	Observer  []string // what the emulator itself costs
	Published []Published
	Source    string // of the published figures
	Notes     []string
	Proof     []Proof
	Repeat    []string // commands

	document results.Run // as it is kept
}

// Fact is one line about the run.
type Fact struct{ Name, Value string }

// Row is a row of the table, in words.
type Row struct {
	Topology, Condition    string
	TPS, Interval, Latency string
	VsSingle, VsBaseline   string
	VsSingleShort          string // without its interval
	RTT, Valid             string
	Tone                   Tone // of VsBaseline
	OK                     bool // the row is valid
}

// Tone is how a cell is meant, for formats that have colour.
type Tone int

const (
	Plain Tone = iota
	Quiet      // nothing to be read into it
	Good
	Bad
)

// Published is a figure of others beside ours.
type Published struct{ Topology, Condition, Theirs, Ours string }

// Proof is what was measured on the links of a row.
type Proof struct {
	Topology, Condition               string
	Asked, Bare, P50, P99, Off, Worst string // ms, Off in us
	Probes, Lost                      string
}

// Build makes the view of a run, whatever became of it. samples may be nil:
// formats leave out what would be drawn from them.
func Build(run results.Run, samples []results.Sample) View {
	v := View{document: run, Title: clean(run.Question)}
	run, samples = labelled(run, samples)
	v.Run, v.Samples = run, samples
	if v.Title == "" {
		v.Title = clean(run.Scenario)
	}
	v.Status = status(run)
	v.Facts = facts(run)
	b := builder{run: run, server: map[string]string{}}
	for _, l := range run.Labs {
		b.server[l.Topology] = clean(l.Server)
	}
	b.rows(&v)
	b.observer(&v)
	b.published(&v)
	b.notes(&v)
	v.Repeat = []string{
		fmt.Sprintf("faultlab run %s --profile %s", clean(run.Scenario), clean(run.Profile)),
		fmt.Sprintf("faultlab run faultlab-runs/%s/scenario.yaml --profile %s   # with the same flags applied", clean(run.ID), clean(run.Profile)),
	}
	return v
}

// label is what a topology of a variant is called beside others.
func label(topology, variant string) string {
	if variant == "" {
		return topology
	}
	return topology + ", " + variant
}

// labelled is the run with its topologies called by their variants too, which is
// what tells rows apart in a scenario of several.
func labelled(run results.Run, samples []results.Sample) (results.Run, []results.Sample) {
	run.Rows, run.Labs, run.Observer, samples = slices.Clone(run.Rows), slices.Clone(run.Labs), slices.Clone(run.Observer), slices.Clone(samples)
	for i, r := range run.Rows {
		run.Rows[i].Topology = label(r.Topology, r.Variant)
	}
	for i, l := range run.Labs {
		run.Labs[i].Topology = label(l.Topology, l.Variant)
	}
	for i, o := range run.Observer {
		run.Observer[i].Topology = label(o.Topology, o.Variant)
	}
	for i, s := range samples {
		samples[i].Topology = label(s.Topology, s.Variant)
	}
	return run, samples
}

func status(run results.Run) string {
	word := run.Status
	switch run.Status {
	case results.Running:
		return "still running, or killed: this is what it had measured"
	case results.Interrupted:
		word = "interrupted"
	}
	if d := run.Finished.Sub(run.Started); !run.Finished.IsZero() && d > 0 {
		join := " in "
		if run.Status != results.Complete {
			join = " after "
		}
		return word + join + span(d)
	}
	return word
}

func facts(run results.Run) []Fact {
	e, w := run.Environment, run.Workload
	var servers []string
	for flavor, version := range e.Servers {
		servers = append(servers, clean(flavor+" "+version))
	}
	slices.Sort(servers)
	cpus := ""
	if e.CPUs > 0 {
		cpus = count(int64(e.CPUs), "CPU")
	}
	kernel := ""
	if e.Kernel != "" {
		kernel = "kernel " + e.Kernel
	}
	var machine []string
	for _, s := range []string{kernel, cpus, e.CPUModel, memory(e.MemoryBytes), flush(e.FlushMS)} {
		if s = clean(s); s != "" {
			machine = append(machine, s)
		}
	}
	all := []Fact{
		{"run", clean(run.ID) + ", profile " + clean(run.Profile)},
		{"started", run.Started.UTC().Format("2006-01-02 15:04:05 UTC")},
		{"load", load(w, run.Rows)},
		{"servers", strings.Join(servers, ", ")},
		{"machine", strings.Join(machine, ", ")},
		{"lab", clean(e.Provider) + " provider, " + clean(e.Emulator) + " emulator"},
	}
	if w.Name == "" {
		all[2].Value = ""
	}
	if e.Provider == "" {
		all[5].Value = ""
	}
	return slices.DeleteFunc(all, func(f Fact) bool { return f.Value == "" })
}

func load(w results.Workload, rows []results.Row) string {
	threads := count(int64(w.Threads), "thread")
	if len(rows) > 0 {
		few, many := rows[0].Threads, rows[0].Threads
		for _, r := range rows {
			few, many = min(few, r.Threads), max(many, r.Threads)
		}
		if few != many { // variants have their own
			threads = fmt.Sprintf("%d to %d threads", few, many)
		}
	}
	switch {
	case w.Warehouses == 0:
		return fmt.Sprintf("%s, %s of %s, %s, %s distribution", clean(w.Name), count(int64(w.Tables), "table"),
			count(int64(w.Rows), "row"), threads, clean(w.Distribution))
	case w.Scale > 1:
		return fmt.Sprintf("%s, %s of 1/%d of TPC-C's size, %s", clean(w.Name), count(int64(w.Warehouses), "warehouse"), w.Scale, threads)
	default:
		return fmt.Sprintf("%s, %s, %s", clean(w.Name), count(int64(w.Warehouses), "warehouse"), threads)
	}
}

func memory(bytes int64) string {
	if bytes <= 0 {
		return ""
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}

func flush(ms float64) string {
	if ms <= 0 {
		return ""
	}
	return fmt.Sprintf("%.3g ms a flush to disk", ms)
}

type builder struct {
	run    results.Run
	server map[string]string // by topology
}

// find is the row of a topology and a condition, nil where there is none.
func (b builder) find(topology, condition string) *results.Row {
	for i, r := range b.run.Rows {
		if r.Topology == topology && r.Condition == condition {
			return &b.run.Rows[i]
		}
	}
	return nil
}

// measured tells whether the run has a row of a topology.
func (b builder) measured(topology string) bool {
	return slices.ContainsFunc(b.run.Rows, func(r results.Row) bool { return r.Topology == topology })
}

// valid is find for rows that ratios may be made of.
func (b builder) valid(topology, condition string) *results.Row {
	if r := b.find(topology, condition); r != nil && r.Valid {
		return r
	}
	return nil
}

func name(topology, condition string) string {
	if condition == baseline {
		return clean(topology) + ", baseline"
	}
	return clean(topology) + ", " + clean(condition)
}

func (b builder) rows(v *View) {
	others := map[string]bool{}
	for i := range b.run.Rows {
		r := &b.run.Rows[i]
		row := Row{
			Topology: clean(r.Topology), Condition: clean(r.Condition), OK: r.Valid,
			TPS: none, Interval: none, Latency: none, VsSingle: none, VsSingleShort: none, VsBaseline: none, RTT: added(r), Valid: "INVALID",
		}
		if r.Valid {
			row.Valid = "yes"
			row.TPS, row.Interval = rate(r.TPS), rates(r.TPSCI95)
			row.Latency = millis(r.Latency.P50) + "/" + millis(r.Latency.P95)
			b.versus(&row, r)
			if row.VsSingle != none && b.otherServer(r.Topology) {
				row.VsSingle += "*"
				row.VsSingleShort += "*"
				others[r.Topology] = true
			}
		} else {
			why := "no reason was given"
			if len(r.InvalidReasons) > 0 {
				why = clean(strings.Join(r.InvalidReasons, "; "))
			}
			v.Invalid = append(v.Invalid, name(r.Topology, r.Condition)+": "+why)
		}
		v.Rows = append(v.Rows, row)
		if h := b.headline(r); h != "" {
			v.Headlines = append(v.Headlines, h)
		}
		if r.RTT != nil {
			v.Proof = append(v.Proof, proof(r))
		}
	}
	for _, l := range b.run.Labs {
		if l.Error != "" && !b.measured(l.Topology) {
			v.Invalid = append(v.Invalid, clean(l.Topology)+": "+clean(l.Error))
		}
		if others[l.Topology] {
			v.Footnotes = append(v.Footnotes, fmt.Sprintf("* %s runs on %s and single on %s: versus single compares the servers too.",
				clean(l.Topology), b.server[l.Topology], b.server[single]))
		}
	}
}

// versus fills in the ratios of a valid row.
func (b builder) versus(row *Row, r *results.Row) {
	if b.valid(single, baseline) != nil && r.Topology != single && r.VsSingle != nil {
		row.VsSingle, row.VsSingleShort = againstSingle(r.VsSingle)
	}
	if b.valid(r.Topology, baseline) == nil || r.VsBaseline == nil {
		return
	}
	row.VsBaseline = versus(r.VsBaseline)
	switch {
	case r.VsBaseline.Outcome != detected:
		row.Tone = Quiet
	case r.VsBaseline.Ratio < 1:
		row.Tone = Bad
	default:
		row.Tone = Good
	}
}

// againstSingle is a comparison with single, with and without its interval.
func againstSingle(r *results.Ratio) (full, short string) {
	switch r.Outcome {
	case inconclusive:
		return versus(r), "?"
	case notDetected:
		return versus(r), "same"
	}
	return changes(r.Ratio, r.CI95), change(r.Ratio)
}

func (b builder) otherServer(topology string) bool {
	mine, theirs := b.server[topology], b.server[single]
	return mine != "" && theirs != "" && mine != theirs
}

// added is the RTT that was asked and what was measured of it; of a baseline,
// what its links have.
func added(r *results.Row) string {
	switch {
	case r.RTT == nil:
		return none
	case r.Condition == baseline:
		return "LAN " + rtt(r.RTT.MeasuredP50)
	}
	return fmt.Sprintf("%s/%s", rtt(r.RTT.Asked), rtt(r.RTT.MeasuredP50-r.RTT.Bare))
}

func proof(r *results.Row) Proof {
	p := r.RTT
	return Proof{
		Topology: clean(r.Topology), Condition: clean(r.Condition),
		Asked: rtt(p.Asked), Bare: rtt(p.Bare), P50: rtt(p.MeasuredP50), P99: rtt(p.MeasuredP99), Worst: rtt(p.WorstP50),
		Off:    fmt.Sprintf("%+.0f", 1000*(p.MeasuredP50-p.Bare-p.Asked)),
		Probes: thousands(p.Probes), Lost: thousands(p.Lost),
	}
}

// headline says in plain words what a condition did; of a baseline alone,
// where a topology has no condition, what it reached.
func (b builder) headline(r *results.Row) string {
	who := name(r.Topology, r.Condition)
	base := b.valid(r.Topology, baseline)
	switch {
	case r.Condition == baseline && !r.Valid:
		return ""
	case r.Condition == baseline && r.Topology == single:
		return fmt.Sprintf("single: %s transactions a second with nobody to wait for.", rate(r.TPS))
	case r.Condition == baseline:
		return ""
	case !r.Valid:
		return who + ": not known, the row is INVALID."
	case base == nil:
		return who + ": not known, the baseline to compare with is not valid."
	case r.VsBaseline == nil:
		return who + ": not known, no two windows to compare."
	}
	commit := fmt.Sprintf("the median transaction takes %s ms instead of %s ms", millis(r.Latency.P50), millis(base.Latency.P50))
	ratio := r.VsBaseline
	switch ratio.Outcome {
	case detected:
		word, p := "loses", percents(2-ratio.Ratio)
		if ratio.Ratio > 1 {
			word, p = "gains", percents(ratio.Ratio)
		}
		between := ""
		if ci := ratio.CI95; ci != nil {
			a, z := math.Abs(1-ci[1]), math.Abs(1-ci[0])
			q := percents(1+min(a, z), 1+max(a, z))
			between = fmt.Sprintf(" (between %s%% and %s%%)", strings.TrimPrefix(q[0], "+"), strings.TrimPrefix(q[1], "+"))
		}
		return fmt.Sprintf("%s: %s %s%%%s of its throughput; %s.", who, word, strings.TrimPrefix(p[0], "+"), between, commit)
	case notDetected:
		if ci := ratio.CI95; ci != nil {
			p := percents(ci[0], ci[1])
			return fmt.Sprintf("%s: no change of throughput was detected; anything between %s%% and %s%% fits; %s.", who, p[0], p[1], commit)
		}
		return who + ": no change of throughput was detected."
	}
	return fmt.Sprintf("%s: inconclusive, %s where a claim needs %d.", who, count(int64(ratio.Pairs), "pair"), stats.MinClaim)
}

func (b builder) observer(v *View) {
	for _, o := range b.run.Observer {
		r := o.Ratio
		text := versus(&r) + ", " + count(int64(r.Pairs), "pair")
		if r.Outcome == inconclusive {
			text = fmt.Sprintf("about %s, %s", change(r.Ratio), versus(&r))
		}
		v.Observer = append(v.Observer, fmt.Sprintf("%s: %s; the emulator took %.0f%% of one processor", clean(o.Topology), text, 100*o.EmulatorCPU))
	}
}

func (b builder) published(v *View) {
	for _, p := range b.run.Published {
		if !b.measured(p.Topology) && !(p.Topology == "pxc" && b.measured("galera")) {
			continue
		}
		v.Source = clean(p.Source)
		row := Published{Topology: clean(p.Topology), Condition: clean(p.Condition), Ours: none}
		var theirs []string
		if p.TPS > 0 {
			theirs = append(theirs, rate(p.TPS)+" TPS")
		}
		if p.ResponseMS > 0 {
			theirs = append(theirs, millis(p.ResponseMS)+" ms")
		}
		if p.VsSingle > 0 && p.Topology != single {
			theirs = append(theirs, change(p.VsSingle)+" vs single")
		}
		if p.Text != "" {
			theirs = append(theirs, clean(p.Text))
		}
		row.Theirs = strings.Join(theirs, ", ")

		ours, label := b.valid(p.Topology, p.Condition), ""
		if ours == nil && p.Topology == "pxc" { // the same replication in another server
			ours, label = b.valid("galera", p.Condition), "galera: "
		}
		if ours != nil {
			figures := []string{rate(ours.TPS) + " TPS", millis(ours.Latency.Avg) + " ms"}
			if r := ours.VsSingle; p.Condition == baseline && r != nil && b.valid(single, baseline) != nil && r.Outcome == detected {
				figures = append(figures, change(r.Ratio)+" vs single")
			}
			if p.Condition != baseline && ours.VsBaseline != nil {
				figures = append(figures, versus(ours.VsBaseline)+" vs baseline")
			}
			row.Ours = label + strings.Join(figures, ", ")
		}
		v.Published = append(v.Published, row)
	}
}

func (b builder) notes(v *View) {
	asked := 0.0
	for _, r := range b.run.Rows {
		if r.RTT != nil {
			asked = max(asked, r.RTT.Asked)
		}
	}
	if f := b.run.Environment.FlushMS; f > asked && asked > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("the disk takes %.3g ms to flush, more than the %.3g ms of latency: where commits wait for the disk, latency hides behind it (labs in memory: XDG_STATE_HOME=/dev/shm faultlab run ...)", f, asked))
	}
	for _, n := range b.run.Notes {
		v.Notes = append(v.Notes, clean(n))
	}
	for _, r := range b.run.Rows {
		who := name(r.Topology, r.Condition)
		for _, w := range r.Warnings {
			v.Notes = append(v.Notes, who+": "+clean(w))
		}
		if !r.Valid {
			continue
		}
		if s := r.Stability; s.LongestStallS > 0 {
			v.Notes = append(v.Notes, fmt.Sprintf("%s: stalled for up to %s (below a tenth of the usual rate)", who, count(int64(s.LongestStallS), "second")))
		}
		if r.Errors > 0 || r.Unknown > 0 {
			v.Notes = append(v.Notes, fmt.Sprintf("%s: %s given up, %s of unknown outcome", who, count(r.Errors, "transaction"), count(r.Unknown, "commit")))
		}
	}
	for _, x := range b.run.Verdicts {
		v.Notes = append(v.Notes, fmt.Sprintf("%s: %s (%s)", strings.ToUpper(clean(x.Outcome)), clean(x.Expect), clean(x.Why)))
	}
}
