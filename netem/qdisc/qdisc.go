// Package qdisc owns the emulator that has the kernel do it: netem qdiscs, set up
// through netlink.
//
// # The tree
//
// Every shaped interface gets
//
//	root htb fa17:, without a default class
//	  class fa17:N, one for each link, that holds nothing up
//	    tbf: cuts large packets, and is the bucket of a rate with a burst
//	      netem: everything else
//
// and u32 filters by destination that lead packets to the classes. They come
// last when a link is made and go first when it ends. What no filter picks,
// ARP and bystanders, goes straight through the root, whatever its TOS says;
// so does IPv6 neighbour discovery. It is htb since prio has but 16 bands, and
// drr would drop what no filter picks.
//
// # Large packets
//
// netem takes one decision for a packet, and TCP hands down packets of up to
// 64 KB for the device to cut, whatever ethtool says of a virtual one. Where
// packets are to meet different fates, the tbf above netem has a burst of one
// frame and so cuts them itself; where only a delay is asked, its burst is
// boundless and they pass whole. It is always there, because one that is put
// in would drop what waits below.
//
// # What the sender is told
//
// Of what netem loses by chance or partition, nothing. But a full queue, and a
// large packet all of whose segments were lost, are told to the sender, as by
// every interface that drops its own machine's packets: TCP takes it for
// congestion and sends again, a datagram's sender hears of it if it asks.
//
// # Changes
//
// are made to the standing qdiscs: packets that wait keep their times, those
// that come get the new ones. Where the delay becomes less these overtake,
// unless there is jitter or a rate, which keep order. After each change
// everything is read back and compared with what was asked.
//
// When an interface gets its tree or loses it, the kernel stops its queue for
// a moment; a packet sent in it may be lost.
//
// # Cost
//
// The kernel does not tell what it spends. Filters are asked one after
// another, some 13 ns each; every link of an interface may be asked for a
// packet at each departure.
//
// # Failing
//
// The kernel goes on when the process that has set it up dies, so links stay
// as they are. The next Backend that touches the interface takes the tree
// over; Detach takes it away.
package qdisc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
)

// Backend implements netem.Backend.
type Backend struct {
	mu     sync.Mutex
	sites  map[place]*site
	totals netem.Counters
	closed bool
}

var _ netem.Backend = (*Backend)(nil)

// Open gives a backend that shapes nothing yet. Whether the kernel can is for
// Probe to say.
func Open() *Backend { return &Backend{sites: map[place]*site{}} }

// Name is "kernel".
func (b *Backend) Name() string { return "kernel" }

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

// A site is an interface with links.
type site struct {
	at    netem.Endpoint
	conn  *conn
	links map[string]served // by their targets
}

// served is a link and its branch.
type served struct {
	link    netem.Link
	id      uint16
	shaper  shaper // as asked
	options options
	found   bool  // in the kernel, and not asked for by anyone here
	seen    stats // as last accounted
	lost    uint32
}

// target tells the links of one site apart.
func target(l netem.Link) string {
	if l.To.Name != "" {
		return l.To.Name
	}
	return fmt.Sprint(l.Selectors())
}

func (s *site) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s in %s: %w", s.at.Interface, s.at.Netns, err)
}

// openSite connects to an interface and takes over what a former process has
// left there.
func openSite(e netem.Endpoint) (_ *site, err error) {
	s := &site{at: e, links: map[string]served{}}
	defer func() { err = s.wrap(err) }()
	if s.conn, err = dial(e); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.conn.close()
		}
	}()
	t, err := s.conn.read()
	if err != nil || !t.there {
		return s, err
	}
	if err := s.conn.tidy(t); err != nil {
		return s, err
	}
	for id, l := range t.links(e) {
		b := t.branches[id]
		s.links[target(l)] = served{link: l, id: id, shaper: b.shaper, options: b.options, found: true, seen: b.stats, lost: b.refused}
	}
	return s, nil
}

