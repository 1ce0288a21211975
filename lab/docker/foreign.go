package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/faultlab/faultlab/lab"
)

// ErrNotRunning is for a container that is there and has no process.
var ErrNotRunning = errors.New("is not running")

// A Container runs, whoever made it.
type Container struct {
	Name string
	// PID is its first process, as this machine's /proc knows it.
	PID int
	// Addrs are its addresses in each of its networks, by the network's name.
	Addrs map[string][]netip.Addr
}

// Netns is the path of its network namespace.
func (c Container) Netns() string { return fmt.Sprintf("/proc/%d/ns/net", c.PID) }

// AddrsSeenBy are the addresses of c in the networks that it shares with other,
// IPv4 before IPv6. Without such a network there are none.
func (c Container) AddrsSeenBy(other Container) []netip.Addr {
	var out []netip.Addr
	for name, addrs := range c.Addrs {
		if _, ok := other.Addrs[name]; ok {
			out = append(out, addrs...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// Containers asks the daemon that the docker command would talk to.
type Containers struct{ daemon daemon }

// OpenContainers connects to the daemon. The error is lab.ErrCannot where it
// does not answer, or runs its containers on another machine: their network
// namespaces are to be entered.
func OpenContainers(ctx context.Context) (*Containers, error) {
	d, err := connect("")
	if err != nil {
		return nil, err
	}
	info, err := d.reach(ctx)
	if err == nil {
		err = checkLocal(d.DaemonHost(), info)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return &Containers{d}, nil
}

// Close ends the connection.
func (c *Containers) Close() error { return c.daemon.Close() }

// Find returns the container of that name or id. Where there is none, the
// error's hint lists those that run.
func (c *Containers) Find(ctx context.Context, name string) (Container, error) {
	found, err := c.daemon.ContainerInspect(ctx, name)
	if errdefs.IsNotFound(err) {
		return Container{}, lab.Hint(fmt.Errorf("there is no container %q", name), c.running(ctx, filters.NewArgs()))
	}
	if err != nil {
		return Container{}, fmt.Errorf("container %s: %w", name, err)
	}
	out := Container{Name: strings.TrimPrefix(found.Name, "/"), Addrs: map[string][]netip.Addr{}}
	if found.State == nil || !found.State.Running || found.State.Pid == 0 {
		return out, lab.Hint(fmt.Errorf("container %s %w", out.Name, ErrNotRunning), "docker start "+out.Name)
	}
	out.PID = found.State.Pid
	if found.HostConfig != nil && found.HostConfig.NetworkMode.IsHost() {
		return out, lab.Hint(fmt.Errorf("container %s has no network of its own: it uses the machine's", out.Name),
			"shape the machine's interface, if that is meant: --netns 1 --dev eth0")
	}
	for network, e := range found.NetworkSettings.Networks {
		for _, a := range []string{e.IPAddress, e.GlobalIPv6Address} {
			if ip, err := netip.ParseAddr(a); err == nil {
				out.Addrs[network] = append(out.Addrs[network], ip)
			}
		}
	}
	if _, err := os.Stat(out.Netns()); err != nil {
		return out, elsewhere(c.daemon.DaemonHost(), fmt.Sprintf("process %d of container %s is not in this machine's /proc", out.PID, out.Name))
	}
	return out, nil
}

// The labels that Docker Compose gives its containers.
const (
	composeProject = "com.docker.compose.project"
	composeService = "com.docker.compose.service"
)

// Service returns the running containers of a Compose project's service, by
// name. Where there is none, the error's hint lists the project's.
func (c *Containers) Service(ctx context.Context, project, service string) ([]Container, error) {
	in := filters.NewArgs(filters.Arg("label", composeProject+"="+project))
	of := in.Clone()
	of.Add("label", composeService+"="+service)
	all, err := c.daemon.ContainerList(ctx, container.ListOptions{Filters: of})
	if err != nil {
		return nil, fmt.Errorf("containers of %s: %w", project, err)
	}
	if len(all) == 0 {
		return nil, lab.Hint(fmt.Errorf("no container of service %s runs in the Compose project %s", service, project), c.running(ctx, in))
	}
	var out []Container
	for _, a := range all {
		found, err := c.Find(ctx, a.ID)
		if err != nil {
			return nil, err
		}
		out = append(out, found)
	}
	slices.SortFunc(out, func(a, b Container) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// running says in words what runs, for people who mistyped.
func (c *Containers) running(ctx context.Context, f filters.Args) string {
	all, err := c.daemon.ContainerList(ctx, container.ListOptions{Filters: f})
	if err != nil || len(all) == 0 {
		return "none is running; docker ps shows which are"
	}
	var names []string
	for _, a := range all {
		if len(a.Names) == 0 {
			continue // it is just being removed
		}
		name := strings.TrimPrefix(a.Names[0], "/")
		if s := a.Labels[composeService]; s != "" {
			name += " (service " + s + " of " + a.Labels[composeProject] + ")"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return "running: " + strings.Join(names, ", ")
}
