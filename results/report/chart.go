package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faultlab/faultlab/results"
)

// Charts are drawn as SVG by the HTML template, so that they take its colours
// in the light and in the dark. Here is the geometry, in the pixels of a
// viewBox.

const (
	chartWidth = 860.0
	labelWidth = 170.0 // left of the axis
	valueWidth = 80.0  // right of the plot
	barHeight  = 16.0
	lineHeight = 120.0
	axisHeight = 24.0
	classes    = 5 // colours of conditions in the style sheet
)

type tick struct {
	At    float64
	Label string
}

type barChart struct {
	Width, Height, Left, Bottom float64
	Ticks                       []tick
	Groups                      []tick // topologies, at their first bar
	Bars                        []bar
}

type bar struct {
	Y, Width, Height, Middle float64
	Class                    int
	Label, Value, Title      string
	// Lo and Hi are the ends of the interval; there is none where they are
	// equal.
	Lo, Hi float64
}

// bars draws the TPS of every valid row, with its interval.
func bars(v View) *barChart {
	class := conditionClasses(v.Run)
	most := 0.0
	for _, r := range v.Run.Rows {
		if r.Valid && !math.IsNaN(r.TPS) {
			most = max(most, r.TPS)
			if r.TPSCI95 != nil {
				most = max(most, min(r.TPSCI95[1], 2*r.TPS))
			}
		}
	}
	if most <= 0 {
		return nil
	}
	end, step := axis(most)
	plot := chartWidth - labelWidth - valueWidth
	x := func(tps float64) float64 { return labelWidth + plot*min(max(tps, 0), end)/end }

	c := &barChart{Width: chartWidth, Left: labelWidth}
	// Labels that do not fit side by side stand below each other.
	const fit = 20 // characters in labelWidth
	long := slices.ContainsFunc(v.Run.Rows, func(r results.Row) bool { return len(clean(r.Topology))+len(clean(r.Condition)) > fit })
	y, last := 0.0, ""
	for _, r := range v.Run.Rows {
		if r.Topology != last {
			y += 10
			if long {
				y += barHeight
				c.Groups = append(c.Groups, tick{y - 4, clean(r.Topology)})
			} else {
				c.Groups = append(c.Groups, tick{y + barHeight - 4, clean(r.Topology)})
			}
			last = r.Topology
		}
		b := bar{Y: y, Height: barHeight, Middle: y + barHeight/2, Class: class[r.Condition], Label: clean(r.Condition), Value: "INVALID"}
		if r.Valid && !math.IsNaN(r.TPS) {
			b.Width = x(r.TPS) - labelWidth
			b.Value = rate(r.TPS)
			b.Title = fmt.Sprintf("%s: %s TPS", name(r.Topology, r.Condition), rate(r.TPS))
			if r.TPSCI95 != nil {
				b.Lo, b.Hi = x(r.TPSCI95[0]), x(r.TPSCI95[1])
				b.Title += ", 95% interval " + rates(r.TPSCI95)
			}
		}
		c.Bars = append(c.Bars, b)
		y += barHeight + 3
	}
	c.Bottom = y + 6
	c.Height = c.Bottom + axisHeight
	for at := 0.0; at <= end*1.0001; at += step {
		c.Ticks = append(c.Ticks, tick{x(at), rate(at)})
	}
	c.Ticks[0].Label = "0"
	return c
}

// End is the right end of the bar, End of the value's text where a whisker
// reaches further.
func (b bar) End() float64 { return max(labelWidth+b.Width, b.Hi) + 6 }

type lineChart struct {
	Topology                    string
	Width, Height, Left, Bottom float64
	XTicks, YTicks              []tick
	Lines                       []line
}

type line struct {
	Class int
	Path  string
	Title string
}

