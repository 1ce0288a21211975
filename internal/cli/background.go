package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A lab lives as long as the process that made it. Commands that leave one
// running therefore do their work in a copy of the program that stays, and the
// one that the user called ends when that copy says so.

// backgroundEnv names the descriptor on which the copy says so.
const backgroundEnv = "FAULTLAB_BACKGROUND"

// background runs f in a process that stays. f does the work, calls ready with
// the exit code for the user, and returns when ctx ends.
func (c *command) background(ctx context.Context, f func(ready func(code int) error) error) error {
	if fd := os.Getenv(backgroundEnv); fd != "" {
		os.Unsetenv(backgroundEnv)
		n, err := strconv.Atoi(fd)
		if err != nil {
			return fmt.Errorf("%s=%q is not a descriptor", backgroundEnv, fd)
		}
		return f(func(code int) error { return detach(os.NewFile(uintptr(n), "ready"), code) })
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr = c.stdout, c.stderr
	cmd.ExtraFiles = []*os.File{w}
	cmd.Env = append(os.Environ(), backgroundEnv+"=3")
	// A session of its own: the user's Ctrl-C reaches this process, which
	// passes it on while the copy still works for it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err == nil {
		code, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return fmt.Errorf("background process: %w", err)
		}
		if code == exitOK {
			return nil
		}
		return &exit{code, nil}
	}
	// It ended without a word on the pipe: it has said why on the terminal.
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		return &exit{code, nil}
	}
	return fmt.Errorf("background process ended: %s", cmd.ProcessState)
}

// detach ends the ties to the terminal and tells the waiting process its exit
// code.
func detach(ready *os.File, code int) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 3 {
		if err := unix.Dup2(int(null.Fd()), fd); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(ready, code); err != nil {
		return err
	}
	return ready.Close()
}
