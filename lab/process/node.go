package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/server"
	"github.com/faultlab/faultlab/netem"
)

// node is one server. Its folder holds data, run, my.cnf and error.log.
type node struct {
	spec     lab.NodeSpec
	endpoint netem.Endpoint
	hosts    string
	dir      string
	server   server.Server

	mu      sync.Mutex
	running *run // of the last Start
	closed  bool
}

// run is one life of the node's server.
type run struct {
	*server.Process
	ended chan struct{} // closed once the log tells how
}

// Kill ends the server and waits for its end.
func (r *run) Kill() error {
	if err := r.Process.Kill(); err != nil {
		return err
	}
	<-r.ended
	return nil
}

func (n *node) Name() string             { return n.spec.Name }
func (n *node) Site() string             { return n.spec.Site }
func (n *node) Flavor() lab.Flavor       { return n.spec.Flavor }
func (n *node) Endpoint() netem.Endpoint { return n.endpoint }
func (n *node) Addr() string             { return netip.AddrPortFrom(n.endpoint.Addr, server.Port).String() }

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// prepare makes the node's folder, with a copy of the seed as data.
func (n *node) prepare(ctx context.Context, seed string) error {
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return err
	}
	if err := server.MakeServerDir(n.path("run")); err != nil {
		return err
	}
	return server.CopyDir(ctx, seed, n.path("data"))
}

func (n *node) Start(ctx context.Context, s lab.Start) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fmt.Errorf("node %s: the lab is closed", n.Name())
	}
	if n.alive() {
		return fmt.Errorf("node %s runs already", n.Name())
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r, err := n.start(s)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name(), err)
	}
	n.running = r
	return nil
}

func (n *node) start(s lab.Start) (*run, error) {
	// Socket and pid file of a server that was killed.
	if err := os.RemoveAll(n.path("run")); err != nil {
		return nil, err
	}
	if err := server.MakeServerDir(n.path("run")); err != nil {
		return nil, err
	}
	for name, text := range s.Files {
		if err := writeFile(filepath.Join(n.path("data"), name), text, server.UID); err != nil {
			return nil, err
		}
	}
	var extra []*os.File
	initFile := ""
	if s.InitSQL != "" {
		r, err := sqlPipe(s.InitSQL)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		extra = append(extra, r)
		initFile = fmt.Sprintf("/dev/fd/%d", server.ExtraFD)
	}
	if err := writeFile(n.path("my.cnf"), server.OptionFile(n.spec.Flavor, s, initFile), 0); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(n.path("error.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return nil, err
	}
	p, err := server.Jail{
		Root: n.server.Root, Netns: n.endpoint.Netns, Hostname: n.Name(), Hosts: n.hosts,
		Mounts: []server.Mount{
			{From: n.path("data"), To: server.DataDir, Writable: true},
			{From: n.path("run"), To: server.RunDir, Writable: true},
			{From: n.path("my.cnf"), To: server.Options},
		},
		Args:   append([]string{n.server.Daemon, "--defaults-file=" + server.Options}, s.Args...),
		Stdout: log, Stderr: log, Extra: extra,
	}.Start()
	if err != nil {
		log.Close()
		return nil, err
	}
	r := &run{p, make(chan struct{})}
	go func() {
		<-p.Done()
		// A server that was killed, by whomever, could not say so itself.
		how := "status 0"
		if p.Err() != nil {
			how = p.Err().Error()
		}
		fmt.Fprintf(log, "faultlab: the server of %s ended: %s\n", n.Name(), how)
		log.Close()
		close(r.ended)
	}()
	return r, nil
}

// writeFile makes or replaces a file of that owner which, besides root, the
// server alone can read: options may hold the password of a state transfer.
func writeFile(path, text string, uid int) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	if err := f.Chown(uid, server.GID); err != nil {
		return err
	}
	if err := f.Chmod(0o640); err != nil {
		return err
	}
	return f.Close()
}

// sqlPipe returns a pipe that holds the text and then ends. The server opens
// it by name; so the passwords in it are never on a disk, and are gone once they
// are read or the server has ended.
func sqlPipe(text string) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	fill := func() error {
		// All of it must fit, since nobody writes later.
		if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, max(len(text), 4096)); err != nil {
			return fmt.Errorf("%d bytes of init SQL: %w", len(text), err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		return r.Chown(server.UID, server.GID)
	}
	if err := fill(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
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

// stopTimeout is what a server gets to shut down cleanly.
const stopTimeout = time.Minute

func (n *node) Stop(ctx context.Context) error {
	n.mu.Lock()
	r, alive := n.running, n.alive()
	n.mu.Unlock()
	if !alive {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		// Asked again, because the first process of a PID namespace is not
		// told of signals before it has a handler for them.
		if err := r.Signal(syscall.SIGTERM); err != nil {
			return fmt.Errorf("node %s: %w", n.Name(), err)
		}
		select {
		case <-r.ended:
			if r.Err() != nil {
				return fmt.Errorf("node %s: did not stop cleanly: %w: %s", n.Name(), r.Err(), n.Log(1000))
			}
			return nil
		case <-again.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("node %s: did not stop and was killed: %w", n.Name(), ctx.Err()), r.Kill())
		}
	}
}

func (n *node) Kill() error {
	r := n.last()
	if r == nil {
		return nil
	}
	return r.Kill()
}

// close is Kill for good.
func (n *node) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.running == nil {
		return nil
	}
	return n.running.Kill()
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
