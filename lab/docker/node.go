package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/go-units"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/server"
	"github.com/faultlab/faultlab/netem"
)

// node is one server and its place. Its folder holds error.log, of all its
// servers' lives.
type node struct {
	lab    *dockerLab
	spec   lab.NodeSpec
	image  serverImage
	cpus   float64
	memory int64
	dir    string
	volume string
	place  *place

	mu      sync.Mutex
	running *run // of the last Start
	closed  bool
}

func (n *node) Name() string             { return n.spec.Name }
func (n *node) Site() string             { return n.spec.Site }
func (n *node) Flavor() lab.Flavor       { return n.spec.Flavor }
func (n *node) Endpoint() netem.Endpoint { return n.place.endpoint }
func (n *node) Addr() string {
	return netip.AddrPortFrom(n.place.endpoint.Addr, server.Port).String()
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// optionFile is where a server's options are inside its container. No image has
// a file of that name.
const optionFile = "/etc/faultlab.cnf"

// initFile is where a server reads its init SQL: standard input, which is a
// connection of this process. So the passwords in it are never on a disk, in
// what docker inspect shows, or in the environment.
const initFile = "/dev/stdin"

func (n *node) Start(ctx context.Context, s lab.Start) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fmt.Errorf("node %s: the lab is closed", n.Name())
	}
	if n.alive() {
		return fmt.Errorf("node %s runs already", n.Name())
	}
	r, err := n.start(ctx, s)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name(), err)
	}
	n.running = r
	return nil
}

func (n *node) start(ctx context.Context, s lab.Start) (*run, error) {
	d := n.lab.docker
	name := objectName(n.lab.name, n.Name())
	// The container of the server before, kept until now for whoever looks.
	if err := d.ContainerRemove(ctx, name, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	config, hostConfig := n.serverConfig(s)
	id, err := d.create(ctx, config, hostConfig, nil, name)
	if err != nil {
		return nil, err
	}
	files, err := n.files(s)
	if err != nil {
		return nil, err
	}
	if err := d.CopyToContainer(ctx, id, "/", files, container.CopyToContainerOptions{}); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(n.path("error.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return nil, err
	}
	r, err := d.run(ctx, id, s.InitSQL, log, func(how string) {
		fmt.Fprintf(log, "faultlab: the server of %s ended: %s\n", n.Name(), how)
		log.Close()
	})
	if err != nil {
		log.Close()
		return nil, err
	}
	return r, nil
}

// serverConfig is the container of the node's server. Entry points of images are
// not run: what they do is done, and they take passwords from the environment,
// which docker inspect shows.
func (n *node) serverConfig(s lab.Start) (*container.Config, *container.HostConfig) {
	joined := "container:" + n.place.id
	config, hostConfig := n.image.container()
	config.Labels = n.lab.label(n.Name())
	config.Entrypoint = []string{n.image.daemon}
	config.Cmd = append([]string{"--defaults-file=" + optionFile}, s.Args...)
	if s.InitSQL != "" {
		config.OpenStdin, config.StdinOnce, config.AttachStdin = true, true, true
	}
	hostConfig.NetworkMode = container.NetworkMode(joined)
	hostConfig.PidMode = container.PidMode(joined)
	hostConfig.Mounts = dataMount(n.volume)
	hostConfig.Resources.NanoCPUs = int64(n.cpus * 1e9)
	hostConfig.Resources.Memory = n.memory
	return config, hostConfig
}

// container is what all containers of the image have in common: no privileges and
// no core dumps. How many files may be open is for the daemon to say, which may
// be unable to give more than it has.
func (i serverImage) container() (*container.Config, *container.HostConfig) {
	user := fmt.Sprintf("%d:%d", i.uid, i.gid)
	return &container.Config{Image: i.id, User: user, AttachStdout: true, AttachStderr: true, StopSignal: "SIGTERM"},
		&container.HostConfig{
			CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
			// Anew at every start: no socket of a server that was killed.
			Tmpfs:     map[string]string{server.RunDir: fmt.Sprintf("uid=%d,gid=%d,mode=755", i.uid, i.gid)},
			Resources: container.Resources{Ulimits: []*units.Ulimit{{Name: "core"}}},
		}
}

// files is a tar stream of what the server's container gets before it starts:
// its options, which may hold the password of a state transfer and are for its
// user alone, and s.Files.
func (n *node) files(s lab.Start) (io.Reader, error) {
	init := ""
	if s.InitSQL != "" {
		init = initFile
	}
	all := map[string]string{optionFile: server.OptionFile(n.spec.Flavor, n.image.adapt(s), init)}
	for name, text := range s.Files {
		all[path.Join(server.DataDir, name)] = text
	}
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for name, text := range all {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(name, "/"), Mode: 0o600, Size: int64(len(text)),
			Uid: n.image.uid, Gid: n.image.gid, ModTime: time.Now()}); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(t, text); err != nil {
			return nil, err
		}
	}
	return &b, t.Close()
}

// adapt tells a server where its image has the Galera library, should that be
// elsewhere than the topology thinks.
func (i serverImage) adapt(s lab.Start) lab.Start {
	if i.galera != "" && strings.Contains(s.Options, "wsrep_provider") {
		s.Options += "\n[mysqld]\nwsrep_provider = " + i.galera + "\n"
	}
	return s
}

