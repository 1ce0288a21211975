package scenarios

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.yaml
var builtin embed.FS

// Names lists the scenarios that ship, in alphabetical order.
func Names() []string {
	files, err := builtin.ReadDir(".")
	if err != nil {
		panic(err) // the embedded root always reads
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

// Source is the YAML of a scenario that ships. The error of an unknown name is
// a *Problem whose hint has the nearest names.
func Source(name string) ([]byte, error) {
	b, err := builtin.ReadFile(name + ".yaml")
	if err != nil {
		return nil, &Problem{
			Message: fmt.Sprintf("no scenario is called %s", clip(name)),
			Hint:    Suggest(name, Names()),
		}
	}
	return b, nil
}

// Builtin is a scenario that ships. Its errors are those of Source.
func Builtin(name string) (*Scenario, error) {
	b, err := Source(name)
	if err != nil {
		return nil, err
	}
	return Load(name+".yaml", b)
}
