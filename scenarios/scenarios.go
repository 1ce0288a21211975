// Package scenarios owns the questions that ship with faultlab and the language
// they are written in: the YAML files, the strict reading of them, and the plan
// that a scenario and a profile resolve to.
package scenarios

import "time"

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
	Workload   Workload
	Measure    Measure
	Published  []Published
}

// Condition is one state of the network.
type Condition struct {
	Name  string
	Links []LinkRule
}

// LinkRule says what is done to the links between two ends, in both
// directions or in one.
type LinkRule struct {
	// From and To are "nodes" (every server node), "client", a node's name or
	// a site's.
	From, To string
	// OneWay leaves the direction To -> From alone.
	OneWay bool
	// Delay is added in each direction that the rule covers, on top of the
	// baseline's: half of a given rtt.
	Delay time.Duration
}

// Workload is the load of every window.
type Workload struct {
	Name         string
	Tables       int
	Rows         int
	Threads      int
	Distribution string
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
