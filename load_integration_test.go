//go:build integration

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/lab/workload/oltp"
	"github.com/faultlab/faultlab/lab/workload/tpcc"
	"github.com/faultlab/faultlab/netem/netns"
)

// loaded is a running lab of one server, and how its client reaches it.
type loaded struct {
	*user
	name   string
	netns  string
	target workload.Target
}

// upSingle starts a lab of one server.
func upSingle(t *testing.T) *loaded {
	t.Helper()
	l := &loaded{user: newUser(t), name: fmt.Sprintf("l%d", os.Getpid())}
	l.must("up", "single", "--name", l.name)
	b, err := os.ReadFile(filepath.Join(l.state, "faultlab", "labs", l.name, "lab.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Client      struct{ Endpoint struct{ Netns string } }
		Nodes       []struct{ Addr string }
		Credentials struct{ User, Password string }
	}
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	l.netns = s.Client.Endpoint.Netns
	l.target = workload.Target{Addr: s.Nodes[0].Addr, User: s.Credentials.User, Password: s.Credentials.Password,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return netns.Dial(ctx, l.netns, network, addr)
		}}
	return l
}

// sql runs a statement and returns its rows as they are shown.
func (l *loaded) sql(statement string) string {
	l.t.Helper()
	return l.must("sql", l.name, "n1", statement)
}

// load runs a load and returns what it printed.
func (l *loaded) load(name, verb string, options ...string) string {
	l.t.Helper()
	return l.must(append([]string{"load", name, verb, "--lab", l.name}, options...)...)
}

// loadFigures are what a run prints with --json.
type loadFigures struct {
	Workload     string
	Transactions int64
	Errors       map[string]int64
	Unknown      int64   `json:"unknown_outcomes"`
	NewOrders    float64 `json:"new_orders_per_minute"`
	Kinds        map[string]struct{ Transactions int64 }
}

