package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/qdisc"
	"github.com/faultlab/faultlab/netem/remote"
	"github.com/faultlab/faultlab/netem/wire"
)

// emulatorKind is a way to shape links.
type emulatorKind struct {
	name, about string
	// probe says what this machine lacks for it, with the command that mends it.
	probe func() error
	// cannot lists what it cannot do here though it works; nil where that is
	// nothing.
	cannot func() ([]string, error)
	// open starts it; what it says when it fails goes to log, nil being standard
	// error.
	open func(ctx context.Context, log io.Writer) (netem.Backend, error)
	// bare tells that nothing is at an endpoint's interface that this kind would
	// use and leave, as it may be somebody's; nil where nothing can be.
	bare func(netem.Endpoint) (bool, error)
	// detach takes away what one that died left at an endpoint, all of it if that
	// was bare before.
	detach func(e netem.Endpoint, bare bool) error
	// commands are what it would do, as people write it.
	commands func(netem.Link) []string
}

// emulators are those there are, the one that auto prefers first.
func emulators() []emulatorKind {
	return []emulatorKind{{
		name: "kernel", about: "netem qdiscs",
		probe:    probeKernel,
		cannot:   qdisc.Lacks,
		open:     func(context.Context, io.Writer) (netem.Backend, error) { return qdisc.Open(), nil },
		detach:   func(e netem.Endpoint, _ bool) error { return qdisc.Detach(e) },
		commands: func(l netem.Link) []string { return qdisc.Commands([]netem.Link{l}) },
	}, {
		name: "user", about: "a process that holds packets",
		probe: probeUser,
		open: func(ctx context.Context, log io.Writer) (netem.Backend, error) {
			return wire.Open(ctx, wire.Options{Stderr: log})
		},
		bare: wire.Bare,
		detach: func(e netem.Endpoint, bare bool) error {
			err := wire.Detach(e)
			if err == nil && bare {
				err = wire.Strip(e)
			}
			return err
		},
		commands: detourCommands,
	}}
}

func probeKernel() error {
	err := qdisc.Probe()
	var lack *qdisc.LackError
	if errors.As(err, &lack) {
		return lab.Hint(lack, lack.Mend) // without the names of the scratch that it was tried in
	}
	return err
}

func probeUser() error {
	err := wire.Probe()
	if !errors.Is(err, wire.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	if _, lack, ok := strings.Cut(err.Error(), wire.ErrUnsupported.Error()); ok {
		err = fmt.Errorf("%w%s", wire.ErrUnsupported, lack) // without the names of the scratch that it was tried in
	}
	return lab.Hint(err, "modprobe -a tun sch_ingress cls_u32 act_mirred; or a kernel that has them")
}

// chooseEmulator finds the emulator of that name, or for auto the first that
// this machine can run. It tries them, and leaves nothing behind.
func chooseEmulator(name string, among []emulatorKind) (emulatorKind, error) {
	if name != "auto" && name != "kernel" && name != "user" {
		return emulatorKind{}, usage("emulator %q is not auto, kernel or user", name)
	}
	var lacks, mends []string
	for _, k := range among {
		if name != "auto" && name != k.name {
			continue
		}
		err := k.probe()
		if err == nil {
			return k, nil
		}
		lacks = append(lacks, k.name+": "+err.Error())
		mends = append(mends, hints(err)...)
	}
	says := "no emulator works here: "
	if name != "auto" {
		says = "emulator "
	}
	return emulatorKind{}, lab.Hint(errors.New(says+strings.Join(lacks, "; ")),
		append(mends, "faultlab doctor shows what this machine can do")...)
}

// emulator chooses what shapes links, and finds out whether it can, before
// anything is created.
func emulator(ctx *cli.Context) (func(context.Context, lab.Lab) (netem.Backend, error), error) {
	k, err := chooseEmulator(ctx.String("emulator"), emulators())
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ lab.Lab) (netem.Backend, error) { return k.open(ctx, nil) }, nil
}

