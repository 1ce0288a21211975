package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/faultlab/faultlab/netem"
)

// State is what a running lab tells other faultlab processes about itself:
// enough to show it, connect to it and take it down.
type State struct {
	Name        string      `json:"name"`
	Topology    string      `json:"topology,omitempty"`
	Provider    string      `json:"provider,omitempty"`
	PID         int         `json:"pid"` // of the process that owns the lab
	Started     time.Time   `json:"started"`
	Client      StateNode   `json:"client,omitzero"`
	Nodes       []StateNode `json:"nodes,omitempty"`
	Credentials Credentials `json:"credentials,omitzero"`
	// Shape is set where this is no lab: the interface of somebody else's
	// network that the owner shapes.
	Shape *netem.Endpoint `json:"shape,omitempty"`
	// Restarts counts how often the shaped container was started anew, and
	// Since is when it was last shaped again: what it sent before was not.
	Restarts int       `json:"restarts,omitempty"`
	Since    time.Time `json:"since,omitzero"`
}

// StateNode is one node, or the client, of a State.
type StateNode struct {
	Name     string         `json:"name"`
	Site     string         `json:"site,omitempty"`
	Flavor   Flavor         `json:"flavor,omitempty"`
	Addr     string         `json:"addr,omitempty"`
	Endpoint netem.Endpoint `json:"endpoint"`
}

const stateFile = "lab.json"

// SaveState writes the state of a cluster into its lab's folder, readable by
// its owner only.
func SaveState(c *Cluster, provider string) error {
	s := State{
		Name: c.Name(), Topology: c.Topology, Provider: provider,
		PID: os.Getpid(), Started: time.Now().UTC(),
		Client:      StateNode{Name: c.Client().Endpoint().Name, Endpoint: c.Client().Endpoint()},
		Credentials: c.Credentials,
	}
	for _, n := range c.Nodes() {
		s.Nodes = append(s.Nodes, StateNode{n.Name(), n.Site(), n.Flavor(), n.Addr(), n.Endpoint()})
	}
	return s.Save(c.Dir())
}

// Save writes the state into a lab's folder, whole or not at all.
func (s State) Save(dir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "."+stateFile)
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, stateFile))
}

// LoadState reads what the lab of that name has told. The error of a name
// that is not there lists the labs that are.
func LoadState(stateDir, name string) (State, error) {
	var s State
	if err := CheckName(name); err != nil {
		return s, err
	}
	b, err := os.ReadFile(filepath.Join(stateDir, name, stateFile))
	if errors.Is(err, os.ErrPermission) {
		return s, Hint(fmt.Errorf("lab %s belongs to another user, and this file holds its password: %w", name, err), "sudo faultlab ...")
	}
	if errors.Is(err, os.ErrNotExist) {
		labs, lerr := Labs(stateDir)
		if lerr != nil {
			return s, lerr
		}
		if _, ok := labs[name]; ok {
			return s, Hint(fmt.Errorf("lab %s is not ready yet, or died while it was being built", name), "if its owner is dead: faultlab clean")
		}
		var names []string
		for n, alive := range labs {
			if alive {
				names = append(names, n)
			}
		}
		hint := "no lab is running; start one: faultlab up mgr"
		if len(names) > 0 {
			hint = "running: " + strings.Join(names, ", ")
		}
		return s, Hint(fmt.Errorf("there is no lab %q", name), hint)
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("state of lab %s: %w", name, err)
	}
	return s, nil
}
