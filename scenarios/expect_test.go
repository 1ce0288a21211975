package scenarios

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// rows are figures of a test, by reference.
type rows map[string]Estimate

func (r rows) Figure(ref Reference) (Estimate, error) {
	if v, ok := r[ref.String()]; ok {
		return v, nil
	}
	return Estimate{}, fmt.Errorf("%s %s was not measured", ref.Topology, ref.Condition)
}

func (r rows) Ratio(a, b Reference) (Estimate, bool) {
	v, ok := r[a.String()+" / "+b.String()]
	return v, ok
}

func TestExpectationsAreJudgedByIntervals(t *testing.T) {
	f := rows{
		"semisync.tps[baseline]":                        {1000, 900, 1100},
		"semisync.tps[+0.6ms]":                          {860, 780, 950},
		"semisync.tps[+0.6ms] / semisync.tps[baseline]": {0.86, 0.83, 0.89},
		"mgr.p95[baseline]":                             {10, 9, 11},
		"mgr.p95[+0.6ms]":                               {15, 14, 16},
		"mgr.tps[baseline]":                             {500, math.NaN(), math.NaN()},
		"mgr.errors[baseline]":                          {0, 0, 0},
		"async.longest_stall[cut]":                      {3000, 3000, 3000},
		"galera.cv[baseline]":                           {0.1, -0.1, 0.3},
	}
	for _, c := range []struct{ text, outcome, why string }{
		{"semisync.tps[+0.6ms] / semisync.tps[baseline] < 0.95", Pass, "0.86 (0.83 to 0.89) < 0.95"},
		{"semisync.tps[+0.6ms]/semisync.tps<95%", Pass, "< 0.95"},
		{"semisync.tps[+0.6ms] / semisync.tps > 0.9", Fail, "0.86 (0.83 to 0.89) > 0.9"},
		{"semisync.tps[+0.6ms] / semisync.tps < 0.85", Inconclusive, "the intervals overlap"},
		// Without a pair the worst of both is reckoned with.
		{"semisync.tps[+0.6ms] < semisync.tps", Inconclusive, "860 TPS (780 to 950) < 1e+03 TPS (900 to 1.1e+03)"},
		{"semisync.tps / semisync.tps[+0.6ms] > 1.1", Inconclusive, "1.16 (0.947 to 1.41)"},
		{"mgr.p95[+0.6ms] - mgr.p95 > 0.6ms", Pass, "5 ms (3 to 7) > 0.6 ms"},
		{"mgr.p95[+0.6ms] <= 2 * mgr.p95", Pass, "15 ms (14 to 16) <= 20 ms (18 to 22)"},
		{"(mgr.p95 + mgr.p95[+0.6ms]) / 2 >= 10000us", Pass, "12.5 ms"},
		{"mgr.errors <= 0", Pass, "0 <= 0"},
		{"mgr.errors < 0", Fail, "0 < 0"},
		{"async.longest_stall[cut] < 2s", Fail, "3e+03 ms < 2e+03 ms"},
		{"mgr.tps > 100tps", Inconclusive, "too few windows"},
		{"single.tps > 100tps", Inconclusive, "single baseline was not measured"},
		{"1 / galera.cv < 5", Inconclusive, "too few windows"},
	} {
		e, err := ParseExpectation(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if outcome, why := e.Judge(f); outcome != c.outcome || !strings.Contains(why, c.why) {
			t.Errorf("%s: %s, %q; want %s, %q", c.text, outcome, why, c.outcome, c.why)
		}
	}
}

func TestWhatIsWrongWithAnExpectationIsSaidWithItsColumn(t *testing.T) {
	for _, c := range []struct {
		text   string
		column int
		want   string
	}{
		{"", 1, "it ends where a figure or a number should follow"},
		{"semisync.tps", 13, "the comparison is missing"},
		{"semisync.tps = 3", 14, `no comparison`},
		{"semisnyc.tps > 3", 1, "unknown topology"},
		{"semisync > 3", 9, "which figure of semisync?"},
		{"semisync.tsp > 3", 10, "unknown figure"},
		{"semisync.tps[+0.6ms > 3", 13, "bracket is not closed"},
		{"(semisync.tps > 3", 1, "parenthesis is not closed"},
		{"semisync.tps > 3", 16, "transactions a second is compared with a plain number"},
		{"semisync.p95 > 10", 16, "a time is compared with a plain number"},
		{"semisync.p95 > 10h", 16, "no unit that is known"},
		{"semisync.p95 > 1.2.3ms", 16, "is no number"},
		{"semisync.p95 + mgr.tps > 10ms", 14, "put together by +"},
		{"semisync.p95 > 10ms and more", 21, "after the end"},
		{"1 < 2", 1, "no figure of the run"},
		{"semisync.p95 > -1ms", 16, "neither a figure nor a number"},
		{strings.Repeat("(", 500), 1, "more than 400 characters"},
	} {
		_, err := ParseExpectation(c.text)
		var e *ExpectError
		if !errors.As(err, &e) || e.Column != c.column || !strings.Contains(e.Message, c.want) {
			t.Errorf("%q: got %v, want column %d: %s", c.text, err, c.column, c.want)
		}
	}
}

func FuzzParseExpectation(f *testing.F) {
	for _, s := range []string{"semisync.tps[+0.6ms] / semisync.tps < 0.95", "(mgr.p95 + 2*mgr.p50) >= 10ms", "async.cv<3%", "((("} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseExpectation(s)
		if err != nil {
			if x := (*ExpectError)(nil); !errors.As(err, &x) || x.Column < 1 || x.Message == "" {
				t.Fatalf("%q: error %v without a place", s, err)
			}
			return
		}
		again, err := ParseExpectation(e.Text)
		if err != nil || len(again.References()) != len(e.References()) {
			t.Fatalf("%q was read as %q, which is not the same: %v", s, e.Text, err)
		}
		e.Judge(rows{})
	})
}
