package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/scenarios"
)

// hop is a directed path between two ends of a lab, by name.
type hop struct{ from, to string }

// faults says what is done on each hop.
type faults map[hop]netem.Impairment

// rules resolves a condition's links to hops for a topology's default nodes,
// so that a rule that names nobody is found before a lab is built. A topology
// of one node has no links between nodes, and that is no error.
func (r *runner) rules(t lab.Topology, c scenarios.Condition) (faults, error) {
	var names []string
	for _, n := range r.spec(t).Nodes {
		names = append(names, n.Name)
	}
	f, err := resolve(c.Rules(), names)
	if err != nil {
		return nil, fmt.Errorf("condition %s: %w", c.Name, err)
	}
	return f, nil
}

// clientEnd is the load client's name as an end of a hop.
const clientEnd = "client"

// resolve gives what is done on each hop that rules cover. Of two that cover
// the same hop the later one holds.
func resolve(rules []scenarios.LinkRule, nodes []string) (faults, error) {
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
		return nil, fmt.Errorf("there is no node %q", name)
	}
	f := faults{}
	for _, rule := range rules {
		from, err := ends(rule.From)
		if err != nil {
			return nil, err
		}
		to, err := ends(rule.To)
		if err != nil {
			return nil, err
		}
		for _, a := range from {
			for _, b := range to {
				if a == b {
					continue
				}
				f[hop{a, b}] = rule.Impairment
				if !rule.OneWay {
					f[hop{b, a}] = rule.Impairment
				}
			}
		}
	}
	return f, nil
}

// moment is the state of the links from a time of a window on.
type moment struct {
	at    time.Duration
	added faults // to the baseline
}

// network is what a lab's links can be put to: the ends by name, every hop
// that the baseline or a condition ever touches, and the course of each
// condition's windows.
type network struct {
	ends       map[string]netem.Endpoint
	hops       []hop // each is emulated in every condition
	baseline   faults
	conditions map[string][]moment
	pairs      [][2]string // with a hop in either direction
}

// newNetwork resolves a plan for a lab.
func newNetwork(plan scenarios.Plan, l lab.Lab) (*network, error) {
	n := &network{ends: map[string]netem.Endpoint{clientEnd: l.Client().Endpoint()}, conditions: map[string][]moment{}}
	names := []string{}
	for _, node := range l.Nodes() {
		names = append(names, node.Name())
		n.ends[node.Name()] = node.Endpoint()
	}
	var err error
	if n.baseline, err = resolve(plan.Baseline.Links, names); err != nil {
		return nil, err
	}
	for _, c := range plan.Conditions {
		for _, m := range c.Moments(plan.Measure.Window) {
			f, err := resolve(m.Links, names)
			if err != nil {
				return nil, fmt.Errorf("condition %s: %w", c.Name, err)
			}
			n.conditions[c.Name] = append(n.conditions[c.Name], moment{m.At, f})
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
	for _, course := range n.conditions {
		for _, m := range course {
			if _, ok := m.added[h]; ok {
				return true
			}
		}
	}
	return false
}

// course is how a condition's windows go, from their beginning on. A condition
// that adds nothing, as the baseline, is one moment.
func (n *network) course(condition string) []moment {
	if c := n.conditions[condition]; len(c) > 0 {
		return c
	}
	return []moment{{}}
}

// links is the state of every emulated hop at a moment: the baseline's and
// what is added.
func (n *network) links(m moment) []netem.Link {
	out := make([]netem.Link, len(n.hops))
	for i, h := range n.hops {
		out[i] = netem.Link{From: n.ends[h.from], To: n.ends[h.to], Impairment: n.baseline[h].Plus(m.added[h])}
	}
	return out
}

// describe says what a moment adds, hop by hop where that is not the same.
func (n *network) describe(m moment) string {
	if len(m.added) == 0 {
		return "links: baseline"
	}
	var out []string
	same := true
	for _, h := range n.hops {
		i, ok := m.added[h]
		same = same && ok && i == m.added[n.hops[0]]
		if ok {
			out = append(out, fmt.Sprintf("%s to %s %s", h.from, h.to, i))
		}
	}
	if same {
		return "all links: " + m.added[n.hops[0]].String()
	}
	return strings.Join(out, ", ")
}

// asked is what a moment adds to the round trip of a pair.
func (n *network) asked(m moment, p [2]string) time.Duration {
	return m.added[hop{p[0], p[1]}].Delay + m.added[hop{p[1], p[0]}].Delay
}

// ways are the whole impairments of both directions of a pair.
func (n *network) ways(m moment, p [2]string) [2]netem.Impairment {
	there, back := hop{p[0], p[1]}, hop{p[1], p[0]}
	return [2]netem.Impairment{n.baseline[there].Plus(m.added[there]), n.baseline[back].Plus(m.added[back])}
}
