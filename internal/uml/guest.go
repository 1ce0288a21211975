package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// guest is the first process under the new kernel. It runs the command,
// writes its exit status down and turns the machine off.
func guest() {
	status, err := runInside()
	if err != nil {
		fmt.Println("uml:", err)
		status = max(status, 1)
	}
	if err := os.WriteFile(own+"/status", []byte(strconv.Itoa(status)), 0o644); err != nil {
		fmt.Println("uml:", err)
	}
	unix.Sync()
	err = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	fmt.Println("uml: power off:", err)
	select {}
}

func runInside() (status int, err error) {
	spec, err := os.ReadFile(own + "/job")
	if err != nil {
		return 1, err
	}
	var j job
	if err := json.Unmarshal(spec, &j); err != nil {
		return 1, err
	}
	plainOutput()
	fmt.Println(started)
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"devpts", "/dev/pts"}, {"tmpfs", "/dev/shm"},
		{"tmpfs", "/run"}, {"tmpfs", "/root"}, {"tmpfs", "/tmp"}, {"tmpfs", "/var"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return 1, err
		}
		options := ""
		if m.kind == "tmpfs" {
			options = "size=90%"
		}
		// A kernel may have mounted /dev by itself.
		if err := unix.Mount(m.kind, m.at, m.kind, 0, options); err != nil && !errors.Is(err, unix.EBUSY) {
			return 1, fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	// The kernel makes the file when it has loaded the module, and loads the
	// module when somebody opens the file.
	if err := os.MkdirAll("/dev/net", 0o755); err != nil {
		return 1, err
	}
	if err := unix.Mknod("/dev/net/tun", unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))); err != nil && !errors.Is(err, unix.EEXIST) {
		return 1, fmt.Errorf("/dev/net/tun: %w", err)
	}
	// These may lie in what has just been covered.
	for _, b := range j.Binds {
		if err := os.MkdirAll(b, 0o755); err != nil {
			return 1, err
		}
		if err := unix.Mount("none", b, "hostfs", 0, b); err != nil {
			return 1, fmt.Errorf("mount %s: %w", b, err)
		}
	}
	if err := syscall.Sethostname([]byte("uml")); err != nil {
		return 1, err
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return 1, fmt.Errorf("loopback: %w", err)
	}

	// For the command's own name too.
	if err := os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return 1, err
	}
	cmd := exec.Command(j.Command[0], j.Command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = j.Dir, os.Stdout, os.Stdout
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "TERM=dumb", "LC_ALL=C.UTF-8"}, j.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	// The first process is the parent of all whose own has ended.
	for {
		var w syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &w, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1, fmt.Errorf("wait: %w", err)
		case pid != cmd.Process.Pid:
		case w.Signaled():
			fmt.Printf("uml: %s: %v\n", j.Command[0], w.Signal())
			return 128 + int(w.Signal()), nil
		default:
			return w.ExitStatus(), nil
		}
	}
}

// plainOutput keeps the console from writing line ends of its own.
func plainOutput() {
	if t, err := unix.IoctlGetTermios(1, unix.TCGETS); err == nil {
		t.Oflag &^= unix.OPOST
		unix.IoctlSetTermios(1, unix.TCSETS, t)
	}
}
