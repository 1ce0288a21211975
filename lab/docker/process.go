package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// process is the first process of a container as this machine knows it, so that
// it can be signalled, and waited for, without a daemon that answers. Its number
// is never taken for another's.
type process struct {
	pid  int
	file *os.File // pidfd
}

// process finds the process of a container that was started. It is nil, without
// error, for one that has ended.
func (d daemon) process(ctx context.Context, id string) (*process, error) {
	pid, err := d.pid(ctx, id)
	if pid == 0 || err != nil {
		return nil, err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		if again, err := d.pid(ctx, id); again != pid || err != nil {
			return nil, err
		}
		return nil, elsewhere(d.DaemonHost(), fmt.Sprintf("there is no process %d here", pid))
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	p := &process{pid, os.NewFile(uintptr(fd), "pidfd")}
	// While it runs still, the number was its own when it was opened.
	if again, err := d.pid(ctx, id); again != pid || err != nil {
		p.file.Close()
		return nil, err
	}
	return p, nil
}

// pid is the number of a container's process, 0 if it does not run.
func (d daemon) pid(ctx context.Context, id string) (int, error) {
	c, err := d.ContainerInspect(ctx, id)
	if err != nil || c.State == nil || !c.State.Running {
		return 0, err
	}
	return c.State.Pid, nil
}

// signal sends a signal. It is no error if the process has ended.
func (p *process) signal(s unix.Signal) error {
	err := unix.ESRCH // of a file that is closed: it has ended
	p.with(func(fd int) { err, _ = unix.PidfdSendSignal(fd, s, nil, 0).(unix.Errno) })
	if err == 0 || err == unix.ESRCH {
		return nil
	}
	return fmt.Errorf("signal process %d: %w", p.pid, err)
}

// ended waits at most so long for the end of the process.
func (p *process) ended(within time.Duration) bool {
	n := 1
	p.with(func(fd int) {
		n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(within.Milliseconds()))
	})
	return n > 0
}

// with calls f unless the file is closed.
func (p *process) with(f func(fd int)) {
	if raw, err := p.file.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
