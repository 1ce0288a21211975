package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab/server"
)

// seed returns a tar file of a data directory that the image's own server has
// initialised, made once for every image and kept in the cache.
func (p *Provider) seed(ctx context.Context, d daemon, i serverImage, name string, l *dockerLab) (string, error) {
	return p.Servers.KeepSeed(ctx, name, i.ref, p.Report, func(tmp string) error {
		v := objectName(l.name, "seed-"+string(i.flavor))
		if err := d.createVolume(ctx, v, l.labels); err != nil {
			return err
		}
		steps := server.SeedSteps(i.flavor, i.daemon, i.galera)
		for n, step := range steps {
			id, err := d.seedStep(ctx, i, step, v, l.labels)
			if err == nil && n == len(steps)-1 {
				err = d.saveData(ctx, id, filepath.Join(tmp, "data"))
			}
			if err == nil {
				err = d.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
			}
			if err != nil {
				return fmt.Errorf("%s: %w", step.Name, err)
			}
		}
		return d.VolumeRemove(ctx, v, false)
	})
}

// seedStep runs one step on the volume to its end and returns its container.
func (d daemon) seedStep(ctx context.Context, i serverImage, step server.SeedStep, volume string, labels map[string]string) (string, error) {
	config, hostConfig := i.container()
	config.Labels, config.Hostname = labels, "localhost" // accounts are made for it
	config.Entrypoint, config.Cmd = step.Args[:1], step.Args[1:]
	hostConfig.NetworkMode, hostConfig.Mounts = "none", dataMount(volume)
	id, err := d.create(ctx, config, hostConfig, nil, "")
	if err != nil {
		return "", err
	}
	if err := d.CopyToContainer(ctx, id, "/", emptyDir(i), container.CopyToContainerOptions{}); err != nil {
		return "", err
	}
	log := &watcher{ready: step.Ready, seen: make(chan struct{})}
	r, err := d.run(ctx, id, "", log, func(string) {})
	if err != nil {
		return "", err
	}
	seen := log.seen
	for {
		select {
		case <-ctx.Done():
			return "", errors.Join(ctx.Err(), r.kill())
		case <-seen:
			seen = nil
			if err := r.signal(unix.SIGTERM); err != nil {
				return "", err
			}
		case <-r.ended:
			if r.err != nil || step.Ready != "" && seen != nil {
				return "", errors.Join(r.err, fmt.Errorf("%s ended too early: %s", filepath.Base(step.Args[0]), log.tail(2000)))
			}
			return id, nil
		}
	}
}

// dataPath is server.DataDir in tar streams, which are all copied to
// a container's root: of a stream that is copied to a folder, Docker does not
// give the folder itself the owner that the stream says.
const dataPath = "var/lib/mysql/"

// emptyDir is a tar stream that gives the data directory to the image's user.
func emptyDir(i serverImage) io.Reader {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dataPath, Mode: 0o750, Uid: i.uid, Gid: i.gid, ModTime: time.Now()})
	t.Close()
	return &b
}

// watcher keeps what is written and tells when ready is in it.
type watcher struct {
	mu    sync.Mutex
	text  []byte
	ready string
	seen  chan struct{} // closed once
}

func (w *watcher) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, b...)
	if w.ready != "" && bytes.Contains(w.text, []byte(w.ready)) {
		w.ready = ""
		close(w.seen)
	}
	return len(b), nil
}

func (w *watcher) tail(n int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(bytes.TrimSpace(w.text[max(0, len(w.text)-n):]))
}

// saveData writes the container's data directory to path as a tar file, without
// what no node may start from.
func (d daemon) saveData(ctx context.Context, id, path string) error {
	body, _, err := d.CopyFromContainer(ctx, id, server.DataDir)
	if err != nil {
		return err
	}
	defer body.Close()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	in, out := tar.NewReader(body), tar.NewWriter(f)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		_, name, _ := strings.Cut(h.Name, "/")
		if slices.Contains(server.SeedLeaves(), name) {
			continue
		}
		h.Name = dataPath + name
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
	return errors.Join(out.Close(), f.Close())
}

// fill puts a seed into the volume of a container that has not started.
func (d daemon) fill(ctx context.Context, id, seed string) error {
	f, err := os.Open(seed)
	if err != nil {
		return err
	}
	defer f.Close()
	return d.CopyToContainer(ctx, id, "/", f, container.CopyToContainerOptions{})
}
