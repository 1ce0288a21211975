package labtest

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/faultlab/faultlab/lab"
)

// small keeps servers of the suite small; every flavor knows these.
const small = "[mysqld]\ninnodb_buffer_pool_size = 32M\ninnodb_log_buffer_size = 8M\n" +
	"table_open_cache = 200\ntable_definition_cache = 400\nmax_connections = 20\n"

// patience is what a server gets to answer or to end: far more than it needs,
// since the machine may be busy.
const patience = 2 * time.Minute

// Provider is the contract: what every provider does. open returns a provider
// that shares nothing with those of other calls; labs carry the test's name.
// It skips, by lab.ErrCannot only, where the provider cannot run.
func Provider(t *testing.T, flavor lab.Flavor, open func(t *testing.T) lab.Provider) {
	run := func(name string, f func(*suite)) {
		t.Run(name, func(t *testing.T) {
			s := &suite{T: t, flavor: flavor, provider: open(t)}
			if err := s.provider.Preflight(t.Context(), s.spec("", 3)); errors.Is(err, lab.ErrCannot) {
				t.Skip(err)
			} else if err != nil {
				t.Fatalf("preflight: %v", err)
			}
			f(s)
		})
	}
	run("opens what was asked", opensWhatWasAsked)
	run("opens and closes again and again", opensAgain)
	run("a node starts, stops, and starts again", stopAndStart)
	run("a killed node ends at once and starts again", killAndStart)
	run("closing ends the servers", closeEnds)
	run("a name in use is refused and its owner undisturbed", nameTaken)
	run("a bad spec is refused and leaves nothing", badSpec)
	run("an open that is cut short leaves nothing", cutShort)
	run("labs do not disturb each other", sideBySide)
}

type suite struct {
	*testing.T
	flavor   lab.Flavor
	provider lab.Provider
}

func (s *suite) spec(suffix string, nodes int) lab.Spec {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, strings.ToLower(s.Name()))
	// The end of the name is what differs between tests.
	name = strings.Trim(name[max(0, len(name)-40):], "-") + suffix
	spec := lab.Spec{Name: name}
	for _, n := range []string{"n1", "n2", "n3"}[:nodes] {
		spec.Nodes = append(spec.Nodes, lab.NodeSpec{Name: n, Flavor: s.flavor})
	}
	return spec
}

func (s *suite) open(spec lab.Spec) lab.Lab {
	s.Helper()
	l, err := s.provider.Open(s.Context(), spec)
	if err != nil {
		s.Fatalf("open %s: %v", spec.Name, err)
	}
	s.Cleanup(func() { s.close(l) })
	return l
}

func (s *suite) close(l lab.Lab) {
	s.Helper()
	if err := l.Close(context.Background()); err != nil {
		s.Errorf("close %s: %v", l.Name(), err)
	}
}

func (s *suite) start(n lab.Node) {
	s.Helper()
	if err := n.Start(s.Context(), lab.Start{Options: small}); err != nil {
		s.Fatalf("start %s: %v", n.Name(), err)
	}
}

// answers waits until the node greets the lab's client.
func (s *suite) answers(l lab.Lab, n lab.Node) {
	s.Helper()
	done := n.Done()
	for deadline := time.Now().Add(patience); ; {
		err := greet(s.Context(), l, n)
		if err == nil {
			return
		}
		select {
		case <-done:
			s.Fatalf("node %s has ended; its log:\n%s", n.Name(), n.Log(4000))
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.Fatalf("node %s does not answer: %v; its log:\n%s", n.Name(), err, n.Log(4000))
		}
	}
}

func greet(ctx context.Context, l lab.Lab, n lab.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := l.Client().Dial(ctx, "tcp", n.Addr())
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = io.ReadFull(c, make([]byte, 4))
	return err
}

// ends waits until the node's Done is closed.
func (s *suite) ends(n lab.Node) {
	s.Helper()
	select {
	case <-n.Done():
	case <-time.After(patience):
		s.Fatalf("node %s has not ended", n.Name())
	}
}