// run is one life of a container's program.
type run struct {
	process *process      // nil for a program that ended before it was looked for
	ended   chan struct{} // closed once the log is complete
	err     error         // how it ended, nil for status 0; valid after ended
}

// run starts the container, with stdin as its whole standard input, and writes
// what it says to log. end is called with how it ended, before the run's ended
// is closed.
func (d daemon) run(ctx context.Context, id, stdin string, log io.Writer, end func(how string)) (*run, error) {
	// Before the start, so that nothing is missed.
	conn, err := d.ContainerAttach(ctx, id, container.AttachOptions{Stream: true, Stdin: stdin != "", Stdout: true, Stderr: true})
	if err != nil {
		return nil, err
	}
	r := &run{ended: make(chan struct{})}
	if err = d.ContainerStart(ctx, id, container.StartOptions{}); err == nil {
		r.process, err = d.process(ctx, id)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	if stdin != "" {
		go func() {
			io.WriteString(conn.Conn, stdin) // a server that ends first says so itself
			conn.CloseWrite()
		}()
	}
	go func() {
		defer close(r.ended)
		logged := make(chan struct{})
		go func() {
			defer close(logged)
			demultiplex(log, conn.Reader)
		}()
		r.err = d.waitExit(id, r.process)
		// A child that lives on may keep the log open.
		select {
		case <-logged:
		case <-time.After(2 * time.Second):
		}
		conn.Close()
		<-logged
		how := "status 0"
		if r.err != nil {
			how = r.err.Error()
		}
		end(how)
	}()
	return r, nil
}

// waitExit waits for the end of the container's program and says how it ended.
// When the daemon ends the program goes on, and so does the wait.
func (d daemon) waitExit(id string, p *process) error {
	ctx := context.Background() // ends with the program
	if p != nil {
		defer p.file.Close()
	}
	for {
		done, failed := d.ContainerWait(ctx, id, container.WaitConditionNotRunning)
		select {
		case err := <-failed:
			if errdefs.IsNotFound(err) {
				return exitError(137) // it was removed as it ran
			}
			if p == nil || p.ended(time.Second) {
				return fmt.Errorf("unknown, since the Docker daemon has gone: %w", err)
			}
		case w := <-done:
			if w.StatusCode == 0 {
				return nil
			}
			err := exitError(w.StatusCode)
			ictx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			if c, ierr := d.ContainerInspect(ictx, id); ierr == nil && c.State != nil && c.State.OOMKilled {
				err = fmt.Errorf("%w (out of memory: its limit is too low)", err)
			}
			return err
		}
	}
}

// exitError says what a container's exit status means: those beyond 128 are of
// programs that a signal ended.
func exitError(status int64) error {
	if s := status - 128; s > 0 && s < 65 {
		return fmt.Errorf("signal: %s", syscall.Signal(s))
	}
	return fmt.Errorf("exit status %d", status)
}

// signal sends a signal. It is no error if the program has ended.
func (r *run) signal(s unix.Signal) error {
	if r.process == nil {
		return nil
	}
	return r.process.signal(s)
}

// kill ends the program and waits until it has.
func (r *run) kill() error {
	if err := r.signal(unix.SIGKILL); err != nil {
		return err
	}
	select {
	case <-r.ended:
		return nil
	case <-time.After(killTimeout):
		return fmt.Errorf("it does not end within %v of being killed", killTimeout)
	}
}

// alive reports whether the server of the last Start runs.
func (n *node) alive() bool {
	if n.running == nil {
		return false
	}
	select {
	case <-n.running.ended:
		return false
	default:
		return true
	}
}

// last is the server of the last Start, nil before the first.
func (n *node) last() *run {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running
}

func (n *node) Done() <-chan struct{} {
	if r := n.last(); r != nil {
		return r.ended
	}
	return nil
}

const (
	// stopTimeout is what a server gets to shut down cleanly.
	stopTimeout = time.Minute
	// killTimeout is what a server that was killed gets to be gone.
	killTimeout = 20 * time.Second
)

func (n *node) Stop(ctx context.Context) error {
	r := n.last()
	if r == nil {
		return nil
	}
	select {
	case <-r.ended:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := r.signal(unix.SIGTERM); err != nil {
		return fmt.Errorf("node %s: %w", n.Name(), err)
	}
	select {
	case <-r.ended:
		if r.err != nil {
			return fmt.Errorf("node %s: did not stop cleanly: %w: %s", n.Name(), r.err, n.Log(1000))
		}
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("node %s: did not stop and was killed: %w", n.Name(), ctx.Err()), n.Kill())
	}
}

func (n *node) Kill() error {
	r := n.last()
	if r == nil {
		return nil
	}
	if err := r.kill(); err != nil {
		return fmt.Errorf("node %s: %w", n.Name(), err)
	}
	return nil
}

// close ends the place, and with it the server, for good.
func (n *node) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.place == nil {
		return nil
	}
	return n.place.release()
}

// wait returns when the last server's end is known.
func (n *node) wait(ctx context.Context) {
	if r := n.last(); r != nil {
		select {
		case <-r.ended:
		case <-ctx.Done():
		case <-time.After(killTimeout):
		}
	}
}

func (n *node) Log(max int) string {
	f, err := os.Open(n.path("error.log"))
	if err != nil {
		return ""
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Size() > int64(max) {
		f.Seek(-int64(max), io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, int64(max)))
	return string(bytes.ToValidUTF8(b, nil))
}
