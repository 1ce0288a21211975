//go:build integration

package process_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/labtest"
	"github.com/faultlab/faultlab/lab/process"
	"github.com/faultlab/faultlab/lab/server"
	"github.com/faultlab/faultlab/netem/netns"
)

// rootsEnv lists server roots for machines whose cache has none.
const rootsEnv = "FAULTLAB_TEST_SERVER_ROOTS"

const ownerArg = "__owner"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case process.NodeArg:
			process.NodeMain()
		case ownerArg:
			owner(os.Args[2], os.Args[3], lab.Flavor(os.Args[4]))
		}
	}
	os.Exit(m.Run())
}

// patience is what a server gets to start or to end on a busy machine.
const patience = 2 * time.Minute

const small = "[mysqld]\ninnodb_buffer_pool_size = 32M\ninnodb_log_buffer_size = 8M\n" +
	"table_open_cache = 200\ntable_definition_cache = 400\nmax_connections = 20\n"

func provider(stateDir string) *process.Provider {
	return &process.Provider{
		Servers:  server.Store{Roots: filepath.SplitList(os.Getenv(rootsEnv))},
		StateDir: stateDir,
	}
}

// spec is a lab of n nodes with the test's name.
func spec(t *testing.T, f lab.Flavor, n int) lab.Spec {
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	s := lab.Spec{Name: strings.Trim(name[:min(len(name), 40)], "-")}
	for i := range n {
		s.Nodes = append(s.Nodes, lab.NodeSpec{Name: fmt.Sprintf("n%d", i+1), Flavor: f})
	}
	return s
}

// open opens a lab for the test's life, or skips where there is no server.
func open(t *testing.T, s lab.Spec) (lab.Lab, string) {
	t.Helper()
	dir := t.TempDir()
	p := provider(dir)
	if err := p.Preflight(t.Context(), s); errors.Is(err, lab.ErrCannot) {
		t.Skip(err)
	} else if err != nil {
		t.Fatalf("preflight: %v", err)
	}
	l, err := p.Open(t.Context(), s)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l, dir
}

// connect waits until the server takes the account.
func connect(t *testing.T, l lab.Lab, n lab.Node, user, password string) *sql.DB {
	t.Helper()
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.Passwd = "lab", n.Addr(), user, password
	cfg.AllowNativePasswords = true
	cfg.TLSConfig = "preferred"
	cfg.Logger = &mysql.NopLogger{}
	cfg.DialFunc = func(ctx context.Context, _, addr string) (net.Conn, error) {
		return l.Client().Dial(ctx, "tcp", addr)
	}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	t.Cleanup(func() { db.Close() })
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := db.PingContext(t.Context())
		if err == nil {
			return db
		}
		select {
		case <-n.Done():
			t.Fatalf("node %s has ended:\n%s", n.Name(), n.Log(4000))
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("node %s: %v\n%s", n.Name(), err, n.Log(4000))
		}
	}
}

func wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func eachFlavor(t *testing.T, f func(t *testing.T, f lab.Flavor)) {
	for _, flavor := range server.Installable() {
		t.Run(string(flavor), func(t *testing.T) { f(t, flavor) })
	}
}

func TestContract(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f lab.Flavor) {
		labtest.Provider(t, f, func(t *testing.T) lab.Provider {
			dir := t.TempDir()
			t.Cleanup(func() { nothingLeft(t, dir) })
			return provider(dir)
		})
	})
}

