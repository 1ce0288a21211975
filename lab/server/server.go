// Package server owns where a server comes from: its flavor and version, the
// server roots that are made of Debian packages and kept in a cache, the
// initialised data directories copied for every node, and the jail in which a
// root's programs run.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
)

// Server is one installed server.
type Server struct {
	Flavor  lab.Flavor `json:"flavor"`
	Version string     `json:"version"`        // 9.7.4
	Root    string     `json:"root,omitempty"` // "/" is the machine's own
	// Daemon, Client and Galera are paths inside the root: the server, the
	// client shell and the Galera provider library. The last two may be empty.
	Daemon string `json:"daemon"`
	Client string `json:"client,omitempty"`
	Galera string `json:"galera,omitempty"`
}

// Store is where servers are looked for and kept. The zero value is what
// users get who say nothing.
type Store struct {
	// Dir is the cache; empty is faultlab in the user's cache folder.
	Dir string
	// Roots are server roots that the user names; they come before the
	// cache, and the machine's own servers after it.
	Roots []string
}

func (s Store) dir() (string, error) {
	if s.Dir != "" {
		return filepath.Abs(s.Dir)
	}
	d, err := os.UserCacheDir()
	if err != nil {
		return "", lab.Hint(fmt.Errorf("no cache folder: %w", err), "set XDG_CACHE_HOME")
	}
	return filepath.Join(d, "faultlab"), nil
}

// root is the folder of a flavor's root in the cache, made or not.
func (s Store) root(f lab.Flavor) (string, error) {
	d, err := s.dir()
	return filepath.Join(d, "roots", string(f)), err
}

// Find returns the server of that flavor: from Roots, else from the cache,
// else the machine's own. The error is lab.ErrCannot when there is none.
func (s Store) Find(ctx context.Context, f lab.Flavor) (Server, error) {
	for _, r := range s.Roots {
		r, err := filepath.Abs(r)
		if err != nil {
			return Server{}, err
		}
		if _, ok := daemon(r, ""); !ok {
			return Server{}, lab.Hint(fmt.Errorf("server root %s has no mysqld and no mariadbd", r),
				"a server root is a folder tree with usr/sbin/mysqld or usr/sbin/mariadbd in it")
		}
		if srv, err := inspect(r, f); err == nil || !errors.Is(err, errOtherFlavor) {
			return srv, err
		}
	}
	cached, err := s.root(f)
	if err != nil {
		return Server{}, err
	}
	if srv, err := fromCache(cached, f); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return srv, err
	}
	if srv, err := inspect("/", f); err == nil || !errors.Is(err, errOtherFlavor) {
		return srv, err
	}
	err = fmt.Errorf("%w run %s: %w", lab.ErrCannot, f, lab.ErrNoServer)
	if _, ok := recipes[f]; ok {
		return Server{}, lab.Hint(err, "faultlab servers install "+string(f), "or name a server root: --server-root DIR")
	}
	return Server{}, lab.Hint(err, "name a server root that has one: --server-root DIR")
}

// List returns the servers in the cache.
func (s Store) List() ([]Server, error) {
	var out []Server
	for _, f := range Installable() {
		r, err := s.root(f)
		if err != nil {
			return nil, err
		}
		srv, err := fromCache(r, f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return out, err
		}
		out = append(out, srv)
	}
	return out, nil
}

// Remove deletes a flavor's root and its initialised data directories from
// the cache. It fails while a lab runs from them.
func (s Store) Remove(ctx context.Context, f lab.Flavor) error {
	root, err := s.root(f)
	if err != nil {
		return err
	}
	if _, err := os.Stat(root); err != nil {
		return lab.Hint(fmt.Errorf("server %s is not in the cache", f), "see what is: faultlab servers list")
	}
	unlock, err := tryLock(root + ".lock")
	if err != nil {
		return lab.Hint(fmt.Errorf("server %s is in use: %w", f, err), "end the labs that run it: faultlab down --all")
	}
	defer unlock()
	d, err := s.dir()
	if err != nil {
		return err
	}
	seeds, err := filepath.Glob(filepath.Join(d, "seeds", string(f)+"-*"))
	if err != nil {
		return err
	}
	for _, seed := range seeds {
		if err := os.RemoveAll(seed); err != nil {
			return err
		}
	}
	return removeRoot(root)
}

// Hold keeps a server from being removed while it is in use.
func (s Store) Hold(srv Server) (release func(), err error) {
	cached, err := s.root(srv.Flavor)
	if err != nil || srv.Root != cached {
		return func() {}, err
	}
	f, err := os.OpenFile(cached+".lock", os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("server %s is being installed or removed: %w", srv.Flavor, err)
	}
	return func() { f.Close() }, nil
}

// errOtherFlavor is for a root that holds no server of the flavor asked for.
var errOtherFlavor = errors.New("no such server")

