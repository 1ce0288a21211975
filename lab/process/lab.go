package process

import (
	"context"
	"errors"
	"net"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

type processLab struct {
	name    string
	journal *lab.Journal
	undo    map[string]lab.Undo
	client  client
	nodes   []*node

	closing  sync.Mutex
	releases []func()
}

func (l *processLab) Name() string       { return l.name }
func (l *processLab) Dir() string        { return l.journal.Dir() }
func (l *processLab) Client() lab.Client { return l.client }

func (l *processLab) Nodes() []lab.Node {
	nodes := make([]lab.Node, len(l.nodes))
	for i, n := range l.nodes {
		nodes[i] = n
	}
	return nodes
}

// Close ends the servers at once, since their data goes too, and undoes the
// journal.
func (l *processLab) Close(ctx context.Context) error {
	l.closing.Lock()
	defer l.closing.Unlock()
	var g errgroup.Group
	for _, n := range l.nodes {
		g.Go(n.close)
	}
	err := errors.Join(g.Wait(), l.journal.Undo(ctx, l.undo))
	l.release()
	return err
}

// release gives the servers free to be removed.
func (l *processLab) release() {
	for _, r := range l.releases {
		r()
	}
	l.releases = nil
}

type client struct{ endpoint netem.Endpoint }

func (c client) Endpoint() netem.Endpoint { return c.endpoint }

func (c client) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return netns.Dial(ctx, c.endpoint.Netns, network, addr)
}
