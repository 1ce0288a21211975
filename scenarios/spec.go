package scenarios

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/faultlab/faultlab/netem"
)

// Schema is the version of the language.
const Schema = 1

// Words of the language. Those that name things which other packages build are
// listed here so that a file can be judged without them; a test where both are
// in reach compares the lists.
var (
	topologies = []string{"single", "async", "semisync", "mgr", "galera", "pxc"}
	workloads  = []string{
		"oltp_write_only", "oltp_read_write", "oltp_read_only", "oltp_point_select",
		"oltp_update_index", "oltp_update_non_index", "oltp_insert", "oltp_delete", "oltp", tpcc,
	}
	distributions = []string{"special", "uniform", "gaussian", "pareto", "zipfian"}
	profiles      = []string{"quick", "standard", "paper"}
	nodes         = []string{"n1", "n2", "n3"}
)

// tpcc is the workload that has warehouses instead of tables.
const tpcc = "tpcc"

// Topologies, Workloads, Distributions and Profiles list the names that a
// scenario may use.
func Topologies() []string    { return slices.Clone(topologies) }
func Workloads() []string     { return slices.Clone(workloads) }
func Distributions() []string { return slices.Clone(distributions) }
func Profiles() []string      { return slices.Clone(profiles) }

// Nodes lists the node names of a lab that a rule may name.
func Nodes() []string { return slices.Clone(nodes) }

// Ends of a rule that are no node's name.
const (
	allNodes = "nodes"
	client   = "client"
)

// BaselineName is the name of the baseline condition.
const BaselineName = "baseline"

// DefaultTolerance is how far a link's median RTT may be from what was asked
// where a scenario does not say. Half of the smallest RTT that a condition adds
// takes its place if that is less, a twentieth of it if that is more.
const DefaultTolerance = 60 * time.Microsecond

// lan is the baseline of a scenario that names none.
var lan = Condition{
	Name:  BaselineName,
	Links: []LinkRule{{From: allNodes, To: allNodes, Impairment: netem.Impairment{Delay: 50 * time.Microsecond}}},
}

// Scenario is a question as its file asks it, read and found possible.
type Scenario struct {
	Name        string
	Group       string // of questions; "" is none of the shipped ones
	Question    string
	Description string
	Topologies  []string
	Baseline    Condition
	Conditions  []Condition
	Settings    map[string]map[string]string // of every variant
	Variants    []Variant
	Expect      []Expectation
	Published   []Published

	profiles map[string]profile // complete: defaults and the file's own
}

// profile is how much is measured.
type profile struct {
	workload Workload
	measure  Measure
}

// presets are the profiles that every scenario has.
func presets() map[string]profile {
	return map[string]profile{
		"quick": {
			Workload{Tables: 4, Rows: 10_000, Threads: 16, Distribution: "special", Warehouses: 4, Scale: 10},
			Measure{Warmup: 4 * time.Second, Settle: 500 * time.Millisecond, Window: 3 * time.Second, Pairs: 5, ObserverPairs: 2},
		},
		"standard": {
			Workload{Tables: 10, Rows: 100_000, Threads: 16, Distribution: "special", Warehouses: 4, Scale: 1},
			Measure{Warmup: 20 * time.Second, Settle: 2 * time.Second, Window: 20 * time.Second, Pairs: 10, ObserverPairs: 3},
		},
	}
}

// Profiles lists the profiles of this scenario, the shortest first.
func (s *Scenario) Profiles() []string {
	var names []string
	for _, p := range profiles {
		if _, ok := s.profiles[p]; ok {
			names = append(names, p)
		}
	}
	return names
}

// Overrides are what a user asks of one run beside its scenario. Zero values
// leave what the profile says.
type Overrides struct {
	Topologies []string
	Threads    int
	Duration   time.Duration // of a window
	Pairs      int
}

