package lab

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/faultlab/faultlab/netem"
)

func TestOneLabIsCleanedAloneAndOnlyIfItsOwnerIsDead(t *testing.T) {
	dir := t.TempDir()
	var undone []string
	undo := map[string]Undo{"thing": func(_ context.Context, id string) error {
		undone = append(undone, id)
		return nil
	}}
	dead := func(name string) {
		j, err := NewJournal(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Add("thing", name); err != nil {
			t.Fatal(err)
		}
		j.file.Close() // as its process does when it dies
	}
	dead("a")
	dead("b")
	living, err := NewJournal(dir, "c")
	if err != nil {
		t.Fatal(err)
	}
	defer living.Undo(t.Context(), undo)
	for _, name := range []string{"a", "a", "c", "nowhere"} {
		if err := CleanLab(t.Context(), dir, name, undo); err != nil {
			t.Errorf("CleanLab(%s): %v", name, err)
		}
	}
	if diff := cmp.Diff([]string{"a"}, undone); diff != "" {
		t.Errorf("undone (-want +got):\n%s", diff)
	}
	labs, err := Labs(dir)
	if diff := cmp.Diff(map[string]bool{"b": false, "c": true}, labs); err != nil || diff != "" {
		t.Errorf("labs: %v (-want +got):\n%s", err, diff)
	}
	if err := CleanLab(t.Context(), dir, "../b", undo); err == nil {
		t.Error("a name that is a path was cleaned")
	}
}

func TestAJournalIsReadWhileItsOwnerLives(t *testing.T) {
	dir := t.TempDir()
	j, err := NewJournal(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Undo(t.Context(), map[string]Undo{"thing": func(context.Context, string) error { return nil }})
	want := []Entry{{"thing", `{"with": "quotes"}`}, {"thing", "2"}}
	for _, e := range want {
		if err := j.Add(e.Kind, e.ID); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadJournal(dir, "a")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := ReadJournal(dir, "b"); !os.IsNotExist(err) {
		t.Errorf("a lab that is not there: got %v", err)
	}
}

func TestTheStateOfAShapeIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "web"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := State{Name: "web", PID: 7, Shape: &netem.Endpoint{Name: "web", Netns: "/run/netns/web", Interface: "eth0", Addr: netip.MustParseAddr("10.0.0.1")}}
	if err := want.Save(filepath.Join(dir, "web")); err != nil {
		t.Fatal(err)
	}
	got, err := LoadState(dir, "web")
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