func opensWhatWasAsked(s *suite) {
	spec := s.spec("", 3)
	spec.Nodes[1].Site, spec.Nodes[2].Site = "b", "b"
	l := s.open(spec)
	if l.Name() != spec.Name {
		s.Errorf("name: got %q, want %q", l.Name(), spec.Name)
	}
	if got := len(l.Nodes()); got != 3 {
		s.Fatalf("got %d nodes, want 3", got)
	}
	addrs := map[string]bool{l.Client().Endpoint().Addr.String(): true}
	for i, n := range l.Nodes() {
		if n.Name() != spec.Nodes[i].Name || n.Site() != spec.Nodes[i].Site || n.Flavor() != s.flavor {
			s.Errorf("node %d: got %s at %q of %s, want %+v", i, n.Name(), n.Site(), n.Flavor(), spec.Nodes[i])
		}
		if n.Done() != nil {
			s.Errorf("node %s: Done is not nil before the first Start", n.Name())
		}
		if err := n.Stop(s.Context()); err != nil {
			s.Errorf("stop %s, which never ran: %v", n.Name(), err)
		}
		e := n.Endpoint()
		if e.Name != n.Name() || e.Netns == "" || e.Interface == "" || !strings.HasPrefix(n.Addr(), e.Addr.String()+":") {
			s.Errorf("node %s at %s has endpoint %+v", n.Name(), n.Addr(), e)
		}
		if !lab.Subnet4.Contains(e.Addr) || addrs[e.Addr.String()] {
			s.Errorf("node %s: address %s is not its own in %s", n.Name(), e.Addr, lab.Subnet4)
		}
		addrs[e.Addr.String()] = true
		if err := greet(s.Context(), l, n); err == nil {
			s.Errorf("node %s answers and was not started", n.Name())
		}
	}
}

func opensAgain(s *suite) {
	for range 2 {
		l := s.open(s.spec("", 2))
		s.close(l)
		s.close(l)
		if err := l.Nodes()[0].Start(s.Context(), lab.Start{}); err == nil {
			s.Error("a node of a closed lab starts")
		}
	}
}

func stopAndStart(s *suite) {
	l := s.open(s.spec("", 1))
	n := l.Nodes()[0]
	for range 2 {
		s.start(n)
		s.answers(l, n)
		if err := n.Start(s.Context(), lab.Start{}); err == nil {
			s.Error("a running node was started again")
		}
		if err := n.Stop(s.Context()); err != nil {
			s.Fatalf("stop: %v", err)
		}
		s.ends(n)
		if err := greet(s.Context(), l, n); err == nil {
			s.Error("a stopped node answers")
		}
	}
	if n.Log(1<<20) == "" || len(n.Log(5)) > 5 {
		s.Errorf("log: got %d bytes in all, %d when asked for 5", len(n.Log(1<<20)), len(n.Log(5)))
	}
}

func killAndStart(s *suite) {
	l := s.open(s.spec("", 1))
	n := l.Nodes()[0]
	s.start(n)
	s.answers(l, n)
	for range 2 { // the second finds nothing to do
		if err := n.Kill(); err != nil {
			s.Fatalf("kill: %v", err)
		}
		s.ends(n)
	}
	if err := n.Stop(s.Context()); err != nil {
		s.Errorf("stop of a node that was killed: %v", err)
	}
	s.start(n)
	s.answers(l, n)
}

func closeEnds(s *suite) {
	l := s.open(s.spec("", 2))
	for _, n := range l.Nodes() {
		s.start(n)
	}
	s.close(l)
	for _, n := range l.Nodes() {
		s.ends(n)
	}
}

func nameTaken(s *suite) {
	l := s.open(s.spec("", 1))
	s.start(l.Nodes()[0])
	other, err := s.provider.Open(s.Context(), s.spec("", 1))
	if err == nil {
		s.close(other)
	}
	if !errors.Is(err, lab.ErrTaken) {
		s.Errorf("open a lab of the same name: got %v, want %v", err, lab.ErrTaken)
	}
	s.answers(l, l.Nodes()[0])
}

func badSpec(s *suite) {
	good := s.spec("", 2)
	upper, none, twice := good, good, s.spec("", 2)
	upper.Name = "UPPER"
	none.Nodes = nil
	twice.Nodes[1].Name = twice.Nodes[0].Name
	for _, spec := range []lab.Spec{upper, none, twice} {
		if l, err := s.provider.Open(s.Context(), spec); err == nil {
			s.close(l)
			s.Errorf("opened %+v", spec)
		}
		if err := s.provider.Preflight(s.Context(), spec); err == nil {
			s.Errorf("preflight passes %+v", spec)
		}
	}
	s.open(good)
}

func cutShort(s *suite) {
	spec := s.spec("", 3)
	for after := time.Duration(0); ; after = 2*after + 4*time.Millisecond {
		ctx, cancel := context.WithTimeout(s.Context(), after)
		l, err := s.provider.Open(ctx, spec)
		cancel()
		if err == nil {
			s.close(l)
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("cut short after %v: got %v, want %v", after, err, context.DeadlineExceeded)
		}
		if err := s.provider.Preflight(s.Context(), spec); err != nil {
			s.Fatalf("after an open that was cut short after %v: %v", after, err)
		}
		if after > patience {
			s.Fatal("it never opens")
		}
	}
	s.open(spec)
}

func sideBySide(s *suite) {
	a, b := s.open(s.spec("-a", 1)), s.open(s.spec("-b", 1))
	for _, l := range []lab.Lab{a, b} {
		s.start(l.Nodes()[0])
	}
	for _, l := range []lab.Lab{a, b} {
		s.answers(l, l.Nodes()[0])
	}
	s.close(a)
	s.answers(b, b.Nodes()[0])
}
