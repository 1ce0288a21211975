package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab/server"
)

// packages are the kernel and what it loads modules with, and tools to look
// around in it. An older suite's kernel panics on processors with large vector
// registers.
const (
	suite    = "sid"
	packages = "user-mode-linux,kmod,iproute2,iputils-ping,procps,base-files,bash,dash,coreutils,grep,libc-bin"
)

// mark is written last: a root without it is an interrupted one.
const mark = ".complete"

// place is where the kernel's root is or will be.
func place() (root string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	root = filepath.Join(cache, "faultlab", "roots", "uml")
	return root, os.MkdirAll(filepath.Dir(root), 0o755)
}

// alone waits until no other kernel runs, and keeps others waiting until
// release: they would share one processor and measure each other.
func alone(ctx context.Context, root string, stderr io.Writer) (release func(), err error) {
	lock, err := os.OpenFile(root+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	told := false
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK {
			return func() { lock.Close() }, os.NewSyscallError("flock", err)
		}
		if !told {
			fmt.Fprintln(stderr, "uml: waiting for another kernel to end")
			told = true
		}
		select {
		case <-ctx.Done():
			lock.Close()
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// install makes the kernel's root unless it is there.
func install(ctx context.Context, root string, stderr io.Writer) error {
	// What is inside follows from the list of packages.
	want := suite + " " + packages + "\n"
	if got, err := os.ReadFile(filepath.Join(root, mark)); err == nil && string(got) == want {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return errors.New("mmdebstrap is missing: sudo apt-get install mmdebstrap")
	}
	mirror, err := server.Mirror("/etc/apt")
	if err != nil {
		return err
	}
	tmp := root + ".new"
	for _, dir := range []string{tmp, root} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	fmt.Fprintf(stderr, "uml: making the root of a kernel to test in, from Debian %s: half a minute\n", suite)
	// Mounts and processes of its own, as for the roots of servers. A snapshot's
	// Release file is past its date.
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "mmdebstrap",
		"--mode=root", "--variant=extract", "--include="+packages,
		`--aptopt=Acquire::Check-Valid-Until "false"`, "--aptopt=Acquire::Retries 3",
		suite, tmp, fmt.Sprintf("deb %s %s main", mirror, suite))
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the death signal follows the thread
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return errors.Join(fmt.Errorf("mmdebstrap: %w:\n%s", err, strings.Join(lines[max(0, len(lines)-12):], "\n")), os.RemoveAll(tmp))
	}
	// Where modprobe looks: usr/lib/modules is the name it knows.
	if err := os.Symlink("uml/modules", filepath.Join(tmp, "usr/lib/modules")); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, mark), []byte(want), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, root)
}
