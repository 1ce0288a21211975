package scenarios

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Expectation is a claim about the figures of a run, such as
//
//	semisync.tps[+0.6ms] / semisync.tps[baseline] < 0.95
//
// TOPOLOGY.FIGURE[CONDITION] is a figure of a row; without brackets it is the
// baseline's. Of a scenario with variants it is [VARIANT, CONDITION]. Figures are compared with < <= > >=, and reckoned with + - * / and
// parentheses. Numbers have a unit where the figure has one: 10ms; 95% is 0.95.
type Expectation struct {
	Text        string
	left, right expr
	op          string
}

// Equal tells whether both say the same, in the same words.
func (e Expectation) Equal(other Expectation) bool { return e.Text == other.Text }

// Reference is one figure that an expectation speaks of.
type Reference struct {
	Topology, Figure, Variant, Condition string
	column                               int
}

func (r Reference) String() string {
	if r.Variant != "" {
		return fmt.Sprintf("%s.%s[%s, %s]", r.Topology, r.Figure, r.Variant, r.Condition)
	}
	return fmt.Sprintf("%s.%s[%s]", r.Topology, r.Figure, r.Condition)
}

// Estimate is a figure with the interval that holds it in 95 of 100 cases. A
// figure that is counted and not estimated is its own interval.
type Estimate struct{ Mid, Lo, Hi float64 }

// Figures says what a run has of what expectations speak of. Why not is an
// error that names the row.
type Figures interface {
	Figure(Reference) (Estimate, error)
	// Ratio is a/b where that is known better than from both apart, as of
	// windows next to each other.
	Ratio(a, b Reference) (Estimate, bool)
}

// Outcomes of an expectation.
const (
	Pass         = "pass"
	Fail         = "fail"
	Inconclusive = "inconclusive"
)

// A dimension is what figures are of, as powers: only like can be compared.
type dimension struct{ tps, ms int }

func (d dimension) String() string {
	switch d {
	case dimension{}:
		return "a plain number"
	case dimension{tps: 1}:
		return "transactions a second"
	case dimension{ms: 1}:
		return "a time"
	}
	return "a product or quotient of unlike figures"
}

// figures are those of a row that can be spoken of.
var figures = map[string]dimension{
	"tps": {tps: 1}, "avg": {ms: 1}, "p50": {ms: 1}, "p95": {ms: 1}, "p99": {ms: 1}, "max": {ms: 1}, "rtt": {ms: 1},
	"cv": {}, "longest_stall": {ms: 1}, "zero_seconds": {}, "errors": {}, "retries": {}, "unknown": {},
}

// FigureNames lists them.
func FigureNames() []string {
	var out []string
	for n := range figures {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// expr is a number, a reference or an operation.
type expr struct {
	op    byte // + - * / of a and b; 'n' a number, 'r' a reference
	a, b  *expr
	value float64
	ref   Reference
	dim   dimension
}

// ExpectError is what is wrong with the text of an expectation, and where.
type ExpectError struct {
	Column        int // from 1
	Message, Hint string
}

func (e *ExpectError) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Message) }

// longestExpectation bounds the text, and with it how deep it is nested.
const longestExpectation = 400

// ParseExpectation reads one. Its errors are *ExpectError.
func ParseExpectation(text string) (e Expectation, err error) {
	p := &expectParser{text: text}
	defer func() {
		switch stop := recover().(type) {
		case nil:
		case *ExpectError:
			err = stop
		default:
			panic(stop)
		}
	}()
	if len(text) > longestExpectation {
		p.fail(1, fmt.Sprintf("an expectation of more than %d characters", longestExpectation), "write several")
	}
	e.Text = strings.TrimSpace(text)
	left := p.sum()
	e.op = p.comparison()
	p.space()
	at := p.column()
	right := p.sum()
	if p.space(); p.pos < len(text) {
		p.fail(p.column(), fmt.Sprintf("%s after the end", clip(text[p.pos:])), "an expectation is one comparison: write a line of its own for each")
	}
	if left.dim != right.dim {
		hint := "only like can be compared"
		if right.dim == (dimension{}) && left.dim == (dimension{ms: 1}) {
			hint = "a time has a unit: 10ms, 2s"
		}
		if right.dim == (dimension{}) && left.dim == (dimension{tps: 1}) {
			hint = "compare it with another topology's or condition's: figures of one machine say nothing of another. For a bare number write 100tps"
		}
		p.fail(at, fmt.Sprintf("%s is compared with %s", left.dim, right.dim), hint)
	}
	e.left, e.right = left, right
	if len(e.References()) == 0 {
		p.fail(1, "no figure of the run is in it", "such as semisync.tps[+0.6ms]")
	}
	return e, nil
}

type expectParser struct {
	text string
	pos  int
}

