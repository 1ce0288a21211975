package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
)

// JailArg is the hidden argument with which a jail starts the program's own
// binary; main hands it to JailMain.
const JailArg = "__node"

// UID and GID run every server and own every data directory, whatever the
// root's packages call their user: a number that Debian and systemd both leave
// unused, so that no account of the machine can touch a lab's data.
const (
	UID = 65520
	GID = 65520
)

// ExtraFD is the number that the first of Jail.Extra has inside.
const ExtraFD = 5

// Where things are inside a jail.
const (
	DataDir = "/var/lib/mysql"
	RunDir  = "/run/mysqld"
	Options = "/etc/mysql/my.cnf"
	Socket  = RunDir + "/mysqld.sock"
)

// Jail runs a program of a server root, unprivileged, in mount, PID, UTS and
// IPC namespaces of its own. It sees the root's programs read-only, a small
// /etc made for it, its own /tmp, /dev and /proc, and what Mounts adds. None of
// that is ever visible outside. The program is the first process of its PID
// namespace: when it ends, or when the process that started it does, everything
// it has started ends too.
type Jail struct {
	// Root is the server root, "/" for the machine's own programs.
	Root string
	// Netns is the path of the network namespace to run in. Empty is a new
	// one with nothing in it.
	Netns    string
	Hostname string
	// Hosts is the text of /etc/hosts; localhost is added.
	Hosts  string
	Mounts []Mount
	// Args are the program, as a path inside, and its arguments.
	Args []string
	Env  []string // added to PATH, HOME, LANG and TMPDIR

	Stdin, Stdout, Stderr *os.File // nil is /dev/null
	// Extra are more open files; ExtraFD is the number of the first.
	Extra []*os.File
	// Foreground leaves the program in the starter's session, for a client
	// that talks to a person. Otherwise an interrupt from the terminal, which
	// goes to all of a process group, reaches the starter alone.
	Foreground bool
}

// Mount shows a file or folder of the machine inside a jail.
type Mount struct {
	From, To string
	Writable bool
}

// Process is a program running in a jail.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Pid is the process's number as the starter sees it.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the program and all that it started have ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the program ended, nil for status 0. It is valid after Done.
func (p *Process) Err() error { return p.err }

// Signal sends a signal to the program. It is no error if it has ended.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Kill ends the program and all that it started, and waits until they have.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Start returns when the program runs, or says why it cannot.
func (j Jail) Start() (*Process, error) {
	if len(j.Args) == 0 {
		return nil, errors.New("jail without a program")
	}
	spec, err := json.Marshal(j.spec())
	if err != nil {
		return nil, err
	}
	specR, specW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer specW.Close() // not before the program runs: see orphaned
	defer specR.Close()
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer statusR.Close()
	defer statusW.Close()

	cmd := exec.Command("/proc/self/exe", JailArg)
	cmd.Args[0] = "faultlab"
	cmd.Env = []string{}
	// An *os.File that is nil would be an io.Reader that is not.
	if j.Stdin != nil {
		cmd.Stdin = j.Stdin
	}
	if j.Stdout != nil {
		cmd.Stdout = j.Stdout
	}
	if j.Stderr != nil {
		cmd.Stderr = j.Stderr
	}
	cmd.ExtraFiles = append([]*os.File{specR, statusW}, j.Extra...)
	flags := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC)
	if j.Netns == "" {
		flags |= unix.CLONE_NEWNET
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL, Setsid: !j.Foreground}

	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The death signal comes when the thread that forked ends, so this
		// thread stays for as long as the child does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, lab.Hint(fmt.Errorf("%w make namespaces: %w", lab.ErrCannot, err), "run it as root: sudo faultlab ...")
		}
		return nil, fmt.Errorf("jail: %w", err)
	}
	statusW.Close()
	specR.Close()
	_, werr := specW.Write(spec)
	// The other end is closed by exec: nothing read means that it worked.
	msg, rerr := io.ReadAll(statusR)
	if len(msg) == 0 && werr == nil && rerr == nil {
		return p, nil
	}
	p.Kill()
	if len(msg) > 0 {
		return nil, fmt.Errorf("jail: run %s of %s: %s", j.Args[0], j.Root, msg)
	}
	return nil, fmt.Errorf("jail: %w", errors.Join(werr, rerr))
}