// labEmulator finds what is to shape the links of a lab that stays. One that was
// named must work; otherwise that can wait until a link is to be shaped.
func labEmulator(ctx *cli.Context) (choose func() (emulatorKind, error), err error) {
	name := ctx.String("emulator")
	if name == "auto" {
		return func() (emulatorKind, error) { return chooseEmulator(name, emulators()) }, nil
	}
	k, err := chooseEmulator(name, emulators())
	return func() (emulatorKind, error) { return k, nil }, err
}

// onDemand is an emulator that is there while links are shaped: opened for the
// first, closed when they are cleared. It takes away what a dead one left.
type onDemand struct {
	choose func() (emulatorKind, error)
	log    string // file

	mu      sync.Mutex
	kind    emulatorKind
	backend netem.Backend // nil while nothing is shaped
	at      map[netem.Endpoint]bool
}

var _ netem.Backend = (*onDemand)(nil)

// Name is that of the emulator that shapes, "" while nothing does.
func (o *onDemand) Name() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.backend == nil {
		return ""
	}
	return o.backend.Name()
}

func (o *onDemand) Apply(ctx context.Context, links []netem.Link) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.backend == nil {
		k, err := o.choose()
		if err != nil {
			return err
		}
		// Standard error is a terminal, or somebody's pipe that this outlives.
		log, err := os.OpenFile(o.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer log.Close()
		b, err := k.open(ctx, log)
		if err != nil {
			return err
		}
		o.kind, o.backend, o.at = k, b, map[netem.Endpoint]bool{}
	}
	for _, l := range links {
		o.at[l.From] = true
	}
	return o.backend.Apply(ctx, links)
}

// Clear takes the emulator out of the way even when it has died.
func (o *onDemand) Clear(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.backend == nil {
		return nil
	}
	err := o.backend.Clear(ctx)
	cerr := o.backend.Close()
	if err != nil || cerr != nil {
		if derr := o.detach(); derr != nil {
			return errors.Join(err, cerr, derr)
		}
	}
	o.backend, o.at = nil, nil
	return nil
}

func (o *onDemand) detach() error {
	var errs []error
	for e := range o.at {
		if err := o.kind.detach(e, false); err != nil {
			errs = append(errs, fmt.Errorf("take the emulator away from %s of %s: %w", e.Interface, e.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (o *onDemand) Show(ctx context.Context) ([]netem.LinkState, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.backend == nil {
		return nil, nil
	}
	return o.backend.Show(ctx)
}

func (o *onDemand) Counters(ctx context.Context) (netem.Counters, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.backend == nil {
		return netem.Counters{}, nil
	}
	return o.backend.Counters(ctx)
}

func (o *onDemand) Close() error { return o.Clear(context.Background()) }

// socket is where the owner of a lab lets others at its links.
func socket(dir string) string { return filepath.Join(dir, "netem.sock") }

// serveLinks lets other processes shape links with the emulator that choose
// finds, until close, which also clears them. Its files are in dir.
func serveLinks(dir string, choose func() (emulatorKind, error)) (b *onDemand, close func() error, err error) {
	l, err := remote.Listen(socket(dir))
	if err != nil {
		return nil, nil, err
	}
	b = &onDemand{choose: choose, log: filepath.Join(dir, "emulator.log")}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- remote.Serve(ctx, l, b) }()
	return b, func() error {
		cancel()
		return errors.Join(<-done, b.Close())
	}, nil
}

// dialLinks reaches the emulator of a lab that another process owns.
func dialLinks(s lab.State) (*remote.Client, error) {
	c, err := remote.Dial(socket(filepath.Join(lab.StateDir(), s.Name)))
	if errors.Is(err, remote.ErrNobody) {
		return nil, lab.Hint(fmt.Errorf("%s: the process that owned it is gone", s.Name), "remove what it left: faultlab clean")
	}
	return c, err
}
