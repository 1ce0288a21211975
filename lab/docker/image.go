package docker

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/server"
)

// labelServer is the label of an image that was made of a server root: flavor
// and version, as seeds are named.
const labelServer = "faultlab.server"

// official are the images that run where the user names none and no server root
// is at hand: those with long support.
var official = map[lab.Flavor]string{
	lab.MySQL:   "mysql:8.4",
	lab.MariaDB: "mariadb:11",
	lab.PXC:     "percona/percona-xtradb-cluster:8.4",
}

// daemons are the servers' programs, all in their images' PATH.
var daemons = map[lab.Flavor]string{lab.MySQL: "mysqld", lab.MariaDB: "mariadbd", lab.PXC: "mysqld"}

// serverImage is an image and what a container of it needs to know.
type serverImage struct {
	ref, id  string
	flavor   lab.Flavor
	daemon   string
	uid, gid int    // of the image's user mysql
	galera   string // path of the Galera library, "" for none
	seed     string // tar file of an initialised data directory
}

// choice is an image that may not be there yet.
type choice struct {
	ref     string
	here    bool
	madeOf  *server.Server // nil for one that is pulled
	hinting []string
}

// choose says which image a flavor runs from: the one that the user names, else
// one of the server root at hand, else the official one.
func (p *Provider) choose(ctx context.Context, d daemon, f lab.Flavor) (choice, error) {
	c := choice{ref: p.Images[f]}
	if c.ref == "" {
		switch srv, err := p.Servers.Find(ctx, f); {
		case err == nil && srv.Root != "/":
			c.ref, c.madeOf = imageName(srv), &srv
		case err != nil && !errors.Is(err, lab.ErrNoServer):
			return c, err
		default:
			c.ref = official[f]
		}
	}
	if c.ref == "" {
		return c, fmt.Errorf("%w run %s: %w", lab.ErrCannot, f, lab.ErrNoServer)
	}
	var err error
	c.here, err = d.hasImage(ctx, c.ref)
	return c, err
}

// image finds, makes or pulls the flavor's image.
func (p *Provider) image(ctx context.Context, d daemon, f lab.Flavor, l *dockerLab) (serverImage, error) {
	c, err := p.choose(ctx, d, f)
	if err != nil {
		return serverImage{}, err
	}
	switch {
	case c.here:
	case c.madeOf != nil:
		p.report("making image %s (once)", c.ref)
		if _, err := MakeImage(ctx, p.Host, *c.madeOf); err != nil {
			return serverImage{}, err
		}
	default:
		if err := d.pull(ctx, c.ref, p.report); err != nil {
			return serverImage{}, missing(f, c.ref, err)
		}
	}
	inspect, err := d.ImageInspect(ctx, c.ref)
	if err != nil {
		return serverImage{}, fmt.Errorf("image %s: %w", c.ref, err)
	}
	i := serverImage{ref: c.ref, id: inspect.ID, flavor: f, daemon: daemons[f]}
	if err := d.examine(ctx, &i, l.labels); err != nil {
		return i, fmt.Errorf("image %s: %w", c.ref, err)
	}
	seed := "image-" + strings.TrimPrefix(inspect.ID, "sha256:")
	if inspect.Config != nil && inspect.Config.Labels[labelServer] != "" {
		// Every daemon has its own image of the same root.
		seed = inspect.Config.Labels[labelServer]
	}
	i.seed, err = p.seed(ctx, d, i, string(f)+"-docker-"+seed+".tar", l)
	return i, err
}

// missing is the error of an image that is not there and cannot be pulled.
func missing(f lab.Flavor, ref string, err error) error {
	hints := []string{"docker pull " + ref + ", where a registry can be reached"}
	for _, known := range server.Installable() {
		if known == f {
			hints = append(hints, fmt.Sprintf("or without a registry: faultlab servers install %s && faultlab servers image %[1]s, and no --image %[1]s=", f))
		}
	}
	if len(hints) == 1 {
		hints = append(hints, fmt.Sprintf("or name an image that is there: --image %s=NAME", f))
	}
	return lab.Hint(fmt.Errorf("%w run %s: %w: image %s is not there and cannot be pulled: %w", lab.ErrCannot, f, lab.ErrNoServer, ref, err), hints...)
}

func (d daemon) hasImage(ctx context.Context, ref string) (bool, error) {
	_, err := d.ImageInspect(ctx, ref)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("image %s: %w", ref, err)
	}
	return true, nil
}

// imageName is what an image of a server root is called.
func imageName(srv server.Server) string {
	return "faultlab/" + string(srv.Flavor) + ":" + srv.Version
}

