package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/server"
)

// finding is one line of doctor: what was looked at, what was found, and the
// one command that mends a lack.
type finding struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	// Needed tells that nothing can be measured without it.
	Needed bool   `json:"needed"`
	Found  string `json:"found"`
	Mend   string `json:"mend,omitempty"`
}

func (c *command) doctor() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "what this machine can do, and how to mend what it cannot", Flags: []cli.Flag{jsonFlag, rootFlag},
		Action: func(ctx *cli.Context) error {
			if err := exactly(ctx); err != nil {
				return err
			}
			findings := examine(ctx.Context, servers(ctx))
			bad := false
			for _, f := range findings {
				bad = bad || f.Needed && !f.OK
			}
			if ctx.Bool("json") {
				if err := writeJSON(c.stdout, findings); err != nil {
					return err
				}
			} else {
				w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
				for _, f := range findings {
					word := "ok"
					if !f.OK {
						word = "-"
						if f.Needed {
							word = "MISSING"
						}
					}
					fmt.Fprintf(w, "%s\t%s\t%s\n", word, f.Check, f.Found)
					if f.Mend != "" {
						fmt.Fprintf(w, "\t\t  mend: %s\n", f.Mend)
					}
				}
				if err := w.Flush(); err != nil {
					return err
				}
			}
			if bad {
				return &exit{exitFailed, nil}
			}
			return nil
		},
	}
}

// examineEmulators says of each what it lacks, and which one auto takes: one is
// enough.
func examineEmulators(all []emulatorKind) []finding {
	auto := finding{Check: "emulator auto", Needed: true}
	var out []finding
	for _, k := range all {
		f := finding{Check: "emulator " + k.name, OK: true, Found: k.about}
		if err := k.probe(); err != nil {
			f.OK, f.Found = false, err.Error()
			f.Mend = strings.Join(hints(err), "; ")
			out = append(out, f)
			continue
		}
		if !auto.OK {
			auto.OK, auto.Found = true, "takes "+k.name
		}
		if k.cannot != nil {
			lacks, err := k.cannot()
			if err != nil {
				lacks = []string{err.Error()}
			}
			for i, l := range lacks {
				lacks[i], _, _ = strings.Cut(l, ":") // the rest is why
			}
			if len(lacks) > 0 {
				f.Found += ", but not for: " + strings.Join(lacks, ", ")
				f.Mend = "--emulator user does them"
			}
		}
		out = append(out, f)
	}
	if !auto.OK {
		auto.Found = "links cannot be shaped: no emulator works here"
	}
	return append(out, auto)
}

// examine looks at everything that a run needs. It tries things rather than
// read about them, and leaves nothing behind.
func examine(ctx context.Context, servers server.Store) []finding {
	env := environment()
	out := []finding{{Check: "kernel", OK: true, Found: fmt.Sprintf("Linux %s, %d processors, %d MB", env.Kernel, env.CPUs, env.MemoryBytes>>20)}}
	root := finding{Check: "root", Needed: true, OK: os.Geteuid() == 0, Found: "labs are made of network namespaces"}
	if !root.OK {
		root.Mend = "run faultlab as root: sudo faultlab ..."
	}
	out = append(out, root)

	out = append(out, examineEmulators(emulators())...)

	for _, f := range []struct {
		flavor lab.Flavor
		serves string
		needed bool
	}{
		{lab.MySQL, "single, async, semisync, mgr", true},
		{lab.MariaDB, "galera", false},
		{lab.PXC, "pxc; galera stands in for it", false},
	} {
		s, err := servers.Find(ctx, f.flavor)
		line := finding{Check: "server " + string(f.flavor), Needed: f.needed, OK: err == nil}
		switch {
		case err == nil:
			line.Found = fmt.Sprintf("%s in %s", s.Version, s.Root)
		case errors.Is(err, lab.ErrNoServer):
			line.Found = "not at hand (for " + f.serves + ")"
			for _, k := range server.Installable() {
				if k == f.flavor {
					line.Mend = "faultlab servers install " + string(f.flavor)
				}
			}
		default:
			line.Found = err.Error()
		}
		out = append(out, line)
	}
	install := finding{Check: "mmdebstrap", Found: "makes server roots of Debian packages"}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		install.Mend = "apt-get install mmdebstrap"
	} else {
		install.OK = true
	}
	out = append(out, install)

	out = append(out, examineDocker(ctx))

	state := lab.StateDir()
	disk := finding{Check: "state folder", Needed: true, OK: true, Found: state}
	for dir := state; ; dir = filepath.Dir(dir) {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err == nil {
			free := int64(st.Bavail) * st.Bsize
			disk.Found = fmt.Sprintf("%s, %d MB free", state, free>>20)
			disk.OK = free > 3<<30
			if !disk.OK {
				disk.Mend = "free some space: three nodes take about 3 GB"
			}
			break
		}
		if dir == "/" {
			break
		}
	}
	out = append(out, disk)

	left := finding{Check: "leftovers", OK: true, Found: "none"}
	if labs, err := lab.Labs(state); err == nil {
		dead, alive := 0, 0
		for _, a := range labs {
			if a {
				alive++
			} else {
				dead++
			}
		}
		left.Found = fmt.Sprintf("%d labs of dead processes, %d running", dead, alive)
		if dead > 0 {
			left.OK, left.Mend = false, "faultlab clean"
		}
	}
	return append(out, left)
}
