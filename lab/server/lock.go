package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile takes the lock that path stands for, waiting for it as long as ctx
// allows. waiting is called once if it has to wait. The kernel drops the lock
// of an owner that dies.
func lockFile(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	for first := true; ; first = false {
		unlock, err := tryLock(path)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return unlock, err
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// tryLock takes the lock or fails with EWOULDBLOCK.
func tryLock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// removeMatches removes what an interrupted run has left. Failing to is no
// reason to stop: the next run tries again.
func removeMatches(pattern string) {
	names, _ := filepath.Glob(pattern)
	for _, n := range names {
		os.RemoveAll(n)
	}
}

func tell(report func(string), step string) {
	if report != nil {
		report(step)
	}
}
