package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
)

// recipe says what a root is made of.
type recipe struct {
	suite    string
	packages []string
}

// MySQL is in no released suite of Debian. MariaDB is in all of them, and the
// machine's own suite is taken if it is Debian's: see suite.
var recipes = map[lab.Flavor]recipe{
	// base-files links /lib64, where the loader is looked for.
	lab.MySQL: {"sid", []string{"mysql-server-core", "mysql-client-core", "base-files"}},
	// The scripts of state transfer want a shell and the usual tools.
	lab.MariaDB: {"bookworm", []string{"mariadb-server", "mariadb-client-core", "galera-4", "rsync", "iproute2", "procps", "lsof",
		"base-files", "bash", "dash", "coreutils", "findutils", "gawk", "grep", "hostname", "sed", "util-linux", "libc-bin"}},
}

// installBytes is what a root needs while it is made, and a little more.
const installBytes = 2 << 30

// Installable lists the flavors that Install knows.
func Installable() []lab.Flavor {
	return slices.Sorted(maps.Keys(recipes))
}

// Install makes a flavor's server root in the cache from Debian's packages,
// unless it is there. An interrupted install leaves nothing that the next one
// would trust. report, which may be nil, is told what happens in lines.
func (s Store) Install(ctx context.Context, f lab.Flavor, report func(step string)) (Server, error) {
	r, ok := recipes[f]
	if !ok {
		return Server{}, lab.Hint(fmt.Errorf("no packages of %s are known", f), fmt.Sprintf("installable: %v", Installable()))
	}
	root, err := s.root(f)
	if err != nil {
		return Server{}, err
	}
	if srv, err := fromCache(root, f); err == nil {
		return srv, nil
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return Server{}, lab.Hint(fmt.Errorf("%w make a server root: mmdebstrap is missing", lab.ErrCannot), "sudo apt-get install mmdebstrap")
	}
	mirror, err := Mirror("/etc/apt")
	if err != nil {
		return Server{}, err
	}
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return Server{}, err
	}
	unlock, err := lockFile(ctx, root+".lock", func() {
		tell(report, fmt.Sprintf("waiting for another faultlab to install %s, or for its labs to end", f))
	})
	if err != nil {
		return Server{}, err
	}
	defer unlock()
	if srv, err := fromCache(root, f); err == nil {
		return srv, nil // by whoever held the lock
	}
	if err := checkSpace(filepath.Dir(root), installBytes); err != nil {
		return Server{}, err
	}
	if _, err := removeHalfMade(root); err != nil {
		return Server{}, err
	}
	if err := removeRoot(root); err != nil {
		return Server{}, err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(root), filepath.Base(root)+".new-")
	if err != nil {
		return Server{}, err
	}
	srv, err := build(ctx, f, r, mirror, tmp, report)
	if err == nil {
		err = os.Rename(tmp, root)
	}
	if err != nil {
		return Server{}, errors.Join(fmt.Errorf("install %s: %w", f, err), removeRoot(tmp))
	}
	srv.Root = root
	tell(report, fmt.Sprintf("%s %s is in %s", f, srv.Version, root))
	return srv, nil
}

// removeHalfMade removes what interrupted installs have left beside a root, of
// which the caller has the lock.
func removeHalfMade(root string) (done []string, err error) {
	left, err := filepath.Glob(root + ".new-*")
	if err != nil {
		return nil, err
	}
	for _, dir := range left {
		if err := removeRoot(dir); err != nil {
			return done, err
		}
		done = append(done, dir)
	}
	return done, nil
}

// Clean removes what interrupted installs have left in the cache, and returns
// the folders. It leaves alone what is being installed now.
func (s Store) Clean() (done []string, err error) {
	for _, f := range Installable() {
		root, err := s.root(f)
		if err != nil {
			return done, err
		}
		if left, _ := filepath.Glob(root + ".new-*"); len(left) == 0 {
			continue
		}
		unlock, err := tryLock(root + ".lock")
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return done, err
		}
		gone, err := removeHalfMade(root)
		unlock()
		done = append(done, gone...)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// suite is the recipe's, or the machine's own Debian suite where a recipe
// does not insist on sid: its packages are the ones the machine's user knows.
func suite(r recipe, osRelease string) string {
	var id, codename string
	for line := range strings.Lines(osRelease) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch k {
		case "ID":
			id = strings.Trim(v, `"`)
		case "VERSION_CODENAME":
			codename = strings.Trim(v, `"`)
		}
	}
	if r.suite != "sid" && id == "debian" && codename != "" {
		return codename
	}
	return r.suite
}

