// Package scenarios owns the questions that ship with faultlab and the language
// they are written in: the YAML files, the strict reading of them, and the plan
// that a scenario and a profile resolve to.
package scenarios

import (
	"maps"
	"slices"
	"time"

	"github.com/faultlab/faultlab/netem"
)

// Plan is a scenario with its profile and the user's flags applied: all that
// the engine needs to know.
type Plan struct {
	Scenario    string
	Question    string
	Description string
	Profile     string
	Topologies  []string
	// Baseline is the LAN preset: the same links through the same emulator.
	Baseline Condition
	// Conditions are measured in pairs with the baseline.
	Conditions []Condition
	// Variants are measured one after another, each in labs of its own. There
	// is always one: without a name where the scenario has none.
	Variants []Variant
	Workload Workload
	Measure  Measure
	// Expect are claims about what is measured; of those that the scenario
	// makes, the ones about topologies that are left out are too.
	Expect    []Expectation
	Published []Published
}

// Variant is one choice of settings.
type Variant struct {
	Name    string
	Threads int // 0 is the workload's
	// Settings are server variables, by topology and name. "all" is for every
	// topology; what is said of one wins.
	Settings map[string]map[string]string
}

// SettingsOf are the server variables of a topology.
func (v Variant) SettingsOf(topology string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, v.Settings[allTopologies])
	maps.Copy(out, v.Settings[topology])
	return out
}

// allTopologies stands for every topology in settings.
const allTopologies = "all"

// Condition is one state of the network, or one course of states.
type Condition struct {
	Name  string
	Links []LinkRule
	// Timeline changes the links during a window; empty leaves them.
	Timeline []Step
}

// Step is one change of a timeline.
type Step struct {
	// At is when it begins, since the window began.
	At time.Duration
	// For is how long it lasts; 0 is until a later step heals, or to the end.
	For time.Duration
	// Every repeats it from At on; 0 is once. Never without For.
	Every time.Duration
	// Heal ends all earlier steps that have no end of their own. It has no links.
	Heal bool
	// Links take the place of what the condition, and earlier steps, say of
	// the same paths.
	Links []LinkRule
}

// Moment is a change of the links at a time since the window began.
type Moment struct {
	At time.Duration
	// Links are the rules in force from here on; of two that cover the same
	// path the later one holds.
	Links []LinkRule
}

// Moments are the changes of a window of that length, in order. The first is
// at 0; without a timeline it is the only one.
func (c Condition) Moments(window time.Duration) []Moment {
	type span struct {
		from, to time.Duration
		links    []LinkRule
	}
	var spans []span // in the order of their steps
	times := []time.Duration{0}
	for n, s := range c.Timeline {
		for at := s.At; at < window && !s.Heal; at += s.Every {
			to := at + s.For
			if s.For == 0 {
				to = c.end(n, window)
			}
			to = min(to, window)
			spans = append(spans, span{at, to, s.Links})
			times = append(times, at, to)
			if s.Every == 0 {
				break
			}
		}
	}
	slices.Sort(times)
	var out []Moment
	for _, at := range slices.Compact(times) {
		if at >= window && at > 0 {
			break
		}
		m := Moment{At: at, Links: slices.Clone(c.Links)}
		for _, s := range spans {
			if s.from <= at && at < s.to {
				m.Links = append(m.Links, s.links...)
			}
		}
		out = append(out, m)
	}
	return out
}

// end is when a step without an end of its own ends: with the next one that
// heals or that speaks of the same links.
func (c Condition) end(step int, window time.Duration) time.Duration {
	sameEnds := func(a, b LinkRule) bool { return a.From == b.From && a.To == b.To && a.OneWay == b.OneWay }
	own := c.Timeline[step]
	for _, s := range c.Timeline[step+1:] {
		if s.Heal || s.For == 0 && slices.EqualFunc(s.Links, own.Links, sameEnds) {
			return max(s.At, own.At)
		}
	}
	return window
}

// Rules are all that the condition ever does to links.
func (c Condition) Rules() []LinkRule {
	out := slices.Clone(c.Links)
	for _, s := range c.Timeline {
		out = append(out, s.Links...)
	}
	return out
}

// Partitions tells whether the condition ever cuts a link: a cluster cannot
// then be expected to stay whole.
func (c Condition) Partitions() bool {
	return slices.ContainsFunc(c.Rules(), func(l LinkRule) bool { return l.Impairment.Partition })
}

// LinkRule says what is done to the links between two ends, in both
// directions or in one.
type LinkRule struct {
	// From and To are "nodes" (every server node), "client", a node's name or
	// a site's.
	From, To string
	// OneWay leaves the direction To -> From alone.
	OneWay bool
	// Impairment is done in each direction that the rule covers. Its delay is
	// added to the baseline's: half of a given rtt.
	Impairment netem.Impairment
}

// Workload is the load of every window. What its kind of workload does not have
// is 0: tpcc has warehouses, all others have tables.
type Workload struct {
	Name         string
	Tables       int
	Rows         int
	Threads      int
	Distribution string
	Warehouses   int
	Scale        int // a warehouse is that many times smaller than TPC-C's
}

// only is w without what its kind of workload does not have.
func (w Workload) only() Workload {
	if w.Name == tpcc {
		w.Tables, w.Rows, w.Distribution = 0, 0, ""
	} else {
		w.Warehouses, w.Scale = 0, 0
	}
	return w
}

// Measure says how long and how often.
type Measure struct {
	Warmup        time.Duration // load before the first window, discarded
	Settle        time.Duration // load after each change of condition, discarded
	Window        time.Duration
	Pairs         int
	ObserverPairs int // pairs of LAN baseline and no emulator at all
	// RTTTolerance is how far the median of a link may be from what was
	// asked before a window is invalid.
	RTTTolerance time.Duration
}

// Published is a figure that others measured for the same question.
type Published struct {
	Topology   string
	Condition  string
	TPS        float64
	ResponseMS float64
	VsSingle   float64
	Text       string
	Source     string
}
