package report

import (
	"bytes"
	"encoding/json"
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
	below, unknown := c.Below(0.95)
	if all := strings.Join(below, "; "); strings.Count(all, "semisync") != 2 || strings.Contains(all, "mgr") {
		t.Errorf("below 0.95 of the first run: %s", all)
	}
	if len(unknown) != len(c.Apart) {
		t.Errorf("cannot be told: %v, want what is not compared: %v", unknown, c.Apart)
	}
	if below, _ := c.Below(0.5); len(below) != 0 {
		t.Errorf("below 0.5 of the first run: %v", below)
	}
	if _, err := json.Marshal(c); err != nil {
		t.Error(err)
	}
}

func TestRowsOfVariantsAreComparedWithTheirOwnAndOtherSettingsAreSaid(t *testing.T) {
	variants := func(settings string) results.Run {
		run := complete()
		run.Rows = run.Rows[3:5] // semisync
		for i := range run.Rows {
			run.Rows[i].Variant, run.Rows[i].Settings = "tuned", map[string]string{"sync_binlog": settings, "same": "1"}
		}
		run = withWindows(run)
		for i := range run.Windows {
			run.Windows[i].Variant = "tuned"
		}
		return run
	}
	c := Compare([]results.Run{variants("1"), variants("0")})
	if len(c.Rows) != 2 || c.Rows[0].Topology != "semisync" || c.Rows[0].Variant != "tuned" || c.Rows[0].Ratios[0].CI95 == nil {
		t.Errorf("rows %+v", c.Rows)
	}
	if want := []string{"sync_binlog of semisync, tuned: 1 (run 1), 0 (run 2)"}; !slices.Equal(c.Differences, want) {
		t.Errorf("differences %q, want %q", c.Differences, want)
	}
	// With too few windows nothing is claimed, and that is said.
	few := variants("1")
	few.Windows = few.Windows[:2]
	if below, unknown := Compare([]results.Run{variants("1"), few}).Below(0.95); len(below) != 0 || len(unknown) != 2 {
		t.Errorf("with two windows of one row and none of the other: below %v, unknown %v", below, unknown)
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
		got := Compare([]results.Run{withWindows(complete()), withWindows(other)})
		if all := strings.Join(got.Apart, "\n"); !strings.Contains(all, c.want) {
			t.Errorf("got %q, want %q", all, c.want)
		}
	}
}
