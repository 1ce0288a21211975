package cli

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/probe"
)

// measured is what was asked of a link and its way back, beside what probes
// saw.
type measured struct {
	From  string       `json:"from"`
	To    string       `json:"to"`
	Lines []probe.Line `json:"lines"`
	// Not says why nothing could be measured.
	Not string `json:"not_measured,omitempty"`
}

// checksOf pairs each link with its way back.
func checksOf(states []netem.LinkState) []probe.Check {
	var out []probe.Check
	for _, s := range states {
		back := slices.IndexFunc(out, func(c probe.Check) bool { return c.From.Name == s.To.Name && c.To.Name == s.From.Name })
		if back >= 0 {
			out[back].Back = s.Impairment
			continue
		}
		c := probe.Check{Pair: probe.Pair{From: s.From, To: s.To}, There: s.Impairment}
		if len(s.Match) > 0 && (len(s.Match) > 1 || !s.Match[0].Prefix.IsSingleIP() || s.Match[0].Port != 0) {
			c.To.Addr, c.To.Addr6 = netip.Addr{}, netip.Addr{} // probes would not meet the link
		}
		out = append(out, c)
	}
	return out
}

// measureLinks probes the links, one after the other so that none is in
// another's way.
func (c *command) measureLinks(ctx context.Context, states []netem.LinkState) ([]measured, error) {
	out := []measured{}
	checks := checksOf(states)
	for i, check := range checks {
		m := measured{From: check.From.Name, To: check.To.Name, Lines: []probe.Line{}}
		if !check.To.Addr.IsValid() && !check.To.Addr6.IsValid() {
			m.Not = "probes go to a single address without port"
			out = append(out, m)
			continue
		}
		fmt.Fprintf(c.stderr, "measuring %s and %s (%d of %d)\n", m.From, m.To, i+1, len(checks))
		mctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		lines, err := check.Run(mctx)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("measure %s and %s: %w", m.From, m.To, err)
		}
		for _, l := range lines {
			if check.To.Netns == "" && l.What == "rtt" && l.Measured > l.Asked {
				// Networks of others have a round trip of their own.
				l.OK, l.Note = true, "with what the network takes itself"
			}
			m.Lines = append(m.Lines, l)
		}
		out = append(out, m)
	}
	return out, nil
}

// measuredTable shows what was measured.
func measuredTable(to io.Writer, all []measured) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "FROM\tTO\tWHAT\tASKED\tMEASURED\tBETWEEN\t\t\n")
	for _, m := range all {
		if m.Not != "" {
			fmt.Fprintf(w, "%s\t%s\t-\t-\t-\t-\t-\t%s\n", m.From, m.To, m.Not)
		}
		for _, l := range m.Lines {
			from, what := m.From, l.What
			dest := m.To
			// One that is about a direction names it: loss n1 to n2.
			for _, d := range [][2]string{{m.From, m.To}, {m.To, m.From}} {
				if cut, ok := strings.CutSuffix(what, " "+d[0]+" to "+d[1]); ok {
					what, from, dest = cut, d[0], d[1]
				}
			}
			between, verdict := "-", "ok"
			if l.Low != l.High {
				between = l.Text(l.Low) + " to " + l.Text(l.High)
			}
			if !l.OK {
				verdict = "WRONG"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", from, dest, what, l.Text(l.Asked), l.Text(l.Measured), between, verdict, l.Note)
		}
	}
	return w.Flush()
}

// wrong tells whether something measured is not what was asked.
func wrong(all []measured) bool {
	return slices.ContainsFunc(all, func(m measured) bool {
		return slices.ContainsFunc(m.Lines, func(l probe.Line) bool { return !l.OK })
	})
}

// tellMeasured shows measurements, and ends with the exit code for something
// wrong.
func (c *command) tellMeasured(all []measured) error {
	fmt.Fprintln(c.stdout)
	if err := measuredTable(c.stdout, all); err != nil {
		return err
	}
	return verdictOf(all)
}

func verdictOf(all []measured) error {
	if wrong(all) {
		return &exit{exitInvalid, nil}
	}
	return nil
}
