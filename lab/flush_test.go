package lab

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheTimeOfAFlushIsMeasuredWhereALabWouldLieAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	d, err := FlushTime(filepath.Join(dir, "not", "yet"))
	if err != nil || d <= 0 {
		t.Errorf("got %v, %v", d, err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	if _, err := FlushTime("/proc"); err == nil {
		t.Error("no error where nothing can be written")
	}
}
