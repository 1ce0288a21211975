package server

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab"
)

func TestAServerSaysWhatItIs(t *testing.T) {
	for _, tt := range []struct {
		line, version string
		flavor        lab.Flavor
	}{
		{"mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))\n", "9.7.4", lab.MySQL},
		{"/usr/sbin/mysqld  Ver 8.0.36-0ubuntu0.22.04.1 for Linux on x86_64 ((Ubuntu))\n", "8.0.36", lab.MySQL},
		{"mariadbd  Ver 10.11.18-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)\n", "10.11.18", lab.MariaDB},
		{"/usr/sbin/mysqld  Ver 8.0.36-28.1 for Linux on x86_64 (Percona XtraDB Cluster (GPL), Release rel28, Revision bfb687f, WSREP version 26.1.4.3)\n", "8.0.36", lab.PXC},
		{"/usr/sbin/mysqld  Ver 8.0.36-28 for Linux on x86_64 (Percona Server (GPL), Release 28, Revision 47601f19)\n", "8.0.36", lab.MySQL},
	} {
		f, v, err := parseVersion(tt.line)
		if f != tt.flavor || v != tt.version || err != nil {
			t.Errorf("%q: got %s %s, %v, want %s %s", tt.line, f, v, err, tt.flavor, tt.version)
		}
	}
	if _, _, err := parseVersion("Segmentation fault\n"); err == nil {
		t.Error("a version was read from a crash")
	}
}

func TestTheSuiteIsTheMachinesOwnDebianUnlessOnlySidHasIt(t *testing.T) {
	const trixie = "NAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_CODENAME=trixie\n"
	const noble = "ID=ubuntu\nVERSION_CODENAME=noble\n"
	for _, tt := range []struct {
		flavor          lab.Flavor
		osRelease, want string
	}{
		{lab.MySQL, trixie, "sid"}, {lab.MariaDB, trixie, "trixie"},
		{lab.MariaDB, noble, "bookworm"}, {lab.MariaDB, "", "bookworm"}, {lab.MariaDB, "ID=debian\n", "bookworm"},
	} {
		if got := suite(recipes[tt.flavor], tt.osRelease); got != tt.want {
			t.Errorf("%s on %q: got %s, want %s", tt.flavor, tt.osRelease, got, tt.want)
		}
	}
}

func TestProgressIsWhatMmdebstrapSaysOfItselfAndErrorsAreItsLastLines(t *testing.T) {
	var steps []string
	text := "I: extracting archives...\nGet:1 http://x\n\nI: installing\n" + strings.Repeat("noise\n", 50) + "E: No space left\n"
	last := follow(strings.NewReader(text), func(s string) { steps = append(steps, s) })
	if d := cmp.Diff([]string{"extracting archives...", "installing"}, steps); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
	if len(last) != 12 || last[11] != "E: No space left" {
		t.Errorf("last lines: %q", last)
	}
}

