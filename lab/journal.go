package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Entry is one thing that a lab has made or is about to make.
type Entry struct {
	Kind string `json:"kind"` // netns, process, ...
	ID   string `json:"id"`
}

// Undo removes what an entry names. It returns nil when nothing is there, so
// that it can be called for things that were announced and never made.
type Undo func(ctx context.Context, id string) error

// ErrTaken is returned for a lab whose name a living process uses.
var ErrTaken = errors.New("lab name is taken")

// Journal is a lab's list of what it made, written before each thing is made.
// Its owner holds a lock on it for life; a journal without a living owner is
// what Clean undoes. The kernel drops the lock however the owner ends.
type Journal struct {
	dir string

	mu      sync.Mutex
	file    *os.File
	entries []Entry
}

const journalFile = "journal.jsonl"

// StateDir is the folder that holds a folder for every lab:
// $XDG_STATE_HOME/faultlab/labs, else /var/lib/faultlab/labs.
func StateDir() string {
	if d := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "faultlab", "labs")
	}
	return "/var/lib/faultlab/labs"
}

// NewJournal makes the folder and the journal of a lab in stateDir. It fails
// with ErrTaken while another lab, living or dead, has the name.
func NewJournal(stateDir, name string) (*Journal, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, err
	}
	// The folder appears with its journal already locked, by rename, so that
	// nobody takes a lab that is being born for a dead one.
	tmp, err := os.MkdirTemp(stateDir, ".new-")
	if err != nil {
		return nil, err
	}
	j, err := lockJournal(tmp, os.O_CREATE)
	if err != nil {
		os.RemoveAll(tmp)
		return nil, err
	}
	dir := filepath.Join(stateDir, name)
	if err = os.Chmod(tmp, 0o755); err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		j.file.Close()
		os.RemoveAll(tmp)
		if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
			return nil, Hint(fmt.Errorf("%w: %s", ErrTaken, name),
				"choose another name, or remove it: faultlab down "+name+", or faultlab clean if its owner is dead")
		}
		return nil, err
	}
	j.dir = dir
	return j, nil
}

// lockJournal opens the journal in dir and locks it without waiting.
func lockJournal(dir string, flag int) (*Journal, error) {
	f, err := os.OpenFile(filepath.Join(dir, journalFile), os.O_RDWR|os.O_APPEND|flag, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrTaken
		}
		return nil, err
	}
	if gone(f) {
		f.Close()
		return nil, ErrTaken
	}
	entries, err := readEntries(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Journal{dir: dir, file: f, entries: entries}, nil
}

