// Package lab owns what a lab is made of: nodes, the client, the cluster they
// form, the providers that build them and the topologies that bind them
// together; and the journal by which everything is taken down again.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"

	"github.com/faultlab/faultlab/netem"
)

// Flavor is a family of servers: what a topology asks for and a server is.
type Flavor string

const (
	MySQL   Flavor = "mysql"
	MariaDB Flavor = "mariadb"
	PXC     Flavor = "pxc"
)

// Spec says what a provider has to build.
type Spec struct {
	// Name of the lab: letters, digits and dashes, at most 48 characters. It
	// is in the name of everything that the lab creates.
	Name  string
	Nodes []NodeSpec
	// Data is about how many bytes of tables each node will hold, 0 for few: a
	// provider refuses what its disk has no room for.
	Data int64
	// ClientSite is the site of the load client, "" for the first node's.
	ClientSite string
}

// NodeSpec says what one node is.
type NodeSpec struct {
	Name   string // n1, n2, ...
	Site   string // "" is the only site
	Flavor Flavor
}

var nameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?$`)

// CheckName reports why a name cannot be a lab's or a node's.
func CheckName(name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("name %q is not 1 to 48 lower-case letters, digits and inner dashes", name)
	}
	return nil
}

// Provider builds labs: "process" from server processes in network
// namespaces, "docker" from containers.
type Provider interface {
	Name() string
	// Preflight says why this machine cannot build the spec. It creates
	// nothing.
	Preflight(ctx context.Context, spec Spec) error
	// Open makes the lab's network, its client and a place for every node. No
	// server runs yet. When it fails, or ctx ends, it leaves nothing behind.
	Open(ctx context.Context, spec Spec) (Lab, error)
}

// Lab is one running set of namespaces or containers.
type Lab interface {
	Name() string
	// Dir is the lab's own folder: logs, option files, journal.
	Dir() string
	Nodes() []Node
	Client() Client
	// Close takes everything down, last made first. It is safe to call twice,
	// and goes on past errors so that as much as possible is gone.
	Close(ctx context.Context) error
}

// Client is where a lab's load comes from.
type Client interface {
	Endpoint() netem.Endpoint
	// Dial connects from the client's own network. addr must be an IP
	// address and a port.
	Dial(ctx context.Context, network, addr string) (net.Conn, error)
}

// Node is one server of a lab and the place it runs in.
type Node interface {
	Name() string
	Site() string
	Endpoint() netem.Endpoint
	// Addr is where the server speaks the MySQL protocol, host:port, within
	// the lab's network.
	Addr() string
	// Flavor is what the node was asked to be.
	Flavor() Flavor
	// Start runs the server. It returns when the process runs, not when the
	// server answers. A stopped or killed node may be started again: it keeps
	// its data.
	Start(ctx context.Context, s Start) error
	// Stop asks the server to shut down and waits until it has.
	Stop(ctx context.Context) error
	// Kill ends the server at once, as a crash would.
	Kill() error
	// Done is closed when the server that was started last has ended. It is
	// nil before the first Start.
	Done() <-chan struct{}
	// Log is the end of the server's error log, at most n bytes.
	Log(n int) string
}

// Start says how a node's server is run.
type Start struct {
	// Options is option file text, [mysqld] section included, without what
	// the provider knows better: data directory, socket, port, address, user.
	Options string
	// Args are more server arguments, such as --wsrep-new-cluster.
	Args []string
	// InitSQL is run by the server before it takes connections, one statement
	// a line. It holds passwords: it is never logged and is gone once the
	// server has read it.
	InitSQL string
	// Files are put into the data directory before the server starts: name
	// to content.
	Files map[string]string
}

// Credentials are a lab's account on every server: all privileges, random
// password, valid within the lab's network only.
type Credentials struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// String keeps the password out of logs.
func (c Credentials) String() string   { return c.User + ":***" }
func (c Credentials) GoString() string { return c.String() }

// Cluster is a lab whose servers a topology binds together.
type Cluster struct {
	Lab
	Topology    string
	Credentials Credentials
	// Settings are server variables, by their names in option files, that take
	// the place of the topology's own.
	Settings map[string]string
}

// Node returns the node of that name.
func (c *Cluster) Node(name string) (Node, bool) {
	for _, n := range c.Nodes() {
		if n.Name() == name {
			return n, true
		}
	}
	return nil, false
}

// Topology is one kind of replication: how its servers are configured, bound
// together and judged. Implementations hold no state of a lab.
type Topology interface {
	Name() string
	Flavor() Flavor
	// NodeCount is how many nodes it has when nobody says.
	NodeCount() int
	// CheckNodes says why it cannot have n nodes.
	CheckNodes(n int) error
	// Bootstrap starts the servers and binds them together. It returns when
	// the cluster is healthy. report (never nil) is told each step in a few
	// words.
	Bootstrap(ctx context.Context, c *Cluster, report func(step string)) error
	// Writer is the node that takes the load.
	Writer(c *Cluster) Node
	// Health asks every node and judges the cluster as a whole.
	Health(ctx context.Context, c *Cluster) Health
	// Counters reads what the servers count, by "node.counter". Health says
	// whether they answer; a node that does not is left out.
	Counters(ctx context.Context, c *Cluster) map[string]float64
	// Settings are, for every node that answers, the settings that bear on
	// speed, durability and replication.
	Settings(ctx context.Context, c *Cluster) map[string]map[string]string
	// Judge says why the counters read before and after a window make it
	// something else than a window of this topology.
	Judge(before, after map[string]float64) []string
}

// Health is the state of a cluster as its nodes tell it.
type Health struct {
	Nodes []NodeHealth `json:"nodes"`
}

// NodeHealth is what one node says of itself and of its cluster.
type NodeHealth struct {
	Name    string `json:"name"`
	Role    string `json:"role"`  // source, replica, primary, secondary, member, single
	State   string `json:"state"` // the server's own word: ONLINE, Synced, ...
	Version string `json:"version,omitempty"`
	// Lag is transactions not yet applied, -1 where it cannot be told.
	Lag int64 `json:"lag"`
	// Problems is empty for a node that is what it should be.
	Problems []string `json:"problems,omitempty"`
}

// Problems lists what is wrong, each with the node's name in front.
func (h Health) Problems() []string {
	var out []string
	for _, n := range h.Nodes {
		for _, p := range n.Problems {
			out = append(out, n.Name+": "+p)
		}
	}
	return out
}

// Roles maps node to role: a change during a window makes it invalid.
func (h Health) Roles() map[string]string {
	m := make(map[string]string, len(h.Nodes))
	for _, n := range h.Nodes {
		m[n.Name] = n.Role
	}
	return m
}

// CaughtUp reports whether every node has applied all it knows of, within
// slack transactions.
func (h Health) CaughtUp(slack int64) bool {
	for _, n := range h.Nodes {
		if n.Lag < 0 || n.Lag > slack {
			return false
		}
	}
	return true
}

// ErrCannot marks what this machine cannot do, as against what went wrong.
// Tests skip on it and on nothing else.
var ErrCannot = errors.New("this machine cannot")

// ErrNoServer is why a provider cannot build a node: no server of its flavor
// is at hand.
var ErrNoServer = errors.New("no server at hand")

// HintError is an error with the way to mend it.
type HintError struct {
	Err   error
	Hints []string
}

func (e *HintError) Error() string { return e.Err.Error() }
func (e *HintError) Unwrap() error { return e.Err }

// Hint adds to err how to mend it.
func Hint(err error, hints ...string) error {
	if err == nil {
		return nil
	}
	return &HintError{err, hints}
}

// Subnet4 and Subnet6 hold every address of a lab: reserved for benchmarks
// (RFC 2544 and RFC 5180), so that no private network or VPN is shadowed.
var (
	Subnet4 = netip.MustParsePrefix("198.18.0.0/15")
	Subnet6 = netip.MustParsePrefix("2001:2::/48")
)
