package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/scenarios"
)

func TestExpectationsAreJudgedByTheWindowsOfARun(t *testing.T) {
	const bare, far = 150 * time.Microsecond, 760 * time.Microsecond
	var windows []window
	for round, n := range []int64{100, 200, 110, 150, 160} {
		windows = append(windows, second("baseline", round+1, n, time.Millisecond, bare),
			second("+0.6ms", round+1, n*8/10, 2*time.Millisecond, far))
	}
	m := fixed(windows...)
	var run results.Run
	run.Rows, run.Windows, _ = m.rows()
	run.Rows = append(run.Rows, results.Row{Topology: "galera", Condition: "baseline"})
	for _, c := range []struct{ text, outcome, why string }{
		// Paired windows know what rows apart do not: 100 to 200 TPS.
		{"mgr.tps[+0.6ms] / mgr.tps < 0.85", scenarios.Pass, "0.8"},
		{"mgr.tps[+0.6ms] / mgr.tps > 0.85", scenarios.Fail, "0.8"},
		{"mgr.tps[+0.6ms] < mgr.tps", scenarios.Inconclusive, "overlap"},
		{"mgr.p50[+0.6ms] - mgr.p50 > 0.6ms", scenarios.Pass, "1 ms"},
		{"mgr.rtt[+0.6ms] - mgr.rtt > 0.5ms", scenarios.Pass, "0.61 ms"},
		{"mgr.errors <= 0", scenarios.Pass, "0 <= 0"},
		{"galera.tps > 1tps", scenarios.Inconclusive, "galera baseline is INVALID"},
		{"async.tps > 1tps", scenarios.Inconclusive, "async baseline was not measured"},
	} {
		e, err := scenarios.ParseExpectation(c.text)
		if err != nil {
			t.Fatal(err)
		}
		v := verdicts(run, []scenarios.Expectation{e})[0]
		if v.Expect != c.text || v.Outcome != c.outcome || !strings.Contains(v.Why, c.why) {
			t.Errorf("%s: %s, %q; want %s, %q", c.text, v.Outcome, v.Why, c.outcome, c.why)
		}
	}
	for _, f := range scenarios.FigureNames() {
		if _, err := (figures{run}).Figure(scenarios.Reference{Topology: "mgr", Figure: f, Condition: "+0.6ms"}); err != nil {
			t.Errorf("figure %s: %v", f, err)
		}
	}
}
