package report

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/results"
)

// withWindows has five windows for each row, around its figures.
func withWindows(run results.Run) results.Run {
	for _, r := range run.Rows {
		for pair := 1; pair <= 5; pair++ {
			run.Windows = append(run.Windows, results.Window{Topology: r.Topology, Condition: r.Condition, Pair: pair, Valid: true,
				TPS: r.TPS * (0.97 + 0.01*float64(pair))})
		}
	}
	return run
}

func TestRunsAreComparedRowByRow(t *testing.T) {
	slower := complete()
	slower.ID, slower.Environment.Servers = "latency-0.6ms-20260305T000000Z", map[string]string{"mysql": "9.8.0", "mariadb": "10.11.14"}
	for i := range slower.Rows {
		r := &slower.Rows[i]
		switch r.Topology + " " + r.Condition {
		case "semisync baseline", "semisync +0.6ms":
			r.TPS *= 0.8
		case "mgr +0.6ms":
			r.TPS *= 0.995
		case "galera baseline":
			r.Valid = false
		case "galera +0.6ms":
			r.Threads = 8
		}
	}
	slower.Rows = slices.DeleteFunc(slower.Rows, func(r results.Row) bool { return r.Topology == "async" && r.Condition == baseline })
	c := Compare([]results.Run{withWindows(complete()), withWindows(slower)})
	var b bytes.Buffer
	if err := CompareText(&b, c, Style{}); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "compare.golden")
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	below := strings.Join(c.Below(0.95), "; ")
	if strings.Count(below, "semisync") != 2 || strings.Contains(below, "mgr") {
		t.Errorf("below 0.95 of the first run: %s", below)
	}
	if got := c.Below(0.5); len(got) != 0 {
		t.Errorf("below 0.5 of the first run: %v", got)
	}
}

func TestRowsUnderAnotherLoadAreNotCompared(t *testing.T) {
	for _, c := range []struct {
		change func(*results.Run)
		want   string
	}{
		{func(r *results.Run) { r.Workload.Name = "tpcc" }, "the load is tpcc and not oltp_write_only"},
		{func(r *results.Run) { r.Workload.Rows = 5 }, "another size"},
		{func(r *results.Run) { r.Rows[0].Threads = 32 }, "32 threads and not 16"},
		{func(r *results.Run) { r.Rows[2].RTT.Asked = 5 }, "ms were added"},
	} {
		other := complete()
		c.change(&other)
		got := Compare([]results.Run{complete(), other})
		if all := strings.Join(got.Apart, "\n"); !strings.Contains(all, c.want) {
			t.Errorf("got %q, want %q", all, c.want)
		}
	}
}
