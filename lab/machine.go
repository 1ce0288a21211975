package lab

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// What a node needs, about: an idle MySQL with a 128 MB buffer pool, and its
// data directory with logs under load.
const (
	memoryPerNode = 800 << 20
	diskPerNode   = 1 << 30
)

// CheckMemory says, by ErrCannot, that this machine has no memory for so many
// nodes.
func CheckMemory(nodes int) error {
	free, ok := availableMemory()
	if need := uint64(nodes) * memoryPerNode; ok && free < need {
		return Hint(fmt.Errorf("%w run %d nodes: they need about %d MB of memory and %d MB are available",
			ErrCannot, nodes, need>>20, free>>20),
			"use fewer nodes (--nodes), or end other labs: faultlab down --all")
	}
	return nil
}

// CheckDisk says, by ErrCannot, that the file system that dir is on, or will be
// made on, has no room for the data of the spec's nodes. elsewhere says how to
// keep them on another.
func CheckDisk(dir string, spec Spec, elsewhere string) error {
	need := uint64(len(spec.Nodes)) * (diskPerNode + uint64(max(spec.Data, 0)))
	var fs unix.Statfs_t
	for {
		err := unix.Statfs(dir, &fs)
		if errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return fmt.Errorf("free space of %s: %w", dir, err)
		}
		break
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < need {
		return Hint(fmt.Errorf("%w run the lab: it needs about %d MB in %s and %d MB are free", ErrCannot, need>>20, dir, free>>20),
			"free some space, or "+elsewhere)
	}
	return nil
}

// availableMemory is what can be used without swapping, in bytes.
func availableMemory() (uint64, bool) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var kb uint64
		if n, _ := fmt.Sscanf(sc.Text(), "MemAvailable: %d kB", &kb); n == 1 {
			return kb << 10, true
		}
	}
	return 0, false
}
