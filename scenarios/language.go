package scenarios

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/faultlab/faultlab/netem"
)

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]{0,47}$`)

func checkName(s string) (message, hint string) {
	if !nameRE.MatchString(s) {
		return fmt.Sprintf("name %s is not 1 to 48 lower-case letters, digits and . + -", clip(s)),
			"it is the name of the folder that keeps the results"
	}
	return "", ""
}

func checkText(what string, longest int) func(string) (message, hint string) {
	return func(s string) (string, string) {
		if n := utf8.RuneCountInString(s); strings.TrimSpace(s) == "" || n > longest {
			return fmt.Sprintf("%s must be 1 to %d characters, not %d", what, longest, n), ""
		}
		return "", ""
	}
}

// rule is a link rule with its place.
type rule struct {
	LinkRule
	node ast.Node
}

// condition is a condition with the places of its parts.
type condition struct {
	name     string
	node     ast.Node // the name, else the whole
	rules    []rule
	timeline []step
}

// step is a step with the places of its parts.
type step struct {
	Step
	rules []rule
}

func (c condition) plain() Condition {
	out := Condition{Name: c.name, Links: plain(c.rules)}
	for _, s := range c.timeline {
		s.Step.Links = plain(s.rules)
		out.Timeline = append(out.Timeline, s.Step)
	}
	return out
}

func plain(rules []rule) []LinkRule {
	var out []LinkRule
	for _, l := range rules {
		out = append(out, l.LinkRule)
	}
	return out
}

// all are the rules of the condition and of its steps.
func (c condition) all() []rule {
	out := slices.Clone(c.rules)
	for _, s := range c.timeline {
		out = append(out, s.rules...)
	}
	return out
}

// part is the workload and measure keys of a profile, or of the whole file,
// as yet unread: what they say is laid over what they start from.
type part struct{ node, workload, measure ast.Node }

func (r *reader) scenario(n ast.Node) *Scenario {
	s := &Scenario{Baseline: lan}
	var (
		baseline   condition
		conditions []condition
		own        = map[string]part{}
		whole      part
		schema     string
		tolerance  ast.Node
		expect     []claim
		set        []place
		sweep      ast.Node
	)
	readSchema := func(n ast.Node) {
		if schema = n.GetToken().Value; n.Type() != ast.IntegerType || schema != "1" {
			r.note(n, fmt.Sprintf("schema %s is not one that this faultlab reads", describe(n)), fmt.Sprintf("write schema: %d", Schema))
		}
	}
	r.site = r.sites(n)
	seen := r.mapping(n, "the scenario", keys{
		"sites":       func(ast.Node) {}, // read above
		"schema":      readSchema,
		"name":        r.text("name", &s.Name, checkName),
		"group":       r.text("group", &s.Group, checkText("group", 40)),
		"question":    r.text("question", &s.Question, checkText("question", 200)),
		"description": r.text("description", &s.Description, checkText("description", 4000)),
		"topologies":  r.topologies(&s.Topologies),
		"baseline": func(n ast.Node) {
			baseline = r.condition(n, "baseline", true)
			s.Baseline = baseline.plain()
		},
		"conditions": r.list("conditions", "[{name: +5ms, links: [{between: nodes, rtt: 5ms}]}]", func(n ast.Node) {
			conditions = append(conditions, r.condition(n, "a condition", false))
		}),
		"settings": func(n ast.Node) { s.Settings = r.settings(n, &set) },
		"variants": r.list("variants", "[{name: 4 threads, settings: {all: {replica_parallel_workers: 4}}}]", func(n ast.Node) {
			s.Variants = append(s.Variants, r.variant(n, s.Variants, &set))
		}),
		"sweep":     func(n ast.Node) { sweep = n },
		"workload":  func(n ast.Node) { whole.workload = n },
		"measure":   func(n ast.Node) { whole.measure = n },
		"profiles":  func(n ast.Node) { own = r.profiles(n) },
		"published": func(n ast.Node) { s.Published = r.published(n) },
		"expect":    r.list("expect", "[semisync.tps[+0.6ms] < semisync.tps]", func(n ast.Node) { expect = append(expect, r.expectation(n)...) }),
	})
	if seen == nil {
		return nil
	}
	r.require(n, seen, "the scenario", "schema", "name", "question", "topologies", "workload")

	for _, c := range conditions {
		s.Conditions = append(s.Conditions, c.plain())
	}
	r.conditions(s, conditions)
	s.profiles, tolerance = r.resolve(whole, own)
	r.tolerance(s, tolerance)
	r.publishedFor(s, seen["published"])
	switch {
	case sweep != nil && seen["variants"] != nil:
		r.note(seen["sweep"], "a scenario has both sweep and variants", "a sweep is short for variants: write those")
	case sweep != nil:
		s.Variants = r.sweep(sweep, s.Topologies, &set)
	}
	r.settingsFor(s, set)
	for _, c := range expect {
		r.claim(s, c)
	}
	return s
}

func (r *reader) topologies(to *[]string) func(ast.Node) {
	return r.list("topologies", "[single, semisync, mgr]", func(n ast.Node) {
		var t string
		r.word("topology", &t, topologies)(n)
		if t != "" && slices.Contains(*to, t) {
			r.note(n, fmt.Sprintf("topology %s is listed twice", clip(t)), "")
		}
		*to = append(*to, t)
	})
}

func (r *reader) condition(n ast.Node, what string, baseline bool) condition {
	c := condition{node: n}
	known := keys{"links": r.links(&c.rules)}
	required := []string{"links"}
	if baseline {
		c.name = BaselineName
	} else {
		known["name"] = func(n ast.Node) {
			c.node = n
			r.text("name", &c.name, checkText("the name of a condition", 32))(n)
		}
		known["timeline"] = r.list("timeline", "[{at: 10s, links: [{between: nodes, impair: partition}]}, {at: 20s, heal: true}]", func(n ast.Node) {
			if s, ok := r.step(n); ok {
				c.timeline = append(c.timeline, s)
			}
		})
		known["trace"] = func(n ast.Node) { c.timeline = append(c.timeline, r.trace(n)...) }
		required = []string{"name"}
	}
	seen := r.mapping(n, what, known)
	r.require(n, seen, what, required...)
	switch {
	case seen == nil || baseline:
	case seen["timeline"] != nil && seen["trace"] != nil:
		r.note(seen["trace"], "a condition has both timeline and trace", "make two conditions of them")
	case seen["links"] == nil && seen["timeline"] == nil && seen["trace"] == nil:
		r.require(n, seen, what, "links")
	}
	return c
}

// links reads the rules of a condition or of a step.
func (r *reader) links(to *[]rule) func(ast.Node) {
	return r.list("links", "[{between: nodes, rtt: 0.6ms}]", func(n ast.Node) {
		if l, ok := r.link(n); ok {
			for _, l := range r.spread(l) {
				r.overlap(*to, l)
				*to = append(*to, l)
			}
		}
	})
}

// step reads one entry of a timeline.
func (r *reader) step(n ast.Node) (s step, ok bool) {
	before := len(r.problems)
	seen := r.mapping(n, "a step", keys{
		"at":    r.span("at", &s.At),
		"for":   r.span("for", &s.For),
		"every": r.span("every", &s.Every),
		"heal": func(n ast.Node) {
			b, isBool := n.(*ast.BoolNode)
			if s.Heal = isBool && b.Value; !s.Heal {
				r.note(n, fmt.Sprintf("heal must be true, not %s", describe(n)), "without healing leave it out")
			}
		},
		"links": r.links(&s.rules),
	})
	if seen == nil {
		return s, false
	}
	has := func(key string) bool { return seen[key] != nil }
	if has("every") && !has("at") {
		s.At = s.Every
	}
	switch {
	case !has("at") && !has("every"):
		r.note(n, "a step does not say when", "add at: 10s, or every: 5s and for: 500ms")
	case has("heal") && (has("links") || has("for") || has("every")):
		r.note(n, "a step that heals has at and nothing else", "it brings back what the condition's own links say")
	case !has("heal") && !has("links"):
		r.note(n, "a step does not say what changes", "add links: [{between: nodes, impair: partition}], or heal: true")
	case has("every") && !has("for"):
		r.note(n, "a step with every needs for", "such as every: 5s, for: 500ms")
	case has("every") && s.For >= s.Every:
		r.note(n, fmt.Sprintf("a step every %s for %s never ends", FormatDuration(s.Every), FormatDuration(s.For)), "for must be shorter than every")
	}
	return s, len(r.problems) == before
}

// trace reads a trace file's points as the steps of a timeline.
func (r *reader) trace(n ast.Node) []step {
	var (
		file  string
		ends  LinkRule
		place ast.Node
	)
	seen := r.mapping(n, "a trace", keys{
		"file":    func(n ast.Node) { place = n; r.text("file", &file, nil)(n) },
		"between": func(n ast.Node) { ends.From, ends.To = r.between(n) },
	})
	r.require(n, seen, "a trace", "file", "between")
	if file == "" || ends.From == "" {
		return nil
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(r.file), file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		r.note(place, "trace: "+err.Error(), "the path is relative to the scenario's file")
		return nil
	}
	points, err := ReadTrace(file, text)
	if err != nil {
		r.note(place, "trace: "+err.Error(), "columns are time, rtt, loss and rate: see docs/scenarios.md")
		return nil
	}
	var out []step
	for _, p := range points {
		l := rule{ends, n}
		l.Impairment = p.Impairment
		out = append(out, step{Step{At: p.At}, r.spread(l)})
	}
	return out
}

// link reads one rule. ok is false where it is not whole enough to be judged
// further.
func (r *reader) link(n ast.Node) (l rule, ok bool) {
	before := len(r.problems)
	var (
		delay, rtt time.Duration
		roundTrip  bool // impair was given as rtt
	)
	tooLong := func(perWay func(time.Duration) time.Duration) func(time.Duration) string {
		return func(d time.Duration) string {
			if err := (netem.Impairment{Delay: perWay(d)}).Validate(); err != nil {
				return err.Error()
			}
			return ""
		}
	}
	seen := r.mapping(n, "a link", keys{
		"between": func(n ast.Node) { l.From, l.To = r.between(n) },
		"from":    r.word("end", &l.From, r.ends()),
		"to":      r.word("end", &l.To, r.ends()),
		"delay":   r.duration("delay", &delay, tooLong(func(d time.Duration) time.Duration { return d })),
		"rtt": r.duration("rtt", &rtt, func(d time.Duration) string {
			if d%2 != 0 {
				return fmt.Sprintf("rtt %s has no half in whole nanoseconds", FormatDuration(d))
			}
			return tooLong(func(d time.Duration) time.Duration { return d / 2 })(d)
		}),
		"impair": func(n ast.Node) {
			var text string
			if r.text("impair", &text, nil)(n); text == "" {
				return
			}
			var err error
			if l.Impairment, roundTrip, err = netem.Parse(text); err != nil {
				hint := ""
				if s := (*netem.SyntaxError)(nil); errors.As(err, &s) {
					hint = s.Hint
				}
				r.note(n, "impair: "+err.Error(), hint)
			} else if d := l.Impairment.Distribution; d.Name != "" && l.Impairment.Validate() != nil {
				r.distribution(n, &l.Impairment)
			}
		},
	})
	if seen == nil {
		return l, false
	}
	has := func(key string) bool { return seen[key] != nil }
	switch {
	case has("between") && (has("from") || has("to")):
		r.note(n, "a link has both between and from or to", "between is both directions, from and to are one")
	case !has("between") && !has("from") && !has("to"):
		r.note(n, "a link does not say which", "add between: nodes, or between: [n1, n2], or from: n1 and to: n2")
	case !has("between") && !(has("from") && has("to")):
		r.note(n, "a link needs both from and to", "for both directions write between: [n1, n2]")
	}
	switch {
	case has("rtt") && has("delay"):
		r.note(n, "a link has both rtt and delay", "delay is one way, rtt is there and back: keep one of them")
	case has("impair") && (has("rtt") || has("delay")):
		r.note(n, "a link has both impair and rtt or delay", "write all of it in impair: rtt 0.6ms loss 1%")
	case !has("rtt") && !has("delay") && !has("impair"):
		r.note(n, "a link does not say what is done to it", "add rtt: 0.6ms, or impair: rtt 0.6ms loss 1%")
	case (has("rtt") || roundTrip) && has("from") && has("to"):
		r.note(n, "rtt is there and back, but from and to are one way", "write delay, or between instead of from and to")
	}
	if len(r.problems) > before {
		return l, false
	}
	l.node, l.OneWay = n, has("from")
	l.Impairment.Delay += delay + rtt/2
	if len(r.spread(l)) == 0 || len(l.paths()) == 0 && r.site[l.From] == nil || l.OneWay && l.From == l.To {
		r.note(n, fmt.Sprintf("a link from %s to %s leads nowhere", l.From, l.To), "name two different ends, or write between: nodes")
		return l, false
	}
	return l, true
}

// distribution reads the table of an own distribution, a file beside the
// scenario's.
func (r *reader) distribution(n ast.Node, i *netem.Impairment) {
	file := i.Distribution.Name
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(r.file), file)
	}
	text, err := os.ReadFile(file)
	if err == nil {
		i.Distribution.Text = string(text)
		err = i.Validate()
	}
	if err != nil {
		r.note(n, "impair: distribution: "+err.Error(), "known: uniform, normal, pareto, paretonormal; else a file beside the scenario")
	}
}

// allEnds are the words for the end of a link.
func allEnds() []string { return append([]string{allNodes, client}, nodes...) }

// ends are those and the scenario's sites.
func (r *reader) ends() []string {
	return append(allEnds(), slices.Sorted(maps.Keys(r.site))...)
}

// between reads "nodes", or two ends.
func (r *reader) between(n ast.Node) (a, b string) {
	const hint = "write between: nodes, or two ends: between: [client, nodes]"
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		before := len(r.problems)
		r.word("end", &a, r.ends())(n)
		if a != allNodes && len(r.problems) == before {
			r.note(n, fmt.Sprintf("between %s and what?", a), hint)
		}
		return a, a
	}
	if len(seq.Values) != 2 {
		r.note(n, fmt.Sprintf("between must have 2 ends, not %d", len(seq.Values)), hint)
		return "", ""
	}
	r.word("end", &a, r.ends())(seq.Values[0])
	r.word("end", &b, r.ends())(seq.Values[1])
	return a, b
}

// overlap reports a path that two rules of one condition cover: which of them
// holds would be a guess.
func (r *reader) overlap(earlier []rule, l rule) {
	for _, e := range earlier {
		for _, p := range e.paths() {
			if slices.Contains(l.paths(), p) {
				r.note(l.node, fmt.Sprintf("two links of one condition cover %s", p),
					fmt.Sprintf("the other is on line %d", position(e.node).Line))
				return
			}
		}
	}
}

// conditions judges what conditions are to one another and to the rest.
func (r *reader) conditions(s *Scenario, conditions []condition) {
	covered := map[path]bool{}
	for _, l := range s.Baseline.Links {
		for _, p := range l.paths() {
			covered[p] = true
		}
	}
	judge := len(covered) > 0 // else the baseline is broken, which has been said
	first := map[string]ast.Node{}
	shaped := len(conditions) == 0
	for _, c := range conditions {
		switch earlier, again := first[c.name]; {
		case c.name == BaselineName:
			r.note(c.node, "a condition cannot be called baseline", "the baseline has a key of its own")
		case again && c.name != "":
			r.note(c.node, fmt.Sprintf("two conditions are called %s", clip(c.name)), fmt.Sprintf("the other is on line %d", position(earlier).Line))
		default:
			first[c.name] = c.node
		}
		for _, l := range c.all() {
			for _, p := range l.paths() {
				shaped = shaped || p.from == client || p.to == client
				if judge && !covered[p] {
					r.note(l.node, fmt.Sprintf("the baseline does not cover %s, so the cost of the emulator would count as the link's", p),
						"cover it in the baseline too, with rtt: 0ms if nothing is to be added there")
					break
				}
			}
		}
	}
	if !shaped && len(s.Topologies) == 1 && s.Topologies[0] == "single" {
		r.note(conditions[0].node, "no topology here has links between nodes: the conditions change nothing", "add a topology, or shape the links of the client")
	}
}

func (r *reader) profiles(n ast.Node) map[string]part {
	parts := map[string]part{}
	known := keys{}
	for _, name := range profiles {
		known[name] = func(n ast.Node) {
			p := part{node: n}
			r.mapping(n, "profile "+name, keys{
				"workload": func(n ast.Node) { p.workload = n },
				"measure":  func(n ast.Node) { p.measure = n },
			})
			parts[name] = p
		}
	}
	r.mapping(n, "profiles", known)
	return parts
}

// resolve lays the file's keys, and then those of each profile, over the
// presets. It returns the last node that sets a tolerance.
func (r *reader) resolve(whole part, own map[string]part) (map[string]profile, ast.Node) {
	var tolerance ast.Node
	lay := func(r *reader, p *profile, over part) {
		w, m := &p.workload, &p.measure
		if over.workload != nil {
			seen := r.mapping(over.workload, "workload", keys{
				"name":         r.word("workload", &w.Name, workloads),
				"distribution": r.word("distribution", &w.Distribution, distributions),
				"tables":       r.count("tables", &w.Tables),
				"rows":         r.count("rows", &w.Rows),
				"threads":      r.count("threads", &w.Threads),
				"warehouses":   r.count("warehouses", &w.Warehouses),
				"scale":        r.count("scale", &w.Scale),
			})
			r.foreign(*w, seen)
		}
		if over.measure != nil {
			seen := r.mapping(over.measure, "measure", keys{
				"warmup":         r.span("warmup", &m.Warmup),
				"settle":         r.span("settle", &m.Settle),
				"window":         r.span("window", &m.Window),
				"pairs":          r.count("pairs", &m.Pairs),
				"observer_pairs": r.count("observer_pairs", &m.ObserverPairs),
				"rtt_tolerance":  r.duration("rtt_tolerance", &m.RTTTolerance, checkTolerance),
			})
			if k := seen["rtt_tolerance"]; k != nil {
				tolerance = k
			}
		}
	}

	all := presets()
	if _, ok := own["paper"]; ok { // far too long to be there unasked
		all["paper"] = all["standard"]
	}
	judge := r
	for _, name := range profiles {
		p, ok := all[name]
		if !ok {
			continue
		}
		lay(judge, &p, whole)
		judge = &reader{} // the whole file's keys are judged once
		lay(r, &p, own[name])
		p.workload = p.workload.only()
		all[name] = p
	}
	if values, ok := mappingValues(whole.workload); ok && len(values) > 0 {
		for _, name := range profiles {
			if p, ok := all[name]; ok && p.workload.Name == "" {
				r.note(whole.workload, "workload has no \"name\"", "known: "+strings.Join(workloads, ", "))
				break
			}
		}
	}
	return all, tolerance
}

// foreign reports keys that mean nothing to their workload.
func (r *reader) foreign(w Workload, seen map[string]ast.Node) {
	others := []string{"warehouses", "scale"}
	if w.Name == tpcc {
		others = []string{"tables", "rows", "distribution"}
	}
	for _, key := range others {
		if k := seen[key]; k != nil && w.Name != "" {
			r.note(k, fmt.Sprintf("key %q means nothing to workload %s", key, w.Name), "take it out")
		}
	}
}

func (r *reader) span(name string, to *time.Duration) func(ast.Node) {
	return r.duration(name, to, func(d time.Duration) string { return checkSpan(name, d) })
}

func checkTolerance(d time.Duration) string {
	if d == 0 {
		return "rtt_tolerance 0: no link is that exact"
	}
	return ""
}

// tolerance judges each profile's tolerance, or sets it. One as wide as half of
// what is added would pass a link on which half of it is missing.
func (r *reader) tolerance(s *Scenario, n ast.Node) {
	half := smallestRTT(s.Conditions) / 2
	for name, p := range s.profiles {
		switch {
		case p.measure.RTTTolerance == 0:
			// A machine is busier or less so with a load that waits longer, and its
			// bare round trip with it: next to a long one that is little.
			p.measure.RTTTolerance = max(DefaultTolerance, 2*half/20)
			if half > 0 {
				p.measure.RTTTolerance = min(p.measure.RTTTolerance, half)
			}
			s.profiles[name] = p
		case half > 0 && p.measure.RTTTolerance > half && n != nil:
			r.note(n, fmt.Sprintf("rtt_tolerance %s is more than half of the smallest RTT that a condition adds, %s: it would prove nothing",
				FormatDuration(p.measure.RTTTolerance), FormatDuration(2*half)), "a tenth of it is a good start")
			return
		}
	}
}

func (r *reader) published(n ast.Node) []Published {
	var (
		out    []Published
		source string
	)
	seen := r.mapping(n, "published", keys{
		"source": r.text("source", &source, checkText("source", 200)),
		"figures": r.list("figures", "[{topology: single, tps: 10260}]", func(n ast.Node) {
			p := Published{Condition: BaselineName}
			var response time.Duration
			seen := r.mapping(n, "a figure", keys{
				"topology":  r.word("topology", &p.Topology, topologies),
				"condition": r.text("condition", &p.Condition, nil),
				"tps":       r.number("tps", &p.TPS),
				"response":  r.duration("response", &response, nil),
				"vs_single": r.number("vs_single", &p.VsSingle),
				"text":      r.text("text", &p.Text, checkText("text", 200)),
			})
			r.require(n, seen, "a figure", "topology")
			p.ResponseMS = float64(response) / float64(time.Millisecond)
			out = append(out, p)
		}),
	})
	r.require(n, seen, "published", "source", "figures")
	for i := range out {
		out[i].Source = source
	}
	return out
}

// publishedFor reports figures for a condition that the scenario does not have.
func (r *reader) publishedFor(s *Scenario, n ast.Node) {
	known := []string{BaselineName}
	for _, c := range s.Conditions {
		known = append(known, c.Name)
	}
	for _, p := range s.Published {
		if !slices.Contains(known, p.Condition) {
			r.note(n, fmt.Sprintf("published has a figure for condition %s, which the scenario has not", clip(p.Condition)), Suggest(p.Condition, known))
		}
	}
}
