package lab

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// flushes is how many flushes FlushTime takes the median of.
const flushes = 25

// FlushTime measures how long the disk under dir takes to keep 4 kB for good,
// as every commit has to wait for: the median of a few dozen. dir need not
// exist; what lies above it then is measured. On a file system in memory it is
// next to nothing.
func FlushTime(dir string) (time.Duration, error) {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	f, err := os.CreateTemp(dir, ".faultlab-flush-")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	defer os.Remove(f.Name())
	block := make([]byte, 4096)
	var took []time.Duration
	for n := range flushes {
		began := time.Now()
		if _, err := f.WriteAt(block, int64(n)*int64(len(block))); err != nil {
			return 0, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[flushes/2], nil
}
