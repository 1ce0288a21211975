package results

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestListsWithoutMembersAreNeverNull(t *testing.T) {
	run := Run{Rows: []Row{{Topology: "mgr"}}, Windows: []Window{{}}, Labs: []Lab{{}}}
	b, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"rows", "observer", "verdicts", "labs", "windows", "invalid_reasons", "warnings", "steps", "nodes", "servers", "server"} {
		if strings.Contains(string(b), `"`+field+`":null`) {
			t.Errorf("got null for %s, want an empty list or map: %s", field, b)
		}
	}
	for _, field := range []string{"tps_ci95", "rtt_ms", "vs_baseline", "vs_single"} {
		if !strings.Contains(string(b), `"`+field+`":null`) {
			t.Errorf("got no null for %s, which says that there is none: %s", field, b)
		}
	}
	if run.Rows[0].Server != nil || run.Rows[0].Warnings != nil {
		t.Error("writing a run changed it")
	}
}