// nothingLeft fails if there are labs in the state folder, or mounts or
// processes of its.
func nothingLeft(t *testing.T, stateDir string) {
	t.Helper()
	des, err := os.ReadDir(stateDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, de := range des {
		t.Errorf("left behind: %s", filepath.Join(stateDir, de.Name()))
		if _, err := os.Stat(netns.Path("faultlab-" + de.Name() + "-switch")); err == nil {
			t.Errorf("left behind: namespaces of %s", de.Name())
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(string(mounts), stateDir) {
		t.Errorf("a mount of %s is left behind or seen outside:\n%s", stateDir, mounts)
	}
}

func TestInitSQLIsRunAndItsPasswordIsNowhereToBeFound(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f lab.Flavor) {
		l, _ := open(t, spec(t, f, 2))
		const password = "vErYsEcReT-4711"
		var ids []string
		for _, n := range l.Nodes() {
			err := n.Start(t.Context(), lab.Start{Options: small, InitSQL: "CREATE USER probe@'198.18.%' IDENTIFIED BY '" + password +
				"';\nGRANT ALL ON *.* TO probe@'198.18.%';\nCREATE DATABASE made_by_init;\n"})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range l.Nodes() {
			db := connect(t, l, n, "probe", password)
			var name, id string
			if err := db.QueryRow("SELECT @@hostname").Scan(&name); err != nil || name != n.Name() {
				t.Errorf("host name: got %q, %v, want %q", name, err, n.Name())
			}
			if f == lab.MySQL {
				if err := db.QueryRow("SELECT @@server_uuid").Scan(&id); err != nil {
					t.Error(err)
				}
				ids = append(ids, id)
			}
		}
		if len(ids) == 2 && ids[0] == ids[1] {
			t.Errorf("both nodes are %s", ids[0])
		}
		n := l.Nodes()[0]
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		if want := "faultlab: the server of n1 ended: signal: killed\n"; !strings.HasSuffix(n.Log(200), want) {
			t.Errorf("log: got %q, want %q at its end", n.Log(200), want)
		}
		err := filepath.WalkDir(l.Dir(), func(path string, de fs.DirEntry, err error) error {
			if err != nil || !de.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if bytes.Contains(b, []byte(password)) {
				t.Errorf("the password is in %s", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		// Without init SQL the data is what it was.
		if err := n.Start(t.Context(), lab.Start{Options: small}); err != nil {
			t.Fatal(err)
		}
		db := connect(t, l, n, "probe", password)
		if _, err := db.Exec("CREATE TABLE made_by_init.t (id INT PRIMARY KEY)"); err != nil {
			t.Errorf("after a crash: %v", err)
		}
	})
}

// serverPid is the one process that lives in the node's namespace.
func serverPid(t *testing.T, n lab.Node) int {
	t.Helper()
	pids, err := netns.Processes(n.Endpoint().Netns)
	if err != nil || len(pids) != 1 {
		t.Fatalf("processes of %s: %v, %v, want one", n.Name(), pids, err)
	}
	return pids[0]
}

func TestAServerSeesItsNodeAndNothingElse(t *testing.T) {
	l, _ := open(t, spec(t, lab.MySQL, 1))
	n := l.Nodes()[0]
	if err := n.Start(t.Context(), lab.Start{Options: small}); err != nil {
		t.Fatal(err)
	}
	pid := serverPid(t, n)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("Uid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", server.UID), "Groups:\t \n", "NoNewPrivs:\t1\n",
		"CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", fmt.Sprintf("NSpid:\t%d\t1\n", pid),
	} {
		if !strings.Contains(string(status), want) {
			t.Errorf("want %q in\n%s", want, status)
		}
	}
	var got []string
	des, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, de := range des {
		switch de.Name() {
		case "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt":
			continue // as the server root has them
		}
		got = append(got, de.Name())
	}
	if d := cmp.Diff([]string{"dev", "etc", "proc", "run", "tmp", "usr", "var"}, got); d != "" {
		t.Errorf("root folder (-want +got):\n%s", d)
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		at, flags := f[4], f[5]
		if !strings.Contains(flags, "nosuid") {
			t.Errorf("set-uid programs count at %s: %s", at, line)
		}
		if strings.HasPrefix(at, "/usr") && !strings.HasPrefix(flags, "ro") {
			t.Errorf("%s is writable: %s", at, line)
		}
	}
	ours, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(ours), l.Dir()) {
		t.Errorf("the server's mounts are seen outside:\n%s", ours)
	}
	// A descriptor of ours would be a way out.
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name())); strings.HasSuffix(to, "journal.jsonl") {
			t.Errorf("the server holds %s", to)
		}
	}
}

func TestAServerThatCannotRunSaysWhyInItsLog(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f lab.Flavor) {
		l, _ := open(t, spec(t, f, 1))
		n := l.Nodes()[0]
		if err := n.Start(t.Context(), lab.Start{Options: "[mysqld]\nno_such_setting = 1\n"}); err != nil {
			t.Fatal(err)
		}
		wait(t, "end of the server", func() bool {
			select {
			case <-n.Done():
				return true
			default:
				return false
			}
		})
		if !strings.Contains(n.Log(4000), "no_such_setting") {
			t.Errorf("log: %q", n.Log(4000))
		}
		if err := n.Start(t.Context(), lab.Start{Options: small}); err != nil {
			t.Errorf("start with good options: %v", err)
		}
	})
}

