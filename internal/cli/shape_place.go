package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/docker"
	"github.com/faultlab/faultlab/lab/process"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

// A place is an interface of somebody else's and the emulator that is to act
// there. A journal keeps it. Dev and Ino are the namespace itself: numbers of
// processes, and names, mean another one later.
type place struct {
	netem.Endpoint
	Emulator string
	Dev, Ino uint64
	Bare     bool // before the emulator came
	// Of a container: what the user calls it, in which Compose project, and
	// which interface he insists on.
	Container, Project, Device string `json:",omitempty"`
}

// lock keeps others from shaping in the namespace until unlock, which may be
// called twice. It waits for them as long as ctx lives. Locked is the namespace
// itself, so nothing is left behind.
func (p place) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.Open(p.Netns)
	if err != nil {
		return nil, err
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// findPlace finds the interface, and says what is not there.
func findPlace(ns, dev string) (place, error) {
	var p place
	path, err := netnsPath(ns)
	if err != nil {
		return p, err
	}
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		err := fmt.Errorf("namespace %s: %w", ns, err)
		if isNumber(ns) {
			return p, lab.Hint(&exit{exitUsage, err}, "is there a process "+ns+"? ps -p "+ns)
		}
		return p, lab.Hint(&exit{exitUsage, err}, "ip netns list shows the namespaces that have a name; else give a process in it")
	}
	p = place{Endpoint: netem.Endpoint{Name: filepath.Base(ns), Netns: path, Interface: dev}, Dev: st.Dev, Ino: st.Ino}
	var names []string
	err = netns.Do(path, func() error {
		all, err := net.Interfaces()
		for _, i := range all {
			names = append(names, i.Name)
			if i.Name == dev {
				p.Addr, p.Addr6 = addressesOf(i)
			}
		}
		return err
	})
	switch {
	case err != nil:
		return p, err
	case !slices.Contains(names, dev):
		return p, lab.Hint(usage("there is no interface %q in namespace %s", dev, ns), "there: "+strings.Join(names, ", "))
	}
	return p, nil
}

func isNumber(s string) bool { return strings.Trim(s, "0123456789") == "" }

// netnsPath is where the namespace of a name, a process or a path is.
func netnsPath(ns string) (string, error) {
	switch {
	case filepath.IsAbs(ns):
		return ns, nil
	case isNumber(ns):
		return "/proc/" + ns + "/ns/net", nil
	case strings.ContainsRune(ns, '/'):
		return "", usage("--netns %s is no name, no process and no absolute path", ns)
	}
	return netns.Path(ns), nil
}

// addressesOf are the first of an interface that others can reach.
func addressesOf(i net.Interface) (v4, v6 netip.Addr) {
	addrs, err := i.Addrs()
	if err != nil {
		return
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		switch ip := p.Addr(); {
		case err != nil || ip.IsLinkLocalUnicast():
		case ip.Is4() && !v4.IsValid():
			v4 = ip
		case ip.Is6() && !v6.IsValid():
			v6 = ip
		}
	}
	return
}

// undoPlace is the kind of thing that a shape leaves when its owner is killed.
const undoPlace = "shape"

// undo says how to remove whatever any journal names.
func undo() map[string]lab.Undo {
	u := process.Undo()
	maps.Copy(u, docker.Undo())
	u[undoPlace] = func(_ context.Context, id string) error {
		var p place
		if err := json.Unmarshal([]byte(id), &p); err != nil {
			return err
		}
		return p.restore()
	}
	return u
}

// restore takes the emulator's traces away from the place, if that is still
// there.
func (p place) restore() error {
	kind, err := p.kind()
	if err != nil {
		return err
	}
	path, ok := p.path()
	if !ok {
		return nil
	}
	e := p.Endpoint
	e.Netns = path
	gone := false
	err = netns.Do(path, func() error {
		_, err := net.InterfaceByName(e.Interface)
		gone = err != nil
		return nil
	})
	if err != nil || gone {
		return err
	}
	return kind.detach(e, p.Bare)
}

func (p place) kind() (emulatorKind, error) {
	for _, k := range emulators() {
		if k.name == p.Emulator {
			return k, nil
		}
	}
	return emulatorKind{}, fmt.Errorf("this build has no %s emulator", p.Emulator)
}

// path is where the namespace is found now, and whether it is.
func (p place) path() (string, bool) {
	named, _ := filepath.Glob(netns.Path("*"))
	processes, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, path := range slices.Concat([]string{p.Netns}, named, processes) {
		var st syscall.Stat_t
		if syscall.Stat(path, &st) == nil && st.Dev == p.Dev && st.Ino == p.Ino {
			return path, true
		}
	}
	return "", false
}

// look finds out how the interface is before the emulator comes.
func (p *place) look() error {
	kind, err := p.kind()
	if err != nil || kind.bare == nil {
		return err
	}
	p.Bare, err = kind.bare(p.Endpoint)
	return err
}

// announce writes into the journal that something will be done there.
func (p place) announce(j *lab.Journal) error {
	id, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return j.Add(undoPlace, string(id))
}
