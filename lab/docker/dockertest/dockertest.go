// Package dockertest owns a Docker daemon for tests, whose networks and mounts are
// seen by nobody else.
package dockertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
)

// Daemon is a Docker daemon that answers.
type Daemon struct {
	// Host is where it answers, as in DOCKER_HOST.
	Host string

	dir     string // "" for one that was there
	program string
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	log     string
}

// Start returns the daemon that DOCKER_HOST names, else it starts one, whatever
// runs on this machine: tests look for anything of a lab in it. The error is
// lab.ErrCannot where Docker is not installed or needs more privileges.
func Start(ctx context.Context) (*Daemon, error) {
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		return &Daemon{Host: host}, answers(ctx, host)
	}
	return StartOwn(ctx)
}

// StartOwn starts a daemon in any case, which may then be ended.
func StartOwn(ctx context.Context) (*Daemon, error) {
	program, err := exec.LookPath("dockerd")
	if err != nil {
		return nil, fmt.Errorf("%w run Docker: %w", lab.ErrCannot, err)
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w start a Docker daemon: it needs root", lab.ErrCannot)
	}
	dir, err := os.MkdirTemp("", "faultlab-dockerd-")
	if err != nil {
		return nil, err
	}
	d := &Daemon{dir: dir, program: program, Host: "unix://" + filepath.Join(dir, "docker.sock"), log: filepath.Join(dir, "log")}
	if err := d.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("dockerd: %w\n%s", err, d.tail()), d.Stop())
	}
	return d, nil
}

func answers(ctx context.Context, host string) error {
	c, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = c.Info(ctx)
	return err
}

// start runs dockerd in network and mount namespaces of its own: its bridges and
// rules do not meet the machine's, and whatever it mounts goes with it. Its
// containers are processes of this machine as ever.
func (d *Daemon) start(ctx context.Context) error {
	config := filepath.Join(d.dir, "daemon.json")
	if err := os.WriteFile(config, []byte("{}"), 0o644); err != nil {
		return err
	}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	d.cmd = exec.Command(d.program, "--config-file", config, "--data-root", filepath.Join(d.dir, "data"),
		"--exec-root", filepath.Join(d.dir, "exec"), "--pidfile", filepath.Join(d.dir, "pid"), "--host", d.Host)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	// Asked to end should this process die, it ends its containers too.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM,
		Cloneflags: unix.CLONE_NEWNET, Unshareflags: unix.CLONE_NEWNS}
	started := make(chan error)
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread() // the death signal follows the thread
		defer runtime.UnlockOSThread()
		err := d.cmd.Start()
		started <- err
		if err == nil {
			d.cmd.Wait()
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	d.ended = ended
	for deadline := time.Now().Add(time.Minute); ; {
		err := answers(ctx, d.Host)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("ended: %s", d.cmd.ProcessState)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// Own reports whether the daemon was started for tests, and so may be ended.
func (d *Daemon) Own() bool { return d.dir != "" }

// Crash ends a daemon that was started as a crash would. Its containers go on.
func (d *Daemon) Crash() {
	d.cmd.Process.Kill()
	<-d.ended
}

// Resume starts a daemon again that has crashed.
func (d *Daemon) Resume(ctx context.Context) error {
	if err := d.start(ctx); err != nil {
		return fmt.Errorf("dockerd: %w\n%s", err, d.tail())
	}
	return nil
}

// Stop ends a daemon that was started, with all its containers, and removes what
// it kept. One that was there is left alone. It is safe to call twice.
func (d *Daemon) Stop() error {
	if d.dir == "" {
		return nil
	}
	if d.ended != nil {
		d.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-d.ended:
		case <-time.After(30 * time.Second):
			d.cmd.Process.Kill()
			<-d.ended
		}
	}
	// Its helpers name its folder on their command lines. They end with it
	// unless it was killed; until they have, they hold its mounts.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		pids := processes(d.dir)
		if len(pids) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v of the daemon in %s do not end", pids, d.dir)
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGTERM)
			if time.Until(deadline) < 5*time.Second {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	return os.RemoveAll(d.dir)
}

// processes are those whose command line names the folder.
func processes(dir string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var out []int
	for _, f := range files {
		b, err := os.ReadFile(f)
		pid, perr := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err == nil && perr == nil && pid != os.Getpid() && strings.Contains(string(b), dir+"/") {
			out = append(out, pid)
		}
	}
	return out
}

// tail is the end of the daemon's log.
func (d *Daemon) tail() string {
	f, err := os.Open(d.log)
	if err != nil {
		return ""
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Size() > 2000 {
		f.Seek(-2000, io.SeekEnd)
	}
	b, _ := io.ReadAll(f)
	return string(b)
}
