package qdisc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
)

// Handles are ours to choose: the one of the root says whose tree it is, and
// those below which link they belong to.
const (
	root        = 0xfa17 << 16
	netemMajor  = 0x4000
	shaperMajor = 0x8000
	lastClass   = 0x3fff
)

func classOf(id uint16) uint32      { return root | uint32(id) }
func shaperHandle(id uint16) uint32 { return (shaperMajor | uint32(id)) << 16 }
func netemHandle(id uint16) uint32  { return (netemMajor | uint32(id)) << 16 }

// whole is what kernel messages call the place of an interface's root qdisc.
const whole = uint32(netlink.HANDLE_ROOT)

// A branch is one link in the tree: class, tbf and netem.
type branch struct {
	shaper  shaper
	options options
	stats   stats  // netem's
	refused uint32 // packets that tbf or what is below dropped
}

// A tree is what the kernel has on one interface.
type tree struct {
	there    bool              // the root is ours
	branches map[uint16]branch // complete ones
	filters  []standing
}

// foreign is a root qdisc that somebody else has set up.
func foreign(q queue) bool {
	return q.parent == whole && q.handle != root && q.handle != 0 || q.handle == root && q.kind != "htb"
}

// read tells what the kernel has. A root qdisc of somebody else is an error.
func (c *conn) read() (*tree, error) {
	queues, err := c.queues()
	if err != nil {
		return nil, err
	}
	t := &tree{branches: map[uint16]branch{}}
	shapers := map[uint16]queue{}
	for _, q := range queues {
		switch {
		case foreign(q):
			return nil, &ForeignError{Kind: q.kind, Handle: handle(q.handle)}
		case q.handle == root:
			t.there = true
		case q.kind == "tbf":
			shapers[uint16(q.parent)] = q
		}
	}
	if !t.there {
		return t, nil
	}
	for _, q := range queues {
		id := uint16(q.handle>>16) &^ netemMajor
		above, ok := shapers[id]
		if q.kind != "netem" || !ok || q.handle != netemHandle(id) || q.parent != shaperHandle(id)|1 || above.handle != shaperHandle(id) || above.parent != classOf(id) {
			continue
		}
		b := branch{stats: q.stats, refused: above.stats.dropped}
		if b.options, err = decodeOptions(q.options); err != nil {
			return nil, err
		}
		if b.shaper, err = decodeShaper(above.options); err != nil {
			return nil, err
		}
		t.branches[id] = b
	}
	t.filters, err = c.filters()
	return t, err
}

// ForeignError says that an interface has a root qdisc that faultlab has not
// made and will not touch.
type ForeignError struct{ Kind, Handle string }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("its root qdisc is somebody else's, %s %s", e.Kind, e.Handle)
}

// plant makes the root. Nothing is led to any class yet.
func (c *conn) plant() error {
	err := c.do(unix.RTM_NEWQDISC, create, message{handle: root, parent: whole, kind: "htb", options: encodeRoot()})
	if err != nil {
		return lacks("no htb", "CONFIG_NET_SCH_HTB", err)
	}
	return nil
}

// uproot takes all away, packets that wait included.
func (c *conn) uproot() error {
	err := c.do(unix.RTM_DELQDISC, 0, message{handle: root, parent: whole})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		return nil // there is none
	}
	return err
}

// grow makes the branch of a link; without filters no packet comes there.
func (c *conn) grow(id uint16, s shaper, o options, table []int16) error {
	err := c.do(unix.RTM_NEWTCLASS, create, message{handle: classOf(id), parent: root, kind: "htb", options: encodeClass()})
	if err != nil {
		return fmt.Errorf("class %s: %w", handle(classOf(id)), err)
	}
	err = c.do(unix.RTM_NEWQDISC, create, message{handle: shaperHandle(id), parent: classOf(id), kind: "tbf", options: s.encode()})
	if err != nil {
		return errors.Join(lacks("no tbf", "CONFIG_NET_SCH_TBF", err), c.prune(id))
	}
	err = c.do(unix.RTM_NEWQDISC, create, message{handle: netemHandle(id), parent: shaperHandle(id) | 1, kind: "netem", options: o.encode(table)})
	if err != nil {
		return errors.Join(lacks("no netem", "CONFIG_NET_SCH_NETEM", err), c.prune(id))
	}
	return nil
}

