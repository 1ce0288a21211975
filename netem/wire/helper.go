package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

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
	// in the long run, and requests are few.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(2 << 30)
	// Best effort: without it a page fault costs lateness, which is measured.
	unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)

	e, err := newEngine(defaultTuning)
	if err != nil {
		return err
	}
	go e.run()
	h := &helper{engine: e, ports: map[place]*port{}}
	c := newConn(stdin, stdout)
	for {
		var q request
		if err := c.read(&q); err != nil {
			err = h.clear()
			// Ending closes the sockets; packets under way were released.
			e.do(func() { e.stopped = true })
			return err
		}
		if err := c.write(h.serve(q)); err != nil {
			return errors.Join(err, h.clear())
		}
	}
}

type place struct{ netns, ifname string }

type helper struct {
	engine *engine
	ports  map[place]*port
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

// apply has everything in place before the first packet is redirected.
func (h *helper) apply(links []netem.Link) error {
	for _, l := range links {
		at := place{l.From.Netns, l.From.Interface}
		if h.ports[at] != nil {
			continue
		}
		p, err := openPort(l.From)
		if err != nil {
			return err
		}
		h.ports[at] = p
		h.engine.do(func() {
			h.engine.ports = append(h.engine.ports, p)
			h.engine.watch()
		})
	}
	type detour struct {
		port *port
		addr uint32
	}
	var missing []detour
	h.engine.do(func() {
		for _, l := range links {
			p := h.ports[place{l.From.Netns, l.From.Interface}]
			if p.setDelay(key(l.To.Addr), l.Impairment.Delay) {
				missing = append(missing, detour{p, key(l.To.Addr)})
			}
		}
		h.engine.watch()
	})
	for _, m := range missing {
		if err := m.port.redirect(m.addr); err != nil {
			return errors.Join(err, h.clear())
		}
	}
	return nil
}

// clear lets everything under way go at once, and takes the filters out in the
// same breath, so that hardly a packet overtakes another. Lines stay until the
// last straggler is through.
func (h *helper) clear() error {
	h.engine.do(func() {
		for _, p := range h.engine.ports {
			for _, d := range p.dests {
				d.line.delay = 0
			}
		}
		h.engine.watch()
	})
	var errs []error
	for _, p := range h.ports {
		if err := p.bypass(); err != nil {
			errs = append(errs, err)
		}
	}
	h.engine.do(func() {
		h.engine.collect()
		h.engine.release(0)
		for _, p := range h.engine.ports {
			p.dests = nil
		}
		h.engine.watch()
	})
	return errors.Join(errs...)
}

// setDelay reports whether the line is new.
func (p *port) setDelay(addr uint32, delay time.Duration) bool {
	for _, d := range p.dests {
		if d.addr == addr {
			d.line.delay = delay
			return false
		}
	}
	p.dests = append(p.dests, dest{addr, &line{delay: delay}})
	return true
}

func key(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}