// Apply makes the links as asked. Its error names the interface and has the
// kernel's own words; it is a *ForeignError where somebody else shapes the
// interface, and wraps ErrUnsupported where the kernel lacks a part.
func (b *Backend) Apply(ctx context.Context, links []netem.Link) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errors.New("the emulator is closed")
	}
	for _, l := range links {
		if err := l.Validate(); err != nil {
			return err
		}
	}
	b.sweep()
	plans, err := b.plan(ctx, links)
	var undo []func() error
	defer func() {
		if err == nil {
			return
		}
		for _, u := range slices.Backward(undo) {
			if e := u(); e != nil {
				err = errors.Join(err, fmt.Errorf("and to undo it: %w", e))
			}
		}
		for _, p := range plans {
			if p.fresh {
				p.conn.close()
			}
		}
	}()
	if err != nil {
		return err
	}
	// First all that packets do not notice, on every interface; then what
	// they do, as close together as can be.
	for _, step := range []func(*plan, *[]func() error) error{(*plan).grow, (*plan).change, (*plan).lead, (*plan).verify} {
		for _, p := range plans {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := step(p, &undo); err != nil {
				return p.wrap(err)
			}
		}
	}
	// It is done, and nothing to be undone any more.
	undo = nil
	for at, p := range plans {
		p.fresh, p.site.links = false, p.links
		b.sites[at] = p.site
	}
	// What is left is of links that nobody wants any more.
	var left error
	for _, p := range plans {
		left = errors.Join(left, p.wrap(p.leave()))
	}
	return left
}

// A plan is what an Apply does at one site.
type plan struct {
	*site
	fresh   bool   // the site is
	frame   uint32 // the largest, in bytes
	tree    *tree
	links   map[string]served // as they are to be
	created []string          // of them
	changed []string
	add     []filter
	remove  []filter
	dropped []uint16 // branches of links that were found and are replaced
}

// plan changes nothing but for what a killed process has left half-made.
func (b *Backend) plan(ctx context.Context, links []netem.Link) (map[place]*plan, error) {
	plans := map[place]*plan{}
	for _, l := range links {
		if err := ctx.Err(); err != nil {
			return plans, err
		}
		at, err := placeOf(l.From)
		if err != nil {
			return plans, err
		}
		p := plans[at]
		if p == nil {
			p = &plan{site: b.sites[at]}
			if p.site == nil {
				if p.site, err = openSite(l.From); err != nil {
					return plans, err
				}
				p.fresh = true
			}
			plans[at] = p
			if err := p.begin(b); err != nil {
				return plans, p.wrap(err)
			}
		}
		if err := p.want(l); err != nil {
			return plans, p.wrap(err)
		}
	}
	for _, p := range plans {
		if err := p.route(); err != nil {
			return plans, p.wrap(err)
		}
	}
	return plans, nil
}

// begin looks at what there is.
func (p *plan) begin(b *Backend) (err error) {
	l, err := p.conn.link(p.at.Interface)
	if err != nil {
		return err
	}
	p.frame = uint32(l.Attrs().MTU) + headers
	if p.tree, err = p.conn.read(); err != nil {
		return err
	}
	if !p.fresh {
		if err := b.account(p.site, p.tree); err != nil {
			return err
		}
	}
	p.links = maps.Clone(p.site.links)
	return nil
}

// want notes what a link is to be.
func (p *plan) want(l netem.Link) error {
	name := target(l)
	if i := l.Impairment; i.Burst != 0 && int64(i.Burst) < int64(p.frame) {
		return fmt.Errorf("link to %s: a burst of %s is less than the largest packet, of %d bytes", name, i.Burst, p.frame)
	}
	s, known := p.links[name]
	if !known {
		// The same by another name: one that was found has none.
		for other, f := range p.links {
			if f.found && sameSelectors(f.link, l) {
				s, known = f, true
				delete(p.links, other)
				break
			}
		}
	}
	if !known {
		id, err := p.free()
		if err != nil {
			return err
		}
		s.id = id
		p.created = append(p.created, name)
	} else if !slices.Contains(p.created, name) && !slices.Contains(p.changed, name) {
		p.changed = append(p.changed, name)
	}
	s.link, s.found = l, false
	s.shaper, s.options = shaperOf(l.Impairment, p.frame), optionsOf(l.Impairment)
	p.links[name] = s
	return nil
}