// build fills dir and marks it complete.
func build(ctx context.Context, f lab.Flavor, r recipe, mirror, dir string, report func(string)) (Server, error) {
	osRelease, _ := os.ReadFile("/etc/os-release") // without it the recipe's suite serves
	from := suite(r, string(osRelease))
	// The packages are unpacked and not configured: their scripts make users,
	// data directories and running servers that nobody here wants.
	args := []string{"--mode=root", "--variant=extract", "--include=" + strings.Join(r.packages, ","),
		// A snapshot, or a mirror that lags, has a Release file past its date.
		`--aptopt=Acquire::Check-Valid-Until "false"`,
		"--aptopt=Acquire::Retries 3",
		from, dir, fmt.Sprintf("deb %s %s main", mirror, from)}
	tell(report, fmt.Sprintf("installing %s from Debian %s: about a minute", f, from))

	// In namespaces of its own: what it mounts in the new root is seen by it
	// alone, so that removing an interrupted root can never reach what was
	// mounted; and all that it started ends with it.
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "mmdebstrap"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// First gently, so that it says what it was doing.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	runtime.LockOSThread() // the death signal follows the thread
	defer runtime.UnlockOSThread()
	pr, pw := io.Pipe()
	cmd.Stdout, cmd.Stderr = pw, pw
	said := make(chan []string, 1)
	go func() { said <- follow(pr, report) }()
	err := cmd.Run()
	pw.Close()
	last := <-said
	if ctx.Err() != nil {
		return Server{}, ctx.Err()
	}
	if err != nil {
		text := strings.Join(last, "\n")
		err = fmt.Errorf("mmdebstrap: %w:\n%s", err, text)
		switch {
		case strings.Contains(text, "No space left") || checkSpace(filepath.Dir(dir), 64<<20) != nil:
			return Server{}, spaceHint(fmt.Errorf("the disk of %s is full", filepath.Dir(dir)))
		case errors.Is(err, fs.ErrPermission) || os.Geteuid() != 0:
			return Server{}, lab.Hint(err, "run it as root: sudo faultlab servers install "+string(f))
		case strings.Contains(text, "NO_PUBKEY") || strings.Contains(text, "not signed"):
			return Server{}, lab.Hint(err, "sudo apt-get install debian-archive-keyring")
		}
		return Server{}, err
	}
	// Not by dpkg's path-exclude: with it mmdebstrap filters every archive in
	// Python, which takes longer than all else.
	for _, unread := range []string{"doc", "info", "locale", "man"} {
		if err := os.RemoveAll(filepath.Join(dir, "usr", "share", unread)); err != nil {
			return Server{}, err
		}
	}
	// The one alternative that scripts call, which configuring would choose.
	if err := os.Symlink("gawk", filepath.Join(dir, "usr", "bin", "awk")); err != nil && !errors.Is(err, fs.ErrExist) {
		return Server{}, err
	}
	srv, err := writeMark(dir, f)
	if err != nil {
		return srv, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return srv, err
	}
	defer d.Close()
	return srv, unix.Syncfs(int(d.Fd()))
}

// follow reports mmdebstrap's own lines and returns the last of all lines.
func follow(r io.Reader, report func(string)) []string {
	const keep = 12
	var last []string
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := strings.TrimSpace(sc.Text())
		if step, ok := strings.CutPrefix(line, "I: "); ok {
			tell(report, step)
		}
		if line != "" {
			last = append(last[max(0, len(last)-keep+1):], line)
		}
	}
	io.Copy(io.Discard, r) // after a line too long
	return last
}

// checkSpace fails if the file system of dir, which exists, has less free.
func checkSpace(dir string, need uint64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := st.Bavail * uint64(st.Bsize); free < need {
		return spaceHint(fmt.Errorf("%s: %d MB are free and %d MB are needed", dir, free>>20, need>>20))
	}
	return nil
}

func spaceHint(err error) error {
	return lab.Hint(err, "free some space, or keep the cache elsewhere: XDG_CACHE_HOME=DIR")
}

// removeRoot removes a root or what there is of one, unless something is
// mounted in it: that would be removed too.
func removeRoot(root string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], root+"/") {
			return fmt.Errorf("%s is mounted: umount it first", f[1])
		}
	}
	// The mark goes first: a root that is half removed is not complete.
	if err := os.Remove(filepath.Join(root, markFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(root)
}
