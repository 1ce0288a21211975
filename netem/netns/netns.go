// Package netns owns network namespaces: their life under a name, running code
// and opening connections inside them, and the virtual wires (veth pairs on a
// bridge) between them.
//
// Namespaces lie where iproute2 looks for them, so `ip netns exec NAME` works.
// Nothing here touches the host's own network: links are created inside the
// private namespaces and never pass through the host's.
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Dir is where named namespaces are, by convention of iproute2.
const Dir = "/run/netns"

// ErrUnsupported is wrapped by every error that says that this machine or this
// user may not do what was asked, as against an attempt that went wrong.
var ErrUnsupported = errors.New("network namespaces need root on Linux")

// Path is where the namespace of that name is.
func Path(name string) string { return filepath.Join(Dir, name) }

// Create makes a new namespace with its loopback interface up. An error wraps
// fs.ErrExist when the name is taken, and then nothing was changed.
func Create(name string) (err error) {
	if err := checkName(name); err != nil {
		return err
	}
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, cannot(err))
	}
	f, err := os.OpenFile(Path(name), os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0)
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, cannot(err))
	}
	f.Close()
	defer func() {
		if err != nil {
			err = errors.Join(err, Delete(name))
		}
	}()
	err = onThread(func() error {
		return os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNET))
	}, func() error {
		self := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		return os.NewSyscallError("mount", unix.Mount(self, Path(name), "", unix.MS_BIND, ""))
	})
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	if err := loopbackUp(Path(name)); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// Delete removes the name. The namespace itself, with its interfaces, is gone
// once no process and no open file holds it. A name that does not exist, or
// that was only half made, is no error.
func Delete(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	// A name may have been mounted on more than once. EINVAL says that
	// nothing is mounted there any more.
	for {
		err := unix.Unmount(Path(name), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err == unix.EINVAL || err == unix.ENOENT {
			break
		}
		if err != nil {
			return fmt.Errorf("delete namespace %s: unmount: %w", name, cannot(err))
		}
	}
	if err := os.Remove(Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete namespace %s: %w", name, err)
	}
	return nil
}

// Do runs f inside the namespace at path, on an operating system thread that
// does nothing else meanwhile. What f opens stays in that namespace; goroutines
// that f starts run outside of it. f must not start a child process with a
// parent-death signal: that follows the thread, which may end with f.
func Do(path string, f func() error) error {
	target, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("enter namespace %s: %w", path, cannot(err))
	}
	defer target.Close()

	err = onThread(func() error {
		return os.NewSyscallError("setns", netns.Set(target))
	}, f)
	if err != nil {
		return fmt.Errorf("in namespace %s: %w", path, err)
	}
	return nil
}

// Scratch runs f with the path of a new namespace that has no name and is gone
// after f, or with this process.
func Scratch(f func(path string) error) error {
	return onThread(func() error {
		return os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNET))
	}, func() error {
		return f(fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()))
	})
}

// onThread takes a thread to another namespace by enter, runs f and brings the
// thread back.
//
// It comes back even where it might as well end: the process's first thread
// cannot end, and in a strange namespace it would both hold that and show it
// as the whole process's in /proc/self. It has a goroutine of its own, so that
// a thread that cannot be brought back takes no caller with it.
func onThread(enter, f func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the function ended its goroutine")
		defer func() { done <- err }()
		runtime.LockOSThread()
		home, e := netns.Get()
		if e != nil {
			err = cannot(e)
			return
		}
		defer home.Close()
		if e := enter(); e != nil {
			runtime.UnlockOSThread()
			err = cannot(e)
			return
		}
		defer func() {
			if netns.Set(home) == nil {
				runtime.UnlockOSThread()
			}
		}()
		err = f()
	}()
	return <-done
}

// Processes lists the processes that live in the namespace at path. A process
// that ends meanwhile may or may not be in the list.
func Processes(path string) ([]int, error) {
	want, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("processes of namespace: %w", err)
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("processes of namespace %s: %w", path, err)
	}
	var pids []int
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		got, err := os.Stat(filepath.Join("/proc", p.Name(), "ns/net"))
		if err == nil && os.SameFile(want, got) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') {
		return fmt.Errorf("namespace name %q is not a file name", name)
	}
	return nil
}

// cannot marks errors that no second attempt will mend.
func cannot(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}
