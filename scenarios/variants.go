package scenarios

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// place is a word of the file that is judged once all is read.
type place struct {
	word string
	node ast.Node
}

var variableRE = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// reserved are variables that a lab depends on.
var reserved = []string{"server_id", "datadir", "socket", "port", "bind_address", "basedir", "user", "pid_file", "log_error", "report_host",
	"plugin_load", "plugin_load_add", "wsrep_cluster_address", "wsrep_node_address", "wsrep_node_name", "wsrep_provider", "group_replication_group_name",
	"group_replication_local_address", "group_replication_group_seeds", "init_file"}

// settings reads server variables, by topology and name.
func (r *reader) settings(n ast.Node, set *[]place) map[string]map[string]string {
	out := map[string]map[string]string{}
	r.entries(n, "settings", "{all: {innodb_buffer_pool_size: 512M}}", func(topology string, key, value ast.Node) {
		*set = append(*set, place{topology, key})
		out[topology] = map[string]string{}
		r.entries(value, "the settings of "+clip(topology), "{innodb_buffer_pool_size: 512M}", func(name string, key, value ast.Node) {
			message, hint := checkVariable(name)
			r.note(key, message, hint)
			out[topology][name], _ = r.setting(name, value)
		})
	})
	return out
}

func (r *reader) variant(n ast.Node, others []Variant, set *[]place) Variant {
	var v Variant
	seen := r.mapping(n, "a variant", keys{
		"name": func(n ast.Node) {
			r.text("name", &v.Name, checkVariantName)(n)
			if slices.ContainsFunc(others, func(o Variant) bool { return o.Name == v.Name }) {
				r.note(n, fmt.Sprintf("variant %s is there twice", clip(v.Name)), "")
			}
		},
		"threads":  r.count("threads", &v.Threads),
		"settings": func(n ast.Node) { v.Settings = r.settings(n, set) },
	})
	r.require(n, seen, "a variant", "name")
	return v
}

// settingsFor checks that settings are for topologies that are measured.
func (r *reader) settingsFor(s *Scenario, set []place) {
	for _, p := range set {
		if p.word != allTopologies && !slices.Contains(s.Topologies, p.word) {
			r.note(p.node, fmt.Sprintf("settings: the scenario does not measure topology %s", clip(p.word)), Suggest(p.word, append([]string{allTopologies}, s.Topologies...)))
		}
	}
}

// variable reads the name of a server variable.
func (r *reader) variable(n ast.Node) string {
	var name string
	r.text("variable", &name, checkVariable)(n)
	return name
}

func checkVariable(name string) (message, hint string) {
	switch {
	case !variableRE.MatchString(name):
		return fmt.Sprintf("%s is not a server variable's name", clip(name)), "lower-case letters, digits and _, as in SHOW VARIABLES"
	case slices.Contains(reserved, name):
		return fmt.Sprintf("%s belongs to the lab and cannot be set", name), ""
	}
	return "", ""
}

// setting reads the value of a server variable, as it will be in the option
// file.
func (r *reader) setting(name string, n ast.Node) (text string, ok bool) {
	scalar, ok := n.(ast.ScalarNode)
	if ok {
		text = scalar.GetToken().Value
	}
	if !ok || strings.ContainsAny(text, "\n\r") {
		r.note(n, fmt.Sprintf("%s must be a word or a number, not %s", clip(name), describe(n)), "")
		return "", false
	}
	return text, true
}

// checkVariantName: expectations name a variant in brackets, before a comma.
func checkVariantName(name string) (message, hint string) {
	if strings.ContainsAny(name, ",[]") {
		return "the name of a variant has no comma and no bracket, as " + strconv.Quote(name) + " has", "expectations name it: [NAME, CONDITION]"
	}
	return checkText("the name of a variant", 32)(name)
}