// cached puts a root into the store that was installed without its packages.
func cached(t *testing.T, s Store, f lab.Flavor) string {
	t.Helper()
	root, err := s.root(f)
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(root, "usr", "sbin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(bin, "mysqld")
	if err := os.WriteFile(program, []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(mark{Server{Flavor: f, Version: "1.2.3", Daemon: "/usr/sbin/mysqld"}, fi.Size(), fi.ModTime()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, markFile), b, 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

func list(t *testing.T, s Store) []string {
	t.Helper()
	servers, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, srv := range servers {
		out = append(out, string(srv.Flavor)+" "+srv.Version)
	}
	return out
}

func TestOnlyACompleteRootIsAServer(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	if got := list(t, s); got != nil {
		t.Errorf("an empty store has %v", got)
	}
	root := cached(t, s, lab.MySQL)
	cached(t, s, lab.MariaDB)
	if d := cmp.Diff([]string{"mariadb 1.2.3", "mysql 1.2.3"}, list(t, s)); d != "" {
		t.Errorf("servers (-want +got):\n%s", d)
	}
	srv, err := s.Find(t.Context(), lab.MySQL)
	if want := (Server{Flavor: lab.MySQL, Version: "1.2.3", Root: root, Daemon: "/usr/sbin/mysqld"}); srv != want || err != nil {
		t.Errorf("find: got %+v, %v, want %+v", srv, err, want)
	}
	if err := os.Remove(filepath.Join(root, markFile)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"mariadb 1.2.3"}, list(t, s)); d != "" {
		t.Errorf("without its mark (-want +got):\n%s", d)
	}
	if err := os.Remove(filepath.Join(s.Dir, "roots", "mariadb", "usr", "sbin", "mysqld")); err != nil {
		t.Fatal(err)
	}
	if got := list(t, s); got != nil {
		t.Errorf("without its program: got %v", got)
	}
}

func TestAServerInUseIsNotRemoved(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	root := cached(t, s, lab.MySQL)
	for _, seed := range []string{"mysql-1.2.3", "mariadb-1.2.3"} {
		if err := os.MkdirAll(filepath.Join(s.Dir, "seeds", seed), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	srv, err := s.Find(t.Context(), lab.MySQL)
	if err != nil {
		t.Fatal(err)
	}
	var release []func()
	for range 2 { // by two labs
		r, err := s.Hold(srv)
		if err != nil {
			t.Fatal(err)
		}
		release = append(release, r)
	}
	for _, r := range release {
		if err := s.Remove(t.Context(), lab.MySQL); err == nil {
			t.Fatal("removed while in use")
		}
		r()
	}
	if err := s.Remove(t.Context(), lab.MySQL); err != nil {
		t.Errorf("remove: %v", err)
	}
	if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the root: %v", err)
	}
	seeds, _ := filepath.Glob(filepath.Join(s.Dir, "seeds", "*"))
	if d := cmp.Diff([]string{filepath.Join(s.Dir, "seeds", "mariadb-1.2.3")}, seeds); d != "" {
		t.Errorf("seeds (-want +got):\n%s", d)
	}
	if err := s.Remove(t.Context(), lab.MySQL); err == nil {
		t.Error("removed what is not there")
	}
}

func TestAServerRootWithoutAServerIsRefusedWithAHint(t *testing.T) {
	_, err := Store{Dir: t.TempDir(), Roots: []string{t.TempDir()}}.Find(t.Context(), lab.MySQL)
	var h *lab.HintError
	if !errors.As(err, &h) || !strings.Contains(h.Hints[0], "usr/sbin/mysqld") {
		t.Errorf("got %v with %+v", err, h)
	}
}

func TestWhatCannotBeInstalledIsSaid(t *testing.T) {
	_, err := Store{Dir: t.TempDir()}.Install(t.Context(), lab.PXC, nil)
	var h *lab.HintError
	if !errors.As(err, &h) || !strings.Contains(h.Hints[0], "mariadb mysql") {
		t.Errorf("got %v with %+v", err, h)
	}
}

func TestALockIsWaitedForAndTheWaitIsSaidOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "lock")
	said := 0
	say := func() { said++ }
	unlock, err := lockFile(t.Context(), path, say)
	if err != nil || said > 0 {
		t.Fatalf("a free lock: %v, waiting was said %d times", err, said)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := lockFile(ctx, path, say); !errors.Is(err, context.DeadlineExceeded) || said != 1 {
		t.Errorf("got %v, said %d times, want %v, once", err, said, context.DeadlineExceeded)
	}
	unlock()
	unlock, err = lockFile(t.Context(), path, say)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestACopyHasTheContentsModesLinksAndHoles(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	if err := os.MkdirAll(filepath.Join(from, "sub"), 0o750); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"empty": nil, "small": []byte("x"), "sub/big": []byte(strings.Repeat("0123456789abcdef", 200_000)),
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(from, name), b, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	sparse, err := os.Create(filepath.Join(from, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	sparse.WriteAt([]byte("middle"), 3<<20)
	sparse.Truncate(8 << 20)
	sparse.Close()
	files["sparse"] = slices.Concat(make([]byte, 3<<20), []byte("middle"), make([]byte, 5<<20-6))
	if err := os.Symlink("small", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	if err := CopyDir(t.Context(), from, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(to, name))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: got %d bytes, %v, want %d", name, len(got), err, len(want))
		}
	}
	for name, want := range map[string]fs.FileMode{"sub": 0o750, "small": 0o640} {
		if fi, err := os.Stat(filepath.Join(to, name)); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want %v", name, fi.Mode(), err, want)
		}
	}
	if l, err := os.Readlink(filepath.Join(to, "link")); l != "small" || err != nil {
		t.Errorf("link: got %q, %v", l, err)
	}
	if err := CopyDir(t.Context(), from, to); !errors.Is(err, fs.ErrExist) {
		t.Errorf("copy onto what is there: got %v, want %v", err, fs.ErrExist)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := CopyDir(ctx, from, to+"2"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestWhatAnInterruptedInstallLeftIsCleanedUnlessOneIsRunning(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	half := filepath.Join(s.Dir, "roots", "mysql.new-1")
	whole := filepath.Join(s.Dir, "roots", "mysql")
	for _, dir := range []string{half, whole} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	unlock, err := tryLock(whole + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	if done, err := s.Clean(); err != nil || len(done) != 0 {
		t.Errorf("during an install: cleaned %v, %v", done, err)
	}
	unlock()
	if done, err := s.Clean(); err != nil || !slices.Equal(done, []string{half}) {
		t.Errorf("cleaned %v, %v, want %s", done, err, half)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", half, err)
	}
	if _, err := os.Stat(whole); err != nil {
		t.Error(err)
	}
}