// sameSelectors tells whether two links are of the same packets.
func sameSelectors(a, b netem.Link) bool {
	in := func(all []netem.Selector) func(netem.Selector) bool {
		return func(s netem.Selector) bool { return slices.Contains(all, s) }
	}
	x, y := a.Selectors(), b.Selectors()
	return len(x) == len(y) && len(slices.DeleteFunc(slices.Clone(x), in(y))) == 0
}

// free finds a class that nobody has.
func (p *plan) free() (uint16, error) {
	taken := map[uint16]bool{}
	for _, s := range p.links {
		taken[s.id] = true
	}
	for id := range p.tree.branches {
		taken[id] = true
	}
	for id := uint16(1); id <= lastClass; id++ {
		if !taken[id] {
			return id, nil
		}
	}
	return 0, fmt.Errorf("more than %d links", lastClass)
}

// route works out which filters come and go.
func (p *plan) route() error {
	former := map[string]filter{}
	for _, s := range p.site.links {
		for _, f := range filters(s) {
			former[f.same()] = f
		}
	}
	owner := map[netem.Selector]string{}
	names := slices.Sorted(maps.Keys(p.links))
	// Whoever was only found has to yield.
	slices.SortStableFunc(names, func(a, b string) int { return yields(p.links[a]) - yields(p.links[b]) })
	for _, name := range names {
		s := p.links[name]
		for _, sel := range s.link.Selectors() {
			if other, taken := owner[sel]; taken && other != name {
				if !s.found {
					return fmt.Errorf("link to %s: %s belongs to the link to %s already", name, sel, other)
				}
				p.dropped = append(p.dropped, s.id)
				delete(p.links, name)
				break
			}
			owner[sel] = name
		}
	}
	six := false
	for _, name := range slices.Sorted(maps.Keys(p.links)) {
		for _, f := range filters(p.links[name]) {
			if _, there := former[f.same()]; !there {
				p.add = append(p.add, f)
			}
			delete(former, f.same())
			six = six || f.protocol == unix.ETH_P_IPV6
		}
	}
	if six {
		p.add = append(p.tree.lacking(discovery()), p.add...)
	}
	p.remove = slices.Collect(maps.Values(former))
	return nil
}

func yields(s served) int {
	if s.found {
		return 1
	}
	return 0
}

// filters are those that a link has.
func filters(s served) (out []filter) {
	for _, sel := range s.link.Selectors() {
		out = append(out, filtersOf(sel, classOf(s.id))...)
	}
	return out
}

// grow makes branches that no filter leads to.
func (p *plan) grow(undo *[]func() error) error {
	if !p.tree.there {
		if err := p.conn.plant(); err != nil {
			return err
		}
		*undo = append(*undo, p.conn.uproot)
	}
	for _, name := range p.created {
		s := p.links[name]
		if err := p.conn.grow(s.id, s.shaper, s.options, table(s.link.Impairment)); err != nil {
			return fmt.Errorf("link to %s: %s: %w", name, s.link.Impairment, err)
		}
		*undo = append(*undo, func() error { return p.conn.prune(s.id) })
	}
	return nil
}

// change makes standing branches do something else.
func (p *plan) change(undo *[]func() error) error {
	for _, name := range p.changed {
		s := p.links[name]
		was := p.tree.branches[s.id]
		before := p.former(s.id)
		*undo = append(*undo, func() error { return p.set(s.id, s.shaper, before.shaper, was.options, table(before.link.Impairment)) })
		if err := p.set(s.id, was.shaper, s.shaper, s.options, table(s.link.Impairment)); err != nil {
			return fmt.Errorf("link to %s: %s: %w", name, s.link.Impairment, err)
		}
	}
	return nil
}

// former is the link that had the branch before.
func (p *plan) former(id uint16) served {
	for _, s := range p.site.links {
		if s.id == id {
			return s
		}
	}
	return served{}
}

