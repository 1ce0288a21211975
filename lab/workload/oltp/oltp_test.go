package oltp

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab/workload"
)

func open(t *testing.T, s *server, c Config) workload.Session {
	t.Helper()
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	session, err := d.Session(t.Context(), s.target(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

var tableName = regexp.MustCompile(`sbtest(\d+)`)

func TestATransactionSendsSysbenchsStatementsInItsOrder(t *testing.T) {
	var (
		point  = "SELECT c FROM sbtestN WHERE id=?"
		ranges = []string{
			"SELECT c FROM sbtestN WHERE id BETWEEN ? AND ?",
			"SELECT SUM(k) FROM sbtestN WHERE id BETWEEN ? AND ?",
			"SELECT c FROM sbtestN WHERE id BETWEEN ? AND ? ORDER BY c",
			"SELECT DISTINCT c FROM sbtestN WHERE id BETWEEN ? AND ? ORDER BY c",
		}
		changes = []string{
			"UPDATE sbtestN SET k=k+1 WHERE id=?",
			"UPDATE sbtestN SET c=? WHERE id=?",
			"DELETE FROM sbtestN WHERE id=?",
			"INSERT INTO sbtestN (id, k, c, pad) VALUES (?, ?, ?, ?)",
		}
		points = strings.Split(strings.Repeat(point+"\n", 10), "\n")[:10]
	)
	all := func(parts ...[]string) (out []string) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	for _, tt := range []struct {
		workload string
		want     []string
		counts   workload.Statements
	}{
		{"oltp_read_write", all([]string{"BEGIN"}, points, ranges, changes, []string{"COMMIT"}), workload.Statements{Read: 14, Write: 4, Other: 2}},
		{"oltp_read_only", all([]string{"BEGIN"}, points, ranges, []string{"COMMIT"}), workload.Statements{Read: 14, Other: 2}},
		{"oltp_write_only", all([]string{"BEGIN"}, changes, []string{"COMMIT"}), workload.Statements{Write: 4, Other: 2}},
		{"oltp_point_select", []string{point}, workload.Statements{Read: 1}},
		{"oltp_update_index", changes[:1], workload.Statements{Write: 1}},
		{"oltp_update_non_index", changes[1:2], workload.Statements{Write: 1}},
		{"oltp_delete", changes[2:3], workload.Statements{Write: 1}},
	} {
		t.Run(tt.workload, func(t *testing.T) {
			s := &server{t: t}
			session := open(t, s, Config{Workload: tt.workload, Tables: 7, Rows: 1000, RangeSize: 50})
			const runs = 50
			for range runs {
				sent, err := session.Transaction(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if sent != tt.counts {
					t.Errorf("statements counted %+v, want %+v", sent, tt.counts)
				}
			}
			if len(s.log) != runs*len(tt.want) {
				t.Fatalf("%d statements were sent, want %d transactions of %d", len(s.log), runs, len(tt.want))
			}
			kinds := map[string]map[string]bool{} // text -> tables
			for i := 0; i < len(s.log); i += len(tt.want) {
				var got []string
				one := s.log[i : i+len(tt.want)]
				for _, c := range one {
					got = append(got, tableName.ReplaceAllString(c.text, "sbtestN"))
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Fatalf("statements (-want +got):\n%s", diff)
				}
				for j, c := range one {
					if kinds[got[j]] == nil {
						kinds[got[j]] = map[string]bool{}
					}
					kinds[got[j]][tableName.FindString(c.text)] = true
					checkArguments(t, c)
					same := got[j] == point && j > 1 || strings.HasPrefix(c.text, "INSERT")
					if a, b := tableName.FindString(one[max(j-1, 0)].text), tableName.FindString(c.text); same && a != b {
						t.Errorf("%q follows on %s: want one draw of a table for both", c.text, a)
					}
				}
				if n := len(one); n > 5 && strings.HasPrefix(one[n-2].text, "INSERT") && one[n-2].args[0] != one[n-3].args[0] {
					t.Errorf("deleted id %v, inserted %v", one[n-3].args[0], one[n-2].args[0])
				}
			}
			for text, tables := range kinds {
				if strings.Contains(text, "sbtest") && len(tables) != 7 {
					t.Errorf("%q went to %d tables of 7", text, len(tables))
				}
			}
		})
	}
}

// normal is a statement without its values and the number of its table.
func normal(text string) string {
	text = tableName.ReplaceAllString(text, "sbtestN")
	return regexp.MustCompile(`'[^']*'|\b\d+\b`).ReplaceAllString(text, "?")
}

func texts50(t *testing.T, c Config) (all [][]call, counts workload.Statements) {
	t.Helper()
	s := &server{t: t}
	session := open(t, s, c)
	for range 50 {
		from := len(s.log)
		var err error
		if counts, err = session.Transaction(t.Context()); err != nil {
			t.Fatal(err)
		}
		all = append(all, s.log[from:])
	}
	return all, counts
}

func TestAsTextAreSentTheSameStatementsWithTheirValues(t *testing.T) {
	for _, w := range Workloads() {
		prepared, counts := texts50(t, Config{Workload: w, Tables: 3, Rows: 1000})
		asText, countsAsText := texts50(t, Config{Workload: w, Tables: 3, Rows: 1000, Text: true})
		if counts != countsAsText {
			t.Errorf("%s counts %+v, as text %+v", w, counts, countsAsText)
		}
		for i := range prepared {
			var a, b []string
			for _, c := range prepared[i] {
				a = append(a, normal(c.text))
			}
			for _, c := range asText[i] {
				b = append(b, normal(c.text))
				if c.args != nil || strings.Contains(c.text, "?") {
					t.Fatalf("%s: %q was prepared", w, c.text)
				}
			}
			if diff := cmp.Diff(a, b); diff != "" {
				t.Fatalf("%s (-prepared +text):\n%s", w, diff)
			}
		}
	}
}

func TestTheMixOfSysbenchHalfUsesOneTableATransactionAndText(t *testing.T) {
	all, counts := texts50(t, Config{Workload: "oltp", Tables: 5})
	if want := (workload.Statements{Read: 14, Write: 4, Other: 2}); counts != want {
		t.Errorf("counts %+v, want %+v", counts, want)
	}
	tables := map[string]bool{}
	for _, one := range all {
		name := tableName.FindString(one[1].text)
		tables[name] = true
		for _, c := range one {
			if got := tableName.FindString(c.text); got != "" && got != name {
				t.Fatalf("%q is in a transaction on %s", c.text, name)
			}
			if c.args != nil {
				t.Fatalf("%q was prepared", c.text)
			}
		}
	}
	if len(tables) != 5 {
		t.Errorf("%d tables of 5 were used", len(tables))
	}
}

func TestInsertedRowsHaveTheServersIDsOrNewOnes(t *testing.T) {
	auto := regexp.MustCompile(`^INSERT INTO sbtest1 \(id, k, c, pad\) VALUES \(0, \d+, '[\d-]{119}', '[\d-]{59}'\)$`)
	all, counts := texts50(t, Config{Workload: "oltp_insert"})
	if want := (workload.Statements{Write: 1}); counts != want {
		t.Errorf("counts %+v, want %+v", counts, want)
	}
	for _, one := range all {
		if len(one) != 1 || !auto.MatchString(one[0].text) {
			t.Fatalf("sent %v, want one that matches %s", one, auto)
		}
	}
	own := regexp.MustCompile(`VALUES \((-?\d+), `)
	seen := map[string]bool{}
	all, _ = texts50(t, Config{Workload: "oltp_insert", NoAutoInc: true})
	for _, one := range all {
		m := own.FindStringSubmatch(one[0].text)
		if m == nil || m[1] == "0" || seen[m[1]] {
			t.Fatalf("sent %q: no id of its own", one[0].text)
		}
		seen[m[1]] = true
	}
}

func TestCountsSayHowManyStatementsThereAre(t *testing.T) {
	counts := Counts{PointSelects: 2, SumRanges: 3, IndexUpdates: 2, DeleteInserts: 2}
	for _, tt := range []struct {
		workload string
		skipTrx  bool
		want     workload.Statements
	}{
		{"oltp_read_write", false, workload.Statements{Read: 5, Write: 6, Other: 2}},
		{"oltp_read_write", true, workload.Statements{Read: 5, Write: 6}},
		{"oltp_read_only", false, workload.Statements{Read: 5, Other: 2}},
		{"oltp_write_only", false, workload.Statements{Write: 6, Other: 2}},
		{"oltp", false, workload.Statements{Read: 5, Write: 6, Other: 2}},
		{"oltp_update_index", false, workload.Statements{Write: 2}},
		{"oltp_point_select", false, workload.Statements{Read: 1}},
		{"oltp_insert", false, workload.Statements{Write: 1}},
	} {
		all, got := texts50(t, Config{Workload: tt.workload, Counts: &counts, SkipTrx: tt.skipTrx})
		if got != tt.want {
			t.Errorf("%s, skip-trx %v: %+v, want %+v", tt.workload, tt.skipTrx, got, tt.want)
		}
		if n := got.Read + got.Write + got.Other; len(all[0]) != n {
			t.Errorf("%s counted %d statements and sent %d", tt.workload, n, len(all[0]))
		}
	}
}

var (
	cFormat   = regexp.MustCompile(`^\d{11}(-\d{11}){9}$`)
	padFormat = regexp.MustCompile(`^\d{11}(-\d{11}){4}$`)
)

func checkArguments(t *testing.T, c call) {
	t.Helper()
	id := func(v any) bool { n, ok := v.(int64); return ok && n >= 1 && n <= 1000 }
	text := func(v any, re *regexp.Regexp) bool { s, ok := v.(string); return ok && re.MatchString(s) }
	var ok bool
	switch {
	case !strings.Contains(c.text, "sbtest"):
		ok = len(c.args) == 0
	case strings.Contains(c.text, "BETWEEN"):
		ok = id(c.args[0]) && c.args[1] == c.args[0].(int64)+49
	case strings.Contains(c.text, "SET c"):
		ok = text(c.args[0], cFormat) && id(c.args[1])
	case strings.Contains(c.text, "INSERT"):
		ok = id(c.args[0]) && id(c.args[1]) && text(c.args[2], cFormat) && text(c.args[3], padFormat)
	default:
		ok = id(c.args[0])
	}
	if !ok {
		t.Errorf("%q with %v", c.text, c.args)
	}
}

func TestASessionsChoicesFollowItsSeed(t *testing.T) {
	run := func(seed uint64) []call {
		s := &server{t: t}
		d, _ := New(Config{Workload: "oltp_read_write", Tables: 3})
		session, err := d.Session(t.Context(), s.target(), seed)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		if _, err := session.Transaction(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s.log
	}
	show := cmp.AllowUnexported(call{})
	if !cmp.Equal(run(5), run(5), show) {
		t.Error("the same seed gave other statements")
	}
	if cmp.Equal(run(5), run(6), show) {
		t.Error("another seed gave the same statements")
	}
}

func TestABrokenConnectionHidesTheOutcomeOnlyOfACommitThatWrote(t *testing.T) {
	for _, tt := range []struct {
		workload, at string
		answer       int
		unknown      bool
	}{
		{"oltp_update_index", "UPDATE", cut, true}, // commits by itself
		{"oltp_insert", "INSERT", cut, true},
		{"oltp_insert", "INSERT", 1062, false},
		{"oltp_write_only", "COMMIT", cut, true},
		{"oltp_write_only", "COMMIT", 1053, true},
		{"oltp_write_only", "COMMIT", 1213, false},
		{"oltp_write_only", "DELETE", cut, false},
		{"oltp_write_only", "BEGIN", cut, false},
		{"oltp_read_only", "COMMIT", cut, false},
		{"oltp_point_select", "SELECT", cut, false},
	} {
		s := &server{t: t, answer: func(text string) int {
			if strings.HasPrefix(text, tt.at) {
				return tt.answer
			}
			return 0
		}}
		session := open(t, s, Config{Workload: tt.workload})
		_, err := session.Transaction(t.Context())
		if err == nil || errors.Is(err, workload.ErrUnknownOutcome) != tt.unknown {
			t.Errorf("%s, %d at %s: error is %v, want unknown outcome: %v", tt.workload, tt.answer, tt.at, err, tt.unknown)
		}
	}
}

func TestAConflictLeavesASessionThatCanGoOn(t *testing.T) {
	fail := true
	s := &server{t: t, answer: func(text string) int {
		if fail && strings.HasPrefix(text, "UPDATE") {
			fail = false
			return 1213
		}
		return 0
	}}
	session := open(t, s, Config{Workload: "oltp_write_only"})
	sent, err := session.Transaction(t.Context())
	if !workload.Retryable(err) {
		t.Fatalf("error is %v, want one to retry", err)
	}
	if want := (workload.Statements{Write: 1, Other: 1}); sent != want {
		t.Errorf("counted %+v, want %+v: what was sent until then", sent, want)
	}
	if err := session.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := session.Transaction(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.log[2].text; got != "ROLLBACK" {
		t.Errorf("third statement is %q, want ROLLBACK", got)
	}
}

func TestARunnerDrivesSessionsAndCountsThem(t *testing.T) {
	s := &server{t: t}
	d, err := New(Config{Workload: "oltp_read_write", Tables: 2})
	if err != nil {
		t.Fatal(err)
	}
	r, err := workload.Start(t.Context(), d, s.target(), workload.Options{Threads: 4})
	if err != nil {
		t.Fatal(err)
	}
	w, err := r.Measure(t.Context(), 1<<27) // an eighth of a second
	if err != nil {
		t.Fatal(err)
	}
	total := r.Live().Transactions
	r.Stop()
	if w.Transactions == 0 || total < w.Transactions || len(w.Errors) > 0 {
		t.Errorf("window has %d transactions of %d, errors %v", w.Transactions, total, w.Errors)
	}
	if got := w.Samples[0].Writes; got != 4*w.Transactions {
		t.Errorf("%d writes in %d transactions, want 4 each", got, w.Transactions)
	}
}

func TestAnUnusableConfigurationIsRefusedWithAllThatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		c    Config
		want []string
	}{
		{Config{Workload: "oltp_writeonly"}, []string{`unknown workload "oltp_writeonly": did you mean "oltp_write_only"?`}},
		{Config{Workload: "tpcc"}, []string{`unknown workload "tpcc": choose one of oltp, oltp_delete, oltp_insert, oltp_point_select, oltp_read_only, oltp_read_write, oltp_update_index`}},
		{Config{}, []string{"no workload: choose one of"}},
		{Config{Workload: "oltp_read_only", Distribution: "Unifrom"}, []string{`unknown distribution "Unifrom": did you mean "uniform"?`}},
		{
			Config{Workload: "oltp_read_only", Tables: -1, Rows: 2e9, RangeSize: -5},
			[]string{"tables is -1, must be 1 to 10000", "rows of a table is 2000000000", "range size is -5"},
		},
		{
			Config{Workload: "oltp_read_only", Shape: Shape{SpecPct: 101, SpecRes: 100, ParetoH: 1, ZipfianExp: -1}, Counts: &Counts{SumRanges: -1}},
			[]string{"rand-spec-pct) is 101", "rand-spec-res) is 100", "pareto share is 1", "zipfian exponent is -1", "sum ranges is -1"},
		},
		{Config{Workload: "oltp_write_only", Counts: &Counts{SumRanges: 5}}, []string{"a transaction of oltp_write_only has no statement left"}},
	} {
		_, err := New(tt.c)
		if err == nil {
			t.Errorf("%+v was taken", tt.c)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: error %q does not say %q", tt.c, err, want)
			}
		}
	}
	for _, name := range Workloads() {
		if d, err := New(Config{Workload: name}); err != nil || d.Name() != name {
			t.Errorf("%s with defaults: %v", name, err)
		}
	}
}

func TestStringsAreGroupsOfElevenRandomDigits(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	c, pad := make([]byte, cLength), make([]byte, padLength)
	var digits [10]int
	for range 1000 {
		fillGroups(r, c)
		fillGroups(r, pad)
		if !cFormat.Match(c) || !padFormat.Match(pad) {
			t.Fatalf("got c %s, pad %s", c, pad)
		}
		for _, b := range c {
			if b != '-' {
				digits[b-'0']++
			}
		}
	}
	for d, n := range digits { // of 110,000; deviation 100
		if n < 10_500 || n > 11_500 {
			t.Errorf("digit %d came %d times, want about 11000", d, n)
		}
	}
	if len(c) != 119 || len(pad) != 59 {
		t.Errorf("lengths are %d and %d, sysbench's 119 and 59", len(c), len(pad))
	}
}

func TestDrawingCostsNoMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	c := make([]byte, cLength)
	ids := newSampler(Special, Shape{}.withDefaults(), 1000)
	if n := testing.AllocsPerRun(100, func() { fillGroups(r, c); ids.draw(r) }); n != 0 {
		t.Errorf("%v allocations a row", n)
	}
}
