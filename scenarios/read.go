package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile bounds a file: a scenario is a page of text.
const maxFile = 1 << 20

// Load reads a scenario strictly. file is its name in errors, which are
// Problems: as many at once as can be told apart.
func Load(file string, text []byte) (*Scenario, error) {
	r := &reader{file: file}
	s := r.load(text)
	if len(r.problems) > 0 {
		slices.SortStableFunc(r.problems, func(a, b *Problem) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Column - b.Column
		})
		return nil, r.problems
	}
	return s, nil
}

// reader walks the syntax tree rather than decoding into structs, so that every
// problem has its place and the first does not hide the others.
type reader struct {
	file     string
	problems Problems
	site     map[string][]string // the nodes and the client of each
}

func (r *reader) at(line, column int, message, hint string) {
	if message != "" {
		r.problems = append(r.problems, &Problem{r.file, line, column, message, hint})
	}
}

// note adds a problem at a node; an empty message is none.
func (r *reader) note(n ast.Node, message, hint string) {
	p := position(n)
	r.at(p.Line, p.Column, message, hint)
}

func (r *reader) load(text []byte) *Scenario {
	if len(text) > maxFile {
		r.at(1, 1, fmt.Sprintf("the file has %d bytes, more than %d", len(text), maxFile), "is it a scenario?")
		return nil
	}
	if line, column, ok := badByte(text); ok {
		r.at(line, column, "the file is not UTF-8 text", "save it as UTF-8; spaces rather than control characters")
		return nil
	}
	// Duplicate keys pass the parser so that they are reported here, with the
	// rest.
	tree, err := parser.ParseBytes(bytes.TrimPrefix(text, []byte("\ufeff")), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return nil
	}
	var docs []ast.Node
	for _, d := range tree.Docs {
		if d.Body != nil {
			docs = append(docs, d.Body)
		}
	}
	switch {
	case len(docs) == 0 || docs[0].Type() == ast.NullType:
		r.at(1, 1, "the file is empty", "`faultlab show latency-0.6ms` prints a scenario to start from")
		return nil
	case len(docs) > 1:
		r.note(docs[1], "the file holds more than one document", "one scenario a file: take out the ---")
		return nil
	}
	return r.scenario(docs[0])
}

// badByte finds the first byte that is no text.
func badByte(text []byte) (line, column int, found bool) {
	line, column = 1, 1
	for len(text) > 0 {
		c, size := utf8.DecodeRune(text)
		switch {
		case c == utf8.RuneError && size == 1, unicode.IsControl(c) && c != '\n' && c != '\r' && c != '\t':
			return line, column, true
		case c == '\n':
			line, column = line+1, 1
		default:
			column++
		}
		text = text[size:]
	}
	return 0, 0, false
}

// syntax reports what the YAML parser did not understand.
func (r *reader) syntax(err error) {
	const hint = "check indentation, colons and brackets; quote text that has any of : # { } [ ] in it"
	var ye yaml.Error
	if errors.As(err, &ye) && ye.GetToken() != nil && ye.GetToken().Position != nil {
		p := ye.GetToken().Position
		r.at(p.Line, p.Column, "not YAML: "+ye.GetMessage(), hint)
		return
	}
	r.at(1, 1, "not YAML: "+err.Error(), hint)
}

// keys says what a mapping may hold and what reads each value.
type keys map[string]func(ast.Node)

// mapping reads a mapping and returns the value of each key that it has.
func (r *reader) mapping(n ast.Node, what string, known keys) map[string]ast.Node {
	seen := map[string]ast.Node{}
	values, ok := mappingValues(n)
	if !ok {
		r.note(n, fmt.Sprintf("%s must be a map of keys and values, not %s", what, kind(n)),
			"keys: "+strings.Join(sorted(known), ", "))
		return nil
	}
	for _, v := range values {
		key := v.Key.GetToken().Value
		read, ok := known[key]
		if _, again := seen[key]; again {
			r.note(v.Key, fmt.Sprintf("key %s is given twice in %s", clip(key), what),
				fmt.Sprintf("the first is on line %d", position(seen[key]).Line))
			continue
		}
		seen[key] = v.Key
		switch {
		case !ok:
			r.note(v.Key, fmt.Sprintf("unknown key %s in %s", clip(key), what), Suggest(key, sorted(known)))
		case v.Value == nil || v.Value.Type() == ast.NullType:
			r.note(v.Key, fmt.Sprintf("key %q has no value", key), "give it one, or take the key out")
		default:
			read(v.Value)
		}
	}
	return seen
}

// entries reads a mapping whose keys are not the language's.
func (r *reader) entries(n ast.Node, what, example string, read func(name string, key, value ast.Node)) {
	values, ok := mappingValues(n)
	if !ok {
		r.note(n, fmt.Sprintf("%s must be a map of keys and values, not %s", what, kind(n)), "such as "+example)
		return
	}
	seen := map[string]bool{}
	for _, v := range values {
		key := v.Key.GetToken().Value
		switch {
		case seen[key]:
			r.note(v.Key, fmt.Sprintf("key %s is given twice in %s", clip(key), what), "")
		case v.Value == nil || v.Value.Type() == ast.NullType:
			r.note(v.Key, fmt.Sprintf("key %q has no value", key), "give it one, or take the key out")
		default:
			read(key, v.Key, v.Value)
		}
		seen[key] = true
	}
}

