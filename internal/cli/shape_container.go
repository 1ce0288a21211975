package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/docker"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

// containerPlace finds what --container and --to name: the interface by which
// the one container's packets leave for the other, as its own routes say.
func containerPlace(ctx *cli.Context) (at place, link netem.Link, err error) {
	to := ctx.StringSlice("to")
	if len(to) == 0 {
		return at, link, lab.Hint(usage("shape set needs --to"), ctx.Command.HelpName+" --help shows how it is used")
	}
	all, err := docker.OpenContainers(ctx.Context)
	if err != nil {
		return at, link, err
	}
	defer all.Close()
	return findContainers(ctx.Context, all, ctx.String("compose"), ctx.String("container"), ctx.String("dev"), to)
}

// findContainers finds the place of a container, or of a service of a Compose
// project, and its link to what each of to says; dev may be "".
func findContainers(ctx context.Context, all *docker.Containers, project, name, dev string, to []string) (at place, link netem.Link, err error) {
	from, err := oneContainer(ctx, all, project, name)
	if err != nil {
		return at, link, err
	}
	// In any order they are the same link.
	to = slices.Sorted(slices.Values(to))
	var match destinations
	for _, text := range to {
		d, err := containerTargets(ctx, all, project, from, text)
		if err != nil {
			return at, link, err
		}
		for _, s := range d {
			if slices.Contains(match, s) {
				return at, link, usage("--to %s: %s is given twice", text, s)
			}
			match = append(match, s)
		}
	}
	byRoute := dev == ""
	if byRoute {
		if dev, err = way(from, match); err != nil {
			return at, link, err
		}
	}
	if at, err = findPlace(strconv.Itoa(from.PID), dev); err != nil {
		return at, link, err
	}
	at.Name, at.Container, at.Project = from.Name, name, project
	if !byRoute {
		at.Device = dev
	}
	end := match.endpoint()
	end.Name = strings.Join(to, ", ")
	return at, netem.Link{From: at.Endpoint, To: end, Match: match}, nil
}

// oneContainer finds a container by its own name, or by its service's in a
// project.
func oneContainer(ctx context.Context, all *docker.Containers, project, name string) (docker.Container, error) {
	if project == "" {
		return all.Find(ctx, name)
	}
	found, err := all.Service(ctx, project, name)
	if err != nil {
		return docker.Container{}, err
	}
	if len(found) > 1 {
		var names []string
		for _, c := range found {
			names = append(names, c.Name)
		}
		return docker.Container{}, lab.Hint(usage("service %s has %d containers, and a shape is of one", name, len(found)),
			"without --compose, one by one: --container "+strings.Join(names, ", --container "))
	}
	return found[0], nil
}

var containerRE = regexp.MustCompile(`^([a-zA-Z0-9][a-zA-Z0-9_.-]*?)(?::(\d+))?$`)

// containerTargets reads one --to: an address or a network as elsewhere, else
// the name of a container, or of a service, and then all of its containers.
func containerTargets(ctx context.Context, all *docker.Containers, project string, from docker.Container, text string) (destinations, error) {
	m := containerRE.FindStringSubmatch(text)
	if m == nil || targetRE.MatchString(text) {
		return targets([]string{text})
	}
	var port uint16
	if m[2] != "" {
		n, err := strconv.ParseUint(m[2], 10, 16)
		if err != nil || n == 0 {
			return nil, usage("--to %s: port %s is not 1 to 65535", text, m[2])
		}
		port = uint16(n)
	}
	var found []docker.Container
	var err error
	if project != "" {
		found, err = all.Service(ctx, project, m[1])
	} else {
		found = make([]docker.Container, 1)
		found[0], err = all.Find(ctx, m[1])
	}
	if err != nil {
		return nil, err
	}
	var out destinations
	for _, c := range found {
		addrs := c.AddrsSeenBy(from)
		if len(addrs) == 0 {
			return nil, lab.Hint(fmt.Errorf("containers %s and %s share no network", from.Name, c.Name),
				"if packets get there in another way, name where they go: --to CIDR")
		}
		for _, a := range addrs {
			out = append(out, netem.Selector{Prefix: netip.PrefixFrom(a, a.BitLen()), Port: port})
		}
	}
	return out, nil
}

// way is the one interface by which packets for all of the destinations leave.
func way(from docker.Container, to destinations) (string, error) {
	var ways []string
	for _, s := range to {
		dev, err := netns.Via(from.Netns(), s.Prefix.Addr())
		if errors.Is(err, netns.ErrNoRoute) && s.Prefix.Addr().Is6() && len(to) > 1 {
			continue // an IPv6 address of the other, and none of its own
		}
		if err != nil {
			return "", fmt.Errorf("container %s: %w", from.Name, err)
		}
		if dev == "lo" {
			return "", usage("--to %s is container %s itself", s, from.Name)
		}
		if !slices.Contains(ways, dev) {
			ways = append(ways, dev)
		}
	}
	if len(ways) != 1 {
		return "", lab.Hint(usage("packets leave container %s for these by %s, and a shape is of one interface", from.Name, strings.Join(ways, " and ")),
			"shape them one by one, or say which: --dev "+strings.Join(ways, ", --dev "))
	}
	return ways[0], nil
}

// lookEvery is how soon a container that was started anew is shaped again.
const lookEvery = 500 * time.Millisecond

// followContainer returns when ctx ends. Until then it shapes the container
// again whenever that was started anew, with a network namespace of its own
// that knows of no fault, and follows the others to new addresses. The state
// says how often, and since when.
func followContainer(ctx context.Context, j *lab.Journal, b netem.Backend, s lab.State, at place, links []netem.Link) error {
	all, err := docker.OpenContainers(ctx)
	if err != nil {
		return err
	}
	defer all.Close()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	announced := at.Endpoint
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if at.isThere() {
			// Others may have changed them.
			if states, err := b.Show(ctx); err == nil && len(states) > 0 {
				links = nil
				for _, l := range states {
					links = append(links, l.Link)
				}
			}
		}
		now, moved, err := at.follow(ctx, all, links)
		if err != nil || len(moved) == 0 {
			continue // as it was; or gone, perhaps for a while: shape show says so
		}
		if now.Endpoint != announced {
			if now.look() != nil {
				continue // gone again meanwhile
			}
			if err := now.announce(j); err != nil {
				return err
			}
			announced = now.Endpoint
		}
		if err := b.Apply(ctx, moved); err != nil {
			continue // it may just be starting: again with the next look
		}
		if now.Netns != at.Netns {
			s.Shape, s.Restarts, s.Since = &now.Endpoint, s.Restarts+1, time.Now().UTC()
			if err := s.Save(j.Dir()); err != nil {
				return err
			}
		}
		at = now
	}
}

// follow finds where a container is now, and those of its links that are not as
// they were.
func (p place) follow(ctx context.Context, all *docker.Containers, links []netem.Link) (now place, moved []netem.Link, err error) {
	for _, l := range links {
		at, found, err := findContainers(ctx, all, p.Project, p.Container, p.Device, strings.Split(l.To.Name, ", "))
		if err != nil {
			return p, nil, err
		}
		now = at
		now.Emulator = p.Emulator
		found.Impairment = l.Impairment
		if found.From != l.From || !slices.Equal(found.Match, l.Selectors()) {
			moved = append(moved, found)
		}
	}
	return now, moved, nil
}

// isThere tells whether the place's path still leads to it.
func (p place) isThere() bool {
	var st syscall.Stat_t
	return syscall.Stat(p.Netns, &st) == nil && st.Dev == p.Dev && st.Ino == p.Ino
}
