package wire

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
)

// Main is the helper: it serves requests from stdin until that ends, then takes
// its filters out and returns.
func Main(stdin io.Reader, stdout io.Writer) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	// The engine's thread keeps its processor; requests need another.
	if runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(2)
	}
	// No collection for as long as a run lasts: the engine does not allocate
	// in the long run, and requests are few. (All links of thirty nodes changed
	// two hundred times leave a gigabyte.)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(maxHeld + 1<<30)
	// Best effort: without it a page fault costs lateness, which is measured.
	unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)

	e, err := newEngine(defaultTuning)
	if err != nil {
		return err
	}
	go e.run()
	h := &helper{engine: e, sites: map[place]*site{}, clsacts: map[place]netem.Endpoint{}}
	c := newConn(stdin, stdout)
	for {
		var q request
		if err := c.read(&q); err != nil {
			err = h.end()
			e.do(func() { e.stopped = true })
			return err
		}
		if err := c.write(h.serve(q)); err != nil {
			return errors.Join(err, h.end())
		}
	}
}

type helper struct {
	engine *engine
	sites  map[place]*site
	// clsacts are where a clsact was made. They stay until the end: the kernel
	// stops an interface for a moment when one comes or goes, and what is sent
	// then is lost.
	clsacts map[place]netem.Endpoint
}

// A place is an interface in a namespace, by whatever path that is reached.
type place struct {
	dev, ino uint64
	ifname   string
}

func placeOf(e netem.Endpoint) (place, error) {
	var st unix.Stat_t
	if err := unix.Stat(e.Netns, &st); err != nil {
		return place{}, fmt.Errorf("namespace %s of %s: %w", e.Netns, e.Name, err)
	}
	return place{st.Dev, st.Ino, e.Interface}, nil
}

// A site is a port and the links that begin there.
type site struct {
	place
	at    netem.Endpoint
	port  *port
	whole bool              // packets come uncut
	links map[string]served // by their targets
}

func (s *site) errorf(format string, args ...any) error {
	return fmt.Errorf("%s in %s: "+format, append([]any{s.at.Interface, s.at.Netns}, args...)...)
}

// served is a link and the line that serves it.
type served struct {
	link netem.Link
	line *line
}

// target tells the links of one site apart.
func target(l netem.Link) string {
	if l.To.Name != "" {
		return l.To.Name
	}
	return fmt.Sprint(l.Selectors())
}