// measure runs a load for a moment; nothing may go wrong.
func (l *loaded) measure(name string, options ...string) loadFigures {
	l.t.Helper()
	cmd := l.command(append([]string{"load", name, "run", "--lab", l.name, "--json"}, options...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var f loadFigures
	if err == nil {
		err = json.Unmarshal(out, &f)
	}
	if err != nil {
		l.t.Fatalf("load %s: %v\n%s%s", name, err, out, stderr.Bytes())
	}
	if f.Transactions == 0 || len(f.Errors) > 0 || f.Unknown > 0 {
		l.t.Errorf("load %s %v: %d transactions, errors %v, %d unknown outcomes", name, options, f.Transactions, f.Errors, f.Unknown)
	}
	return f
}

// sysbench runs the real one as the lab's client. The account is in a file of
// its own: what is on a command line is for all to read.
func (l *loaded) sysbench(script, command string, options ...string) string {
	l.t.Helper()
	host, port, err := net.SplitHostPort(l.target.Addr)
	if err != nil {
		l.t.Fatal(err)
	}
	account := filepath.Join(l.dir, "sysbench.conf")
	if err := os.WriteFile(account, fmt.Appendf(nil, "mysql-user=%s\nmysql-password=%s\n", l.target.User, l.target.Password), 0o600); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	args := append([]string{"--config-file=" + account, "--mysql-host=" + host, "--mysql-port=" + port,
		"--mysql-db=" + workload.DefaultDatabase}, options...)
	cmd := exec.CommandContext(ctx, "sysbench", append(args, script, command)...)
	var said []byte
	if err := netns.Do(l.netns, func() (err error) {
		said, err = cmd.CombinedOutput()
		return err
	}); err != nil {
		l.t.Fatalf("sysbench %s %s %v: %v\n%s", script, command, options, err, said)
	}
	return string(said)
}

// needSysbench skips a test where there is none.
func needSysbench(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("sysbench"); errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
}

// What sysbench 1.0 has scripts for.
var scripts = []string{"oltp_read_write", "oltp_read_only", "oltp_write_only", "oltp_point_select",
	"oltp_update_index", "oltp_update_non_index", "oltp_insert", "oltp_delete"}

func TestSysbenchAndFaultlabUseEachOthersTables(t *testing.T) {
	needSysbench(t)
	l := upSingle(t)
	size := []string{"--tables=3", "--table-size=2500"}
	rows := func() (all []string) {
		for n := 1; n <= 3; n++ {
			all = append(all, l.sql(fmt.Sprintf("SELECT COUNT(*) AS n, MIN(id) AS least, MAX(id) AS most, MIN(k) > 0 AS k, "+
				"MIN(LENGTH(c)) AS c, MAX(LENGTH(pad)) AS pad FROM sbtest.sbtest%d", n)))
		}
		return all
	}
	made := func() string {
		return regexp.MustCompile(` AUTO_INCREMENT=\d+`).ReplaceAllString(l.sql("SHOW CREATE TABLE sbtest.sbtest2"), "")
	}

	l.sql("CREATE DATABASE IF NOT EXISTS sbtest")
	l.sysbench("oltp_read_write", "prepare", size...)
	theirs, theirRows := made(), rows()
	sum := l.sql("CHECKSUM TABLE sbtest.sbtest1, sbtest.sbtest2, sbtest.sbtest3")
	if out := l.load("oltp_read_write", "prepare", size...); !strings.Contains(out, "7500 of 7500 rows") {
		t.Errorf("prepare over sysbench's tables:\n%s", out)
	}
	if got := l.sql("CHECKSUM TABLE sbtest.sbtest1, sbtest.sbtest2, sbtest.sbtest3"); got != sum {
		t.Errorf("prepare changed sysbench's rows: %s, now %s", sum, got)
	}
	for _, w := range scripts {
		l.measure(w, append(size, "--threads=4", "--time=500ms")...)
	}
	l.load("oltp_read_write", "cleanup", size...)
	if out := l.sql("SHOW TABLES IN sbtest"); strings.Contains(out, "sbtest1") {
		t.Errorf("after cleanup there is %s", out)
	}

	l.load("oltp_read_write", "prepare", size...)
	if diff := cmp.Diff(theirs, made()); diff != "" {
		t.Errorf("tables (-sysbench's +faultlab's):\n%s", diff)
	}
	if diff := cmp.Diff(theirRows, rows()); diff != "" {
		t.Errorf("rows (-sysbench's +faultlab's):\n%s", diff)
	}
	for _, w := range scripts {
		said := l.sysbench(w, "run", append(size, "--threads=4", "--time=1", "--mysql-ignore-errors=1213,1205")...)
		if !regexp.MustCompile(`total number of events: +[1-9]`).MatchString(said) {
			t.Errorf("sysbench %s on faultlab's tables:\n%s", w, said)
		}
	}
	l.sysbench("oltp_read_write", "cleanup", size...)
	l.load("oltp_read_write", "cleanup", size...) // of nothing
}

func TestEveryOLTPWorkloadRunsOnAServerInBothProtocols(t *testing.T) {
	l := upSingle(t)
	size := []string{"--tables", "2", "--table-size", "3000", "--threads", "4", "--time", "500ms"}
	l.load("oltp_read_write", "prepare", size...)
	for _, w := range oltp.Workloads() {
		for _, mode := range []string{"auto", "disable"} {
			l.measure(w, append(size, "--db-ps-mode", mode, "--rand-type", "uniform")...)
		}
	}
	for _, d := range oltp.Distributions() {
		l.measure("oltp_point_select", append(size, "--rand-type", string(d))...)
	}
	l.measure("oltp_read_write", append(size, "--point-selects", "2", "--range-selects", "off", "--index-updates", "3", "--delete-inserts", "0")...)
	l.measure("oltp_read_write", append(size, "--skip-trx", "on", "--delete-inserts", "0")...)

	// An open loop, and a sweep of connections.
	var open struct {
		TPS     float64 `json:"tps"`
		Rate    string  `json:"rate"`
		Dropped int64   `json:"dropped"`
	}
	out := l.load("oltp_point_select", "run", append(size, "--threads", "8", "--rate", "100", "--time", "3s", "--json")...)
	if err := json.Unmarshal([]byte(out), &open); err != nil || open.TPS < 70 || open.TPS > 130 || open.Rate != "100" || open.Dropped != 0 {
		t.Errorf("open loop: %v\n%s", err, out)
	}
	var sweep struct {
		Sweep []struct {
			Threads int     `json:"threads"`
			TPS     float64 `json:"tps"`
		} `json:"sweep"`
	}
	out = l.load("oltp_point_select", "run", "--tables", "2", "--table-size", "3000", "--sweep", "1,300", "--time", "1s", "--json")
	if err := json.Unmarshal([]byte(out), &sweep); err != nil || len(sweep.Sweep) != 2 || sweep.Sweep[1].Threads != 300 || sweep.Sweep[1].TPS <= 0 {
		t.Errorf("sweep: %v\n%s", err, out)
	}

	// What delete and insert did is mended.
	if _, code := l.run("load", "oltp_read_write", "prepare", "--lab", l.name, "--tables", "2", "--table-size", "3000"); code != 1 {
		t.Errorf("tables with rows of oltp_insert: exit %d, want 1", code)
	}
	if out := l.load("oltp_insert", "prepare", size...); !strings.Contains(out, "6000 of 6000 rows") {
		t.Errorf("prepare:\n%s", out)
	}
	if out := l.sql("SELECT COUNT(*) AS n FROM sbtest.sbtest1 WHERE id <= 3000"); !strings.Contains(out, "3000") {
		t.Errorf("rows of the table: %s", out)
	}
	l.load("oltp_read_write", "cleanup", size...)

	// Tables whose rows the client numbers, without any index but the needed one.
	own := append(size, "--auto-inc", "off", "--create-secondary", "off")
	l.load("oltp_insert", "prepare", own...)
	if out := l.sql("SHOW CREATE TABLE sbtest.sbtest1"); strings.Contains(out, "AUTO_INCREMENT") || strings.Contains(out, "k_1") {
		t.Errorf("with --auto-inc off --create-secondary off: %s", out)
	}
	l.measure("oltp_insert", own...)
	l.measure("oltp_insert", own...) // no id comes again
	l.load("oltp_insert", "cleanup", own...)
	l.load("oltp_read_only", "prepare", append(size, "--secondary", "on")...)
	if out := l.sql("SHOW CREATE TABLE sbtest.sbtest1"); strings.Contains(out, "PRIMARY") || !strings.Contains(out, "xid") {
		t.Errorf("with --secondary on: %s", out)
	}
	l.measure("oltp_read_only", append(size, "--secondary", "on")...)
}

// interrupt ends a load's preparation with Ctrl-C a moment after it has begun: a
// second later, on a fast machine, little would be left to do.
func (l *loaded) interrupt(name string, options ...string) {
	l.t.Helper()
	cmd := l.command(append([]string{"load", name, "prepare", "--lab", l.name}, options...)...)
	progress, err := cmd.StderrPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for lines := bufio.NewScanner(progress); lines.Scan(); {
		if strings.Contains(lines.Text(), " rows") {
			time.Sleep(100 * time.Millisecond)
			_ = cmd.Process.Signal(syscall.SIGINT)
			return
		}
	}
	l.t.Fatalf("load %s prepare ended without a word", name)
}

func TestAnInterruptedPrepareIsFinishedByTheNext(t *testing.T) {
	l := upSingle(t)
	size := []string{"--tables", "2", "--table-size", "100000"}
	l.interrupt("oltp_read_write", size...)
	if out := l.sql("SELECT SUM(table_name = 'sbtest2') = 0 AS missing FROM information_schema.tables WHERE table_schema = 'sbtest'"); !strings.Contains(out, "1") {
		t.Fatalf("nothing was left to do: %s", out)
	}
	l.load("oltp_read_write", "prepare", size...)
	for n := 1; n <= 2; n++ {
		if out := l.sql(fmt.Sprintf("SELECT CONCAT(COUNT(*), ' ', MAX(id)) AS rows_ FROM sbtest.sbtest%d", n)); !strings.Contains(out, "100000 100000") {
			t.Errorf("table %d: %s", n, out)
		}
		if out := l.sql(fmt.Sprintf("SHOW INDEX FROM sbtest.sbtest%d", n)); !strings.Contains(out, fmt.Sprintf("k_%d", n)) {
			t.Errorf("table %d has no index: %s", n, out)
		}
	}
	l.load("oltp_read_write", "cleanup", size...)

	size = []string{"--warehouses", "3", "--scale", "5"}
	l.interrupt("tpcc", size...)
	if out, code := l.run("load", "tpcc", "run", "--lab", l.name, "--warehouses", "3", "--scale", "5"); code != 1 || !strings.Contains(out, "warehouses, not 3") {
		t.Errorf("run over half a database: exit %d\n%s", code, out)
	}
	if out, code := l.run("load", "tpcc", "prepare", "--lab", l.name, "--warehouses", "3", "--scale", "6"); code != 1 || !strings.Contains(out, "of another scale") {
		t.Errorf("prepare in another scale: exit %d\n%s", code, out)
	}
	l.load("tpcc", "prepare", size...)
	l.load("tpcc", "check", size...)
	counts := `SELECT CONCAT_WS(' ', (SELECT COUNT(*) FROM item), (SELECT COUNT(*) FROM stock), (SELECT COUNT(*) FROM customer),
		(SELECT COUNT(*) FROM orders), (SELECT COUNT(*) FROM new_order), (SELECT COUNT(*) FROM history), (SELECT COUNT(*) FROM district)) AS counts`
	l.sql("CREATE DATABASE IF NOT EXISTS sbtest") // for the session's default
	counts = regexp.MustCompile(`FROM (\w+)`).ReplaceAllString(counts, "FROM sbtest.$1")
	if out := l.sql(counts); !strings.Contains(out, "20000 60000 18000 18000 5400 18000 30") {
		t.Errorf("rows: %s", out)
	}
	// The database grows while nothing of what is there changes.
	l.load("tpcc", "prepare", "--warehouses", "4", "--scale", "5")
	l.load("tpcc", "check", "--warehouses", "4", "--scale", "5")
	// What is another program's is left alone.
	l.load("tpcc", "cleanup")
	l.sql("CREATE TABLE sbtest.orders (id INT PRIMARY KEY)")
	for _, verb := range []string{"prepare", "cleanup"} {
		if out, code := l.run("load", "tpcc", verb, "--lab", l.name); code != 1 || !strings.Contains(out, "orders") {
			t.Errorf("%s beside another program's table: exit %d\n%s", verb, code, out)
		}
	}
}

func TestTPCCStaysConsistent(t *testing.T) {
	l := upSingle(t)
	size := []string{"--warehouses", "2", "--scale", "10"}
	l.load("tpcc", "prepare", size...)
	if out := l.load("tpcc", "check", size...); strings.Count(out, " ok ") != 12 {
		t.Errorf("check of a new database:\n%s", out)
	}
	run, said := l.start(append([]string{"load", "tpcc", "run", "--lab", l.name, "--threads", "16", "--time", "8s"}, size...)...)
	time.Sleep(2 * time.Second)
	l.load("tpcc", "check", size...) // beside the load: on one snapshot
	if err := run.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if !strings.Contains(said.String(), "NewOrders a minute, tpcc-like at 1/10:") || strings.Contains(said.String(), "tpmC") {
		t.Errorf("the summary does not call itself tpcc-like:\n%s", said)
	}
	f := l.measure("tpcc", append(size, "--threads", "16", "--time", "3s")...)
	var sum int64
	for _, of := range f.Kinds {
		sum += of.Transactions
	}
	if sum != f.Transactions || f.Workload != "tpcc-like" {
		t.Errorf("%s: %d transactions of all kinds, %d in all", f.Workload, sum, f.Transactions)
	}
	for _, k := range []string{tpcc.NewOrder, tpcc.Payment, tpcc.OrderStatus, tpcc.Delivery, tpcc.StockLevel} {
		// Sixteen sessions with decks of their own: a busy machine may be slow.
		if f.Transactions > 1000 && f.Kinds[k].Transactions == 0 {
			t.Errorf("no %s in %d transactions", k, f.Transactions)
		}
	}
	if share := float64(f.Kinds[tpcc.NewOrder].Transactions) / float64(f.Transactions); f.Transactions > 1000 && (share < 0.38 || share > 0.52) {
		t.Errorf("%.2f of %d transactions are NewOrders, want about 0.45", share, f.Transactions)
	}
	if got, want := f.NewOrders, float64(f.Kinds[tpcc.NewOrder].Transactions)*20; got < want*0.99 || got > want*1.01 {
		t.Errorf("%v NewOrders a minute, want %v", got, want)
	}
	if out := l.load("tpcc", "check", size...); strings.Count(out, " ok ") != 12 {
		t.Errorf("check after the load:\n%s", out)
	}
}

// Each condition fails for a change that it is there to find.
func TestACorruptedRowFailsItsCondition(t *testing.T) {
	l := upSingle(t)
	size := []string{"--warehouses", "2", "--scale", "50"}
	l.load("tpcc", "prepare", size...)
	l.measure("tpcc", append(size, "--threads", "4", "--time", "1s")...)
	for number, c := range map[int]struct{ corrupt, mend string }{
		1: {"UPDATE sbtest.district SET d_ytd = d_ytd + 0.01 WHERE d_w_id = 2 AND d_id = 3", "UPDATE sbtest.district SET d_ytd = d_ytd - 0.01 WHERE d_w_id = 2 AND d_id = 3"},
		2: {"UPDATE sbtest.district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 10", "UPDATE sbtest.district SET d_next_o_id = d_next_o_id - 1 WHERE d_w_id = 1 AND d_id = 10"},
		// Which orders are new depends on how many were delivered: none below 1.
		3: {"INSERT INTO sbtest.new_order (no_w_id, no_d_id, no_o_id) VALUES (2, 1, -5)", "DELETE FROM sbtest.new_order WHERE no_w_id = 2 AND no_d_id = 1 AND no_o_id = -5"},
		4: {"UPDATE sbtest.order_line SET ol_d_id = 11 WHERE ol_w_id = 1 AND ol_d_id = 4 AND ol_o_id = 7 AND ol_number = 2", "UPDATE sbtest.order_line SET ol_d_id = 4 WHERE ol_w_id = 1 AND ol_d_id = 11"},
		5: {"UPDATE sbtest.orders SET o_carrier_id = NULL WHERE o_w_id = 2 AND o_d_id = 5 AND o_id = 1", "UPDATE sbtest.orders SET o_carrier_id = 1 WHERE o_w_id = 2 AND o_d_id = 5 AND o_id = 1"},
		6: {"UPDATE sbtest.orders SET o_ol_cnt = o_ol_cnt + IF(o_id = 1, 1, -1) WHERE o_w_id = 1 AND o_d_id = 6 AND o_id <= 2", "UPDATE sbtest.orders SET o_ol_cnt = o_ol_cnt - IF(o_id = 1, 1, -1) WHERE o_w_id = 1 AND o_d_id = 6 AND o_id <= 2"},
		7: {"UPDATE sbtest.order_line SET ol_delivery_d = NULL WHERE ol_w_id = 2 AND ol_d_id = 7 AND ol_o_id = 3 AND ol_number = 1", "UPDATE sbtest.order_line SET ol_delivery_d = NOW() WHERE ol_w_id = 2 AND ol_d_id = 7 AND ol_o_id = 3 AND ol_number = 1"},
		8: {"UPDATE sbtest.warehouse SET w_ytd = w_ytd + 0.01 WHERE w_id = 1", "UPDATE sbtest.warehouse SET w_ytd = w_ytd - 0.01 WHERE w_id = 1"},
		// The sum of the warehouse stays.
		9:  {"UPDATE sbtest.history SET h_d_id = 2 WHERE h_w_id = 2 AND h_id = 1", "UPDATE sbtest.history SET h_d_id = 1 WHERE h_w_id = 2 AND h_id = 1"},
		10: {"UPDATE sbtest.customer SET c_balance = c_balance + 0.01, c_ytd_payment = c_ytd_payment - 0.01 WHERE c_w_id = 1 AND c_d_id = 8 AND c_id = 9", "UPDATE sbtest.customer SET c_balance = c_balance - 0.01, c_ytd_payment = c_ytd_payment + 0.01 WHERE c_w_id = 1 AND c_d_id = 8 AND c_id = 9"},
		11: {"UPDATE sbtest.customer SET c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = 2 AND c_d_id = 9 AND c_id = 11", "UPDATE sbtest.customer SET c_delivery_cnt = c_delivery_cnt - 1 WHERE c_w_id = 2 AND c_d_id = 9 AND c_id = 11"},
		12: {"UPDATE sbtest.customer SET c_ytd_payment = c_ytd_payment + 0.01 WHERE c_w_id = 1 AND c_d_id = 2 AND c_id = 13", "UPDATE sbtest.customer SET c_ytd_payment = c_ytd_payment - 0.01 WHERE c_w_id = 1 AND c_d_id = 2 AND c_id = 13"},
	} {
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			l := &loaded{user: &user{t: t, state: l.state, dir: l.dir}, name: l.name}
			l.sql(c.corrupt)
			out, code := l.run(append([]string{"load", "tpcc", "check", "--lab", l.name}, size...)...)
			if !regexp.MustCompile(fmt.Sprintf(`(?m)^ *%d FAILED .*: not in 1 places\n +\w.*: is .*, should be `, number)).MatchString(out) &&
				!(number == 6 || number == 9) || !strings.Contains(out, fmt.Sprintf("%2d FAILED", number)) || code != 1 {
				t.Errorf("%s: exit %d\n%s", c.corrupt, code, out)
			}
			l.sql(c.mend)
			if out, code := l.run(append([]string{"load", "tpcc", "check", "--lab", l.name}, size...)...); code != 0 {
				t.Errorf("mended by %s: exit %d\n%s", c.mend, code, out)
			}
		})
	}
}

