package scenarios

import (
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// sites reads which ends of links are in which place. They are read before all
// else, since rules name them.
func (r *reader) sites(n ast.Node) map[string][]string {
	values, _ := mappingValues(n)
	at := slices.IndexFunc(values, func(v *ast.MappingValueNode) bool { return v.Key.GetToken().Value == "sites" })
	if at < 0 || values[at].Value == nil || values[at].Value.Type() == ast.NullType {
		return nil // without a value is said where keys are read
	}
	out, where := map[string][]string{}, map[string]string{}
	r.entries(values[at].Value, "sites", "{dc1: [n1, client], dc2: [n2, n3]}", func(site string, key, value ast.Node) {
		switch {
		case slices.Contains(allEnds(), site):
			r.note(key, fmt.Sprintf("a site cannot be called %s", site), "it has that meaning already")
		case !nameRE.MatchString(site):
			r.note(key, fmt.Sprintf("site %s is not 1 to 48 lower-case letters, digits and . + -", clip(site)), "")
		}
		r.list("a site", "[n1, client]", func(n ast.Node) {
			var end string
			r.word("node", &end, append([]string{client}, nodes...))(n)
			if other, again := where[end]; again && end != "" {
				r.note(n, fmt.Sprintf("%s is in site %s already", clip(end), other), "")
			}
			where[end] = site
			out[site] = append(out[site], end)
		})(value)
	})
	return out
}

// spread is a rule between what is in its sites: a rule for each two ends. One
// from a site to itself is for the links within.
func (r *reader) spread(l rule) []rule {
	in := func(end string) []string {
		if s, ok := r.site[end]; ok {
			return s
		}
		return ends(end)
	}
	if r.site[l.From] == nil && r.site[l.To] == nil {
		return []rule{l}
	}
	var out []rule
	for _, a := range in(l.From) {
		for _, b := range in(l.To) {
			one := l
			one.From, one.To = a, b
			again := slices.ContainsFunc(out, func(o rule) bool { return !o.OneWay && o.From == b && o.To == a })
			if len(one.paths()) > 0 && a != b && !again {
				out = append(out, one)
			}
		}
	}
	return out
}