// MakeImage makes a local image of a server root and returns its name. host is
// as Provider.Host. The name moves to the new image if there was one.
func MakeImage(ctx context.Context, host string, srv server.Server) (string, error) {
	d, err := connect(host)
	if err != nil {
		return "", err
	}
	defer d.Close()
	if _, err := d.reach(ctx); err != nil {
		return "", err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(server.WriteImage(ctx, srv, w)) }()
	defer r.Close()
	ref := imageName(srv)
	return ref, d.importImage(ctx, r, ref,
		"USER "+fmt.Sprintf("%d:%d", server.UID, server.GID),
		"ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"ENV LANG=C.UTF-8",
		fmt.Sprintf("CMD [%q]", srv.Daemon),
		fmt.Sprintf("EXPOSE %d", server.Port),
		"LABEL "+labelFaultlab+"=server",
		"LABEL "+labelServer+"="+srv.SeedName(),
	)
}

// importImage makes an image of a tar stream; changes are Dockerfile
// instructions.
func (d daemon) importImage(ctx context.Context, r io.Reader, ref string, changes ...string) error {
	before, err := d.ImageInspect(ctx, ref)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("make image %s: %w", ref, err)
	}
	body, err := d.ImageImport(ctx, image.ImportSource{Source: r, SourceName: "-"}, ref, image.ImportOptions{Message: "made by faultlab", Changes: changes})
	if err == nil {
		err = follow(body, func(string, ...any) {})
	}
	if err != nil {
		return fmt.Errorf("make image %s: %w", ref, err)
	}
	if before.ID != "" {
		// Nameless from now on. Labs that run from it keep it.
		d.ImageRemove(ctx, before.ID, image.RemoveOptions{})
	}
	return nil
}

func (d daemon) pull(ctx context.Context, ref string, report func(string, ...any)) error {
	report("pulling image %s", ref)
	body, err := d.ImagePull(ctx, ref, image.PullOptions{})
	if err != nil {
		return err
	}
	return follow(body, report)
}

// follow reads the daemon's messages to the end and reports each once: of a
// layer's progress there are many alike.
func follow(body io.ReadCloser, report func(string, ...any)) error {
	defer body.Close()
	seen := map[string]bool{}
	for dec := json.NewDecoder(body); ; {
		var m struct {
			ID, Status, Error string
		}
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m.Error != "" {
			return errors.New(m.Error)
		}
		if line := strings.TrimSpace(m.ID + " " + m.Status); !seen[line] {
			report("%s", line)
			seen[line] = true
		}
	}
}

// examine looks into the image, by a container that is never started.
func (d daemon) examine(ctx context.Context, i *serverImage, labels map[string]string) error {
	id, err := d.create(ctx, &container.Config{Image: i.id, Labels: labels, Entrypoint: []string{i.daemon}},
		&container.HostConfig{NetworkMode: "none"}, nil, "")
	if err != nil {
		return err
	}
	defer d.ContainerRemove(context.WithoutCancel(ctx), id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	body, _, err := d.CopyFromContainer(ctx, id, "/etc/passwd")
	if err != nil {
		return err
	}
	defer body.Close()
	t := tar.NewReader(body)
	if _, err := t.Next(); err != nil {
		return err
	}
	if i.uid, i.gid, err = findUser(t, "mysql"); err != nil {
		return err
	}
	for _, path := range server.GaleraPaths() {
		switch _, err := d.ContainerStatPath(ctx, id, path); {
		case err == nil:
			i.galera = path
			return nil
		case !errdefs.IsNotFound(err):
			return err
		}
	}
	return nil
}

// findUser reads a user's numbers from the text of /etc/passwd.
func findUser(passwd io.Reader, name string) (uid, gid int, err error) {
	for sc := bufio.NewScanner(passwd); sc.Scan(); {
		f := strings.Split(sc.Text(), ":")
		if len(f) < 4 || f[0] != name {
			continue
		}
		uid, uerr := strconv.Atoi(f[2])
		gid, gerr := strconv.Atoi(f[3])
		if err := errors.Join(uerr, gerr); err != nil {
			return 0, 0, fmt.Errorf("user %s: %w", name, err)
		}
		return uid, gid, nil
	}
	return 0, 0, lab.Hint(fmt.Errorf("it has no user %s", name), "name an image of a MySQL, MariaDB or Percona server")
}

// demultiplex writes both streams of a container's output to w, in the order in
// which they come.
func demultiplex(w io.Writer, r io.Reader) { stdcopy.StdCopy(w, w, r) }
