package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
)

// Seed returns a data directory that the server has initialised, made once
// for every version and kept in the cache. It is to be copied, never used in
// place. report, which may be nil, is told when it has to be made.
//
// Its only account is root@localhost without a password, which only a socket
// inside the node's jail can reach.
func (s Store) Seed(ctx context.Context, srv Server, report func(step string)) (string, error) {
	what := string(srv.Flavor) + " " + srv.Version
	return s.KeepSeed(ctx, srv.SeedName(), what, report, func(tmp string) error {
		return initialise(ctx, srv, tmp)
	})
}

// SeedName is the name in the cache of the data directory that the server has
// initialised.
func (s Server) SeedName() string {
	return string(s.Flavor) + "-" + s.Version + "-" + SeedRevision
}

// KeepSeed returns what the cache keeps under that name. When there is nothing,
// make is called with an empty folder and puts it there, under the name data.
// what tells people what is being initialised.
func (s Store) KeepSeed(ctx context.Context, name, what string, report func(step string), make func(tmp string) error) (string, error) {
	base, err := s.dir()
	if err != nil {
		return "", err
	}
	seeds := filepath.Join(base, "seeds")
	path := filepath.Join(seeds, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(seeds, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(ctx, filepath.Join(seeds, ".lock"), func() {
		tell(report, "waiting for another faultlab to initialise a server")
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := checkSpace(seeds, seedBytes); err != nil {
		return "", err
	}
	tell(report, "initialising "+what+" (once)")
	removeMatches(filepath.Join(seeds, ".new-*")) // an interrupted run's
	tmp, err := os.MkdirTemp(seeds, ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := make(tmp); err != nil {
		return "", fmt.Errorf("initialise %s: %w", what, err)
	}
	return path, os.Rename(filepath.Join(tmp, "data"), path)
}

// seedBytes is what a server needs while it initialises a data directory, and
// a little more.
const seedBytes = 256 << 20

// SeedRevision tells apart seeds of one version that were made differently:
// raise it when SeedSteps changes.
const SeedRevision = "r2"

// SeedStep is a program to run on the data directory in the making.
type SeedStep struct {
	Name string
	Args []string
	// Ready is what the program logs when it may be asked to end; "" for one
	// that ends by itself.
	Ready string
}

// SeedSteps initialise an empty DataDir, in that order, as the server's own
// user. galera is the path of the Galera provider library, "" for none.
func SeedSteps(f lab.Flavor, daemon, galera string) []SeedStep {
	// The least redo log is the least to copy; a server that wants more grows it.
	initialise := []string{daemon, "--no-defaults", "--initialize-insecure", "--datadir=" + DataDir,
		"--secure-file-priv=NULL", "--innodb-redo-log-capacity=8M"}
	if f == lab.MariaDB {
		initialise = []string{"/usr/bin/mariadb-install-db", "--no-defaults", "--datadir=" + DataDir,
			"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"}
	}
	steps := []SeedStep{{Name: "data", Args: initialise}}
	if galera == "" {
		return steps
	}
	// A cluster of one, once: it gives the data a cluster identity and a
	// position in it. Nodes that start from copies then agree on what they
	// have, and none needs a state transfer.
	cluster := []string{daemon, "--no-defaults", "--datadir=" + DataDir, "--socket=/tmp/seed.sock", "--skip-networking",
		"--wsrep-on=ON", "--wsrep-provider=" + galera, "--wsrep-cluster-address=gcomm://", "--wsrep-new-cluster", "--wsrep-node-address=127.0.0.1",
		"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2"}
	if f == lab.PXC {
		cluster = append(cluster, "--secure-file-priv=NULL", "--mysqlx=OFF", "--pxc-encrypt-cluster-traffic=OFF")
	}
	// The colon tells the server's own word from the provider's earlier one:
	// a server that is asked to end between the two crashes.
	return append(steps, SeedStep{Name: "cluster of one", Args: cluster, Ready: ": ready for connections"})
}

// SeedLeaves are files that SeedSteps leave and no node may start from: each
// has an identity and a write set cache of its own.
func SeedLeaves() []string { return []string{"auto.cnf", "galera.cache"} }

// initialise makes tmp/data.
func initialise(ctx context.Context, srv Server, tmp string) error {
	data := filepath.Join(tmp, "data")
	if err := MakeServerDir(data); err != nil {
		return err
	}
	// Others may pass through to the data, which is closed itself.
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	for _, step := range SeedSteps(srv.Flavor, srv.Daemon, srv.Galera) {
		if err := runSeed(ctx, srv, tmp, step.Args, []byte(step.Ready)); err != nil {
			return fmt.Errorf("%s: %w", step.Name, err)
		}
	}
	for _, name := range SeedLeaves() {
		if err := os.Remove(filepath.Join(data, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// runSeed runs a program on the data directory in the making, until it ends;
// with ready, until it has logged that, and it is then asked to end.
func runSeed(ctx context.Context, srv Server, tmp string, args []string, ready []byte) error {
	log, err := os.Create(filepath.Join(tmp, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p, err := Jail{
		Root: srv.Root, Hostname: "localhost", // accounts are made for it
		Mounts: []Mount{{filepath.Join(tmp, "data"), DataDir, true}},
		Args:   args, Stdout: log, Stderr: log,
	}.Start()
	if err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), p.Kill())
		case <-p.Done():
			running = false
		case <-tick.C:
			if len(ready) == 0 {
				continue
			}
			if text, err := os.ReadFile(log.Name()); err == nil && bytes.Contains(text, ready) {
				ready = nil
				if err := p.Signal(unix.SIGTERM); err != nil {
					return errors.Join(err, p.Kill())
				}
			}
		}
	}
	if p.Err() != nil || len(ready) > 0 {
		text, _ := os.ReadFile(log.Name())
		return errors.Join(p.Err(), fmt.Errorf("%s ended too early: %s", filepath.Base(args[0]), tail(text, 2000)))
	}
	return nil
}

// MakeServerDir makes a folder that belongs to the server's user alone.
func MakeServerDir(path string) error {
	if err := os.Mkdir(path, 0o750); err != nil {
		return err
	}
	return os.Chown(path, UID, GID)
}

// CopyDir copies a data directory: contents, owners, modes and links. to must
// not exist. It shares blocks where the file system can, and keeps what is
// allocated but unwritten just so, so that a server finds the files as if it
// had made them here.
func CopyDir(ctx context.Context, from, to string) error {
	var g errgroup.Group
	g.SetLimit(4)
	err := filepath.WalkDir(from, func(path string, de fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		fi, err := de.Info()
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		own := func() error { return os.Lchown(target, int(st.Uid), int(st.Gid)) }
		switch {
		case fi.IsDir():
			if err := os.Mkdir(target, fi.Mode().Perm()); err != nil {
				return err
			}
			return own()
		case fi.Mode().IsRegular():
			g.Go(func() error {
				if err := copyFile(path, target, fi); err != nil {
					return fmt.Errorf("copy %s: %w", path, err)
				}
				return own()
			})
			return nil
		case fi.Mode()&fs.ModeSymlink != 0:
			l, err := os.Readlink(path)
			if err != nil {
				return err
			}
			if err := os.Symlink(l, target); err != nil {
				return err
			}
			return own()
		}
		return nil // sockets and pipes are a running server's
	})
	return errors.Join(err, g.Wait())
}

func copyFile(from, to string, fi fs.FileInfo) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fi.Mode().Perm())
	if err != nil {
		return err
	}
	defer dst.Close()
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return dst.Close()
	}
	size := fi.Size()
	if size == 0 {
		return dst.Close()
	}
	// Allocating first says at once that a disk is full. Not every file
	// system can.
	if err := unix.Fallocate(int(dst.Fd()), 0, 0, size); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	if err := dst.Truncate(size); err != nil {
		return err
	}
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(src.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // only holes are left
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(src.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := copyRange(dst, src, begin, end); err != nil {
			return err
		}
		at = end
	}
	return dst.Close()
}

func copyRange(dst, src *os.File, begin, end int64) error {
	buf := make([]byte, min(end-begin, 1<<20))
	for at := begin; at < end; {
		n, err := src.ReadAt(buf[:min(end-at, int64(len(buf)))], at)
		if n == 0 {
			return err
		}
		if _, err := dst.WriteAt(buf[:n], at); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}
