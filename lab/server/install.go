package server

import (
	"maps"
	"slices"

	"github.com/faultlab/faultlab/lab"
)

// recipe says what a root is made of.
type recipe struct {
	suite    string
	packages []string
	options  []string // for mmdebstrap
}

var recipes = map[lab.Flavor]recipe{
	lab.MySQL:   {},
	lab.MariaDB: {},
}

// Installable lists the flavors that Install knows.
func Installable() []lab.Flavor {
	return slices.Sorted(maps.Keys(recipes))
}

func removeRoot(root string) error { return nil }