// set changes a branch in such an order that no large packet comes uncut to
// where that matters.
func (p *plan) set(id uint16, was, now shaper, o options, table []int16) error {
	steps := []func() error{
		func() error { return p.conn.changeNetem(id, o, table) },
		func() error {
			if was == now {
				return nil
			}
			return p.conn.changeShaper(id, now)
		},
	}
	if now.burst != math.MaxUint32 {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// lead installs the filters: from here on packets take the branches.
func (p *plan) lead(undo *[]func() error) error {
	if len(p.add) == 0 {
		return nil
	}
	*undo = append(*undo, func() error { return p.conn.takeBack(p.add) })
	for _, f := range p.add {
		if err := p.conn.addFilter(f); err != nil {
			return fmt.Errorf("filter %s: %w", f, err)
		}
	}
	return nil
}

// verify reads back what the kernel has made of it.
func (p *plan) verify(*[]func() error) error {
	t, err := p.conn.read()
	if err != nil {
		return err
	}
	for _, name := range append(slices.Clone(p.created), p.changed...) {
		s := p.links[name]
		b, ok := t.branches[s.id]
		if !ok {
			return fmt.Errorf("link to %s: the kernel took %s and does not have it", name, handle(classOf(s.id)))
		}
		if text := b.differs(s.shaper, s.options); text != "" {
			return fmt.Errorf("link to %s: %w: the kernel took what was asked and does something else: %s", name, ErrUnsupported, text)
		}
		if l := t.lacking(filters(s)); len(l) > 0 {
			return fmt.Errorf("link to %s: the kernel took filter %q and does not have it", name, l[0])
		}
		if slices.Contains(p.created, name) {
			s.seen, s.lost = stats{}, 0
		}
		p.links[name] = s
	}
	return nil
}

// leave removes what links have left.
func (p *plan) leave() error {
	if err := p.conn.takeBack(p.remove); err != nil {
		return err
	}
	var err error
	for _, id := range p.dropped {
		err = errors.Join(err, p.conn.prune(id))
	}
	return err
}

// takeBack removes those of the filters that there are.
func (c *conn) takeBack(all []filter) error {
	if len(all) == 0 {
		return nil
	}
	there, err := c.filters()
	if err != nil {
		return err
	}
	unwanted := map[string]bool{}
	for _, f := range all {
		unwanted[f.same()] = true
	}
	for _, f := range there {
		if unwanted[f.same()] {
			err = errors.Join(err, c.removeFilter(f))
		}
	}
	return err
}

// account adds what was counted since the last time to the totals.
func (b *Backend) account(s *site, t *tree) error {
	for name, l := range s.links {
		br, ok := t.branches[l.id]
		if !ok {
			return fmt.Errorf("somebody took away the qdiscs of the link to %s", name)
		}
		b.totals.Packets += br.stats.packets - l.seen.packets
		b.totals.Bytes += br.stats.bytes - l.seen.bytes
		// A full netem tells tbf, which counts it too; beyond that tbf drops
		// what is too large and cannot be cut.
		if lost := uint64(br.stats.dropped - l.seen.dropped); l.link.Impairment.Lossy() {
			b.totals.Dropped += lost
		} else {
			b.totals.Overrun += max(lost, uint64(br.refused-l.lost))
		}
		l.seen, l.lost = br.stats, br.refused
		s.links[name] = l
	}
	return nil
}

// sweep forgets interfaces that are gone, or are others by now: their links
// went with them.
func (b *Backend) sweep() {
	for at, s := range b.sites {
		l, err := s.conn.link(s.at.Interface)
		if errors.Is(err, unix.ENODEV) || err == nil && int32(l.Attrs().Index) != s.conn.index {
			s.conn.close()
			delete(b.sites, at)
		}
	}
}

// look reads every site.
func (b *Backend) look(each func(*site, *tree) error) error {
	b.sweep()
	for _, s := range b.sites {
		t, err := s.conn.read()
		if err == nil {
			err = each(s, t)
		}
		if err != nil {
			return s.wrap(err)
		}
	}
	return nil
}

// Show tells what the kernel does, which is what was asked unless somebody
// else has changed it.
func (b *Backend) Show(ctx context.Context) (out []netem.LinkState, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	err = b.look(func(s *site, t *tree) error {
		for name, l := range s.links {
			br, ok := t.branches[l.id]
			if !ok {
				return fmt.Errorf("somebody took away the qdiscs of the link to %s", name)
			}
			if lack := t.lacking(filters(l)); len(lack) > 0 {
				return fmt.Errorf("somebody took away the filter of the link to %s: its packets pass as if nothing was asked", name)
			}
			state := netem.LinkState{Link: l.link, Packets: br.stats.packets, Bytes: br.stats.bytes}
			if br.differs(l.shaper, l.options) != "" {
				state.Impairment = impairment(br.options, br.shaper)
			}
			if state.Impairment.Lossy() {
				state.Dropped = uint64(br.stats.dropped)
			}
			out = append(out, state)
		}
		return nil
	})
	return out, err
}

// Counters are those of the kernel. It does not tell the processor time that
// netem takes, nor how late packets leave.
func (b *Backend) Counters(ctx context.Context) (netem.Counters, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.look(b.account)
	return b.totals, err
}

// Find takes over what former processes have left on the endpoints'
// interfaces, so that Show and Clear know of it.
func (b *Backend) Find(ctx context.Context, endpoints []netem.Endpoint) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range endpoints {
		at, err := placeOf(e)
		if err != nil {
			return err
		}
		if b.sites[at] != nil {
			continue
		}
		s, err := openSite(e)
		if err != nil {
			return err
		}
		if len(s.links) == 0 {
			s.conn.close()
			continue
		}
		b.sites[at] = s
	}
	return nil
}

// drainBound is how long Clear waits for packets that are under way. After it
// they are lost.
const drainBound = time.Second

// Clear lets new packets pass at once, waits up to a second for those under
// way, and takes the qdiscs away.
func (b *Backend) Clear(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.clear(ctx)
}

func (b *Backend) clear(ctx context.Context) error {
	var failed error
	for at, s := range b.sites {
		if err := s.conn.removeFilters(); err != nil && !vanished(err) {
			failed = errors.Join(failed, s.wrap(err))
		} else if err != nil {
			s.conn.close()
			delete(b.sites, at)
		}
	}
	for end := time.Now().Add(drainBound); ; time.Sleep(2 * time.Millisecond) {
		waiting := false
		for _, s := range b.sites {
			queues, err := s.conn.queues()
			if err != nil {
				continue // found again below
			}
			waiting = waiting || slices.ContainsFunc(queues, func(q queue) bool { return q.stats.backlog > 0 && q.kind == "netem" })
		}
		if !waiting || time.Now().After(end) || ctx.Err() != nil {
			break
		}
	}
	for at, s := range b.sites {
		if t, err := s.conn.read(); err == nil {
			b.account(s, t) // else there is nothing left to count
		}
		if err := s.conn.uproot(); err != nil && !vanished(err) {
			failed = errors.Join(failed, s.wrap(err))
			continue
		}
		s.conn.close()
		delete(b.sites, at)
	}
	return failed
}

// vanished tells that the interface is gone, or its root and with it all else.
func vanished(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist)
}

// Close clears. A second time it does nothing.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	return b.clear(context.Background())
}

// Leave ends the backend and leaves the links as they are: for a command that
// is done when it has set them.
func (b *Backend) Leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for at, s := range b.sites {
		s.conn.close()
		delete(b.sites, at)
	}
}

// Detach takes away what a killed process has left on an endpoint whose
// namespace lives on, at once. What others have set up is left alone.
func Detach(e netem.Endpoint) error {
	c, err := dial(e)
	if err != nil {
		return err
	}
	defer c.close()
	queues, err := c.queues()
	if err != nil {
		return err
	}
	for _, q := range queues {
		if q.handle == root && q.parent == whole && q.kind == "htb" {
			if err := c.removeFilters(); err != nil && !vanished(err) {
				return err
			}
			return c.uproot()
		}
	}
	return nil
}