// Where packages of the usual distributions put things.
var (
	daemonDirs  = []string{"usr/sbin", "usr/bin", "usr/libexec"}
	galeraPaths = []string{
		"usr/lib/galera/libgalera_smm.so", "usr/lib64/galera/libgalera_smm.so", "usr/lib64/galera-4/libgalera_smm.so",
		"usr/lib/galera4/libgalera_smm.so", "usr/lib64/galera4/libgalera_smm.so", "usr/lib/libgalera_smm.so",
	}
)

// daemon finds the server program of a root that could be of the flavor; "" is any.
func daemon(root string, f lab.Flavor) (string, bool) {
	names := []string{"mysqld"}
	// MariaDB's packages bring a mysqld too.
	if f == lab.MariaDB || f == "" {
		names = []string{"mariadbd", "mysqld"}
	}
	for _, n := range names {
		for _, d := range daemonDirs {
			if p := filepath.Join(d, n); isFile(filepath.Join(root, p)) {
				return "/" + p, true
			}
		}
	}
	return "", false
}

// isFile does not follow links: an absolute link is meant to be followed
// inside the root.
func isFile(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && !fi.IsDir()
}

// inspect asks the server in root what it is. errOtherFlavor says that the
// root has none of that flavor.
func inspect(root string, f lab.Flavor) (Server, error) {
	d, ok := daemon(root, f)
	if !ok {
		return Server{}, errOtherFlavor
	}
	out, err := Jail{Root: root, Args: []string{d, "--no-defaults", "--version"}}.output()
	if err != nil {
		return Server{}, fmt.Errorf("ask %s for its version: %w", filepath.Join(root, d), err)
	}
	is, version, err := parseVersion(string(out))
	if err != nil {
		return Server{}, fmt.Errorf("%s: %w", filepath.Join(root, d), err)
	}
	if is != f {
		return Server{}, errOtherFlavor
	}
	srv := Server{Flavor: f, Version: version, Root: root, Daemon: d}
	for _, c := range []string{"usr/bin/mariadb", "usr/bin/mysql"} {
		if (f == lab.MariaDB || c == "usr/bin/mysql") && srv.Client == "" && isFile(filepath.Join(root, c)) {
			srv.Client = "/" + c
		}
	}
	for _, g := range galeraPaths {
		if srv.Galera == "" && isFile(filepath.Join(root, g)) {
			srv.Galera = "/" + g
		}
	}
	return srv, nil
}

var versionRE = regexp.MustCompile(`\bVer (\d+\.\d+\.\d+)`)

// parseVersion reads the line that mysqld --version prints.
func parseVersion(line string) (lab.Flavor, string, error) {
	m := versionRE.FindStringSubmatch(line)
	if m == nil {
		return "", "", fmt.Errorf("no version in %q", strings.TrimSpace(line))
	}
	switch {
	case strings.Contains(line, "MariaDB"):
		return lab.MariaDB, m[1], nil
	case strings.Contains(line, "XtraDB Cluster"):
		return lab.PXC, m[1], nil
	}
	return lab.MySQL, m[1], nil
}

// mark says that a root in the cache is complete and what is in it. It is
// written last.
type mark struct {
	Server
	// Size and Modified are the server program's when it was asked: another
	// program is asked again.
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

const markFile = ".faultlab.json"

// fromCache reads the mark of a root in the cache: fs.ErrNotExist if there is
// no complete root.
func fromCache(root string, f lab.Flavor) (Server, error) {
	b, err := os.ReadFile(filepath.Join(root, markFile))
	if err != nil {
		return Server{}, err
	}
	var m mark
	if json.Unmarshal(b, &m) != nil || m.Flavor != f {
		return Server{}, fs.ErrNotExist
	}
	m.Root = root
	fi, err := os.Stat(filepath.Join(root, m.Daemon))
	if err != nil {
		return Server{}, fs.ErrNotExist
	}
	if fi.Size() == m.Size && fi.ModTime().Equal(m.Modified) {
		return m.Server, nil
	}
	return writeMark(root, f)
}

// writeMark asks the server in root what it is and marks the root complete.
func writeMark(root string, f lab.Flavor) (Server, error) {
	srv, err := inspect(root, f)
	if errors.Is(err, errOtherFlavor) {
		return srv, fmt.Errorf("the packages of %s brought no such server", f)
	}
	if err != nil {
		return srv, err
	}
	fi, err := os.Stat(filepath.Join(root, srv.Daemon))
	if err != nil {
		return srv, err
	}
	m := mark{srv, fi.Size(), fi.ModTime()}
	m.Root = "" // it will be moved
	b, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return srv, err
	}
	tmp := filepath.Join(root, markFile+".new")
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return srv, err
	}
	return srv, os.Rename(tmp, filepath.Join(root, markFile))
}

// GaleraPaths are where packages put the Galera library, as paths inside a root.
func GaleraPaths() []string {
	out := make([]string, len(galeraPaths))
	for i, p := range galeraPaths {
		out[i] = "/" + p
	}
	return out
}
