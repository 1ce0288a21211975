package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// own is the folder of this program inside the kernel's root.
const own = "/.uml"

// guestPath is this program's file inside, by which it knows its part.
const guestPath = own + "/init"

// started is the line by which the guest tells that the kernel has come up.
const started = "uml: the kernel is up"

// bootBound is how long a kernel may take to come up. It takes some 5 seconds.
const bootBound = 90 * time.Second

// stage runs as the first process of its namespaces: with it all ends.
func stage(spec string, stdout io.Writer) (status int, err error) {
	var j job
	if err := json.Unmarshal([]byte(spec), &j); err != nil {
		return 1, err
	}
	root, err := layOut(j)
	if err != nil {
		return 1, err
	}
	if err := os.WriteFile(root+own+"/job", []byte(spec), 0o644); err != nil {
		return 1, err
	}

	// With a console of its own for each output, and none to read from.
	cmd := exec.Command("/usr/bin/linux.uml", "mem="+j.Memory, "rootfstype=hostfs", "rw", "quiet",
		"con=null", "con0=null,fd:1", "seccomp=auto", "init="+guestPath)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=/tmp", "HOME=/tmp"}
	cmd.Dir = "/"
	out := &afterBoot{w: stdout, up: make(chan struct{}), open: j.Verbose}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Setsid: true}
	ended, err := start(cmd)
	if err != nil {
		return 1, fmt.Errorf("start the kernel: %w", err)
	}
	late := time.AfterFunc(bootBound, func() {
		select {
		case <-out.up:
		default:
			cmd.Process.Kill()
		}
	})
	defer late.Stop()
	how := <-ended

	select {
	case <-out.up:
	default:
		return 1, fmt.Errorf("the kernel did not come up, and has %v for it: %v\n%s", bootBound, how, out.held.Bytes())
	}
	text, err := os.ReadFile(root + own + "/status")
	if errors.Is(err, fs.ErrNotExist) {
		return 1, fmt.Errorf("the kernel ended before the command did: %v", how)
	}
	if err != nil {
		return 1, err
	}
	return strconv.Atoi(string(text))
}

// start starts the kernel on one processor, at real-time priority, and gives
// how it has ended. The kernel and the programs in it are processes that take
// turns: on two processors each turn is a wake-up of the other, which takes
// several times as long. And what else runs on the machine would be in every
// time that is measured inside. Both are best effort.
func start(cmd *exec.Cmd) (<-chan error, error) {
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		// The kernel inherits from this thread, which ends with it.
		runtime.LockOSThread()
		var all, last unix.CPUSet
		if unix.SchedGetaffinity(0, &all) == nil {
			for cpu := range 1024 {
				if all.IsSet(cpu) {
					last.Zero()
					last.Set(cpu)
				}
			}
			unix.SchedSetaffinity(0, &last)
		}
		unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0)
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return ended, <-started
}

// layOut makes the root that the kernel sees: in memory, with the packages'
// folders bound into it.
func layOut(j job) (root string, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("make mounts private: %w", err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	// Any folder will do that is there: the mount is seen by nobody else.
	root = filepath.Join(j.Root, "tmp")
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return "", fmt.Errorf("mount a root at %s: %w", root, err)
	}
	for _, dir := range []string{"proc", "sys", "dev", "run", "root", "tmp", "mnt", own} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return "", err
		}
	}
	entries, err := os.ReadDir(j.Root)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		from, to := filepath.Join(j.Root, e.Name()), filepath.Join(root, e.Name())
		switch {
		case e.Type()&fs.ModeSymlink != 0: // bin, lib
			target, err := os.Readlink(from)
			if err == nil {
				err = os.Symlink(target, to)
			}
			if err != nil {
				return "", err
			}
		case e.Name() == "usr" || e.Name() == "etc" || e.Name() == "var":
			if err := bind(from, to); err != nil {
				return "", err
			}
			if err := unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
				return "", fmt.Errorf("make %s read-only: %w", to, err)
			}
		}
	}
	for _, b := range append([]string{"/dev"}, j.Binds...) {
		if err := bind(b, filepath.Join(root, b)); err != nil {
			return "", err
		}
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		return "", fmt.Errorf("mount proc: %w", err)
	}
	return root, os.WriteFile(root+guestPath, self, 0o755)
}

func bind(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}

// afterBoot passes on what comes after the kernel is up, and holds what comes
// before, for when it does not.
type afterBoot struct {
	w    io.Writer
	up   chan struct{} // closed then
	open bool          // passes all on
	held bytes.Buffer
	done bool
}

func (a *afterBoot) Write(p []byte) (int, error) {
	if a.done {
		// The kernel's last words are nobody's output.
		said, _, _ := bytes.Cut(p, []byte("reboot: Power down"))
		if _, err := a.w.Write(said); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	a.held.Write(p)
	if a.open {
		if _, err := a.w.Write(p); err != nil {
			return 0, err
		}
	}
	text := a.held.String()
	if i := strings.Index(text, started); i >= 0 && strings.Contains(text[i:], "\n") {
		a.done = true
		close(a.up)
		_, rest, _ := strings.Cut(text[i:], "\n")
		if !a.open {
			if _, err := io.WriteString(a.w, rest); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}
