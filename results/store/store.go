// Package store owns the folder of a run: its files, and that whatever ends the
// run, what was measured until then can be read.
//
//	run.json       the run as it stands, replaced whole at every save
//	samples.jsonl  one line a second of each window, appended
//	events.jsonl   one line an event, appended
//	scenario.yaml  the resolved scenario
//	report.html    at the end
package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/faultlab/faultlab/results"
)

// Files of a run's folder.
const (
	RunFile      = "run.json"
	SamplesFile  = "samples.jsonl"
	EventsFile   = "events.jsonl"
	ScenarioFile = "scenario.yaml"
	ReportFile   = "report.html"
)

// Store keeps one run. It is a results.Sink, safe for concurrent use.
type Store struct {
	id, dir         string
	mu              sync.Mutex // saves, and Close against all else
	samples, events *journal
}

var _ results.Sink = (*Store)(nil)

// Create makes the folder of a new run in outDir, which is made too. The run's
// ID, and the folder's name, is the scenario's name and the time in UTC, with a
// number where two runs began in the same second.
func Create(outDir, scenario string, now time.Time) (*Store, error) {
	if err := os.MkdirAll(outDir, 0o755); err != nil {
		return nil, explain(err)
	}
	base := scenario + "-" + now.UTC().Format("20060102T150405Z")
	id := base
	for n := 2; ; n++ {
		err := os.Mkdir(filepath.Join(outDir, id), 0o755)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, explain(err)
		}
		id = fmt.Sprintf("%s-%d", base, n)
	}
	s := &Store{id: id, dir: filepath.Join(outDir, id)}
	var err error
	if s.samples, err = openJournal(filepath.Join(s.dir, SamplesFile)); err != nil {
		return nil, err
	}
	if s.events, err = openJournal(filepath.Join(s.dir, EventsFile)); err != nil {
		s.samples.Close()
		return nil, err
	}
	return s, nil
}

// ID is the run's ID.
func (s *Store) ID() string { return s.id }

// Dir is the run's folder.
func (s *Store) Dir() string { return s.dir }

// Sample appends one second.
func (s *Store) Sample(x results.Sample) error { return s.samples.append(x) }

// Event appends an event.
func (s *Store) Event(e results.Event) error { return s.events.append(e) }

// Save replaces run.json. The run's ID becomes the store's.
func (s *Store) Save(run results.Run) error {
	run.ID = s.id
	b, err := json.MarshalIndent(run, "", "  ")
	if err != nil {
		return fmt.Errorf("run %s: %w", s.id, err)
	}
	return s.replace(RunFile, func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
}

// Scenario keeps the resolved scenario.
func (s *Store) Scenario(yaml []byte) error {
	return s.replace(ScenarioFile, func(w io.Writer) error {
		_, err := w.Write(yaml)
		return err
	})
}

// Report keeps the report that write writes.
func (s *Store) Report(write func(io.Writer) error) error { return s.replace(ReportFile, write) }

// Close ends the run's files. What was written stays readable without it.
func (s *Store) Close() error {
	return errors.Join(s.samples.Close(), s.events.Close())
}

func (s *Store) replace(name string, write func(io.Writer) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return replaceFile(filepath.Join(s.dir, name), write)
}

// replaceFile writes a file whole: whoever reads the path, and whenever the
// machine stops, finds the old content or the new.
func replaceFile(path string, write func(io.Writer) error) (err error) {
	tmp := path + ".tmp" // one writer a folder, so a left one is overwritten
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return explain(err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(tmp)
			err = explain(err)
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync() // the rename itself is not on disk before
}

// journal is a file of JSON lines that only grows, and only by whole lines.
type journal struct {
	mu   sync.Mutex
	f    *os.File
	size int64 // of the whole lines
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err != nil {
		return nil, explain(err)
	}
	return &journal{f: f}, nil
}

func (j *journal) append(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", j.f.Name(), err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	n, err := j.f.Write(append(b, '\n'))
	if err != nil {
		if n > 0 { // a full disk took half of it
			err = errors.Join(err, j.f.Truncate(j.size))
		}
		return explain(err)
	}
	j.size += int64(n)
	return nil
}

func (j *journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.f.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return explain(err)
	}
	return nil
}

// explain says in full what people meet most.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("no room to keep results: %w (what was kept before is whole)", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("results cannot be kept here: %w", err)
	}
	return fmt.Errorf("keep results: %w", err)
}

// Record is a run as it was kept.
type Record struct {
	Dir     string
	Run     results.Run
	Samples []results.Sample
	Events  []results.Event
}

// Load reads the folder of a run, or of one that is running: its status is then
// "running" and the last second may be missing. dir may be the path of its
// run.json too.
func Load(dir string) (Record, error) {
	if filepath.Base(dir) == RunFile {
		dir = filepath.Dir(dir)
	}
	r := Record{Dir: dir}
	b, err := os.ReadFile(filepath.Join(dir, RunFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, serr := os.Stat(filepath.Join(dir, SamplesFile)); serr == nil {
			return Record{}, fmt.Errorf("run in %s ended before it kept anything: %w", dir, err)
		}
		return Record{}, fmt.Errorf("no run in %s: %w", dir, err)
	}
	if err != nil {
		return Record{}, fmt.Errorf("read a run: %w", err)
	}
	if err := json.Unmarshal(b, &r.Run); err != nil {
		return Record{}, fmt.Errorf("%s: %w", filepath.Join(dir, RunFile), err)
	}
	if r.Run.Schema < 1 || r.Run.Schema > results.Schema {
		return Record{}, fmt.Errorf("%s has schema %d; this faultlab reads 1 to %d", filepath.Join(dir, RunFile), r.Run.Schema, results.Schema)
	}
	if r.Samples, err = readLines[results.Sample](filepath.Join(dir, SamplesFile)); err != nil {
		return Record{}, err
	}
	if r.Events, err = readLines[results.Event](filepath.Join(dir, EventsFile)); err != nil {
		return Record{}, err
	}
	return r, nil
}

// readLines reads JSON lines. A last line without its end was being written and
// is left out; so is a file that is not there.
func readLines[T any](path string) ([]T, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a run: %w", err)
	}
	var out []T
	for n := 1; ; n++ {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if !whole {
			return out, nil
		}
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		out, b = append(out, v), rest
	}
}