// ReadJournal lists what a lab has announced, whoever owns it.
func ReadJournal(stateDir, name string) ([]Entry, error) {
	f, err := os.Open(filepath.Join(stateDir, name, journalFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readEntries(f)
}

func readEntries(f *os.File) (out []Entry, err error) {
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		var e Entry
		// A last line cut short by a crash announced a thing that was not
		// made: announcing comes first.
		if json.Unmarshal(sc.Bytes(), &e) == nil && e.Kind != "" {
			out = append(out, e)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return out, nil
}

// gone reports whether the file is no longer the one of its path: another
// cleaner was faster, and a new lab may already have the name.
func gone(f *os.File) bool {
	ours, err := f.Stat()
	if err != nil {
		return true
	}
	there, err := os.Stat(f.Name())
	return err != nil || !os.SameFile(ours, there)
}

// Dir is the lab's folder.
func (j *Journal) Dir() string { return j.dir }

// Name is the lab's name.
func (j *Journal) Name() string { return filepath.Base(j.dir) }

// Add announces a thing that is about to be made.
func (j *Journal) Add(kind, id string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := Entry{kind, id}
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(e); err != nil {
		return err
	}
	if _, err := j.file.Write(b.Bytes()); err != nil {
		return fmt.Errorf("journal of lab %s: %w", j.Name(), err)
	}
	j.entries = append(j.entries, e)
	return nil
}

// Undo removes everything announced, last first, then the lab's folder and
// with it the journal. It goes on past errors; with any, the journal stays so
// that Clean can try again. It is safe to call twice.
func (j *Journal) Undo(ctx context.Context, undo map[string]Undo) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	var errs []error
	for i := len(j.entries) - 1; i >= 0; i-- {
		e := j.entries[i]
		u, ok := undo[e.Kind]
		if !ok {
			errs = append(errs, fmt.Errorf("lab %s: nothing here can remove a %s (%s)", j.Name(), e.Kind, e.ID))
			continue
		}
		if err := u(ctx, e.ID); err != nil {
			errs = append(errs, fmt.Errorf("lab %s: remove %s %s: %w", j.Name(), e.Kind, e.ID, err))
		}
	}
	if len(errs) == 0 {
		errs = append(errs, j.remove())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	j.file.Close()
	j.file = nil
	return nil
}

// remove deletes the folder of a lab of which nothing else is left. It takes
// the folder out of the way first: the name is free from then on, and what is
// being deleted must not be a new lab's. The entries go before that, so that
// nobody undoes them again, by then to the new lab's harm.
func (j *Journal) remove() error {
	if err := j.file.Truncate(0); err != nil {
		return err
	}
	j.entries = nil
	gone, err := os.MkdirTemp(filepath.Dir(j.dir), goneFolder)
	if err != nil {
		return err
	}
	moved := filepath.Join(gone, j.Name())
	if err := os.Rename(j.dir, moved); err != nil {
		os.Remove(gone)
		return err
	}
	j.dir = moved
	return os.RemoveAll(gone)
}

// goneFolder begins the name of a lab's folder that is being removed.
const goneFolder = ".gone-"

// hidden says that a folder is a lab's that is not yet or no longer there.
func hidden(name string) bool { return name[0] == '.' }

// Labs lists the names of the labs that stateDir knows, and whether the
// process that made each is alive.
func Labs(stateDir string) (map[string]bool, error) {
	des, err := os.ReadDir(stateDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	labs := map[string]bool{}
	for _, de := range des {
		if !de.IsDir() {
			continue
		}
		if hidden(de.Name()) {
			continue
		}
		alive, err := owned(filepath.Join(stateDir, de.Name()))
		if err != nil {
			return nil, err
		}
		labs[de.Name()] = alive
	}
	return labs, nil
}

// owned tells whether a living process holds the journal in dir. Anybody may
// ask, so it only reads: the labs of root are alive for others too.
func owned(dir string) (bool, error) {
	f, err := os.Open(filepath.Join(dir, journalFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // a folder of somebody's, or one that is just going
	}
	if err != nil {
		return false, Hint(err, "it belongs to another user: sudo faultlab ...")
	}
	defer f.Close()
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return true, nil
	case err != nil:
		return false, err
	}
	return gone(f), nil // gone: somebody is removing it
}

// birth is longer than a lab's folder takes to get its name.
const birth = 2 * time.Second

// cleanHidden removes what a process that died left of labs on their way out,
// of which nothing but the folder was left, and of labs that never got their
// name. To help somebody who is removing one does no harm.
func cleanHidden(stateDir string) (done []string, err error) {
	des, err := os.ReadDir(stateDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var errs []error
	for _, de := range des {
		fi, err := de.Info()
		if !hidden(de.Name()) || err != nil {
			continue
		}
		if strings.HasPrefix(de.Name(), goneFolder) || time.Since(fi.ModTime()) > birth {
			done = append(done, de.Name())
			errs = append(errs, os.RemoveAll(filepath.Join(stateDir, de.Name())))
		}
	}
	return done, errors.Join(errs...)
}

// Clean undoes every journal in stateDir whose owner is dead and returns the
// names of the labs it removed.
func Clean(ctx context.Context, stateDir string, undo map[string]Undo) ([]string, error) {
	labs, err := Labs(stateDir)
	if err != nil {
		return nil, err
	}
	done, err := cleanHidden(stateDir)
	errs := []error{err}
	for name, alive := range labs {
		if alive {
			continue
		}
		switch ok, err := cleanLab(ctx, filepath.Join(stateDir, name), undo); {
		case err != nil:
			errs = append(errs, err)
		case ok:
			done = append(done, name)
		}
	}
	sort.Strings(done)
	return done, errors.Join(errs...)
}

// CleanLab undoes the journal of one lab if its owner is dead. A lab that is
// not there, or lives, is no error.
func CleanLab(ctx context.Context, stateDir, name string, undo map[string]Undo) error {
	if err := CheckName(name); err != nil {
		return err
	}
	_, err := cleanLab(ctx, filepath.Join(stateDir, name), undo)
	return err
}

func cleanLab(ctx context.Context, dir string, undo map[string]Undo) (done bool, err error) {
	j, err := lockJournal(dir, os.O_CREATE) // a folder without a journal is removed too
	if errors.Is(err, ErrTaken) || errors.Is(err, os.ErrNotExist) {
		return false, nil // somebody else cleans it or has done so
	}
	if err != nil {
		return false, err
	}
	if err = j.Undo(ctx, undo); err != nil {
		j.file.Close() // for whoever tries again
	}
	return err == nil, err
}
