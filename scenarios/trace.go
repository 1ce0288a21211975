package scenarios

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/faultlab/faultlab/netem"
)

// TracePoint is what a recorded link was like from a time on.
type TracePoint struct {
	At         time.Duration
	Impairment netem.Impairment // of each direction
}

// maxTrace bounds a trace: an hour with a point every third of a second.
const maxTrace = 10_000

// columns of a trace by their names in its head: which value, and the unit
// that is behind a plain number, as measuring programs write them.
var columns = map[string]struct{ value, unit string }{
	"time": {"time", ""}, "time_s": {"time", "s"}, "time_ms": {"time", "ms"},
	"rtt": {"rtt", ""}, "rtt_ms": {"rtt", "ms"},
	"loss": {"loss", ""}, "loss_percent": {"loss", "%"},
	"rate": {"rate", ""}, "rate_mbit": {"rate", "mbit"}, "rate_kbit": {"rate", "kbit"},
}

// ReadTrace reads a recorded link: comma-separated values with a head that
// names the columns: time (required), rtt, loss (of each direction) and rate,
// with units in the values (0.5s, 12ms, 0.1%, 100mbit), or plain numbers under
// time_s, rtt_ms, loss_percent and rate_mbit. An empty value is nothing. Times
// begin at 0 or later and rise; lines that begin with # are comments. file is
// its name in errors.
func ReadTrace(file string, text []byte) ([]TracePoint, error) {
	in := csv.NewReader(strings.NewReader(strings.TrimPrefix(string(text), "\ufeff")))
	in.Comment, in.TrimLeadingSpace, in.ReuseRecord = '#', true, true
	where := func(column int, format string, args ...any) error {
		line, col := 1, 1
		if column >= 0 {
			line, col = in.FieldPos(column)
		}
		return fmt.Errorf("%s:%d:%d: %s", file, line, col, fmt.Sprintf(format, args...))
	}
	head, err := in.Read()
	if err != nil {
		return nil, traceError(file, err)
	}
	head = slices.Clone(head)
	seen := map[string]bool{}
	var known []string
	for name := range columns {
		known = append(known, name)
	}
	slices.Sort(known)
	for n, name := range head {
		head[n] = strings.ToLower(strings.TrimSpace(name))
		c, ok := columns[head[n]]
		if !ok {
			return nil, where(n, "unknown column %s; known: %s", clip(name), strings.Join(known, ", "))
		}
		if seen[c.value] {
			return nil, where(n, "column %s is there twice", c.value)
		}
		seen[c.value] = true
	}
	if !seen["time"] {
		return nil, where(-1, "there is no column time")
	}
	if len(seen) == 1 {
		return nil, where(-1, "there is no column rtt, loss or rate")
	}

	var out []TracePoint
	for {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, traceError(file, err)
		}
		p := TracePoint{At: -1}
		for n, v := range record {
			c := columns[head[n]]
			switch v = strings.TrimSpace(v); {
			case c.value == "time":
				p.At, err = netem.ParseDuration(v + c.unit)
			case v != "":
				err = p.Impairment.Set(c.value, v+c.unit)
			}
			if err != nil {
				return nil, where(n, "%v", err)
			}
		}
		if err := p.Impairment.Validate(); err != nil {
			return nil, where(0, "%v", err)
		}
		if n := len(out); n > 0 && p.At-out[n-1].At < shortestStep {
			return nil, where(0, "time %s is not at least %s after %s", FormatDuration(p.At), FormatDuration(shortestStep), FormatDuration(out[n-1].At))
		}
		if p.At > 24*time.Hour {
			return nil, where(0, "time %s is longer than a day", FormatDuration(p.At))
		}
		if len(out) == maxTrace {
			return nil, where(0, "a trace has at most %d points", maxTrace)
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, where(-1, "there is no point")
	}
	return out, nil
}

func traceError(file string, err error) error {
	var p *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s:1:1: the file is empty", file)
	case errors.As(err, &p):
		return fmt.Errorf("%s:%d:%d: %w", file, p.Line, p.Column, p.Err)
	}
	return fmt.Errorf("%s: %w", file, err)
}