func (p *expectParser) fail(column int, message, hint string) {
	panic(&ExpectError{column, message, hint})
}

// column counts characters, from 1.
func (p *expectParser) column() int { return utf8.RuneCountInString(p.text[:p.pos]) + 1 }

func (p *expectParser) space() {
	for p.pos < len(p.text) && (p.text[p.pos] == ' ' || p.text[p.pos] == '\t' || p.text[p.pos] == '\n') {
		p.pos++
	}
}

// next is the next character that is no space, 0 at the end.
func (p *expectParser) next() byte {
	if p.space(); p.pos == len(p.text) {
		return 0
	}
	return p.text[p.pos]
}

func (p *expectParser) comparison() string {
	const hint = "an expectation compares: < <= > >="
	c := p.next()
	if c != '<' && c != '>' {
		if c == 0 {
			p.fail(p.column(), "the comparison is missing", hint)
		}
		p.fail(p.column(), fmt.Sprintf("%s is no comparison", clip(p.text[p.pos:])), hint)
	}
	p.pos++
	if p.pos < len(p.text) && p.text[p.pos] == '=' {
		p.pos++
		return string(c) + "="
	}
	return string(c)
}

func (p *expectParser) sum() expr {
	e := p.product()
	for c := p.next(); c == '+' || c == '-'; c = p.next() {
		at := p.column()
		p.pos++
		a, b := e, p.product()
		if a.dim != b.dim {
			p.fail(at, fmt.Sprintf("%s and %s are put together by %c", a.dim, b.dim, c), "a time has a unit: 10ms, 2s")
		}
		e = expr{op: c, a: &a, b: &b, dim: a.dim}
	}
	return e
}

func (p *expectParser) product() expr {
	e := p.factor()
	for c := p.next(); c == '*' || c == '/'; c = p.next() {
		p.pos++
		a, b := e, p.factor()
		e = expr{op: c, a: &a, b: &b}
		if c == '*' {
			e.dim = dimension{a.dim.tps + b.dim.tps, a.dim.ms + b.dim.ms}
		} else {
			e.dim = dimension{a.dim.tps - b.dim.tps, a.dim.ms - b.dim.ms}
		}
	}
	return e
}

func (p *expectParser) factor() expr {
	switch c := p.next(); {
	case c == '(':
		at := p.column()
		p.pos++
		e := p.sum()
		if p.next() != ')' {
			p.fail(at, "this parenthesis is not closed", "")
		}
		p.pos++
		return e
	case c == '.' || c >= '0' && c <= '9':
		return p.number()
	case c >= 'a' && c <= 'z':
		return p.reference()
	case c == 0:
		p.fail(p.column(), "it ends where a figure or a number should follow", "such as semisync.tps[+0.6ms] or 0.95")
	default:
		p.fail(p.column(), fmt.Sprintf("%s is neither a figure nor a number", clip(p.text[p.pos:])), "such as semisync.tps[+0.6ms] or 0.95")
	}
	panic("unreachable")
}

func (p *expectParser) word(of func(c byte) bool) string {
	from := p.pos
	for p.pos < len(p.text) && of(p.text[p.pos]) {
		p.pos++
	}
	return p.text[from:p.pos]
}

// units of numbers, and what one is in milliseconds, TPS or plain.
var expectUnits = map[string]expr{
	"": {value: 1}, "%": {value: 0.01}, "us": {value: 1e-3, dim: dimension{ms: 1}}, "ms": {value: 1, dim: dimension{ms: 1}},
	"s": {value: 1e3, dim: dimension{ms: 1}}, "tps": {value: 1, dim: dimension{tps: 1}},
}

func (p *expectParser) number() expr {
	at := p.column()
	digits := p.word(func(c byte) bool { return c == '.' || c >= '0' && c <= '9' })
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsInf(v, 0) {
		p.fail(at, fmt.Sprintf("%s is no number", clip(digits)), "")
	}
	unit := p.word(func(c byte) bool { return c == '%' || c >= 'a' && c <= 'z' })
	u, ok := expectUnits[unit]
	if !ok {
		p.fail(at, fmt.Sprintf("%s has no unit that is known", clip(digits+unit)), "units are us, ms, s, % and tps")
	}
	return expr{op: 'n', value: v * u.value, dim: u.dim}
}

