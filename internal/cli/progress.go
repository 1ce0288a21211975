package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/faultlab/faultlab/scenarios/engine"
)

// progress shows what a run is doing: on a terminal one line that is written
// over, elsewhere a line for each thing that begins.
type progress struct {
	w        io.Writer
	terminal func() (width int, ok bool)

	mu    sync.Mutex
	last  string // what was told last, without what changes all the time
	width int    // of the line that stands there
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, terminal: func() (int, bool) {
		f, ok := w.(*os.File)
		if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
			return 0, false
		}
		width, _, err := term.GetSize(int(f.Fd()))
		return width, err == nil
	}}
}

// Tell shows p.
func (p *progress) Tell(e engine.Progress) {
	what := fmt.Sprintf("[%d/%d] %-9s", e.Index, e.Count, e.Topology)
	if e.Variant != "" {
		what += " " + e.Variant
	}
	if e.Condition != "" {
		what += fmt.Sprintf(" pair %d/%d  %s", e.Pair, e.Pairs, e.Condition)
	}
	what += "  " + e.Step
	p.mu.Lock()
	defer p.mu.Unlock()
	width, ok := p.terminal()
	if !ok {
		if what != p.last && e.Step != "settle" {
			fmt.Fprintln(p.w, what+leftText(e.Left))
		}
		p.last = what
		return
	}
	line := what
	if e.TPS > 0 {
		line += fmt.Sprintf("  %.0f TPS", e.TPS)
	}
	line += leftText(e.Left)
	if len(line) >= width {
		line = line[:max(0, width-1)]
	}
	fmt.Fprintf(p.w, "\r%s%s", line, strings.Repeat(" ", max(0, p.width-len(line))))
	p.width = len(line)
}

// Note writes a line of its own.
func (p *progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintln(p.w, text)
}

// Done takes the line away.
func (p *progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

func (p *progress) clear() {
	if p.width > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
	}
}

func leftText(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return fmt.Sprintf("  (about %s left)", d.Round(time.Second))
}
