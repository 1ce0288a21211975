// Package docker owns the provider whose nodes are containers, on a Docker
// network that belongs to the lab alone.
//
// A node is two containers: its place, which holds the network namespace and the
// data, and its server, which joins the place for as long as the server lives.
// See place.
package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/server"
	"github.com/faultlab/faultlab/netem/netns"
)

// Provider builds labs of containers.
type Provider struct {
	// Host is the daemon's address; empty is the daemon that the docker command
	// would talk to: by DOCKER_HOST, else by its current context.
	Host string
	// Images are the images that the user names. Other flavors run from an
	// image made of the server root in Servers, else from the official image.
	Images  map[lab.Flavor]string
	Servers server.Store
	// StateDir holds a folder for every lab; empty is lab.StateDir().
	StateDir string
	// CPUs and Memory, in bytes, are the most that a server may use; 0 is no
	// limit.
	CPUs   float64
	Memory int64
	// MTU of the lab's network, 0 for Docker's own.
	MTU int
	// Report, which may be nil, is told of steps that take long.
	Report func(step string)
}

var _ lab.Provider = (*Provider)(nil)

func (p *Provider) Name() string { return "docker" }

func (p *Provider) stateDir() string {
	if p.StateDir != "" {
		return p.StateDir
	}
	return lab.StateDir()
}

func (p *Provider) report(format string, args ...any) {
	if p.Report != nil {
		p.Report(fmt.Sprintf(format, args...))
	}
}

// Everything of a lab carries these labels; images and what is not a lab's
// carry the first only.
const (
	labelFaultlab = "faultlab"         // "lab", or what kind of image it is
	labelLab      = "faultlab.lab"     // the lab's name
	labelNode     = "faultlab.node"    // the node's, or "client"
	labelJournal  = "faultlab.journal" // what the lab's journal calls all of it
)

const clientName = "client"

// objectName is what a container, network or volume of a lab is called.
func objectName(labName, member string) string {
	if member == "" {
		return "faultlab-" + labName
	}
	return "faultlab-" + labName + "-" + member
}

// placeName can be no node's: their names have no dots.
func placeName(labName, member string) string {
	if member == clientName {
		return objectName(labName, member)
	}
	return objectName(labName, member) + ".place"
}

// Preflight says why this machine cannot run the lab. It makes nothing.
func (p *Provider) Preflight(ctx context.Context, spec lab.Spec) error {
	if err := check(spec); err != nil {
		return err
	}
	d, err := connect(p.Host)
	if err != nil {
		return err
	}
	defer d.Close()
	info, err := d.reach(ctx)
	if err != nil {
		return err
	}
	if err := checkLocal(d.DaemonHost(), info); err != nil {
		return err
	}
	if err := netns.Do("/proc/self/ns/net", func() error { return nil }); errors.Is(err, netns.ErrUnsupported) {
		return lab.Hint(fmt.Errorf("%w enter the containers' network namespaces: %w", lab.ErrCannot, err), "run it as root: sudo faultlab ...")
	} else if err != nil {
		return err
	}
	if err := lab.CheckMemory(len(spec.Nodes)); err != nil {
		return err
	}
	if err := lab.CheckDisk(info.DockerRootDir, spec, "move Docker's data: data-root in /etc/docker/daemon.json"); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(p.stateDir(), spec.Name)); err == nil {
		return lab.Hint(fmt.Errorf("%w: %s", lab.ErrTaken, spec.Name),
			"choose another name, or remove it: faultlab down "+spec.Name+", or faultlab clean if its owner is dead")
	}
	for _, f := range flavors(spec) {
		if _, err := p.choose(ctx, d, f); err != nil {
			return err
		}
	}
	return d.checkNames(ctx, spec)
}

// checkNames fails if a container of a name that the lab needs is there: whoever
// made it, it is not this lab's.
func (d daemon) checkNames(ctx context.Context, spec lab.Spec) error {
	names := []string{placeName(spec.Name, clientName)}
	for _, n := range spec.Nodes {
		names = append(names, placeName(spec.Name, n.Name), objectName(spec.Name, n.Name))
	}
	all, err := d.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("name", objectName(spec.Name, "")))})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	for _, c := range all {
		for _, n := range c.Names {
			if name := filepath.Base(n); slices.Contains(names, name) {
				return takenName(name)
			}
		}
	}
	return nil
}

// taken tells a name that is in use from other errors.
func taken(name string, err error) error {
	if errdefs.IsConflict(err) {
		return takenName(name)
	}
	return err
}

func takenName(name string) error {
	return lab.Hint(fmt.Errorf("%w: there is a container or network %s", lab.ErrTaken, name),
		"choose another lab name (--name), remove what dead runs left (faultlab clean), or remove it yourself: docker rm -f "+name)
}

