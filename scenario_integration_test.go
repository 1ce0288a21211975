//go:build integration

package main

import (
	"encoding/json"
	"testing"

	"github.com/faultlab/faultlab/results"
)

// TestScenariosOfTheLibraryRun for some that ask different things, shortened.
// That all of them can be carried out is a unit test.
func TestScenariosOfTheLibraryRun(t *testing.T) {
	for _, c := range []struct {
		scenario, topology string
		rows               int
		check              func(*testing.T, map[string]results.Row)
	}{
		{"slow-node", "galera", 2, func(t *testing.T, r map[string]results.Row) {
			// Not the difference to the baseline, whose transactions wait for the
			// disk, longer than these, of which fewer are under way.
			if p50 := r["n3 at 20 ms"].Latency.P50; p50 < 19 {
				t.Errorf("a transaction that a member at 20 ms has to hear of takes %.1f ms", p50)
			}
		}},
		{"semisync-wait-point", "semisync", 4, func(t *testing.T, r map[string]results.Row) {
			if s := r["AFTER_COMMIT baseline"].Settings["loose_rpl_semi_sync_source_wait_point"]; s != "AFTER_COMMIT" {
				t.Errorf("settings of the variant: %q", s)
			}
		}},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			u := newUser(t)
			cmd := u.command("run", c.scenario, "--profile", "quick", "--topologies", c.topology, "--pairs", "1", "--duration", "2s", "--json")
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("run: %v\n%s", err, out)
			}
			var run results.Run
			if err := json.Unmarshal(out, &run); err != nil {
				t.Fatal(err)
			}
			if len(run.Rows) != c.rows {
				t.Errorf("%d rows, want %d", len(run.Rows), c.rows)
			}
			rows := map[string]results.Row{}
			for _, r := range run.Rows {
				key := r.Condition
				if r.Variant != "" {
					key = r.Variant + " " + r.Condition
				}
				rows[key] = r
				if !r.Valid {
					t.Errorf("%s is INVALID: %v", key, r.InvalidReasons)
				}
			}
			c.check(t, rows)
		})
	}
}