func TestAFrozenServerIsKilledWhenItsTimeToStopIsUp(t *testing.T) {
	l, _ := open(t, spec(t, lab.MariaDB, 1))
	n := l.Nodes()[0]
	if err := n.Start(t.Context(), lab.Start{Options: small}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(serverPid(t, n), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := n.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	select {
	case <-n.Done():
	default:
		t.Error("Stop returned and the server is there")
	}
}

func TestANamespaceOfSomebodyElseIsLeftAlone(t *testing.T) {
	s := spec(t, lab.MariaDB, 2)
	dir := t.TempDir()
	p := provider(dir)
	if err := p.Preflight(t.Context(), s); errors.Is(err, lab.ErrCannot) {
		t.Skip(err)
	}
	theirs := "faultlab-" + s.Name + "-n2"
	if err := netns.Create(theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Delete(theirs) })
	for what, f := range map[string]func() error{
		"preflight": func() error { return p.Preflight(t.Context(), s) },
		"open":      func() error { _, err := p.Open(t.Context(), s); return err },
	} {
		if err := f(); !errors.Is(err, lab.ErrTaken) {
			t.Errorf("%s: got %v, want %v", what, err, lab.ErrTaken)
		}
	}
	if _, err := os.Stat(netns.Path(theirs)); err != nil {
		t.Errorf("the other's namespace: %v", err)
	}
	if _, err := os.Stat(netns.Path("faultlab-" + s.Name + "-n1")); err == nil {
		t.Error("n1 was made")
	}
	nothingLeft(t, dir)
}

// owner is a process that opens a lab, starts its servers, and waits to be
// killed.
func owner(stateDir, name string, f lab.Flavor) {
	s := lab.Spec{Name: name, Nodes: []lab.NodeSpec{{Name: "n1", Flavor: f}, {Name: "n2", Flavor: f}}}
	l, err := provider(stateDir).Open(context.Background(), s)
	if err == nil {
		for _, n := range l.Nodes() {
			err = errors.Join(err, n.Start(context.Background(), lab.Start{Options: small}))
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	select {}
}

func TestWhenTheOwnerIsKilledItsServersDieAndCleanRemovesTheRest(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f lab.Flavor) {
		s := spec(t, f, 2)
		dir := t.TempDir()
		if err := provider(dir).Preflight(t.Context(), s); errors.Is(err, lab.ErrCannot) {
			t.Skip(err)
		}
		cmd := exec.Command("/proc/self/exe", ownerArg, dir, s.Name, string(f))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
			if _, err := lab.Clean(context.Background(), dir, process.Undo()); err != nil {
				t.Error(err)
			}
		})
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("owner: %q, %v", line, err)
		}
		if m, err := lab.Labs(dir); err != nil || !m[s.Name] {
			t.Errorf("labs: got %v, %v, want %s alive", m, err, s.Name)
		}
		n1 := netns.Path("faultlab-" + s.Name + "-n1")
		if pids, err := netns.Processes(n1); err != nil || len(pids) == 0 {
			t.Fatalf("processes of n1: %v, %v", pids, err)
		}
		// Somebody's shell in a node, which outlives the owner.
		shell := exec.Command("sleep", "600")
		if err := netns.Do(n1, shell.Start); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- shell.Wait() }()
		t.Cleanup(func() { shell.Process.Kill() })

		cmd.Process.Kill()
		cmd.Wait()
		wait(t, "end of the servers", func() bool {
			pids, err := netns.Processes(n1)
			return err == nil && len(pids) == 1 && pids[0] == shell.Process.Pid
		})
		if m, err := lab.Labs(dir); err != nil || m[s.Name] {
			t.Errorf("labs: got %v, %v, want %s dead", m, err, s.Name)
		}
		done, err := lab.Clean(t.Context(), dir, process.Undo())
		if err != nil || len(done) != 1 {
			t.Errorf("clean: got %v, %v", done, err)
		}
		if err := <-ended; err == nil {
			t.Error("the shell in the node's namespace ended by itself")
		}
		left, err := filepath.Glob(netns.Path("faultlab-" + s.Name + "-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("namespaces left: %v, %v", left, err)
		}
		nothingLeft(t, dir)
	})
}

