package oltp

import (
	"errors"
	"math"
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
		{Config{Workload: "tpcc"}, []string{`unknown workload "tpcc": choose one of oltp_point_select, oltp_read_only, oltp_read_write, oltp_write_only`}},
		{Config{}, []string{"no workload: choose one of"}},
		{Config{Workload: "oltp_read_only", Distribution: "Unifrom"}, []string{`unknown distribution "Unifrom": did you mean "uniform"?`}},
		{
			Config{Workload: "oltp_read_only", Tables: -1, Rows: 2e9, RangeSize: -5},
			[]string{"tables is -1, must be 1 to 10000", "rows of a table is 2000000000", "range size is -5"},
		},
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

// The figures are those of four million draws by sysbench 1.0.20's own
// sysbench.rand.special(1, 20000).
func TestSpecialHasTheShapeOfSysbenchs(t *testing.T) {
	const n, draws = 20_000, 2_000_000
	r := rand.New(rand.NewPCG(1, 2))
	count := make([]int, n+2)
	for range draws {
		id := Special.draw(r, n)
		if id < 1 || id > n {
			t.Fatalf("drew %d of 1 to %d", id, n)
		}
		count[id]++
	}
	share := func(from, to int) float64 {
		var sum int
		for _, c := range count[from : to+1] {
			sum += c
		}
		return float64(sum) / draws
	}
	for _, tt := range []struct {
		what     string
		from, to int
		want     float64
	}{
		{"the hot rows", 9950, 10101, 0.7587}, // 0.75, and the bell's part
		{"the first quarter of the window, which sysbench never hits", 9900, 9949, 0.0030},
		{"below the window", 1, 9899, 0.1192},
		{"the tails beyond three deviations", 1, 4999, 0.25 * 0.00108}, // a mean of 12 has lighter tails than a normal
		{"one hot row", 10_000, 10_000, 20_150.0 / 4e6},
		{"one half-hot row at the edge", 9950, 9950, 5290.0 / 4e6},
	} {
		got := share(tt.from, tt.to)
		if d := math.Abs(got - tt.want); d > 0.0002+0.03*tt.want {
			t.Errorf("%s (%d to %d) get %.5f of the draws, want %.5f", tt.what, tt.from, tt.to, got, tt.want)
		}
	}
}

func TestSmallTablesAreDrawnAsSysbenchDrawsThem(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n, want := range map[int][]float64{ // of a million draws by sysbench
		1:  {1},
		2:  {0.4999, 0.5001},
		3:  {0.1252, 0.8652, 0.0097},
		10: {0, 0.0001, 0.0055, 0.0582, 0.3720, 0.5589, 0.0053, 0.0001, 0, 0},
	} {
		const draws = 300_000
		got := make([]float64, n)
		for range draws {
			got[Special.draw(r, n)-1] += 1.0 / draws
		}
		for i := range got {
			if math.Abs(got[i]-want[i]) > 0.005 {
				t.Errorf("special of %d drew %.4f, want %.4f", n, got, want)
				break
			}
		}
	}
}

func TestUniformDrawsEveryIDAlike(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const n, draws = 100, 1_000_000
	count := make([]float64, n)
	for range draws {
		count[Uniform.draw(r, n)-1]++
	}
	var chi2 float64
	for _, c := range count {
		chi2 += (c - draws/n) * (c - draws/n) / (draws / n)
	}
	if chi2 > 148.2 { // 99 degrees of freedom, one in a thousand
		t.Errorf("chi-square of %v over %d ids", chi2, n)
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
	if n := testing.AllocsPerRun(100, func() { fillGroups(r, c); Special.draw(r, 1000) }); n != 0 {
		t.Errorf("%v allocations a row", n)
	}
}