// Resolve applies a profile ("" is standard) and the user's overrides. Its
// errors are Problems without a place.
func (s *Scenario) Resolve(profile string, o Overrides) (Plan, error) {
	if profile == "" {
		profile = "standard"
	}
	p, ok := s.profiles[profile]
	if !ok {
		return Plan{}, Problems{{
			Message: fmt.Sprintf("scenario %s has no profile %s", s.Name, clip(profile)),
			Hint:    Suggest(profile, s.Profiles()),
		}}
	}
	plan := Plan{
		Scenario: s.Name, Question: s.Question, Description: s.Description, Profile: profile,
		Topologies: slices.Clone(s.Topologies), Baseline: s.Baseline.clone(),
		Workload: p.workload, Measure: p.measure, Published: slices.Clone(s.Published),
	}
	for _, c := range s.Conditions {
		plan.Conditions = append(plan.Conditions, c.clone())
	}

	plan.Variants = s.variants()

	var problems Problems
	report := func(message, hint string) {
		if message != "" {
			problems = append(problems, &Problem{Message: message, Hint: hint})
		}
	}
	if len(o.Topologies) > 0 {
		plan.Topologies = slices.Clone(o.Topologies)
		for i, t := range o.Topologies {
			report(checkWord("topology", t, topologies))
			if slices.Contains(o.Topologies[:i], t) {
				report(fmt.Sprintf("topology %q is asked for twice", t), "")
			}
		}
	}
	if o.Threads != 0 {
		plan.Workload.Threads = o.Threads
		report(limits["threads"].check("threads", o.Threads), "")
		if slices.ContainsFunc(plan.Variants, func(v Variant) bool { return v.Threads > 0 }) {
			report(fmt.Sprintf("threads %d cannot be asked for: variants of %s have their own", o.Threads, s.Name), "leave --threads out")
		}
	}
	if o.Pairs != 0 {
		plan.Measure.Pairs = o.Pairs
		report(limits["pairs"].check("pairs", o.Pairs), "")
	}
	if o.Duration != 0 {
		plan.Measure.Window = o.Duration
		report(checkSpan("window", o.Duration), "")
	}
	if len(problems) > 0 {
		return Plan{}, problems
	}
	for _, v := range plan.Variants {
		maps.DeleteFunc(v.Settings, func(topology string, _ map[string]string) bool {
			return topology != allTopologies && !slices.Contains(plan.Topologies, topology)
		})
	}
	for _, e := range s.Expect {
		measured := func(r Reference) bool { return slices.Contains(plan.Topologies, r.Topology) }
		if !slices.ContainsFunc(e.References(), func(r Reference) bool { return !measured(r) }) {
			plan.Expect = append(plan.Expect, e)
		}
	}
	return plan, nil
}

// variants are what is measured: the scenario's own settings, with those of each
// variant on top.
func (s *Scenario) variants() []Variant {
	all := s.Variants
	if len(all) == 0 {
		all = []Variant{{}}
	}
	var out []Variant
	for _, v := range all {
		merged := map[string]map[string]string{}
		for _, from := range []map[string]map[string]string{s.Settings, v.Settings} {
			for topology, settings := range from {
				if merged[topology] == nil {
					merged[topology] = map[string]string{}
				}
				maps.Copy(merged[topology], settings)
			}
		}
		out = append(out, Variant{v.Name, v.Threads, merged})
	}
	return out
}

func (c Condition) clone() Condition {
	c.Links = slices.Clone(c.Links)
	c.Timeline = slices.Clone(c.Timeline)
	return c
}

// limit is what a whole number may be. The upper ends are far beyond what a
// machine can do: they catch a slip, not an ambition.
type limit struct{ min, max int }

var limits = map[string]limit{
	"tables":         {1, 10_000},
	"rows":           {1, 1_000_000_000},
	"warehouses":     {1, 10_000},
	"scale":          {1, 100},
	"threads":        {1, 10_000},
	"pairs":          {1, 1_000},
	"observer_pairs": {0, 1_000},
}

