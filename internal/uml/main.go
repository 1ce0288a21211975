// Package uml owns a Linux kernel to test in: Debian's user-mode-linux, which
// is an ordinary process and has what the machine's own kernel may lack, such as
// netem. It runs one command as root inside and passes on its output and its
// exit status:
//
//	go run ./internal/uml -bind DIR -- COMMAND [ARGUMENT]...
//
// The kernel's root folder is made of Debian's packages once and kept in the
// cache, beside the roots of servers. Of the machine the command sees the
// folders named by -bind, at the same paths, and nothing else; it has no
// network. What it writes elsewhere is gone when it ends. All of it lives in
// mount and process namespaces of its own and ends with this program, however
// that ends.
//
// The program takes three parts, one after another: the host's (this file),
// which everything else is a child of; the stage (stage.go), alone in its
// namespaces, which lays out the root and runs the kernel; the guest
// (guest.go), the first process under the new kernel.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const stageArg = "__stage"

// job is what the parts of the program tell one another.
type job struct {
	Root    string   // that the kernel's packages are unpacked in
	Memory  string   // such as 1G
	Binds   []string // folders, at the same path inside
	Dir     string
	Command []string
	Env     []string
	Verbose bool // shows what the kernel says as it starts
}

func main() {
	var err error
	status := 1
	switch {
	case len(os.Args) == 3 && os.Args[1] == stageArg:
		status, err = stage(os.Args[2], os.Stdout)
	case os.Args[0] == guestPath:
		guest()
	default:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		status, err = host(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "uml:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

func host(ctx context.Context, args []string, stdout, stderr io.Writer) (status int, err error) {
	j := job{Env: []string{}}
	flags := flag.NewFlagSet("uml", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: uml [OPTION]... -- COMMAND [ARGUMENT]...")
		flags.PrintDefaults()
	}
	timeout := flags.Duration("timeout", 10*time.Minute, "end everything after so long")
	flags.StringVar(&j.Memory, "memory", "1G", "what the kernel has, of the machine's")
	flags.BoolVar(&j.Verbose, "v", false, "show what the kernel says as it starts")
	flags.StringVar(&j.Dir, "dir", "/", "working folder of the command, bound too")
	flags.Func("bind", "folder that is seen inside at the same path; may be repeated", func(s string) error {
		j.Binds = append(j.Binds, s)
		return nil
	})
	flags.Func("env", "NAME=VALUE for the command; may be repeated", func(s string) error {
		j.Env = append(j.Env, s)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return 2, nil
	}
	if j.Command = flags.Args(); len(j.Command) == 0 {
		flags.Usage()
		return 2, nil
	}
	if j.Dir, err = filepath.Abs(j.Dir); err != nil {
		return 1, err
	}
	if j.Dir != "/" {
		j.Binds = append(j.Binds, j.Dir)
	}
	for i, b := range j.Binds {
		if j.Binds[i], err = filepath.Abs(b); err != nil {
			return 1, err
		}
	}
	if os.Geteuid() != 0 {
		return 1, errors.New("this mounts things in a namespace of its own and needs root")
	}
	if j.Root, err = place(); err != nil {
		return 1, err
	}
	release, err := alone(ctx, j.Root, stderr)
	if err != nil {
		return 1, err
	}
	defer release()
	if err := install(ctx, j.Root, stderr); err != nil {
		return 1, err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("not done after %v", *timeout))
	defer cancel()
	spec, err := json.Marshal(j)
	if err != nil {
		return 1, err
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	cmd := exec.CommandContext(ctx, self, stageArg, string(spec))
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	runtime.LockOSThread() // the death signal follows the thread
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	if ctx.Err() != nil {
		return 1, context.Cause(ctx)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}
