package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem/netns"
	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/scenarios"
	"github.com/faultlab/faultlab/scenarios/engine"
)

func TestOptionsMayStandBehindArguments(t *testing.T) {
	app := newApp(nil, nil, nil)
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"list", "list"},
		{"run x", "run -- x"},
		{"run --json x", "run --json -- x"},
		{"run x --json", "run --json -- x"},
		{"run x --pairs 3 --json", "run --pairs 3 --json -- x"},
		{"run x --pairs=3 y", "run --pairs=3 -- x y"},
		{"run --pairs 3 x --threads 4", "run --pairs 3 --threads 4 -- x"},
		// The value of an option may look like one.
		{"run x --threads -1", "run --threads -1 -- x"},
		{"run x -json", "run -json -- x"},
		{"report x -f md -o -", "report -f md -o - -- x"},
		{"report -", "report -- -"},
		// Behind -- everything is an argument.
		{"sql l n1 -- --json", "sql -- l n1 --json"},
		{"sql l n1 --json -- -x", "sql --json -- l n1 -x"},
		{"servers list --json", "servers list --json"},
		{"servers install mysql mariadb", "servers install -- mysql mariadb"},
		// What is no option is left to the library to refuse.
		{"run x --nope y", "run --nope -- x y"},
		{"run x --pairs", "run --pairs -- x"},
		// Nor can what is no command have options.
		{"frob x --json", "frob x --json"},
		{"servers frob --json", "servers frob --json"},
		{"--version", "--version"},
		// Help is about the command, whatever its arguments.
		{"run x --help", "run --help"},
		{"run -h x", "run -h"},
	} {
		got := permute(app, append([]string{"faultlab"}, strings.Fields(c.in)...))
		if want := append([]string{"faultlab"}, strings.Fields(c.want)...); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", c.in, got, want)
		}
	}
}

func TestErrorsAreToldWithTheirHintsAndExitCode(t *testing.T) {
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		code int
		want string
	}{
		{"none", t.Context(), nil, 0, ""},
		{"plain", t.Context(), errors.New("no luck"), 1, "faultlab: error: no luck\n"},
		{"usage", t.Context(), usage("bad %s", "word"), 2, "faultlab: error: bad word\n"},
		{"silent", t.Context(), &exit{exitInvalid, nil}, 4, ""},
		{"silent within", t.Context(), fmt.Errorf("run: %w", &exit{exitVerdict, nil}), 3, ""},
		{"hints, the outermost first", t.Context(), lab.Hint(fmt.Errorf("up: %w", lab.Hint(errors.New("no server"), "install one")), "or ask doctor"), 1,
			"faultlab: error: up: no server\nhint: or ask doctor\nhint: install one\n"},
		{"usage with a hint within", t.Context(), &exit{exitUsage, lab.Hint(errors.New("no"), "yes")}, 2, "faultlab: error: no\nhint: yes\n"},
		{"a package without hints", t.Context(), fmt.Errorf("open: %w", netns.ErrUnsupported), 1,
			"faultlab: error: open: network namespaces need root on Linux\nhint: faultlab makes network namespaces: run it as root (sudo)\n"},
		{"interrupted", interrupted, fmt.Errorf("prepare: %w", context.Canceled), 130, "faultlab: interrupted\n"},
		{"interrupted with a word", interrupted, &exit{exitInterrupted, errors.New("what was measured is kept")}, 130, "faultlab: error: what was measured is kept\n"},
		{"not by the user", t.Context(), context.Canceled, 1, "faultlab: error: context canceled\n"},
		{"failed after the interrupt", interrupted, errors.New("disk full"), 1, "faultlab: error: disk full\n"},
		{"problem", t.Context(), &exit{exitUsage, &scenarios.Problem{Message: "no scenario", Hint: "did you mean x?"}}, 2,
			"faultlab: error: no scenario\nhint: did you mean x?\n"},
		{"problems of flags", t.Context(), scenarios.Problems{{Message: "one", Hint: "a"}, {Message: "two"}}, 2,
			"faultlab: error: one\nhint: a\nfaultlab: error: two\n"},
		{"problems of a file", t.Context(), fmt.Errorf("check: %w", scenarios.Problems{{File: "f.yaml", Line: 3, Column: 7, Message: "one", Hint: "a"}}), 2,
			"f.yaml:3:7: one\n    hint: a\n"},
	} {
		var out bytes.Buffer
		if code := explain(c.ctx, &out, c.err); code != c.code {
			t.Errorf("%s: got exit code %d, want %d", c.name, code, c.code)
		}
		if diff := cmp.Diff(c.want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestHowARunEndedIsItsExitCode(t *testing.T) {
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	valid, invalid := results.Row{Valid: true}, results.Row{}
	fail, pass := results.Verdict{Outcome: "fail"}, results.Verdict{Outcome: "pass"}
	for _, c := range []struct {
		name string
		ctx  context.Context
		run  results.Run
		err  error
		want int
	}{
		{"all well", t.Context(), results.Run{Rows: []results.Row{valid, valid}, Verdicts: []results.Verdict{pass}}, nil, 0},
		{"a row is invalid", t.Context(), results.Run{Rows: []results.Row{valid, invalid}}, nil, 4},
		{"a verdict failed", t.Context(), results.Run{Rows: []results.Row{valid}, Verdicts: []results.Verdict{pass, fail}}, nil, 3},
		{"both", t.Context(), results.Run{Rows: []results.Row{invalid}, Verdicts: []results.Verdict{fail}}, nil, 3},
		{"failed", t.Context(), results.Run{Rows: []results.Row{invalid}}, errors.New("disk full"), 1},
		{"interrupted", interrupted, results.Run{Rows: []results.Row{invalid}}, context.Canceled, 130},
	} {
		if got := explain(c.ctx, &bytes.Buffer{}, verdict(c.ctx, c.run, c.err)); got != c.want {
			t.Errorf("%s: got exit code %d, want %d", c.name, got, c.want)
		}
	}
}

func TestProgressIsALineForEachStepWhereThereIsNoTerminal(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	at := engine.Progress{Topology: "mgr", Index: 4, Count: 5, Pairs: 5}
	tell := func(step, condition string, pair int, tps float64, left time.Duration) {
		e := at
		e.Step, e.Condition, e.Pair, e.TPS, e.Left = step, condition, pair, tps, left
		p.Tell(e)
	}
	tell("lab", "", 0, 0, 90*time.Second)
	tell("warm-up", "", 0, 0, 80*time.Second)
	tell("warm-up", "", 0, 812, 79*time.Second) // only a figure changed
	tell("settle", "baseline", 1, 800, 70*time.Second)
	tell("measure", "baseline", 1, 800, 69*time.Second)
	tell("measure", "baseline", 1, 830, 68*time.Second)
	p.Note("a note")
	tell("down", "", 0, 0, 0)
	p.Done()
	want := "[4/5] mgr        lab  (about 1m30s left)\n" +
		"[4/5] mgr        warm-up  (about 1m20s left)\n" +
		"[4/5] mgr       pair 1/5  baseline  measure  (about 1m9s left)\n" +
		"a note\n" +
		"[4/5] mgr        down\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func TestProgressIsOneLineThatIsWrittenOverOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.terminal = func() (int, bool) { return 60, true }
	p.Tell(engine.Progress{Topology: "semisync", Index: 1, Count: 2, Condition: "+0.6ms", Pair: 2, Pairs: 5, Step: "measure", TPS: 1234.4, Left: time.Minute})
	p.Tell(engine.Progress{Topology: "mgr", Index: 2, Count: 2, Step: "lab"})
	p.Note("note")
	p.Done()
	if strings.Count(out.String(), "\n") != 1 {
		t.Errorf("got %q, want one line of its own, the note", out.String())
	}
	if got := screen(out.String()); !slices.Equal(got, []string{"note", ""}) {
		t.Errorf("a terminal shows %q at the end, want the note alone", got)
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(out.String(), "\n", "\r"), "\r") {
		if len(line) >= 60 {
			t.Errorf("%q would wrap at 60 columns", line)
		}
	}
	if !strings.Contains(out.String(), "1234 TPS") {
		t.Errorf("got %q, want the TPS in it", out.String())
	}
}

// screen is what a terminal shows of text with carriage returns.
func screen(text string) []string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		var cells []byte
		for part := range strings.SplitSeq(line, "\r") {
			cells = append([]byte(part), cells[min(len(part), len(cells)):]...)
		}
		lines = append(lines, strings.TrimRight(string(cells), " "))
	}
	return lines
}