// output runs the program to its end and returns what it wrote.
func (j Jail) output() ([]byte, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	j.Stdout, j.Stderr = w, w
	p, err := j.Start()
	w.Close()
	if err != nil {
		return nil, err
	}
	out, rerr := io.ReadAll(r)
	<-p.done
	if p.err != nil {
		return out, fmt.Errorf("%s: %w: %s", j.Args[0], p.err, tail(out, 400))
	}
	return out, rerr
}

func tail(b []byte, n int) string {
	return string(bytes.TrimSpace(b[max(0, len(b)-n):]))
}

// jailSpec is what the starter tells the child.
type jailSpec struct {
	Root, Netns, Hostname, Hosts string
	Mounts                       []Mount
	Args, Env                    []string
}

func (j Jail) spec() jailSpec {
	return jailSpec{j.Root, j.Netns, j.Hostname, j.Hosts, j.Mounts, j.Args, j.Env}
}

const (
	specFD   = 3
	statusFD = 4
)

// JailMain is the child's side of Jail.Start. It does not return.
func JailMain() {
	runtime.LockOSThread() // exec keeps this thread's network namespace
	status := os.NewFile(statusFD, "status")
	err := jailMain()
	fmt.Fprint(status, err)
	os.Exit(1)
}

func jailMain() error {
	unix.CloseOnExec(specFD)
	unix.CloseOnExec(statusFD)
	var s jailSpec
	if err := json.NewDecoder(os.NewFile(specFD, "spec")).Decode(&s); err != nil {
		return fmt.Errorf("read what to run: %w", err)
	}
	if s.Netns != "" {
		if err := enterNetns(s.Netns); err != nil {
			return err
		}
	}
	if err := buildRoot(s); err != nil {
		return err
	}
	if s.Hostname != "" {
		if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
			return fmt.Errorf("set host name: %w", err)
		}
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	if orphaned() {
		return errors.New("the starter is gone")
	}
	env := append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + DataDir, "LANG=C.UTF-8", "TMPDIR=/tmp"}, s.Env...)
	return syscall.Exec(s.Args[0], s.Args, env)
}

func enterNetns(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}

