package report

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// Style is how terminal text is laid out. The zero value is for a file.
type Style struct {
	Color bool
	Width int // columns, 100 where it is 0
}

const (
	defaultWidth = 100
	widest       = 120 // beyond it lines are hard to follow
	narrowest    = 40
)

// Terminal is the style for f: colour and width of a terminal unless NO_COLOR is
// set or TERM is dumb, else that of a file.
func Terminal(f *os.File) Style {
	if !term.IsTerminal(int(f.Fd())) {
		return Style{}
	}
	s := Style{Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if w, _, err := term.GetSize(int(f.Fd())); err == nil {
		s.Width = w
	}
	return s
}

func (s Style) width() int {
	if s.Width <= 0 {
		return defaultWidth
	}
	return min(max(s.Width, narrowest), widest)
}

// Escape sequences rather than go-pretty's colours, which a process switches on
// and off as a whole.
const (
	bold  = "\x1b[1m"
	faint = "\x1b[2m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
	reset = "\x1b[0m"
)

func (s Style) paint(code, text string) string {
	if !s.Color || code == "" || text == "" {
		return text
	}
	return code + text + reset
}

func (s Style) tone(t Tone, text string) string {
	return s.paint(map[Tone]string{Quiet: faint, Good: green, Bad: red}[t], text)
}

// Text writes the view as a person at a terminal reads it.
func Text(w io.Writer, v View, s Style) error {
	out := &textWriter{Writer: bufio.NewWriter(w), style: s}
	out.text(v)
	return out.Flush()
}

type textWriter struct {
	*bufio.Writer
	style Style
}

func (w *textWriter) line(s string) { fmt.Fprintln(w, s) }

// item writes a wrapped line of a list.
func (w *textWriter) item(s string) {
	const indent = "  "
	wrapped := text.WrapSoft(s, w.style.width()-2*len(indent))
	for i, l := range strings.Split(wrapped, "\n") {
		if i > 0 {
			l = indent + l
		}
		w.line(indent + strings.TrimRight(l, " "))
	}
}

// list writes a heading and its items, or nothing without items.
func (w *textWriter) list(heading string, items []string) {
	if len(items) == 0 {
		return
	}
	w.line("")
	w.line(w.style.paint(bold, heading))
	for _, i := range items {
		w.item(i)
	}
}

func (w *textWriter) text(v View) {
	w.line(w.style.paint(bold, v.Title))
	w.line(v.Status)
	for _, f := range v.Facts {
		wrapped := strings.Split(text.WrapSoft(f.Value, w.style.width()-10), "\n")
		for i, l := range wrapped {
			if i > 0 {
				f.Name = ""
			}
			w.line(w.style.paint(faint, fmt.Sprintf("%-9s", f.Name)) + " " + strings.TrimRight(l, " "))
		}
	}
	w.line("")
	if len(v.Rows) == 0 {
		w.line("Nothing was measured.")
	} else {
		w.line(resultsTable(v, w.style))
		for _, f := range v.Footnotes {
			w.item(f)
		}
	}
	if len(v.Invalid) > 0 {
		w.line("")
		w.line(w.style.paint(bold+red, "INVALID"))
		for _, i := range v.Invalid {
			w.item(i)
		}
	}
	w.list("In words", v.Headlines)
	w.list("What the emulator itself costs (LAN baseline against no emulator; in both windows of a pair)", v.Observer)
	w.list("Notes", v.Notes)
	if len(v.Published) > 0 {
		w.line("")
		w.line(w.style.paint(bold, fmt.Sprintf("Beside others' figures (%s: compare the shape, not the height)", v.Source)))
		w.line(publishedTable(v, w.style))
	}
}

// plain is a table of aligned columns: no frame, a line under the header.
func plain() table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options = table.Options{SeparateHeader: true, DoNotColorBordersAndSeparators: true}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	t.SetStyle(style)
	return t
}

// trim takes the padding off the ends of lines.
func trim(rendered string) string {
	lines := strings.Split(rendered, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

func resultsTable(v View, s Style) string {
	t := plain()
	t.AppendHeader(table.Row{"\ntopology", "\ncondition", "\nTPS", "\n95% interval", "ms\np50/p95", "TPS\nvs single", "TPS\nvs baseline", "RTT added, ms\nasked/got", "\nvalid"})
	var columns []table.ColumnConfig
	for n := 3; n <= 8; n++ {
		columns = append(columns, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	columns[1].Hidden = s.Width > 0 && s.Width < defaultWidth // the interval is the least missed
	t.SetColumnConfigs(columns)
	last := ""
	for _, r := range v.Rows {
		topology := r.Topology
		if topology == last {
			topology = ""
		}
		last = r.Topology
		valid := r.Valid
		if !r.OK {
			valid = s.paint(bold+red, valid)
		}
		t.AppendRow(table.Row{topology, r.Condition, s.paint(bold, r.TPS), r.Interval, r.Latency, r.VsSingleShort, s.tone(r.Tone, r.VsBaseline), r.RTT, valid})
	}
	return trim(t.Render())
}

func publishedTable(v View, s Style) string {
	t := plain()
	t.AppendHeader(table.Row{"topology", "condition", "theirs", "ours"})
	third := (s.width() - 30) / 2
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 3, WidthMax: third, WidthMaxEnforcer: text.WrapSoft},
		{Number: 4, WidthMax: third, WidthMaxEnforcer: text.WrapSoft},
	})
	for _, p := range v.Published {
		t.AppendRow(table.Row{p.Topology, p.Condition, p.Theirs, p.Ours})
	}
	return trim(t.Render())
}
