package scenarios

import (
	"fmt"
	"slices"
	"strings"

	"github.com/xrash/smetrics"
)

// Problem is one thing that is wrong with a scenario, with its place in the
// file and, where there is one, the way to mend it.
type Problem struct {
	File string // "" for what came from flags rather than a file
	// Line and Column count from 1; 0 where the problem has no place.
	Line, Column int
	Message      string
	Hint         string
}

// Error is "file:line:column: message", without the hint.
func (p *Problem) Error() string {
	switch {
	case p.File == "":
		return p.Message
	case p.Line == 0:
		return p.File + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Hints is the hint, if there is one, in the form that the command line asks
// every error for.
func (p *Problem) Hints() []string {
	if p.Hint == "" {
		return nil
	}
	return []string{p.Hint}
}

// Problems is everything that is wrong with a scenario, in the order of the
// file. It is never empty when returned as an error.
type Problems []*Problem

// Error is one line for each problem, each followed by its hint.
func (ps Problems) Error() string {
	var lines []string
	for _, p := range ps {
		lines = append(lines, p.Error())
		for _, h := range p.Hints() {
			lines = append(lines, "    hint: "+h)
		}
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.As each problem.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// Suggest is a hint for a word that is none of the known ones: the nearest if
// one is near, else all of them.
func Suggest(word string, known []string) string {
	if near := nearest(word, known); len(near) > 0 {
		return "did you mean " + orList(near) + "?"
	}
	return "known: " + strings.Join(known, ", ")
}

// nearest lists at most three of the known words that are a slip of the
// finger away from word (two letters swapped count), best first.
func nearest(word string, known []string) []string {
	distance := func(k string) int {
		return smetrics.WagnerFischer(strings.ToLower(word), strings.ToLower(k), 1, 1, 1)
	}
	if len(word) < 3 || len(word) > 64 { // too short to tell, or too long to be a slip
		return nil
	}
	var near []string
	for _, k := range known {
		if distance(k) <= max(2, len(k)/3) || strings.HasPrefix(k, word) {
			near = append(near, k)
		}
	}
	slices.SortStableFunc(near, func(a, b string) int { return distance(a) - distance(b) })
	return near[:min(len(near), 3)]
}

func orList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(quoted, " or ")
}
