package lab_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab"
)

// recorder undoes things of kind "thing" and remembers in which order.
type recorder struct {
	undone []string
	fail   map[string]error
}

func (r *recorder) undo() map[string]lab.Undo {
	return map[string]lab.Undo{"thing": func(ctx context.Context, id string) error {
		r.undone = append(r.undone, id)
		return r.fail[id]
	}}
}

// dead makes a journal whose owner was killed without a word.
func dead(t *testing.T, stateDir, name string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LAB_TEST_OWNER="+name, "LAB_TEST_STATE="+stateDir)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Fatalf("the owner ended by itself: %s", out)
	}
}

func TestMain(m *testing.M) {
	if name := os.Getenv("LAB_TEST_OWNER"); name != "" {
		j, err := lab.NewJournal(os.Getenv("LAB_TEST_STATE"), name)
		if err != nil {
			panic(err)
		}
		j.Add("thing", name+"-1")
		j.Add("thing", name+"-2")
		self, _ := os.FindProcess(os.Getpid())
		self.Kill()
		select {}
	}
	os.Exit(m.Run())
}

func labs(t *testing.T, dir string) map[string]bool {
	t.Helper()
	m, err := lab.Labs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	des, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, de := range des {
		out = append(out, de.Name())
	}
	return out
}

