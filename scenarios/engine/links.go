package engine

import (
	"fmt"
	"time"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/scenarios"
)

// hop is a directed path between two ends of a lab, by name.
type hop struct{ from, to string }

// delays says what is added on each hop.
type delays map[hop]time.Duration

// rules resolves a condition's links to hops for a topology's default nodes,
// so that a rule that names nobody is found before a lab is built. A topology
// of one node has no links between nodes, and that is no error.
func (r *runner) rules(t lab.Topology, c scenarios.Condition) (delays, error) {
	var names []string
	for _, n := range r.spec(t).Nodes {
		names = append(names, n.Name)
	}
	return resolve(c, names)
}

// clientEnd is the load client's name as an end of a hop.
const clientEnd = "client"

func resolve(c scenarios.Condition, nodes []string) (delays, error) {
	ends := func(name string) ([]string, error) {
		switch name {
		case "nodes":
			return nodes, nil
		case clientEnd:
			return []string{clientEnd}, nil
		}
		for _, n := range nodes {
			if n == name {
				return []string{n}, nil
			}
		}
		if len(nodes) == 1 {
			return nil, nil
		}
		return nil, fmt.Errorf("condition %s: there is no node %q", c.Name, name)
	}
	d := delays{}
	for _, rule := range c.Links {
		from, err := ends(rule.From)
		if err != nil {
			return nil, err
		}
		to, err := ends(rule.To)
		if err != nil {
			return nil, err
		}
		// A rule between "nodes" and "nodes" meets every pair twice: it still
		// adds its delay once.
		covered := delays{}
		for _, a := range from {
			for _, b := range to {
				if a == b {
					continue
				}
				covered[hop{a, b}] = rule.Delay
				if !rule.OneWay {
					covered[hop{b, a}] = rule.Delay
				}
			}
		}
		for h, v := range covered {
			d[h] += v
		}
	}
	return d, nil
}

// network is what a lab's links can be put to: the ends by name, every hop
// that the baseline or a condition ever touches, and each condition's delays.
type network struct {
	ends       map[string]netem.Endpoint
	hops       []hop // each is emulated in every condition
	baseline   delays
	conditions map[string]delays
	pairs      [][2]string // with a hop in either direction
}

// newNetwork resolves a plan for a lab.
func newNetwork(plan scenarios.Plan, l lab.Lab) (*network, error) {
	n := &network{ends: map[string]netem.Endpoint{clientEnd: l.Client().Endpoint()}, conditions: map[string]delays{}}
	names := []string{}
	for _, node := range l.Nodes() {
		names = append(names, node.Name())
		n.ends[node.Name()] = node.Endpoint()
	}
	var err error
	if n.baseline, err = resolve(plan.Baseline, names); err != nil {
		return nil, err
	}
	for _, c := range plan.Conditions {
		if n.conditions[c.Name], err = resolve(c, names); err != nil {
			return nil, err
		}
	}
	// In a fixed order, so that what is applied and printed is too.
	all := append([]string{clientEnd}, names...)
	for i, a := range all {
		for _, b := range all[i+1:] {
			touched := false
			for _, h := range []hop{{a, b}, {b, a}} {
				if n.touches(h) {
					n.hops = append(n.hops, h)
					touched = true
				}
			}
			if touched {
				n.pairs = append(n.pairs, [2]string{a, b})
			}
		}
	}
	return n, nil
}

func (n *network) touches(h hop) bool {
	if _, ok := n.baseline[h]; ok {
		return true
	}
	for _, d := range n.conditions {
		if _, ok := d[h]; ok {
			return true
		}
	}
	return false
}

// links is the state of every emulated hop in a condition: the baseline's
// delay and the condition's on top.
func (n *network) links(condition string) []netem.Link {
	out := make([]netem.Link, len(n.hops))
	for i, h := range n.hops {
		out[i] = netem.Link{From: n.ends[h.from], To: n.ends[h.to],
			Impairment: netem.Impairment{Delay: n.baseline[h] + n.conditions[condition][h]}}
	}
	return out
}

// asked is what a condition adds to the round trip of a pair.
func (n *network) asked(condition string, p [2]string) time.Duration {
	d := n.conditions[condition]
	return d[hop{p[0], p[1]}] + d[hop{p[1], p[0]}]
}

// emulated is the whole of what the emulator adds to the round trip of a pair
// in a condition.
func (n *network) emulated(condition string, p [2]string) time.Duration {
	return n.asked(condition, p) + n.baseline[hop{p[0], p[1]}] + n.baseline[hop{p[1], p[0]}]
}