// dropPrivileges becomes the server's user for good, and makes the program die
// with its starter: the kernel forgets the death signal at a change of user,
// so it is set again afterwards.
func dropPrivileges() error {
	for _, l := range []struct {
		what int
		want uint64
	}{
		{unix.RLIMIT_NOFILE, 65536},
		{unix.RLIMIT_MEMLOCK, 1 << 30}, // io_uring of older kernels counts against it
		{unix.RLIMIT_CORE, 0},
	} {
		// The syscall package's own, so that exec does not restore the limit
		// that the Go runtime found. Without CAP_SYS_RESOURCE, as in many
		// containers, what there is has to do.
		var have syscall.Rlimit
		if err := syscall.Getrlimit(l.what, &have); err != nil {
			return fmt.Errorf("read resource limit %d: %w", l.what, err)
		}
		err := syscall.Setrlimit(l.what, &syscall.Rlimit{Cur: l.want, Max: l.want})
		if errors.Is(err, syscall.EPERM) {
			err = syscall.Setrlimit(l.what, &syscall.Rlimit{Cur: have.Max, Max: have.Max})
		}
		if err != nil {
			return fmt.Errorf("set resource limit %d: %w", l.what, err)
		}
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("drop groups: %w", err)
	}
	if err := syscall.Setgid(GID); err != nil {
		return fmt.Errorf("become group %d: %w", GID, err)
	}
	if err := syscall.Setuid(UID); err != nil {
		return fmt.Errorf("become user %d: %w", UID, err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("tie to the starter: %w", err)
	}
	return nil
}

// orphaned reports whether the starter died before it could be told apart by
// a death signal: it keeps its end of the pipe open until the program runs.
func orphaned() bool {
	fds := []unix.PollFd{{Fd: specFD}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLHUP != 0
}

// stage is where the new root is put together: a folder that every machine has
// and that holds nothing a jail shows. It is covered in this mount namespace only.
const stage = "/sys"

// What a jail takes from the server root. /etc is not taken whole, so that no
// packaged option file, name server or account gets in.
var (
	rootDirs  = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt"}
	etcShared = []string{"alternatives", "crypto-policies", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
		"localtime", "pki", "protocols", "services", "ssl"}
	devices = []string{"full", "null", "random", "tty", "urandom", "zero"}
)

// shared are the files and folders taken from a server root, where it has them.
func shared() []string {
	names := slices.Clone(rootDirs)
	for _, e := range etcShared {
		names = append(names, "etc/"+e)
	}
	return names
}

// accounts are files of /etc by name and text: the users that a server's
// programs know, its own among them, and nothing asked of the network.
func accounts() [][2]string {
	return [][2]string{
		{"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\n"},
		{"etc/passwd", fmt.Sprintf("root:x:0:0::/:/usr/sbin/nologin\nmysql:x:%d:%d::%s:/usr/sbin/nologin\nnobody:x:65534:65534::/:/usr/sbin/nologin\n", UID, GID, DataDir)},
		{"etc/group", fmt.Sprintf("root:x:0:\nmysql:x:%d:\nnogroup:x:65534:\n", GID)},
	}
}

// buildRoot makes the root folder of the program and moves into it.
func buildRoot(s jailSpec) error {
	// Nothing that follows may spread to the machine's own mounts.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", stage, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	unix.Umask(0)
	for _, d := range []struct {
		path string
		mode uint32
	}{
		{"dev", 0o755}, {"dev/shm", 0o1777}, {"etc", 0o755}, {"etc/mysql", 0o755}, {"proc", 0o555},
		{"run", 0o755}, {"tmp", 0o1777}, {"var", 0o755}, {"var/lib", 0o755}, {"var/tmp", 0o1777},
	} {
		if err := unix.Mkdir(filepath.Join(stage, d.path), d.mode); err != nil {
			return fmt.Errorf("make /%s: %w", d.path, err)
		}
	}
	for _, f := range append(accounts(), [2]string{"etc/hosts", "127.0.0.1 localhost\n::1 localhost\n" + s.Hosts}) {
		if err := os.WriteFile(filepath.Join(stage, f[0]), []byte(f[1]), 0o644); err != nil {
			return err
		}
	}
	for _, l := range [][2]string{
		{"/proc/self/fd", "dev/fd"}, {"/proc/self/fd/0", "dev/stdin"}, {"/proc/self/fd/1", "dev/stdout"},
		{"/proc/self/fd/2", "dev/stderr"}, {"/run", "var/run"},
	} {
		if err := os.Symlink(l[0], filepath.Join(stage, l[1])); err != nil {
			return err
		}
	}
	mounts := slices.Clone(s.Mounts)
	for _, d := range devices {
		mounts = append(mounts, Mount{"/dev/" + d, "/dev/" + d, true})
	}
	for _, name := range shared() {
		from := filepath.Join(s.Root, name)
		fi, err := os.Lstat(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
			var to string
			if to, err = os.Readlink(from); err == nil {
				err = os.Symlink(to, filepath.Join(stage, name))
			}
		} else if err == nil {
			err = bind(Mount{From: from, To: "/" + name})
		}
		if err != nil {
			return err
		}
	}
	for _, m := range mounts {
		if err := bind(m); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", stage+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// The old root is stacked under the new one and then taken away whole.
	if err := unix.Chdir(stage); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return unix.Chdir("/")
}

// bind shows m.From at m.To of the root being built.
func bind(m Mount) error {
	to := filepath.Join(stage, m.To)
	fi, err := os.Stat(m.From)
	if err != nil {
		return err
	}
	if fi.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if err = os.MkdirAll(path.Dir(to), 0o755); err == nil {
		err = os.WriteFile(to, nil, 0o644)
	}
	if err != nil {
		return err
	}
	// Recursive, since the machine's own /usr may have mounts within.
	if err := unix.Mount(m.From, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("show %s at %s: %w", m.From, m.To, err)
	}
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_NOSUID)
	if !m.Writable {
		flags |= unix.MS_RDONLY
	}
	if !strings.HasPrefix(m.To, "/dev/") {
		flags |= unix.MS_NODEV
	}
	if err := unix.Mount("", to, "", flags, ""); err != nil {
		return fmt.Errorf("protect %s: %w", m.To, err)
	}
	return nil
}