// host is what this machine's own network looks like.
func host(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	for _, args := range [][]string{
		{"ip", "-o", "link"}, {"ip", "-o", "addr"}, {"ip", "route", "show", "table", "all"}, {"ip", "-6", "route", "show", "table", "all"},
		{"ip", "rule"}, {"nft", "list", "ruleset"}, {"iptables-save"},
	} {
		out, err := exec.Command(args[0], args[1:]...).Output()
		if errors.Is(err, exec.ErrNotFound) {
			continue // then nothing here can have used it
		}
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		state[strings.Join(args, " ")] = string(out)
	}
	err := filepath.WalkDir("/proc/sys/net", func(path string, de fs.DirEntry, err error) error {
		if err != nil || de.IsDir() {
			return err
		}
		if strings.Contains(path, "conntrack_count") || strings.HasSuffix(path, "stable_secret") || strings.Contains(path, "/flush") {
			return nil // a counter, a secret, a button
		}
		if b, err := os.ReadFile(path); err == nil {
			state[path] = string(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestTheHostsNetworkIsTheSameBeforeDuringAndAfter(t *testing.T) {
	before := host(t)
	l, _ := open(t, spec(t, lab.MariaDB, 3))
	for _, n := range l.Nodes() {
		if err := n.Start(t.Context(), lab.Start{Options: small}); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(before, host(t)); d != "" {
		t.Errorf("during (-before +now):\n%s", d)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, host(t)); d != "" {
		t.Errorf("after (-before +now):\n%s", d)
	}
}

func TestNodesReachEachOtherByNameAndBothKindsOfAddress(t *testing.T) {
	l, _ := open(t, spec(t, lab.MariaDB, 2))
	n := l.Nodes()[1]
	if err := n.Start(t.Context(), lab.Start{Options: small}); err != nil {
		t.Fatal(err)
	}
	pid := serverPid(t, n)
	hosts, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/root/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	var dialed int
	for line := range strings.Lines(string(hosts)) {
		f := strings.Fields(line)
		if f[1] != "n2" {
			continue
		}
		wait(t, "answer from "+f[0], func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			c, err := netns.Dial(ctx, l.Nodes()[0].Endpoint().Netns, "tcp", net.JoinHostPort(f[0], "3306"))
			if err == nil {
				c.Close()
			}
			return err == nil
		})
		dialed++
	}
	if dialed != 2 {
		t.Errorf("n2 has %d addresses in\n%s, want 2", dialed, hosts)
	}
}
