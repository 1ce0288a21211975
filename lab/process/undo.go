package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem/netns"
)

// undoNetns is the one kind of thing that outlives a dead owner: servers die
// with it, mounts and processes with them, and the lab's folder is the journal's.
const undoNetns = "netns"

// Undo says how to remove what a journal of this provider names.
func Undo() map[string]lab.Undo {
	return map[string]lab.Undo{undoNetns: removeNetns}
}

// removeNetns ends what still lives in the namespace, then removes it: a
// namespace that only loses its name lives on with its processes.
func removeNetns(ctx context.Context, name string) error {
	path := netns.Path(name)
	for deadline := time.Now().Add(10 * time.Second); ; {
		pids, err := netns.Processes(path)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return errors.Join(err, netns.Delete(name))
		}
		if len(pids) == 0 {
			break
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("processes %v do not end", pids)
		}
		for _, pid := range pids {
			if err := killIn(path, pid); err != nil {
				return err
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return netns.Delete(name)
}

// killIn kills the process if it is in the namespace. The handle is taken
// before looking, so that a process that got the number meanwhile is safe.
func killIn(path string, pid int) error {
	if pid == os.Getpid() {
		return fmt.Errorf("this process is in %s itself", path)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	ns, err := os.Stat(path)
	if err != nil {
		return err
	}
	its, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil || !os.SameFile(ns, its) {
		return nil // it has ended
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}