func (p *expectParser) reference() expr {
	at := p.column()
	letters := func(c byte) bool { return c == '_' || c == '-' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
	ref := Reference{Condition: BaselineName, column: at}
	ref.Topology = p.word(letters)
	if message, hint := checkWord("topology", ref.Topology, topologies); message != "" {
		p.fail(at, message, hint)
	}
	if p.pos == len(p.text) || p.text[p.pos] != '.' {
		p.fail(p.column(), fmt.Sprintf("which figure of %s?", ref.Topology), ref.Topology+".tps, or one of "+strings.Join(FigureNames(), ", "))
	}
	p.pos++
	figure := p.column()
	ref.Figure = p.word(letters)
	if message, hint := checkWord("figure", ref.Figure, FigureNames()); message != "" {
		p.fail(figure, message, hint)
	}
	if p.pos < len(p.text) && p.text[p.pos] == '[' {
		open := p.column()
		end := strings.IndexByte(p.text[p.pos:], ']')
		if end < 0 {
			p.fail(open, "this bracket is not closed", "such as [+0.6ms]")
		}
		ref.Condition = strings.TrimSpace(p.text[p.pos+1 : p.pos+end])
		if variant, condition, both := strings.Cut(ref.Condition, ","); both {
			ref.Variant, ref.Condition = strings.TrimSpace(variant), strings.TrimSpace(condition)
		}
		p.pos += end + 1
	}
	return expr{op: 'r', ref: ref, dim: figures[ref.Figure]}
}

// References are the figures that the expectation speaks of.
func (e Expectation) References() []Reference {
	return append(e.left.references(), e.right.references()...)
}

func (e *expr) references() []Reference {
	switch e.op {
	case 'n', 0:
		return nil
	case 'r':
		return []Reference{e.ref}
	}
	return append(e.a.references(), e.b.references()...)
}

// Judge says whether the expectation holds: pass or fail where the intervals of
// both sides leave no doubt, else inconclusive. why gives the figures.
func (e Expectation) Judge(f Figures) (outcome, why string) {
	left, err := e.left.eval(f)
	if err != nil {
		return Inconclusive, err.Error()
	}
	right, err := e.right.eval(f)
	if err != nil {
		return Inconclusive, err.Error()
	}
	why = fmt.Sprintf("%s %s %s", e.left.show(left), e.op, e.right.show(right))
	if anyNaN(left) || anyNaN(right) {
		return Inconclusive, why + ": too few windows for an interval"
	}
	l, r := left, right
	if e.op[0] == '>' {
		l, r = r, l
	}
	equal := len(e.op) == 2
	switch {
	case l.Hi < r.Lo, equal && l.Hi == r.Lo:
		return Pass, why
	case l.Lo > r.Hi, !equal && l.Lo == r.Hi:
		return Fail, why
	}
	return Inconclusive, why + ": the intervals overlap"
}

func anyNaN(e Estimate) bool { return math.IsNaN(e.Mid) || math.IsNaN(e.Lo) || math.IsNaN(e.Hi) }

func (e *expr) show(v Estimate) string {
	unit := map[dimension]string{{ms: 1}: " ms", {tps: 1}: " TPS"}[e.dim]
	if v.Lo == v.Hi || anyNaN(v) {
		return fmt.Sprintf("%.3g%s", v.Mid, unit)
	}
	return fmt.Sprintf("%.3g%s (%.3g to %.3g)", v.Mid, unit, v.Lo, v.Hi)
}

// eval reckons with intervals as if both sides were at their worst at once: that
// is never too sure. A plain quotient of two rows is asked for as such.
func (e *expr) eval(f Figures) (Estimate, error) {
	switch e.op {
	case 'n':
		return Estimate{e.value, e.value, e.value}, nil
	case 'r':
		return f.Figure(e.ref)
	}
	if e.op == '/' && e.a.op == 'r' && e.b.op == 'r' {
		if r, ok := f.Ratio(e.a.ref, e.b.ref); ok {
			return r, nil
		}
	}
	a, err := e.a.eval(f)
	if err != nil {
		return a, err
	}
	b, err := e.b.eval(f)
	if err != nil {
		return b, err
	}
	var do func(x, y float64) float64
	switch e.op {
	case '+':
		do = func(x, y float64) float64 { return x + y }
	case '-':
		do = func(x, y float64) float64 { return x - y }
	case '*':
		do = func(x, y float64) float64 { return x * y }
	case '/':
		if b.Lo <= 0 && b.Hi >= 0 {
			return Estimate{do0(a.Mid, b.Mid), math.NaN(), math.NaN()}, nil // it may be anything
		}
		do = func(x, y float64) float64 { return x / y }
	}
	out := Estimate{Mid: do(a.Mid, b.Mid), Lo: math.Inf(1), Hi: math.Inf(-1)}
	for _, x := range []float64{a.Lo, a.Hi} {
		for _, y := range []float64{b.Lo, b.Hi} {
			v := do(x, y)
			if math.IsNaN(v) {
				return Estimate{out.Mid, v, v}, nil
			}
			out.Lo, out.Hi = min(out.Lo, v), max(out.Hi, v)
		}
	}
	return out, nil
}

func do0(x, y float64) float64 {
	if y == 0 {
		return math.NaN()
	}
	return x / y
}