// A transaction that another one held up is rolled back whole and tried again
// with the same choices.
func TestAConflictOfTPCCIsRolledBackAndTriedAgainAsItWas(t *testing.T) {
	l := upSingle(t)
	ctx := t.Context()
	d, err := tpcc.New(tpcc.Config{Warehouses: 1, Scale: 50})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Prepare(ctx, l.target, nil); err != nil {
		t.Fatal(err)
	}
	l.sql("SET GLOBAL innodb_lock_wait_timeout = 1")
	blocker := l.target
	blocker.Database = workload.DefaultDatabase
	block, err := workload.Connect(ctx, blocker)
	if err != nil {
		t.Fatal(err)
	}
	defer block.Close()
	s, err := d.Session(ctx, l.target, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, hold := range []string{"SELECT * FROM stock FOR UPDATE", "SELECT * FROM customer FOR UPDATE"} {
		if err := block.Exec(ctx, "BEGIN"); err != nil {
			t.Fatal(err)
		}
		if err := block.Exec(ctx, hold); err != nil {
			t.Fatal(err)
		}
		var held workload.Statements
		for range 200 { // some kinds need no such row
			if held, err = s.Transaction(ctx); err != nil {
				break
			}
		}
		if workload.ServerCode(err) != 1205 || !workload.Retryable(err) {
			t.Fatalf("%s: error is %v, want a lock wait timeout", hold, err)
		}
		if err := s.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		if err := block.Exec(ctx, "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		again, err := s.Transaction(ctx)
		if err != nil || again.Kind != held.Kind || again.Write < held.Write {
			t.Errorf("%s: held up %+v, then ran %+v, %v", hold, held, again, err)
		}
	}
	all, err := d.Check(ctx, l.target, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tpcc.Verdict(all); err != nil {
		t.Errorf("%v: %v", err, all)
	}
}
