package netns

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

func TestPathIsWhereIproute2LooksForNames(t *testing.T) {
	if got, want := Path("db1"), "/run/netns/db1"; got != want {
		t.Errorf("Path(db1) = %s, want %s", got, want)
	}
}

func TestNamesThatLeaveTheFolderAreRefused(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "../etc"} {
		if err := Create(name); err == nil {
			t.Errorf("Create(%q) succeeded", name)
		}
		if err := Delete(name); err == nil {
			t.Errorf("Delete(%q) succeeded", name)
		}
	}
}

func TestProcessesFindsThoseInTheSameNamespace(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	pids, err := Processes("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]bool{}
	for _, p := range pids {
		found[p] = true
	}
	for _, want := range []int{os.Getpid(), cmd.Process.Pid} {
		if !found[want] {
			t.Errorf("Processes of own namespace = %v, lacks %d", pids, want)
		}
	}
}

func TestEnteringWhatIsNoNamespaceFails(t *testing.T) {
	err := Do("/nonexistent", func() error { t.Error("ran"); return nil })
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Do(/nonexistent) = %v, want not exist", err)
	}
}
