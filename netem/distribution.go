package netem

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Distribution is how jitter is spread. The zero value is uniform.
type Distribution struct {
	// Name is uniform, normal, pareto or paretonormal; or of the file that
	// Text was read from.
	Name string
	// Text is the content of a table as iproute2 ships them (*.dist): whole
	// numbers, 8192 for one jitter, in rising order. Empty for the known ones.
	Text string `json:",omitempty"`
}

// tableScale is what stands for one jitter in a table.
const tableScale = 8192

// tableSize is of the tables made here.
const tableSize = 4096

// maxTable is what kernel netem takes.
const maxTable = 16384

func (d Distribution) known() bool {
	return slices.Contains([]string{"", "uniform", "normal", "pareto", "paretonormal"}, d.Name)
}

// Table gives the table that jitter is drawn from, nil for the uniform
// distribution; it is shared and must not be changed. It is that of iproute2 within rounding: pareto has a shape of
// 3, is brought to a mean of 0 and is not quite of standard deviation 1.
func (d Distribution) Table() []int16 {
	t, _ := d.table()
	return t
}

func (d Distribution) table() ([]int16, error) {
	if d.Text != "" {
		return parseTable(d.Name, d.Text)
	}
	switch d.Name {
	case "", "uniform":
		return nil, nil
	case "normal":
		return normalTable(), nil
	case "pareto":
		return paretoTable(), nil
	case "paretonormal":
		return paretonormalTable(), nil
	}
	return nil, fmt.Errorf("distribution %s is not uniform, normal, pareto or paretonormal, and has no table", clip(d.Name))
}

// Made once, since every link of a mesh asks for its own. Nobody changes them.
var (
	normalTable       = sync.OnceValue(func() []int16 { return quantiles(normal) })
	paretoTable       = sync.OnceValue(func() []int16 { return quantiles(pareto) })
	paretonormalTable = sync.OnceValue(func() []int16 {
		// The sum of a quarter of one and three quarters of the other, drawn
		// apart: 64 quantiles of each, every pair once, in order.
		const each = 64
		var all []float64
		for a := range each {
			for b := range each {
				all = append(all, 0.25*normal((float64(a)+0.5)/each)+0.75*pareto((float64(b)+0.5)/each))
			}
		}
		slices.Sort(all)
		return quantiles(func(q float64) float64 { return all[int(q*float64(len(all)))] })
	})
)

func quantiles(of func(q float64) float64) []int16 {
	t := make([]int16, tableSize)
	for i := range t {
		v := math.Round(of((float64(i)+0.5)/tableSize) * tableScale)
		t[i] = int16(min(max(v, math.MinInt16), math.MaxInt16))
	}
	return t
}

func normal(q float64) float64 { return math.Sqrt2 * math.Erfinv(2*q-1) }
func pareto(q float64) float64 { return (math.Pow(1-q, -1.0/3) - 1.5) * 4 / 3 }

func parseTable(name, text string) ([]int16, error) {
	var t []int16
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		for _, f := range strings.Fields(line) {
			v, err := strconv.ParseInt(f, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("distribution %s: line %d: %s is not a whole number of 16 bits", name, n+1, clip(f))
			}
			t = append(t, int16(v))
		}
	}
	if len(t) < 2 || len(t) > maxTable {
		return nil, fmt.Errorf("distribution %s: a table has 2 to %d numbers, not %d", name, maxTable, len(t))
	}
	return t, nil
}