// check says what is wrong with the spec itself.
func check(spec lab.Spec) error {
	if err := lab.CheckName(spec.Name); err != nil {
		return err
	}
	if len(spec.Nodes) == 0 || len(spec.Nodes) > maxNodes {
		return fmt.Errorf("lab %s: %d nodes, want 1 to %d", spec.Name, len(spec.Nodes), maxNodes)
	}
	seen := map[string]bool{clientName: true}
	for _, n := range spec.Nodes {
		if err := lab.CheckName(n.Name); err != nil {
			return err
		}
		if seen[n.Name] {
			return fmt.Errorf("lab %s: node name %s is used twice or reserved", spec.Name, n.Name)
		}
		seen[n.Name] = true
	}
	return nil
}

func flavors(spec lab.Spec) []lab.Flavor {
	var out []lab.Flavor
	for _, n := range spec.Nodes {
		if !slices.Contains(out, n.Flavor) {
			out = append(out, n.Flavor)
		}
	}
	return out
}

// Open makes the network, and a place for the client and every node, with a copy
// of an initialised data directory.
func (p *Provider) Open(ctx context.Context, spec lab.Spec) (_ lab.Lab, err error) {
	if err := check(spec); err != nil {
		return nil, err
	}
	d, err := connect(p.Host)
	if err != nil {
		return nil, err
	}
	l := &dockerLab{name: spec.Name, docker: d, labels: map[string]string{
		labelFaultlab: "lab", labelLab: spec.Name, labelJournal: uuid.NewString(),
	}}
	defer func() {
		if err != nil && l.journal == nil {
			d.Close()
		}
	}()
	if _, err := d.reach(ctx); err != nil {
		return nil, err
	}
	if l.journal, err = lab.NewJournal(p.stateDir(), spec.Name); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			// ctx may be what ended it.
			err = errors.Join(err, l.Close(context.WithoutCancel(ctx)))
		}
	}()
	// Before anything is made; all of it is found by its label.
	if err := l.journal.Add(undoLab, undoID(d, l.labels[labelJournal])); err != nil {
		return nil, err
	}
	if err := d.checkNames(ctx, spec); err != nil {
		return nil, err
	}
	if err := l.build(ctx, p, spec); err != nil {
		return nil, fmt.Errorf("lab %s: %w", spec.Name, err)
	}
	return l, nil
}

func (l *dockerLab) build(ctx context.Context, p *Provider, spec lab.Spec) error {
	images := map[lab.Flavor]serverImage{}
	for _, f := range flavors(spec) {
		i, err := p.image(ctx, l.docker, f, l)
		if err != nil {
			return err
		}
		images[f] = i
	}
	if err := l.docker.makePlaceImage(ctx); err != nil {
		return err
	}
	network, err := l.docker.createNetwork(ctx, objectName(spec.Name, ""), p.MTU, l.labels)
	if err != nil {
		return taken(objectName(spec.Name, ""), err)
	}
	hostOf := map[string]byte{clientName: clientHost}
	for i, n := range spec.Nodes {
		hostOf[n.Name] = byte(firstNodeHost + i)
	}
	var hosts []string
	for name, h := range hostOf {
		hosts = append(hosts, name+":"+host(network.v4, h).String())
		if network.v6.IsValid() {
			hosts = append(hosts, name+":"+host(network.v6, h).String())
		}
	}
	slices.Sort(hosts)
	if err := os.MkdirAll(filepath.Join(l.Dir(), "nodes"), 0o755); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	makePlace := func(member, volume string) (*place, error) {
		return l.docker.createPlace(gctx, placeSpec{
			name: placeName(spec.Name, member), member: member, network: network, host: hostOf[member],
			hosts: hosts, volume: volume, labels: l.label(member),
		})
	}
	g.Go(func() (err error) {
		if l.client.place, err = makePlace(clientName, ""); err != nil {
			return err
		}
		return l.docker.startPlace(gctx, l.client.place)
	})
	for _, ns := range spec.Nodes {
		n := &node{lab: l, spec: ns, image: images[ns.Flavor], cpus: p.CPUs, memory: p.Memory,
			dir: filepath.Join(l.Dir(), "nodes", ns.Name), volume: objectName(spec.Name, ns.Name)}
		l.nodes = append(l.nodes, n)
		g.Go(func() (err error) {
			if err := os.Mkdir(n.dir, 0o755); err != nil {
				return err
			}
			if err := l.docker.createVolume(gctx, n.volume, l.label(ns.Name)); err != nil {
				return err
			}
			if n.place, err = makePlace(ns.Name, n.volume); err != nil {
				return err
			}
			if err := l.docker.fill(gctx, n.place.id, n.image.seed); err != nil {
				return fmt.Errorf("data of %s: %w", ns.Name, err)
			}
			return l.docker.startPlace(gctx, n.place)
		})
	}
	return g.Wait()
}

// label are the labels of what belongs to a node or to the client.
func (l *dockerLab) label(member string) map[string]string {
	m := map[string]string{labelNode: member}
	for k, v := range l.labels {
		m[k] = v
	}
	return m
}