func sorted(k keys) []string {
	var names []string
	for name := range k {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// require reports keys that are missing from a mapping at n, unless one was
// misspelled, which has been said.
func (r *reader) require(n ast.Node, seen map[string]ast.Node, what string, names ...string) {
	if seen == nil {
		return // it was no mapping, which has been said
	}
	for _, name := range names {
		if _, ok := seen[name]; ok {
			continue
		}
		misspelled := false
		for key := range seen {
			misspelled = misspelled || len(nearest(key, []string{name})) > 0
		}
		if !misspelled {
			r.note(n, fmt.Sprintf("%s has no %q", what, name), "")
		}
	}
}

func mappingValues(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// list reads each element of a list.
func (r *reader) list(what, example string, read func(ast.Node)) func(ast.Node) {
	return func(n ast.Node) {
		seq, ok := n.(*ast.SequenceNode)
		if !ok {
			r.note(n, fmt.Sprintf("%s must be a list, not %s", what, kind(n)), "such as "+example)
			return
		}
		if len(seq.Values) == 0 {
			r.note(n, what+" is empty", "such as "+example)
		}
		for _, v := range seq.Values {
			if v == nil || v.Type() == ast.NullType {
				r.note(n, what+" has an empty entry", "")
				continue
			}
			read(v)
		}
	}
}

// text reads one string.
func (r *reader) text(what string, to *string, check func(s string) (message, hint string)) func(ast.Node) {
	return func(n ast.Node) {
		var s string
		switch n := n.(type) {
		case *ast.StringNode:
			s = n.Value
		case *ast.LiteralNode:
			s = n.Value.Value
		default:
			hint := ""
			if _, ok := n.(ast.ScalarNode); ok {
				hint = fmt.Sprintf("put it in quotes: %q", n.GetToken().Value)
			}
			r.note(n, fmt.Sprintf("%s must be text, not %s", what, kind(n)), hint)
			return
		}
		*to = s
		if check != nil {
			message, hint := check(s)
			r.note(n, message, hint)
		}
	}
}

// word reads one of the known words.
func (r *reader) word(kind string, to *string, known []string) func(ast.Node) {
	return r.text(kind, to, func(s string) (string, string) { return checkWord(kind, s, known) })
}

var digits = regexp.MustCompile(`^[0-9]+(_[0-9]+)*$`)

// count reads a whole number within the limits of its name.
func (r *reader) count(name string, to *int) func(ast.Node) {
	return func(n ast.Node) {
		text := n.GetToken().Value
		if t := n.GetToken().Type; t == token.SingleQuoteType || t == token.DoubleQuoteType || !digits.MatchString(text) {
			r.note(n, fmt.Sprintf("%s must be a whole number, not %s", name, describe(n)), "")
			return
		}
		v, err := strconv.Atoi(strings.ReplaceAll(text, "_", ""))
		message := limits[name].check(name, v)
		if err != nil { // digits can only be too many
			message = fmt.Sprintf("%s must be at most %d, not %s", name, limits[name].max, clip(text))
		}
		r.note(n, message, "")
		*to = v
	}
}

// number reads a positive figure.
func (r *reader) number(name string, to *float64) func(ast.Node) {
	return func(n ast.Node) {
		v, err := strconv.ParseFloat(n.GetToken().Value, 64)
		if t := n.Type(); err != nil || v <= 0 || t != ast.IntegerType && t != ast.FloatType {
			r.note(n, fmt.Sprintf("%s must be a number above 0, not %s", name, describe(n)), "")
			return
		}
		*to = v
	}
}

// duration reads a time; check may be nil.
func (r *reader) duration(name string, to *time.Duration, check func(time.Duration) string) func(ast.Node) {
	return func(n ast.Node) {
		if _, ok := n.(ast.ScalarNode); !ok {
			r.note(n, fmt.Sprintf("%s must be a duration, not %s", name, kind(n)), "such as 250us, 0.6ms, 90s or 30m")
			return
		}
		d, hint, err := parseDuration(n.GetToken().Value)
		if err != nil {
			r.note(n, name+": "+err.Error(), hint)
			return
		}
		if check != nil {
			r.note(n, check(d), "")
		}
		*to = d
	}
}

// position is where a node begins. A mapping's own token is its first colon.
func position(n ast.Node) *token.Position {
	if values, ok := mappingValues(n); ok && len(values) > 0 {
		n = values[0].Key
	}
	if n != nil && n.GetToken() != nil && n.GetToken().Position != nil {
		return n.GetToken().Position
	}
	return &token.Position{Line: 1, Column: 1}
}

// kind is what a person would call a node.
func kind(n ast.Node) string {
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "a map"
	case ast.SequenceType:
		return "a list"
	case ast.StringType, ast.LiteralType:
		return "text"
	case ast.IntegerType, ast.FloatType, ast.InfinityType, ast.NanType:
		return "a number"
	case ast.BoolType:
		return "true or false"
	case ast.NullType:
		return "nothing"
	case ast.AnchorType, ast.AliasType, ast.MergeKeyType:
		return "an anchor or alias (these are not part of the language)"
	case ast.TagType:
		return "a tag (these are not part of the language)"
	}
	return "that"
}

// describe is the scalar itself, else its kind.
func describe(n ast.Node) string {
	if _, ok := n.(ast.ScalarNode); ok && n.Type() != ast.LiteralType {
		return clip(n.GetToken().Value)
	}
	return kind(n)
}