// prune takes a branch away that no filter leads to.
func (c *conn) prune(id uint16) error {
	return c.do(unix.RTM_DELTCLASS, 0, message{handle: classOf(id), parent: root})
}

func (c *conn) changeShaper(id uint16, s shaper) error {
	err := c.do(unix.RTM_NEWQDISC, change, message{handle: shaperHandle(id), kind: "tbf", options: s.encode()})
	if err != nil {
		return fmt.Errorf("tbf %s: %w", s, err)
	}
	return nil
}

func (c *conn) changeNetem(id uint16, o options, table []int16) error {
	err := c.do(unix.RTM_NEWQDISC, change, message{handle: netemHandle(id), kind: "netem", options: o.encode(table)})
	if err != nil {
		return fmt.Errorf("netem %s: %w", o, err)
	}
	return nil
}

// classes lists our classes, complete ones and others.
func (c *conn) classes() ([]uint16, error) {
	var out []uint16
	err := c.dump(unix.RTM_GETTCLASS, unix.RTM_NEWTCLASS, 0, func(m message, _ []nlAttr) error {
		if m.handle&^0xffff == root {
			out = append(out, uint16(m.handle))
		}
		return nil
	})
	return out, err
}

// tidy removes what an interrupted change has left: classes that no filter
// leads to or that have no netem, and filters that lead nowhere.
func (c *conn) tidy(t *tree) error {
	used := map[uint32]bool{}
	keep := t.filters[:0:0]
	for _, f := range t.filters {
		_, complete := t.branches[uint16(f.class)]
		_, ours := f.selector()
		if f.class == root || complete && ours {
			used[f.class] = true
			keep = append(keep, f)
		} else if err := c.removeFilter(f); err != nil {
			return err
		}
	}
	t.filters = keep
	classes, err := c.classes()
	if err != nil {
		return err
	}
	for _, id := range classes {
		if !used[classOf(id)] {
			if err := c.prune(id); err != nil {
				return err
			}
			delete(t.branches, id)
		}
	}
	return nil
}

// links are the tree's, as far as the kernel tells: where they lead and what
// is done there.
func (t *tree) links(from netem.Endpoint) map[uint16]netem.Link {
	out := map[uint16]netem.Link{}
	for _, f := range t.filters {
		id := uint16(f.class)
		b, ok := t.branches[id]
		s, ours := f.selector()
		if !ok || !ours {
			continue
		}
		l := out[id]
		l.From, l.Impairment = from, impairment(b.options, b.shaper)
		if !slices.Contains(l.Match, s) {
			l.Match = append(l.Match, s)
		}
		out[id] = l
	}
	for _, l := range out {
		slices.SortFunc(l.Match, func(a, b netem.Selector) int {
			return cmp.Or(cmp.Compare(a.Prefix.Addr().BitLen(), b.Prefix.Addr().BitLen()), strings.Compare(a.String(), b.String()))
		})
	}
	return out
}

// lacking are those filters that the kernel does not have.
func (t *tree) lacking(want []filter) []filter {
	there := map[string]bool{}
	for _, f := range t.filters {
		there[f.same()] = true
	}
	return slices.DeleteFunc(slices.Clone(want), func(f filter) bool { return there[f.same()] })
}

// differs says how a branch is not what was asked, "" where it is.
func (b branch) differs(s shaper, o options) string {
	got, gotShaper := b.options, b.shaper
	if o.seed == 0 {
		got.seed = 0
	}
	s.largest = 0 // is not told
	switch {
	case got != o:
		return fmt.Sprintf("netem has %q, asked was %q", got, o)
	case gotShaper != s:
		return fmt.Sprintf("tbf has %q, asked was %q", gotShaper, s)
	}
	return ""
}