// A number alone could be any process's by now: only one that has the lab's
// journal open may be ended.
func TestAProcessHoldsALabWhoseFileItHasOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lab")
	other := dir + "-2"
	for _, d := range []string{dir, other} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(other, "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if holds(os.Getpid(), dir) {
		t.Errorf("holds %s by a file of %s", dir, other)
	}
	if !holds(os.Getpid(), other) {
		t.Errorf("does not hold %s with its file open", other)
	}
	if holds(1<<22+1, other) {
		t.Error("a process that is not there holds a lab")
	}
	f.Close()
	if holds(os.Getpid(), other) {
		t.Errorf("holds %s after its file was closed", other)
	}
}

func TestEstimatesAreRoundedToWhatTheyAreWorth(t *testing.T) {
	for d, want := range map[time.Duration]string{
		34 * time.Second: "30s", 119 * time.Second: "2m0s", 5*time.Minute + 20*time.Second: "5 min", 119 * time.Minute: "119 min", 55*time.Hour + 40*time.Minute: "56 h",
	} {
		if got := about(d); got != want {
			t.Errorf("about(%v): got %q, want %q", d, got, want)
		}
	}
}

func TestThePasswordOfALabIsNotPartOfWhatIsPrinted(t *testing.T) {
	s := lab.State{Name: "l", Nodes: []lab.StateNode{{Name: "n1", Addr: "198.18.0.11:3306"}}, Credentials: lab.Credentials{User: "faultlab", Password: "s3cr3t"}}
	var out bytes.Buffer
	c := &command{stdout: &out}
	if err := c.howTo(s); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(&out, redacted(s)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "s3cr3t") {
		t.Errorf("the password is in\n%s", out.String())
	}
	if !strings.Contains(out.String(), "faultlab sql l n1") || !strings.Contains(out.String(), "198.18.0.11:3306") {
		t.Errorf("got %q, want how to connect", out.String())
	}
}
