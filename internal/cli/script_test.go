package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/faultlab/faultlab/results"
)

var update = flag.Bool("update", false, "rewrite the golden parts of the scripts")

func TestMain(m *testing.M) {
	main := func() { os.Exit(Main(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
	testscript.Main(m, map[string]func(){
		"faultlab": main,
		// The same for a user who is not root, whoever runs the tests.
		"faultlab-nobody": func() {
			const nobody = 65534
			if os.Geteuid() == 0 {
				if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
					panic(err)
				}
			}
			main()
		},
	})
}

// What a user types and sees. Each script has its own state, cache and work
// folder; run/ holds a finished run.
func TestScripts(t *testing.T) {
	// The scripts' folder must be within reach of nobody.
	root := t.TempDir()
	for dir := root; strings.HasPrefix(dir, os.TempDir()) && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile("../../scenarios/engine/testdata/run.golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var lost results.Run // the same, with a row that is INVALID
	if err := json.Unmarshal(golden, &lost); err != nil {
		t.Fatal(err)
	}
	lost.Rows[len(lost.Rows)-1].Valid = false
	lostJSON, err := json.Marshal(lost)
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", WorkdirRoot: root, UpdateScripts: *update,
		RequireExplicitExec: false, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_STATE_HOME", e.Getenv("WORK")+"/state")
			e.Setenv("XDG_CACHE_HOME", e.Getenv("WORK")+"/cache")
			e.Setenv("NO_COLOR", "1")
			err := os.Chmod(e.WorkDir, 0o777)
			for name, run := range map[string][]byte{"run": golden, "lost": lostJSON} {
				dir := filepath.Join(e.WorkDir, name)
				err = errors.Join(err, os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "run.json"), run, 0o644))
			}
			return err
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			case "server": // one of the machine's own
				_, err := os.Stat("/usr/sbin/mysqld")
				return err == nil, nil
			}
			return false, errors.New("unknown condition " + cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"nothing-made": nothingMade, "one-document": oneDocument, "code": code,
		},
	})
}

// nothingMade checks that a command that failed has made nothing: no lab, the
// first trace of which is a folder in the state folder, no results and no cache.
func nothingMade(ts *testscript.TestScript, neg bool, args []string) {
	for _, dir := range []string{"state/faultlab/labs", "faultlab-runs", "cache/faultlab"} {
		entries, err := os.ReadDir(ts.MkAbs(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			ts.Check(err)
		}
		if len(entries) > 0 || err == nil && dir == "faultlab-runs" {
			ts.Fatalf("%s was made, with %v in it", dir, entries)
		}
	}
}

// oneDocument checks that a file ("stdout" is the last output) is exactly one
// JSON document.
func oneDocument(ts *testscript.TestScript, neg bool, args []string) {
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	var doc, more any
	if err := d.Decode(&doc); err != nil {
		ts.Fatalf("%s is no JSON: %v", args[0], err)
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		ts.Fatalf("%s has more than one document: %v, %v", args[0], more, err)
	}
}

// code runs a command of ours that must end with the exit code given first:
// "code 2 faultlab run".
func code(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND...")
	}
	script := `out=$1; shift; "$@" >"$out/stdout" 2>"$out/stderr"; printf %s $? >"$out/code"`
	dir, err := os.MkdirTemp("", "faultlab-code-")
	ts.Check(err)
	defer os.RemoveAll(dir)
	ts.Check(ts.Exec("sh", append([]string{"-c", script, "sh", dir}, args[1:]...)...))
	got, err := os.ReadFile(filepath.Join(dir, "code"))
	ts.Check(err)
	stdout, _ := os.ReadFile(filepath.Join(dir, "stdout"))
	stderr, _ := os.ReadFile(filepath.Join(dir, "stderr"))
	ts.Check(os.WriteFile(ts.MkAbs("out"), stdout, 0o644))
	ts.Check(os.WriteFile(ts.MkAbs("err"), stderr, 0o644))
	if string(got) != args[0] {
		ts.Fatalf("exit code %s, want %s\nstdout: %s\nstderr: %s", got, args[0], bytes.TrimSpace(stdout), bytes.TrimSpace(stderr))
	}
}