// lines draws the one-second TPS of every topology over time; each window is a
// line of its own.
func lines(v View) []lineChart {
	class := conditionClasses(v.Run)
	var topologies []string
	byTopology := map[string][]results.Sample{}
	for _, s := range v.Samples {
		if _, known := class[s.Condition]; !known || math.IsNaN(s.TPS) {
			continue // windows without the emulator are another question
		}
		if !slices.Contains(topologies, s.Topology) {
			topologies = append(topologies, s.Topology)
		}
		byTopology[s.Topology] = append(byTopology[s.Topology], s)
	}
	var charts []lineChart
	for _, t := range topologies {
		charts = append(charts, lineChartOf(t, byTopology[t], class))
	}
	return charts
}

func lineChartOf(topology string, samples []results.Sample, class map[string]int) lineChart {
	slices.SortStableFunc(samples, func(a, b results.Sample) int { return a.Time.Compare(b.Time) })
	first, last := samples[0].Time, samples[len(samples)-1].Time
	most := 0.0
	for _, s := range samples {
		most = max(most, s.TPS)
	}
	top, step := axis(most)
	length := max(last.Sub(first).Seconds(), 1)
	const left = 60.0
	c := lineChart{Topology: clean(topology), Width: chartWidth, Left: left, Bottom: lineHeight, Height: lineHeight + axisHeight}
	x := func(t time.Time) float64 { return left + (chartWidth-left-20)*t.Sub(first).Seconds()/length }
	y := func(tps float64) float64 { return lineHeight - (lineHeight-8)*max(tps, 0)/top }

	for at := 0.0; at <= top*1.0001; at += step {
		c.YTicks = append(c.YTicks, tick{y(at), rate(at)})
	}
	c.YTicks[0].Label = "0"
	_, every := axis(length)
	for at := 0.0; at <= length; at += max(every, 1) {
		c.XTicks = append(c.XTicks, tick{x(first.Add(time.Duration(at * float64(time.Second)))), strconv.FormatFloat(at, 'f', -1, 64) + " s"})
	}

	type window struct {
		condition string
		pair      int
	}
	var order []window
	paths := map[window]*strings.Builder{}
	for _, s := range samples {
		w := window{s.Condition, s.Pair}
		if paths[w] == nil {
			order, paths[w] = append(order, w), &strings.Builder{}
			// A short stroke, so that a window of one second is seen too.
			fmt.Fprintf(paths[w], "M%.1f %.1fh.1", x(s.Time), y(s.TPS))
			continue
		}
		fmt.Fprintf(paths[w], "L%.1f %.1f", x(s.Time), y(s.TPS))
	}
	for _, w := range order {
		c.Lines = append(c.Lines, line{class[w.condition], paths[w].String(), fmt.Sprintf("%s, pair %d", clean(w.condition), w.pair)})
	}
	return c
}

// legend names the conditions by their class.
func legend(run results.Run) []tick {
	var out []tick
	for _, r := range run.Rows {
		c := clean(r.Condition)
		if !slices.ContainsFunc(out, func(t tick) bool { return t.Label == c }) {
			out = append(out, tick{float64(conditionClasses(run)[r.Condition]), c})
		}
	}
	return out
}

// conditionClasses numbers the conditions: the baseline is 0.
func conditionClasses(run results.Run) map[string]int {
	class := map[string]int{baseline: 0}
	for _, r := range run.Rows {
		if _, ok := class[r.Condition]; !ok {
			class[r.Condition] = 1 + (len(class)-1)%(classes-1)
		}
	}
	return class
}

// axis is a round end at or above most, and the step of its ticks: 1, 2 or 5
// times a power of ten, at most 7 of them.
func axis(most float64) (end, step float64) {
	if !(most > 0) || math.IsInf(most, 0) {
		return 1, 1
	}
	step = math.Pow(10, math.Floor(math.Log10(most))-1)
	for _, f := range []float64{1, 2, 5, 10, 20} {
		if most <= 6*f*step {
			step *= f
			break
		}
	}
	return math.Ceil(most/step-1e-9) * step, step
}