func (h *helper) serve(q request) reply {
	r := reply{Seq: q.Seq}
	var err error
	switch q.Op {
	case opHello:
	case opApply:
		err = h.apply(q.Links)
	case opClear:
		err = h.clear()
	case opShow:
		r.Links, err = h.show()
	case opCounters:
		h.engine.do(func() { r.Counters = h.engine.counters() })
		var u unix.Rusage
		if err = unix.Getrusage(unix.RUSAGE_SELF, &u); err == nil {
			r.Counters.CPU = time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	default:
		err = fmt.Errorf("unknown request %q", q.Op)
	}
	if err != nil {
		return failed(q.Seq, err)
	}
	return r
}

// A plan is what an Apply does at one site.
type plan struct {
	*site
	fresh   bool // the site is
	links   map[string]served
	changes []change // of lines that there are
	created []*line  // that there were not
	// between finds the lines of all selectors, former and coming ones; after
	// of the coming ones.
	before, between, after *table
	add, remove            []netem.Selector
	cut                    bool // packets have to be cut
}

// apply makes all that can fail before it changes what there is.
func (h *helper) apply(links []netem.Link) error {
	h.sweep()
	plans, err := h.plan(links)
	if err != nil {
		return err
	}
	if err := h.prepare(plans); err != nil {
		return err
	}
	h.commit(plans)
	return nil
}

// prepare makes what is new: ports, lines and filters. Packets are cut before
// there is a line to which that matters, and lines are what they are to be
// before there is a packet for them. When it fails all is as before.
func (h *helper) prepare(plans []*plan) (err error) {
	defer func() {
		if err == nil {
			return
		}
		each(plans, func(p *plan) error {
			switch {
			case p.port == nil:
			case p.fresh:
				p.port.close()
			case p.cut && p.whole:
				return p.port.offload(true)
			}
			return nil
		})
	}()
	err = each(plans, func(p *plan) (err error) {
		if p.fresh {
			if p.port, err = openPort(p.at, ringFrames(len(h.sites)+len(plans))); err != nil {
				return err
			}
		}
		if p.cut && p.whole {
			return p.port.offload(false)
		}
		return nil
	})
	if err != nil {
		return err
	}
	h.engine.do(func() {
		for _, p := range plans {
			if p.fresh {
				h.engine.attach(p.port)
			}
			p.before, p.port.table = p.port.table, p.between
			p.port.lines = append(p.port.lines, p.created...)
		}
		h.engine.watch()
	})
	err = each(plans, func(p *plan) error {
		for _, s := range p.add {
			if err := p.port.detour.add(s); err != nil {
				return p.errorf("%s: %w", s, err)
			}
		}
		return nil
	})
	if err != nil {
		h.undo(plans)
	}
	return err
}

// undo brings lines and filters back to what was before.
func (h *helper) undo(plans []*plan) {
	each(plans, func(p *plan) error {
		d := &p.port.detour
		if !p.fresh {
			return d.remove(p.add)
		}
		err := d.clear()
		if d.own {
			err = errors.Join(err, removeClsact(d.h, d.from))
		}
		return err
	})
	settle()
	h.engine.do(func() {
		h.engine.collect()
		for _, p := range plans {
			h.engine.drain(p.port, p.created)
			p.port.table = p.before
			p.port.lines = p.port.lines[:len(p.port.lines)-len(p.created)]
			h.engine.retire(p.created)
			if p.fresh {
				h.engine.detach(p.port)
			}
		}
		h.engine.watch()
	})
}

// commit changes the lines that there were, all at once.
func (h *helper) commit(plans []*plan) {
	if slices.ContainsFunc(plans, func(p *plan) bool { return p.cut && p.whole && !p.fresh }) {
		settle() // what came uncut still meets what was before
	}
	h.engine.do(func() {
		h.engine.collect()
		for _, p := range plans {
			p.port.table = p.after
			for _, c := range p.changes {
				c.apply()
			}
		}
		h.engine.watch()
	})
	for _, p := range plans {
		p.site.links = p.links
		h.sites[p.place] = p.site
		if p.port.detour.own {
			h.clsacts[p.place] = p.at
		}
	}
	// Should one of these fail, packets come in smaller pieces than they need, or
	// by a detour on which they are not held.
	each(plans, func(p *plan) error {
		if !p.cut && !p.whole {
			p.port.offload(true)
		}
		p.whole = !p.cut
		return p.port.detour.remove(p.remove)
	})
}

// plan changes nothing.
func (h *helper) plan(links []netem.Link) ([]*plan, error) {
	var plans []*plan
	of := map[place]*plan{}
	for _, l := range links {
		at, err := placeOf(l.From)
		if err != nil {
			return nil, err
		}
		p := of[at]
		if p == nil {
			p = &plan{site: h.sites[at]}
			if p.site == nil {
				p.site, p.fresh = &site{place: at, at: l.From, whole: true}, true
			}
			p.links = maps.Clone(p.site.links)
			if p.links == nil {
				p.links = map[string]served{}
			}
			of[at] = p
			plans = append(plans, p)
		}
		name := target(l)
		s := p.links[name]
		if s.line == nil {
			s.line = &line{}
			p.created = append(p.created, s.line)
		}
		s.link = l
		p.links[name] = s
		c := newChange(s.line, l.Impairment)
		if slices.Contains(p.created, s.line) {
			c.apply()
		} else {
			p.changes = append(p.changes, c)
		}
	}
	for _, p := range plans {
		if err := p.route(); err != nil {
			return nil, err
		}
	}
	return plans, nil
}

// route works out what the links of the plan mean for tables and filters.
func (p *plan) route() error {
	former, coming := map[netem.Selector]*line{}, map[netem.Selector]*line{}
	for _, s := range p.site.links {
		for _, sel := range s.link.Selectors() {
			former[sel] = s.line
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.links)) {
		s := p.links[name]
		p.cut = p.cut || s.link.Impairment.PerPacket()
		for _, sel := range s.link.Selectors() {
			if other := coming[sel]; other != nil && other != s.line {
				return p.errorf("link to %s: %s belongs to another link already", name, sel)
			}
			coming[sel] = s.line
			if former[sel] == nil {
				p.add = append(p.add, sel)
			}
		}
	}
	for sel := range former {
		if coming[sel] == nil {
			p.remove = append(p.remove, sel)
		}
	}
	p.after = newTable(coming)
	between := maps.Clone(coming)
	maps.Copy(between, former)
	p.between = newTable(between)
	return nil
}

// clear lets everything under way go at once and whatever comes pass, takes the
// filters out in the same breath, so that hardly a packet overtakes another,
// and gives all else back when the last straggler is through.
func (h *helper) clear() error {
	if len(h.sites) == 0 {
		return nil
	}
	pass := func() {
		for _, s := range h.sites {
			for _, l := range s.port.lines {
				l.delay, l.faults = 0, nil
			}
			h.engine.drain(s.port, s.port.lines)
		}
		h.engine.watch()
	}
	h.engine.do(pass)
	sites := slices.Collect(maps.Values(h.sites))
	err := each(sites, func(s *site) error {
		if err := s.port.detour.clear(); err != nil {
			return s.errorf("%w", err)
		}
		return nil
	})
	settle()
	h.engine.do(func() {
		h.engine.collect()
		pass()
		for _, s := range h.sites {
			h.engine.detach(s.port)
		}
		h.engine.watch()
	})
	h.sites = map[place]*site{}
	each(sites, func(s *site) error { s.port.close(); return nil })
	return err
}

// sweep forgets sites whose interface is gone, as when a container ends: their
// links ended with it, and holding on would keep its namespace.
func (h *helper) sweep() {
	for at, s := range h.sites {
		var none netlink.LinkNotFoundError
		if _, err := s.port.detour.h.LinkByIndex(s.port.detour.from); errors.As(err, &none) {
			h.engine.do(func() {
				h.engine.drain(s.port, s.port.lines)
				h.engine.detach(s.port)
				h.engine.watch()
			})
			s.port.close()
			delete(h.sites, at)
		}
	}
}

// end clears, and takes out what has stayed for the next Apply.
func (h *helper) end() error {
	err := h.clear()
	for _, at := range h.clsacts {
		var none netlink.LinkNotFoundError
		if e := inside(at, removeClsact); e != nil && !errors.Is(e, fs.ErrNotExist) && !errors.As(e, &none) {
			err = errors.Join(err, fmt.Errorf("%s in %s: %w", at.Interface, at.Netns, e))
		}
	}
	return err
}

// show has the kernel confirm that packets still take the detour.
func (h *helper) show() ([]netem.LinkState, error) {
	h.sweep()
	var out []netem.LinkState
	for _, s := range h.sites {
		missing, err := s.port.detour.missing()
		if err != nil {
			return nil, s.errorf("%w", err)
		}
		if len(missing) > 0 {
			return nil, s.errorf("somebody took away filters: packets to %s, and %d more, pass as if nothing was asked", missing[0], len(missing)-1)
		}
	}
	h.engine.do(func() {
		for _, s := range h.sites {
			for _, v := range s.links {
				out = append(out, netem.LinkState{Link: v.link, Packets: v.line.packets, Bytes: v.line.bytes, Dropped: v.line.dropped})
			}
		}
	})
	return out, nil
}

// each does f for all at once: most of what it does is to wait for the kernel.
func each[T any](all []T, f func(T) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, v := range all {
		wg.Go(func() { errs[i] = f(v) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// settle returns when packets that met filters and devices as they were are in
// the rings. In the kernel a packet's way there is one read-side section of
// RCU, and this system call waits for their end.
func settle() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL
	if _, _, e := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); e != 0 {
		time.Sleep(20 * time.Millisecond)
	}
}
