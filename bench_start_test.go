//go:build bench

package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/faultlab/faultlab/lab/topology"
	"github.com/faultlab/faultlab/results/stats"
)

// BenchmarkStart brings Group Replication of three nodes up and down again, as
// `faultlab up mgr` does, and tells where the time goes. The aim is 10 s on 2
// processors.
func BenchmarkStart(b *testing.B) {
	ctx, rounds := uninterrupted(), size(b, "ROUNDS", 5)
	t := topology.MGR{}
	// The first lab makes the data directory that all others copy.
	closeLab(b, openLab(ctx, b, t))

	out := newFigures(fmt.Sprintf("Start of %s, %d nodes; rounds: %d", t.Name(), t.NodeCount(), rounds),
		"step", "median s", "range", "share")
	var order []string
	steps := map[string][]float64{}
	for range rounds {
		step, began := "", time.Now()
		next := func(name string) {
			if step != "" {
				if _, seen := steps[step]; !seen {
					order = append(order, step)
				}
				steps[step] = append(steps[step], time.Since(began).Seconds())
			}
			step, began = name, time.Now()
		}
		start := time.Now()
		next("lab")
		c := openLab(ctx, b, t)
		ready, cancel := context.WithTimeout(ctx, readyTimeout)
		err := t.Bootstrap(ready, c, next)
		cancel()
		if err != nil {
			b.Fatal(err)
		}
		next("")
		steps["up"] = append(steps["up"], time.Since(start).Seconds())
		start = time.Now()
		closeLab(b, c)
		steps["down"] = append(steps["down"], time.Since(start).Seconds())
	}
	up := stats.Median(steps["up"])
	row := func(step, share string) {
		out.AppendRow([]any{step, fmt.Sprintf("%.2f", stats.Median(steps[step])), extent("%.2f", steps[step]), share})
	}
	for _, step := range order {
		row(step, fmt.Sprintf("%.0f%%", 100*stats.Median(steps[step])/up))
	}
	out.AppendSeparator()
	row("up", "")
	row("down", "")
	out.show()
	b.ReportMetric(up, "s/up")
	b.ReportMetric(stats.Median(steps["down"]), "s/down")
	noTime(b)
}