func (l limit) check(name string, n int) string {
	if n < l.min || n > l.max {
		return fmt.Sprintf("%s must be %d to %d, not %d", name, l.min, l.max, n)
	}
	return ""
}

// spans are what a time may be at least; all are at most a day. A window below
// a second has no whole second to tell a stall by.
var spans = map[string]time.Duration{"warmup": 0, "settle": 0, "window": time.Second, "at": 0, "for": shortestStep, "every": shortestStep}

// shortestStep is what changes of links can follow each other in.
const shortestStep = 10 * time.Millisecond

func checkSpan(name string, d time.Duration) string {
	const longest = 24 * time.Hour
	if least := spans[name]; d < least {
		return fmt.Sprintf("%s %s is shorter than %s", name, FormatDuration(d), FormatDuration(least))
	}
	if d > longest {
		return fmt.Sprintf("%s %s is longer than a day", name, FormatDuration(d))
	}
	return ""
}

func checkWord(kind, word string, known []string) (message, hint string) {
	if slices.Contains(known, word) {
		return "", ""
	}
	return fmt.Sprintf("unknown %s %s", kind, clip(word)), Suggest(word, known)
}

// path is one directed path between two ends of a lab.
type path struct{ from, to string }

func (p path) String() string { return p.from + " to " + p.to }

// paths are those that a rule covers.
func (l LinkRule) paths() []path {
	var out []path
	for _, a := range ends(l.From) {
		for _, b := range ends(l.To) {
			if a == b {
				continue
			}
			out = append(out, path{a, b})
			if !l.OneWay && !slices.Contains(out, path{b, a}) {
				out = append(out, path{b, a})
			}
		}
	}
	slices.SortFunc(out, func(a, b path) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(out)
}

func ends(name string) []string {
	if name == allNodes {
		return nodes
	}
	return []string{name}
}

// rtt is what the rule adds to the RTT of a path that it covers.
func (l LinkRule) rtt() time.Duration {
	if l.OneWay {
		return l.Impairment.Delay
	}
	return 2 * l.Impairment.Delay
}

// smallestRTT is the least that a condition adds to a link, apart from nothing
// at all; 0 where none adds anything.
func smallestRTT(conditions []Condition) time.Duration {
	var least time.Duration
	for _, c := range conditions {
		for _, l := range c.Rules() {
			if rtt := l.rtt(); rtt > 0 && (least == 0 || rtt < least) {
				least = rtt
			}
		}
	}
	return least
}

// labTime is what a lab takes from nothing to its first transaction and back,
// data not counted.
const labTime = 12 * time.Second

// loadRate is a cautious figure for filling tables, in rows a second.
const loadRate = 20_000

// warehouseRows is how many rows a warehouse of full size has.
const warehouseRows = 500_000

// Estimate is about how long the plan takes: good for "about 5 min", no more.
func (p Plan) Estimate() time.Duration {
	m := p.Measure
	rows := float64(p.Workload.Tables) * float64(p.Workload.Rows)
	if w := p.Workload; w.Name == tpcc {
		rows = float64(w.Warehouses) * warehouseRows / float64(w.Scale)
	}
	lab := labTime.Seconds() + rows/loadRate + m.Warmup.Seconds()
	window := (m.Settle + m.Window).Seconds()
	var total float64
	for _, t := range p.Topologies {
		windows := m.Pairs*(1+len(p.Conditions)) + m.ObserverPairs
		if t == "single" || len(p.Conditions) == 0 { // a baseline only
			windows = m.Pairs
		}
		total += lab + float64(windows)*window
	}
	total *= float64(max(1, len(p.Variants)))
	if longest := time.Duration(math.MaxInt64).Seconds(); total >= longest {
		return math.MaxInt64
	}
	return time.Duration(total * float64(time.Second))
}
