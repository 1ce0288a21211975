package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/faultlab/faultlab/results"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func create(t *testing.T, out string) *Store {
	t.Helper()
	s, err := Create(out, "latency-0.6ms", now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func run(windows int) results.Run {
	r := results.Run{Schema: results.Schema, Scenario: "latency-0.6ms", Profile: "quick", Started: now, Status: results.Running}
	for i := range windows {
		r.Windows = append(r.Windows, results.Window{Topology: "mgr", Condition: "baseline", Pair: i + 1, TPS: 1000})
	}
	return r
}

func TestWhatWasKeptIsRead(t *testing.T) {
	s := create(t, filepath.Join(t.TempDir(), "deep", "out"))
	sample := results.Sample{Time: now, Topology: "mgr", Condition: "baseline", Pair: 1, TPS: 1234, P50: 1.5}
	event := results.Event{Time: now, Kind: "fault", Text: "rtt +0.6ms"}
	for _, err := range []error{
		s.Save(run(1)), s.Sample(sample), s.Event(event), s.Save(run(2)), s.Sample(sample),
		s.Scenario([]byte("schema: 1\n")),
		s.Report(func(w io.Writer) error { _, err := io.WriteString(w, "<!doctype html>"); return err }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// Nothing is closed: a killed run leaves the same.
	want := Record{Dir: s.Dir(), Run: run(2), Samples: []results.Sample{sample, sample}, Events: []results.Event{event}}
	want.Run.ID = "latency-0.6ms-20260304T050607Z"
	for _, path := range []string{s.Dir(), filepath.Join(s.Dir(), RunFile)} {
		got, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: record differs (-want +got):\n%s", path, diff)
		}
	}
	files, err := filepath.Glob(filepath.Join(s.Dir(), "*"))
	if err != nil || len(files) != 5 {
		t.Errorf("got files %q (%v), want five and nothing beside them", files, err)
	}
}

func TestRunsOfTheSameSecondHaveFoldersOfTheirOwn(t *testing.T) {
	out := t.TempDir()
	var ids []string
	for range 3 {
		ids = append(ids, create(t, out).ID())
	}
	base := "latency-0.6ms-20260304T050607Z"
	if diff := cmp.Diff([]string{base, base + "-2", base + "-3"}, ids); diff != "" {
		t.Errorf("ids differ (-want +got):\n%s", diff)
	}
}

func TestAHalfWrittenLastLineIsLeftOut(t *testing.T) {
	s := create(t, t.TempDir())
	if err := errors.Join(s.Save(run(0)), s.Sample(results.Sample{Second: 1})); err != nil {
		t.Fatal(err)
	}
	appendTo(t, filepath.Join(s.Dir(), SamplesFile), `{"time":"2026-03-04T05:0`)
	r, err := Load(s.Dir())
	if err != nil || len(r.Samples) != 1 {
		t.Errorf("got %d samples, %v; want the whole one", len(r.Samples), err)
	}
}

func TestABrokenLineInTheMiddleIsNamed(t *testing.T) {
	s := create(t, t.TempDir())
	if err := s.Save(run(0)); err != nil {
		t.Fatal(err)
	}
	appendTo(t, filepath.Join(s.Dir(), EventsFile), "{}\nnonsense\n{}\n")
	if _, err := Load(s.Dir()); err == nil || !strings.Contains(err.Error(), "events.jsonl:2: ") {
		t.Errorf("got %v, want the file and line 2", err)
	}
}

func TestAFolderWithoutARunSaysSo(t *testing.T) {
	empty := t.TempDir()
	began := create(t, t.TempDir())
	newer := create(t, t.TempDir())
	if err := os.WriteFile(filepath.Join(newer.Dir(), RunFile), []byte(`{"schema": 99}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{empty: "no run in", began.Dir(): "ended before it kept anything", newer.Dir(): "schema 99"} {
		if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", dir, err, want)
		}
	}
	if _, err := Load(empty); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

func TestSamplesOfManyWritersStayWholeLines(t *testing.T) {
	s := create(t, t.TempDir())
	if err := s.Save(run(0)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				if err := errors.Join(s.Sample(results.Sample{Pair: w, Second: i}), s.Save(run(i%5))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r, err := Load(s.Dir())
	if err != nil || len(r.Samples) != 400 {
		t.Errorf("got %d samples, %v; want 400", len(r.Samples), err)
	}
}

func TestAReportThatFailsLeavesTheOneBefore(t *testing.T) {
	s := create(t, t.TempDir())
	text := func(text string, err error) func(io.Writer) error {
		return func(w io.Writer) error {
			io.WriteString(w, text)
			return err
		}
	}
	if err := s.Report(text("good", nil)); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("template broke")
	if err := s.Report(text("bad", broken)); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if b, err := os.ReadFile(filepath.Join(s.Dir(), ReportFile)); string(b) != "good" {
		t.Errorf("got %q, %v; want the good one", b, err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.Dir(), "*.tmp")); len(left) > 0 {
		t.Errorf("got %q left behind", left)
	}
}

// A limit on file size stands in for a full disk: the kernel cuts a write short
// and refuses the next in the same way. It holds for a process, so the writer
// is this test run again in a child.
func TestAFullDiskIsSaidAndWhatWasKeptStaysWhole(t *testing.T) {
	if out := os.Getenv("FAULTLAB_TEST_FULL_DISK"); out != "" {
		fillDisk(t, out)
		return
	}
	out := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "FAULTLAB_TEST_FULL_DISK="+out)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	dirs, err := filepath.Glob(filepath.Join(out, "*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("got folders %q (%v), want one", dirs, err)
	}
	r, err := Load(dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Run.Windows) != 1 || len(r.Samples) == 0 {
		t.Errorf("got %d windows and %d samples, want the first save and some samples", len(r.Run.Windows), len(r.Samples))
	}
	if b, _ := os.ReadFile(filepath.Join(dirs[0], SamplesFile)); len(b) == 0 || b[len(b)-1] != '\n' {
		t.Errorf("got samples that end in a half line")
	}
}

func fillDisk(t *testing.T, out string) {
	s := create(t, out)
	if err := s.Save(run(1)); err != nil {
		t.Fatal(err)
	}
	limit := syscall.Rlimit{Cur: 20_000, Max: 20_000}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = s.Sample(results.Sample{Second: i})
	}
	if !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("got %v, want EFBIG", err)
	}
	if err := s.Save(run(1000)); !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("got %v, want EFBIG", err)
	}
}

func TestNoRoomIsExplained(t *testing.T) {
	err := explain(&fs.PathError{Op: "write", Path: "runs/x/run.json", Err: syscall.ENOSPC})
	const want = "no room to keep results: write runs/x/run.json: no space left on device (what was kept before is whole)"
	if err.Error() != want || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %q, want %q", err, want)
	}
}

// Whenever a run is killed, its run.json is valid: here after many kills at
// moments that nobody chose.
func TestAKilledRunLeavesAValidRun(t *testing.T) {
	if out := os.Getenv("FAULTLAB_TEST_KILLED"); out != "" {
		s := create(t, out)
		for i := 0; ; i++ {
			if err := errors.Join(s.Save(run(1+i%200)), s.Sample(results.Sample{Second: i})); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				fmt.Println("saving")
			}
		}
	}
	for i := range 10 {
		out := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "FAULTLAB_TEST_KILLED="+out)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadFull(stdout, make([]byte, len("saving")))
		time.Sleep(time.Duration(i*7) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		if err != nil {
			t.Fatal(err)
		}
		dirs, _ := filepath.Glob(filepath.Join(out, "*"))
		if len(dirs) != 1 {
			t.Fatalf("got folders %q, want one", dirs)
		}
		b, err := os.ReadFile(filepath.Join(dirs[0], RunFile))
		if err != nil || !json.Valid(b) {
			t.Errorf("kill %d: got an invalid run.json of %d bytes (%v)", i, len(b), err)
		}
		if _, err := Load(dirs[0]); err != nil {
			t.Errorf("kill %d: %v", i, err)
		}
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}
