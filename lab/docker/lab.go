package docker

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

type dockerLab struct {
	name    string
	docker  daemon
	journal *lab.Journal
	labels  map[string]string
	client  labClient
	nodes   []*node

	closing sync.Mutex
	closed  bool
}

func (l *dockerLab) Name() string       { return l.name }
func (l *dockerLab) Dir() string        { return l.journal.Dir() }
func (l *dockerLab) Client() lab.Client { return l.client }

func (l *dockerLab) Nodes() []lab.Node {
	nodes := make([]lab.Node, len(l.nodes))
	for i, n := range l.nodes {
		nodes[i] = n
	}
	return nodes
}

// Close ends the servers at once, since their data goes too, and removes all
// that carries the lab's label.
func (l *dockerLab) Close(ctx context.Context) error {
	l.closing.Lock()
	defer l.closing.Unlock()
	var errs []error
	for _, n := range l.nodes {
		errs = append(errs, n.close())
	}
	if l.client.place != nil {
		errs = append(errs, l.client.place.release())
	}
	err := errors.Join(append(errs, l.journal.Undo(ctx, undo(0)))...)
	for _, n := range l.nodes {
		n.wait(ctx)
	}
	if err == nil && !l.closed {
		l.closed = true
		err = errors.Join(err, l.docker.Close())
	}
	return err
}

// labClient is where the load comes from: the network namespace of a container, so
// that nothing of it crosses the host's own network.
type labClient struct{ place *place }

func (c labClient) Endpoint() netem.Endpoint { return c.place.endpoint }

func (c labClient) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return netns.Dial(ctx, c.place.endpoint.Netns, network, addr)
}
