// Package mysql owns what faultlab knows of the servers themselves, whatever
// topology they form: option files, connections, readiness, replication
// status and counters.
package mysql

import (
	"fmt"
	"strings"
)

// Options are settings of a server in the order they are written. A later
// setting of the same name wins, as in the server.
type Options []Option

// Option is one setting. An empty Value writes the bare name.
type Option struct{ Name, Value string }

// Set appends settings given as name, value, name, value...
func (o Options) Set(nameValue ...string) Options {
	if len(nameValue)%2 != 0 {
		panic("mysql.Options.Set: a name without a value")
	}
	out := append(Options(nil), o...)
	for i := 0; i < len(nameValue); i += 2 {
		out = append(out, Option{nameValue[i], nameValue[i+1]})
	}
	return out
}

// Get is the value in force.
func (o Options) Get(name string) (string, bool) {
	for i := len(o) - 1; i >= 0; i-- {
		if o[i].Name == name {
			return o[i].Value, true
		}
	}
	return "", false
}

// String renders an option file with one [mysqld] section, each name once.
func (o Options) String() string {
	var b strings.Builder
	b.WriteString("[mysqld]\n")
	seen := map[string]bool{}
	for _, opt := range o {
		if seen[opt.Name] {
			continue
		}
		seen[opt.Name] = true
		v, _ := o.Get(opt.Name)
		if v == "" {
			fmt.Fprintf(&b, "%s\n", opt.Name)
		} else {
			fmt.Fprintf(&b, "%s = %s\n", opt.Name, v)
		}
	}
	return b.String()
}