func journal(t *testing.T, dir, name string, things ...string) *lab.Journal {
	t.Helper()
	j, err := lab.NewJournal(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range things {
		if err := j.Add("thing", id); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

func TestWhatWasMadeLastIsUndoneFirstAndNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	j := journal(t, dir, "a", "1", "2", "3")
	if err := os.WriteFile(filepath.Join(j.Dir(), "log"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var r recorder
	for range 2 {
		if err := j.Undo(t.Context(), r.undo()); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"3", "2", "1"}, r.undone); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestANameIsTakenWhileItsLabLives(t *testing.T) {
	dir := t.TempDir()
	j := journal(t, dir, "a", "1")
	_, err := lab.NewJournal(dir, "a")
	if !errors.Is(err, lab.ErrTaken) {
		t.Errorf("got %v, want %v", err, lab.ErrTaken)
	}
	if d := cmp.Diff(map[string]bool{"a": true}, labs(t, dir)); d != "" {
		t.Errorf("labs (-want +got):\n%s", d)
	}
	var r recorder
	if done, err := lab.Clean(t.Context(), dir, r.undo()); len(done) > 0 || err != nil || len(r.undone) > 0 {
		t.Errorf("clean of a living lab: %v, %v, undone %v", done, err, r.undone)
	}
	if err := j.Undo(t.Context(), r.undo()); err != nil {
		t.Fatal(err)
	}
	journal(t, dir, "a").Undo(t.Context(), nil)
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestNamesThatAreNoNamesAreRefused(t *testing.T) {
	for _, name := range []string{"", "UPPER", "a/b", "..", "-a", "a-", "a b", "ä",
		"a234567890123456789012345678901234567890123456789"} {
		dir := t.TempDir()
		if _, err := lab.NewJournal(dir, name); err == nil {
			t.Errorf("%q was taken as a name", name)
		}
		if left := names(t, dir); len(left) > 0 {
			t.Errorf("%q left behind: %v", name, left)
		}
	}
}

func TestUndoGoesOnPastErrorsAndTheJournalStays(t *testing.T) {
	dir := t.TempDir()
	j := journal(t, dir, "a", "1", "2", "3")
	broken := errors.New("broken")
	r := recorder{fail: map[string]error{"2": broken}}
	if err := j.Undo(t.Context(), r.undo()); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if d := cmp.Diff([]string{"3", "2", "1"}, r.undone); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
	r = recorder{}
	if err := j.Undo(t.Context(), r.undo()); err != nil {
		t.Errorf("second try: %v", err)
	}
	if left := names(t, dir); len(r.undone) != 3 || len(left) > 0 {
		t.Errorf("second try undid %v and left %v", r.undone, left)
	}
}

func TestAThingOfAnUnknownKindKeepsTheJournal(t *testing.T) {
	dir := t.TempDir()
	j := journal(t, dir, "a", "1")
	if err := j.Undo(t.Context(), nil); err == nil {
		t.Error("a journal was dropped with a thing in it that nothing can remove")
	}
	if d := cmp.Diff(map[string]bool{"a": true}, labs(t, dir)); d != "" {
		t.Errorf("labs (-want +got):\n%s", d)
	}
}

func TestCleanUndoesTheLabsOfDeadOwnersOnly(t *testing.T) {
	dir := t.TempDir()
	dead(t, dir, "a")
	dead(t, dir, "b")
	alive := journal(t, dir, "c", "c-1")
	if _, err := lab.NewJournal(dir, "a"); !errors.Is(err, lab.ErrTaken) {
		t.Errorf("the name of a dead lab: got %v, want %v", err, lab.ErrTaken)
	}
	if d := cmp.Diff(map[string]bool{"a": false, "b": false, "c": true}, labs(t, dir)); d != "" {
		t.Errorf("labs (-want +got):\n%s", d)
	}
	broken := errors.New("broken")
	r := recorder{fail: map[string]error{"b-1": broken}}
	done, err := lab.Clean(t.Context(), dir, r.undo())
	if d := cmp.Diff([]string{"a"}, done); d != "" || !errors.Is(err, broken) {
		t.Errorf("clean: got %v, %v, want [a] and %v", done, err, broken)
	}
	if d := cmp.Diff(map[string]bool{"b": false, "c": true}, labs(t, dir)); d != "" {
		t.Errorf("labs (-want +got):\n%s", d)
	}
	r = recorder{}
	done, err = lab.Clean(t.Context(), dir, r.undo())
	if d := cmp.Diff([]string{"b"}, done); d != "" || err != nil {
		t.Errorf("clean again: got %v, %v, want [b]", done, err)
	}
	if d := cmp.Diff([]string{"b-2", "b-1"}, r.undone); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
	if err := alive.Undo(t.Context(), r.undo()); err != nil {
		t.Error(err)
	}
}

func TestALineCutShortByACrashIsNoThing(t *testing.T) {
	dir := t.TempDir()
	dead(t, dir, "a")
	path := filepath.Join(dir, "a", "journal.jsonl")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"kind":"thing","id":"a-`)
	f.Close()
	var r recorder
	if done, err := lab.Clean(t.Context(), dir, r.undo()); len(done) != 1 || err != nil {
		t.Errorf("clean: %v, %v", done, err)
	}
	if d := cmp.Diff([]string{"a-2", "a-1"}, r.undone); d != "" {
		t.Errorf("undone (-want +got):\n%s", d)
	}
}

func TestAFolderWithoutAJournalIsCleanedOnceItIsNoNewborn(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"empty", ".new-young", ".new-old", ".gone-old", ".gone-young"} {
		if err := os.Mkdir(filepath.Join(dir, n), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	hourAgo := time.Now().Add(-time.Hour)
	for _, n := range []string{".new-old", ".gone-old"} {
		if err := os.Chtimes(filepath.Join(dir, n), hourAgo, hourAgo); err != nil {
			t.Fatal(err)
		}
	}
	done, err := lab.Clean(t.Context(), dir, nil)
	if d := cmp.Diff([]string{".gone-old", ".gone-young", ".new-old", "empty"}, done); d != "" || err != nil {
		t.Errorf("clean: got %v, %v", done, err)
	}
	if d := cmp.Diff([]string{".new-young"}, names(t, dir)); d != "" {
		t.Errorf("left (-want +got):\n%s", d)
	}
}

func TestAStateFolderThatIsNotThereHasNoLabs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	if m := labs(t, dir); len(m) > 0 {
		t.Errorf("got %v", m)
	}
	if done, err := lab.Clean(t.Context(), dir, nil); len(done) > 0 || err != nil {
		t.Errorf("clean: %v, %v", done, err)
	}
}
