package scenarios

import (
	"time"

	"github.com/goccy/go-yaml"

	"github.com/faultlab/faultlab/netem"
)

// YAML is the plan as a scenario that resolves to it again, with every default
// written out: what a run keeps beside its results.
func (p Plan) YAML() ([]byte, error) {
	doc := document{
		Schema: Schema, Name: p.Scenario, Question: p.Question, Description: p.Description,
		Topologies: p.Topologies,
		Baseline:   documentCondition{Links: links(p.Baseline.Links)},
		Profiles: map[string]documentProfile{p.Profile: {
			documentWorkload(p.Workload),
			documentMeasure{
				duration(p.Measure.Warmup), duration(p.Measure.Settle), duration(p.Measure.Window),
				p.Measure.Pairs, p.Measure.ObserverPairs, duration(p.Measure.RTTTolerance),
			},
		}},
	}
	doc.Workload.Name = p.Workload.Name
	for _, v := range p.Variants {
		if v.Name == "" {
			doc.Settings = v.Settings
		} else {
			doc.Variants = append(doc.Variants, documentVariant(v))
		}
	}
	for _, c := range p.Conditions {
		doc.Conditions = append(doc.Conditions, documentCondition{c.Name, links(c.Links), timeline(c)})
	}
	for _, e := range p.Expect {
		doc.Expect = append(doc.Expect, e.Text)
	}
	if len(p.Published) > 0 {
		// A file has one source for all of its figures.
		doc.Published = &documentPublished{Source: p.Published[0].Source}
		for _, f := range p.Published {
			doc.Published.Figures = append(doc.Published.Figures, documentFigure{
				f.Topology, f.Condition, f.TPS, duration(f.ResponseMS*float64(time.Millisecond) + 0.5), f.VsSingle, f.Text,
			})
		}
	}
	return yaml.MarshalWithOptions(doc, yaml.UseLiteralStyleIfMultiline(true), yaml.IndentSequence(true))
}

// duration is written as text: exact, with a unit.
type duration time.Duration

func (d duration) MarshalYAML() (any, error) { return FormatDuration(time.Duration(d)), nil }

// The shape of a file, in the order in which people read it.
type document struct {
	Schema      int                          `yaml:"schema"`
	Name        string                       `yaml:"name"`
	Question    string                       `yaml:"question"`
	Description string                       `yaml:"description,omitempty"`
	Topologies  []string                     `yaml:"topologies,flow"`
	Baseline    documentCondition            `yaml:"baseline"`
	Conditions  []documentCondition          `yaml:"conditions,omitempty"`
	Settings    map[string]map[string]string `yaml:"settings,omitempty"`
	Variants    []documentVariant            `yaml:"variants,omitempty"`
	Workload    struct{ Name string }        `yaml:"workload,flow"`
	Profiles    map[string]documentProfile   `yaml:"profiles"`
	Expect      []string                     `yaml:"expect,omitempty"`
	Published   *documentPublished           `yaml:"published,omitempty"`
}

type documentVariant struct {
	Name     string                       `yaml:"name"`
	Threads  int                          `yaml:"threads,omitempty"`
	Settings map[string]map[string]string `yaml:"settings,omitempty"`
}

type documentCondition struct {
	Name     string         `yaml:"name,omitempty"`
	Links    []documentLink `yaml:"links,flow,omitempty"`
	Timeline []documentStep `yaml:"timeline,omitempty"`
}

type documentStep struct {
	At    duration       `yaml:"at"`
	Every duration       `yaml:"every,omitempty"`
	For   duration       `yaml:"for,omitempty"`
	Heal  bool           `yaml:"heal,omitempty"`
	Links []documentLink `yaml:"links,flow,omitempty"`
}

type documentLink struct {
	Between between   `yaml:"between,flow,omitempty"`
	From    string    `yaml:"from,omitempty"`
	To      string    `yaml:"to,omitempty"`
	RTT     *duration `yaml:"rtt,omitempty"`
	Delay   *duration `yaml:"delay,omitempty"`
	Impair  string    `yaml:"impair,omitempty"`
}

func links(rules []LinkRule) []documentLink {
	var out []documentLink
	for _, l := range rules {
		w := documentLink{From: l.From, To: l.To}
		if !l.OneWay {
			w = documentLink{Between: between{l.From, l.To}}
		}
		d := duration(l.Impairment.Delay)
		switch {
		case l.Impairment != netem.Impairment{Delay: l.Impairment.Delay}:
			w.Impair = l.Impairment.String()
		case l.OneWay:
			w.Delay = &d
		default:
			d *= 2
			w.RTT = &d
		}
		out = append(out, w)
	}
	return out
}

func timeline(c Condition) []documentStep {
	var out []documentStep
	for _, s := range c.Timeline {
		out = append(out, documentStep{duration(s.At), duration(s.Every), duration(s.For), s.Heal, links(s.Links)})
	}
	return out
}

// between is written as one word where both ends are the same.
type between []string

func (b between) MarshalYAML() (any, error) {
	if b[0] == b[1] {
		return b[0], nil
	}
	return []string(b), nil
}

type documentProfile struct {
	Workload documentWorkload `yaml:"workload"`
	Measure  documentMeasure  `yaml:"measure"`
}

type documentWorkload struct {
	Name         string `yaml:"name"`
	Tables       int    `yaml:"tables,omitempty"`
	Rows         int    `yaml:"rows,omitempty"`
	Threads      int    `yaml:"threads"`
	Distribution string `yaml:"distribution,omitempty"`
	Warehouses   int    `yaml:"warehouses,omitempty"`
	Scale        int    `yaml:"scale,omitempty"`
}

type documentMeasure struct {
	Warmup        duration `yaml:"warmup"`
	Settle        duration `yaml:"settle"`
	Window        duration `yaml:"window"`
	Pairs         int      `yaml:"pairs"`
	ObserverPairs int      `yaml:"observer_pairs"`
	RTTTolerance  duration `yaml:"rtt_tolerance"`
}

type documentPublished struct {
	Source  string           `yaml:"source"`
	Figures []documentFigure `yaml:"figures"`
}

type documentFigure struct {
	Topology  string   `yaml:"topology"`
	Condition string   `yaml:"condition,omitempty"`
	TPS       float64  `yaml:"tps,omitempty"`
	Response  duration `yaml:"response,omitempty"`
	VsSingle  float64  `yaml:"vs_single,omitempty"`
	Text      string   `yaml:"text,omitempty"`
}
