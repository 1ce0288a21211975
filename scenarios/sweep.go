package scenarios

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// sweep reads the short form of variants that differ in one thing: a number of
// threads, or the value of one server variable.
func (r *reader) sweep(n ast.Node, topologies []string, set *[]place) []Variant {
	var (
		out      []Variant
		variable string
		values   []ast.Node
		named    = map[string]string{} // topology to its name of the variable
	)
	add := func(n ast.Node, v Variant) {
		if slices.ContainsFunc(out, func(o Variant) bool { return o.Name == v.Name }) {
			r.note(n, fmt.Sprintf("sweep has %s twice", v.Name), "")
		}
		out = append(out, v)
	}
	const example = "{variable: replica_parallel_workers, values: [1, 4, 16]}"
	seen := r.mapping(n, "sweep", keys{
		"threads": r.list("threads", "[4, 16, 64]", func(n ast.Node) {
			var v Variant
			r.count("threads", &v.Threads)(n)
			v.Name = fmt.Sprintf("threads=%d", v.Threads)
			add(n, v)
		}),
		"variable": func(n ast.Node) { variable = r.variable(n) },
		"values":   r.list("values", "[1, 4, 16]", func(n ast.Node) { values = append(values, n) }),
		"topologies": func(n ast.Node) {
			r.entries(n, "topologies", "{galera: wsrep_slave_threads}", func(topology string, key, value ast.Node) {
				*set = append(*set, place{topology, key})
				named[topology] = r.variable(value)
			})
		},
	})
	if seen == nil {
		return nil
	}
	has := func(key string) bool { return seen[key] != nil }
	switch {
	case has("threads") && (has("variable") || has("values") || has("topologies")):
		r.note(n, "a sweep has threads or a variable, not both", "write variants for more than one thing at once")
	case has("threads"):
	case has("variable") != has("values"):
		r.note(n, "a sweep of a variable has both variable and values", "such as "+example)
	case !has("variable"):
		r.note(n, "a sweep does not say of what", "threads: [4, 16, 64], or "+strings.Trim(example, "{}"))
	}
	for _, value := range values {
		text, ok := r.setting(variable, value)
		if !ok || variable == "" {
			continue
		}
		v := Variant{Name: variable + "=" + text, Settings: map[string]map[string]string{}}
		if message, _ := checkVariantName(v.Name); message != "" {
			v.Name = text // the variable's name is too long
		}
		if message, hint := checkVariantName(v.Name); message != "" {
			r.note(value, message, hint)
		}
		// Not for all: what a topology calls it takes the place of the common
		// name there, which its servers may not know.
		for _, t := range topologies {
			v.Settings[t] = map[string]string{cmp.Or(named[t], variable): text}
		}
		add(value, v)
	}
	return out
}
