package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"golang.org/x/sync/errgroup"

	"github.com/faultlab/faultlab/lab"
)

// undoLab is all that a lab made in Docker: it carries a label of its own, so
// that a renamed container is found and somebody else's of the same name is not.
const undoLab = "docker"

// undoID names the daemon and the label.
func undoID(d daemon, journal string) string { return d.DaemonHost() + " " + journal }

// settle is how long a dead owner's last request may still make something.
const settle = time.Second

// Undo says how to remove what a journal of this provider names, of an owner that
// has died.
func Undo() map[string]lab.Undo { return undo(settle) }

func undo(settle time.Duration) map[string]lab.Undo {
	return map[string]lab.Undo{undoLab: func(ctx context.Context, id string) error {
		host, journal, ok := strings.Cut(id, " ")
		if !ok || journal == "" {
			return fmt.Errorf("%q names no daemon and label", id)
		}
		d, err := connect(host)
		if err != nil {
			return err
		}
		defer d.Close()
		if _, err := d.reach(ctx); err != nil {
			var hint *lab.HintError
			if errors.As(err, &hint) {
				err = hint.Err
			}
			return lab.Hint(err, "once Docker is back: faultlab clean")
		}
		return d.removeAll(ctx, journal, settle)
	}}
}

// removeAll removes what carries the label, until there has been nothing for the
// time of settle.
func (d daemon) removeAll(ctx context.Context, journal string, settle time.Duration) error {
	quiet := time.Now()
	for deadline := quiet.Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		n, err := d.removeOnce(ctx, journal)
		switch {
		case n > 0 || err != nil:
			quiet = time.Now()
		case time.Since(quiet) >= settle:
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// removeOnce says how many things it found.
func (d daemon) removeOnce(ctx context.Context, journal string) (int, error) {
	mine := filters.NewArgs(filters.Arg("label", labelJournal+"="+journal))
	containers, err := d.ContainerList(ctx, container.ListOptions{All: true, Filters: mine})
	if err != nil {
		return 0, err
	}
	var g errgroup.Group
	for _, c := range containers {
		g.Go(func() error {
			return gone(d.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
		})
	}
	if err := g.Wait(); err != nil {
		return len(containers), err
	}
	networks, err := d.NetworkList(ctx, network.ListOptions{Filters: mine})
	if err != nil {
		return 0, err
	}
	for _, n := range networks {
		g.Go(func() error { return gone(d.NetworkRemove(ctx, n.ID)) })
	}
	volumes, err := d.VolumeList(ctx, volume.ListOptions{Filters: mine})
	if err != nil {
		return 0, errors.Join(err, g.Wait())
	}
	for _, v := range volumes.Volumes {
		g.Go(func() error { return gone(d.VolumeRemove(ctx, v.Name, true)) })
	}
	return len(containers) + len(networks) + len(volumes.Volumes), g.Wait()
}

// gone takes what is not there, or is being removed, for removed.
func gone(err error) error {
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) && strings.Contains(err.Error(), "already in progress") {
		return nil
	}
	return err
}
