package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// claim is an expectation with its place.
type claim struct {
	Expectation
	node ast.Node
}

func (r *reader) expectation(n ast.Node) []claim {
	var text string
	if r.text("expect", &text, nil)(n); text == "" {
		return nil
	}
	e, err := ParseExpectation(text)
	if wrong := (*ExpectError)(nil); errors.As(err, &wrong) {
		r.inside(n, wrong.Column, "expect: "+wrong.Message, wrong.Hint)
		return nil
	}
	return []claim{{e, n}}
}

// claim checks that the scenario has the rows that an expectation speaks of.
func (r *reader) claim(s *Scenario, c claim) {
	for _, ref := range c.References() {
		has := ref.Condition == BaselineName
		var names []string
		for _, k := range s.Conditions {
			has = has || k.Name == ref.Condition
			names = append(names, k.Name)
		}
		var variants []string
		for _, v := range s.Variants {
			variants = append(variants, v.Name)
		}
		switch {
		case len(variants) > 0 && !slices.Contains(variants, ref.Variant):
			r.inside(c.node, ref.column, fmt.Sprintf("expect: which variant of %s?", ref.Topology), fmt.Sprintf("[VARIANT, CONDITION], where variants are %s", strings.Join(variants, ", ")))
		case len(variants) == 0 && ref.Variant != "":
			r.inside(c.node, ref.column, fmt.Sprintf("expect: there is no variant %s", clip(ref.Variant)), "the scenario has none: [CONDITION]")
		case !slices.Contains(s.Topologies, ref.Topology):
			r.inside(c.node, ref.column, fmt.Sprintf("expect: the scenario does not measure topology %s", ref.Topology), "it measures "+strings.Join(s.Topologies, ", "))
		case !has:
			r.inside(c.node, ref.column, fmt.Sprintf("expect: there is no condition %s", clip(ref.Condition)), Suggest(ref.Condition, append(names, BaselineName)))
		case ref.Topology == "single" && ref.Condition != BaselineName:
			r.inside(c.node, ref.column, "expect: single has no links between nodes and is measured as baseline only", "single."+ref.Figure)
		}
	}
	s.Expect = append(s.Expect, c.Expectation)
}

// inside notes a problem within a text, where that is on one line.
func (r *reader) inside(n ast.Node, column int, message, hint string) {
	p := position(n)
	if t := n.GetToken(); t != nil && (t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType) {
		column++
	}
	r.at(p.Line, p.Column+column-1, message, hint)
}
