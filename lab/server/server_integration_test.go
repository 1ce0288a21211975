//go:build integration

package server

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab"
)

// rootsEnv lists server roots for machines whose cache has none.
const rootsEnv = "FAULTLAB_TEST_SERVER_ROOTS"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == JailArg {
		JailMain()
	}
	os.Exit(m.Run())
}

func TestAJailShowsWhatItWasGivenAndEndsWithItsProgram(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("given\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// What it leaves running must not outlive it.
	script := `cat /given/f; echo x 2>/dev/null >/given/g || echo read-only; hostname; cat /etc/hosts | tail -1; id -u; ls /root 2>/dev/null || echo no root; sleep 600 & exit 3`
	p := Jail{Root: "/", Hostname: "inside", Hosts: "198.18.0.11 n1\n", Mounts: []Mount{{From: dir, To: "/given"}}, Args: []string{"/bin/sh", "-c", script}}
	begin := time.Now()
	out, err := p.output()
	if errors.Is(err, lab.ErrCannot) {
		t.Skip(err)
	}
	want := "given\nread-only\ninside\n198.18.0.11 n1\n65520\nno root\n"
	if d := cmp.Diff(want, string(out)); d != "" {
		t.Errorf("inside (-want +got):\n%s", d)
	}
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v, want exit status 3", err)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %v: something lived on", took)
	}
}

func TestAJailThatCannotBeMadeSaysWhy(t *testing.T) {
	for want, j := range map[string]Jail{
		"/no/such/program":  {Root: "/", Args: []string{"/no/such/program"}},
		"/no/such/mount":    {Root: "/", Args: []string{"/bin/true"}, Mounts: []Mount{{From: "/no/such/mount", To: "/x"}}},
		"/run/netns/absent": {Root: "/", Args: []string{"/bin/true"}, Netns: "/run/netns/absent"},
	} {
		_, err := j.Start()
		if errors.Is(err, lab.ErrCannot) {
			t.Skip(err)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want something about %s", err, want)
		}
	}
}

func TestASeedIsMadeOnceAndHasNoIdentity(t *testing.T) {
	for _, f := range Installable() {
		t.Run(string(f), func(t *testing.T) {
			named := Store{Roots: filepath.SplitList(os.Getenv(rootsEnv))}
			srv, err := named.Find(t.Context(), f)
			if errors.Is(err, lab.ErrCannot) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			s := Store{Dir: t.TempDir(), Roots: []string{srv.Root}}
			if found, err := s.Find(t.Context(), f); found != srv || err != nil {
				t.Errorf("find by root: got %+v, %v, want %+v", found, err, srv)
			}
			if srv.Version == "" || srv.Client == "" || (f == lab.MariaDB && srv.Galera == "") {
				t.Errorf("incomplete: %+v", srv)
			}
			var mu sync.Mutex
			var made int
			var wg sync.WaitGroup
			dirs := make([]string, 3)
			for i := range dirs {
				wg.Go(func() {
					var err error
					dirs[i], err = s.Seed(t.Context(), srv, func(step string) {
						mu.Lock()
						defer mu.Unlock()
						if strings.HasPrefix(step, "initialising") {
							made++
						}
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if made != 1 || dirs[0] != dirs[1] || dirs[1] != dirs[2] {
				t.Errorf("made %d times, as %v", made, dirs)
			}
			if _, err := os.Stat(filepath.Join(dirs[0], "mysql")); err != nil {
				t.Errorf("not initialised: %v", err)
			}
			if _, err := os.Stat(filepath.Join(dirs[0], "auto.cnf")); err == nil {
				t.Error("the seed has a server's identity")
			}
			left, _ := filepath.Glob(filepath.Join(s.Dir, "seeds", ".new-*"))
			if len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
