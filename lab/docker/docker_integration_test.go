//go:build integration

package docker_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"github.com/go-sql-driver/mysql"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/docker"
	"github.com/faultlab/faultlab/lab/docker/dockertest"
	"github.com/faultlab/faultlab/lab/labtest"
	"github.com/faultlab/faultlab/lab/server"
	"github.com/faultlab/faultlab/netem/netns"
)

// rootsEnv lists server roots for machines whose cache has none.
const rootsEnv = "FAULTLAB_TEST_SERVER_ROOTS"

// daemon is started once, by the first test that needs it.
var daemon = sync.OnceValues(func() (*dockertest.Daemon, error) {
	return dockertest.Start(context.Background())
})

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case server.JailArg: // the store asks servers for their version
			server.JailMain()
		case ownerArg:
			owner(os.Args[2], os.Args[3], os.Args[4], lab.Flavor(os.Args[5]))
		}
	}
	status := m.Run()
	if started {
		if d, err := daemon(); err == nil {
			if err := d.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				status = 1
			}
		}
	}
	os.Exit(status)
}

var started bool

// host is the daemon's address.
func host(t *testing.T) string {
	t.Helper()
	started = true
	d, err := daemon()
	if errors.Is(err, lab.ErrCannot) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d.Host
}

func provider(host, stateDir string) *docker.Provider {
	return &docker.Provider{
		Host: host, StateDir: stateDir,
		Servers: server.Store{Roots: filepath.SplitList(os.Getenv(rootsEnv))},
	}
}

func eachFlavor(t *testing.T, f func(t *testing.T, f lab.Flavor)) {
	for _, flavor := range server.Installable() {
		t.Run(string(flavor), func(t *testing.T) { f(t, flavor) })
	}
}

// TestContract is with one flavor: what differs between them, the image and what
// its server is told, is in the tests of each flavor and in the main job.
func TestContract(t *testing.T) {
	labtest.Provider(t, lab.MySQL, func(t *testing.T) lab.Provider {
		dir := t.TempDir()
		h := host(t)
		t.Cleanup(func() { nothingLeft(t, h, dir) })
		return provider(h, dir)
	})
}

// dockerClient speaks to the daemon without the provider.
func dockerClient(t *testing.T, host string) *client.Client {
	t.Helper()
	c, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// nothingLeft fails if there are labs in the state folder, or if Docker has
// anything of a lab.
func nothingLeft(t *testing.T, host, stateDir string) {
	t.Helper()
	labs, err := lab.Labs(stateDir)
	if err != nil || len(labs) > 0 {
		t.Errorf("labs left: %v, %v", labs, err)
	}
	c := dockerClient(t, host)
	ours := filters.NewArgs(filters.Arg("label", "faultlab=lab"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	containers, err := c.ContainerList(ctx, container.ListOptions{All: true, Filters: ours})
	for _, x := range containers {
		t.Errorf("container left: %v", x.Names)
	}
	networks, nerr := c.NetworkList(ctx, network.ListOptions{Filters: ours})
	for _, x := range networks {
		t.Errorf("network left: %v", x.Name)
	}
	volumes, verr := c.VolumeList(ctx, volume.ListOptions{Filters: ours})
	for _, x := range volumes.Volumes {
		t.Errorf("volume left: %v", x.Name)
	}
	if err := errors.Join(err, nerr, verr); err != nil {
		t.Error(err)
	}
}

const ownerArg = "__owner"

// owner is a process that opens a lab, starts its servers, and waits to be
// killed.
func owner(host, stateDir, name string, f lab.Flavor) {
	s := lab.Spec{Name: name, Nodes: []lab.NodeSpec{{Name: "n1", Flavor: f}, {Name: "n2", Flavor: f}}}
	l, err := provider(host, stateDir).Open(context.Background(), s)
	if err == nil {
		for _, n := range l.Nodes() {
			err = errors.Join(err, n.Start(context.Background(), lab.Start{}))
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	select {}
}

// patience is what a server gets to start or to end on a busy machine.
const patience = 2 * time.Minute

const small = "[mysqld]\ninnodb_buffer_pool_size = 32M\ninnodb_log_buffer_size = 8M\n" +
	"table_open_cache = 200\ntable_definition_cache = 400\nmax_connections = 20\n"

// spec is a lab of n nodes with the test's name.
func spec(t *testing.T, f lab.Flavor, n int) lab.Spec {
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	s := lab.Spec{Name: strings.Trim(name[:min(len(name), 40)], "-")}
	for i := range n {
		s.Nodes = append(s.Nodes, lab.NodeSpec{Name: fmt.Sprintf("n%d", i+1), Flavor: f})
	}
	return s
}

// open opens a lab for the test's life.
func open(t *testing.T, p *docker.Provider, s lab.Spec) lab.Lab {
	t.Helper()
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
		nothingLeft(t, p.Host, p.StateDir)
	})
	return l
}

// connect waits until the server takes the account.
func connect(t *testing.T, l lab.Lab, n lab.Node, user, password string) *sql.DB {
	t.Helper()
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.Passwd = "lab", n.Addr(), user, password
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

// inspected is all that Docker tells of the lab's containers, with their logs.
func inspected(t *testing.T, c *client.Client, labName string) (text string, all []container.InspectResponse) {
	t.Helper()
	list, err := c.ContainerList(t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "faultlab.lab="+labName))})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		i, raw, err := c.ContainerInspectWithRaw(t.Context(), s.ID, false)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, i)
		text += string(raw)
		logs, err := c.ContainerLogs(t.Context(), s.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true})
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(logs)
		logs.Close()
		if err != nil {
			t.Fatal(err)
		}
		text += string(b)
	}
	return text, all
}

// pids are the processes of the node's servers and place, as this machine
// numbers them.
func pids(t *testing.T, n lab.Node) []int {
	t.Helper()
	out, err := netns.Processes(n.Endpoint().Netns)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestInitSQLIsRunAndItsPasswordIsNowhereToBeFound(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f lab.Flavor) {
		p := provider(host(t), t.TempDir())
		l := open(t, p, spec(t, f, 2))
		const password = "vErYsEcReT-4711"
		for _, n := range l.Nodes() {
			err := n.Start(t.Context(), lab.Start{Options: small, InitSQL: "CREATE USER probe@'198.18.%' IDENTIFIED BY '" + password +
				"';\nGRANT ALL ON *.* TO probe@'198.18.%';\nCREATE DATABASE made_by_init;\n"})
			if err != nil {
				t.Fatal(err)
			}
		}
		ids := map[string]bool{}
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
				if ids[id] {
					t.Errorf("both nodes are %s", id)
				}
				ids[id] = true
			}
			for _, pid := range pids(t, n) {
				for _, file := range []string{"cmdline", "environ"} {
					b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
					if err != nil || bytes.Contains(b, []byte(password)) {
						t.Errorf("%s of process %d: %q, %v", file, pid, b, err)
					}
				}
			}
		}
		c := dockerClient(t, p.Host)
		text, containers := inspected(t, c, l.Name())
		if strings.Contains(text, password) {
			t.Error("the password is in docker inspect or in the logs")
		}
		for _, i := range containers {
			if i.HostConfig.Privileged || len(i.HostConfig.PortBindings) > 0 || len(i.HostConfig.CapDrop) == 0 {
				t.Errorf("%s: privileged %v, ports %v, dropped capabilities %v", i.Name, i.HostConfig.Privileged, i.HostConfig.PortBindings, i.HostConfig.CapDrop)
			}
			if i.Config.User == "" || strings.HasPrefix(i.Config.User, "0") {
				t.Errorf("%s runs as user %q", i.Name, i.Config.User)
			}
			// Everything that the server wrote outside of its data.
			if i.GraphDriver.Data["UpperDir"] != "" {
				grep(t, i.GraphDriver.Data["UpperDir"], password)
			}
		}
		grep(t, l.Dir(), password)

		n := l.Nodes()[0]
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		if want := "faultlab: the server of n1 ended: signal: killed\n"; !strings.HasSuffix(n.Log(200), want) {
			t.Errorf("log: got %q, want %q at its end", n.Log(200), want)
		}
		// Without init SQL the data is what it was.
		before := n.Endpoint()
		if err := n.Start(t.Context(), lab.Start{Options: small}); err != nil {
			t.Fatal(err)
		}
		db := connect(t, l, n, "probe", password)
		if _, err := db.Exec("CREATE TABLE made_by_init.t (id INT PRIMARY KEY)"); err != nil {
			t.Errorf("after a crash: %v", err)
		}
		if after := n.Endpoint(); before != after {
			t.Errorf("another server has another network: %+v, was %+v", after, before)
		}
	})
}

// grep fails if a file below dir holds the text.
func grep(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, de fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !de.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			t.Errorf("the password is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAServerThatCannotRunSaysWhyInItsLog(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f lab.Flavor) {
		l := open(t, provider(host(t), t.TempDir()), spec(t, f, 1))
		n := l.Nodes()[0]
		if err := n.Start(t.Context(), lab.Start{Options: "[mysqld]\nno_such_setting = 1\n"}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-n.Done():
		case <-time.After(patience):
			t.Fatal("it does not end")
		}
		if !strings.Contains(n.Log(4000), "no_such_setting") {
			t.Errorf("log: %q", n.Log(4000))
		}
		if err := n.Start(t.Context(), lab.Start{Options: small}); err != nil {
			t.Errorf("start with good options: %v", err)
		}
	})
}

func TestAFrozenServerIsKilledWhenItsTimeToStopIsUp(t *testing.T) {
	p := provider(host(t), t.TempDir())
	l := open(t, p, spec(t, lab.MariaDB, 1))
	n := l.Nodes()[0]
	if err := n.Start(t.Context(), lab.Start{Options: small, InitSQL: "CREATE USER probe@'%' IDENTIFIED BY 'pw';\n"}); err != nil {
		t.Fatal(err)
	}
	connect(t, l, n, "probe", "pw") // until then SIGTERM ends it, frozen or not
	i, err := dockerClient(t, p.Host).ContainerInspect(t.Context(), "faultlab-"+l.Name()+"-n1")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(i.State.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wait(t, "the freeze of the server", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", i.State.Pid))
		return err == nil && strings.Contains(string(b), ") T ")
	})
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

func TestAContainerOfSomebodyElseIsLeftAlone(t *testing.T) {
	p := provider(host(t), t.TempDir())
	s := spec(t, lab.MariaDB, 2)
	open(t, p, spec(t, lab.MariaDB, 1)).Close(t.Context()) // makes the images
	c := dockerClient(t, p.Host)
	theirs := "faultlab-" + s.Name + "-n2"
	if _, err := c.ContainerCreate(t.Context(), &container.Config{Image: "faultlab/place:1"}, nil, nil, nil, theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.ContainerRemove(context.Background(), theirs, container.RemoveOptions{Force: true}) })
	for what, f := range map[string]func() error{
		"preflight": func() error { return p.Preflight(t.Context(), s) },
		"open":      func() error { _, err := p.Open(t.Context(), s); return err },
	} {
		if err := f(); !errors.Is(err, lab.ErrTaken) {
			t.Errorf("%s: got %v, want %v", what, err, lab.ErrTaken)
		}
	}
	if _, err := c.ContainerInspect(t.Context(), theirs); err != nil {
		t.Errorf("the other's container: %v", err)
	}
	nothingLeft(t, p.Host, p.StateDir)
}

func TestWhenTheOwnerIsKilledItsServersDieAndCleanRemovesTheRest(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f lab.Flavor) {
		p := provider(host(t), t.TempDir())
		s := spec(t, f, 2)
		if err := p.Preflight(t.Context(), s); errors.Is(err, lab.ErrCannot) {
			t.Skip(err)
		}
		cmd := exec.Command("/proc/self/exe", ownerArg, p.Host, p.StateDir, s.Name, string(f))
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
			if _, err := lab.Clean(context.Background(), p.StateDir, docker.Undo()); err != nil {
				t.Error(err)
			}
			nothingLeft(t, p.Host, p.StateDir)
		})
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("owner: %q, %v", line, err)
		}
		c := dockerClient(t, p.Host)
		running := func() (n int) {
			_, all := inspected(t, c, s.Name)
			for _, i := range all {
				if i.State.Running {
					n++
				}
			}
			return n
		}
		if got := running(); got != 5 {
			t.Errorf("%d containers run, want the client, two places and two servers", got)
		}
		cmd.Process.Kill()
		cmd.Wait()
		wait(t, "end of the containers", func() bool { return running() == 0 })
		done, err := lab.Clean(t.Context(), p.StateDir, docker.Undo())
		if err != nil || len(done) != 1 {
			t.Errorf("clean: got %v, %v", done, err)
		}
		nothingLeft(t, p.Host, p.StateDir)
	})
}

// An image that faultlab did not make runs by the same code; only how its data
// directory is called in the cache differs.
func TestAnImageOfSomebodyElseRuns(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f lab.Flavor) {
		p := provider(host(t), t.TempDir())
		open(t, p, spec(t, f, 1)).Close(t.Context()) // makes the image
		c := dockerClient(t, p.Host)
		srv, err := p.Servers.Find(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		// The same files, without our labels, and with a program to run that
		// must not be.
		created, err := c.ContainerCreate(t.Context(), &container.Config{Image: "faultlab/" + string(f) + ":" + srv.Version}, nil, nil, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		ref := "example.test/" + string(f) + ":1"
		_, err = c.ContainerCommit(t.Context(), created.ID, container.CommitOptions{Reference: ref, Config: &container.Config{
			Entrypoint: []string{"/no/such/entrypoint"}, User: "root", Labels: map[string]string{"faultlab.server": ""},
			Volumes: map[string]struct{}{server.DataDir: {}, "/var/log/somebody": {}},
		}})
		if err := errors.Join(err, c.ContainerRemove(t.Context(), created.ID, container.RemoveOptions{})); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.ImageRemove(context.Background(), ref, image.RemoveOptions{}) })
		p.Images = map[lab.Flavor]string{f: ref}
		p.Servers.Dir = t.TempDir() // its seed is of no further use
		l := open(t, p, spec(t, f, 1))
		n := l.Nodes()[0]
		if err := n.Start(t.Context(), lab.Start{Options: small, InitSQL: "CREATE USER probe@'%' IDENTIFIED BY 'pw';\n"}); err != nil {
			t.Fatal(err)
		}
		connect(t, l, n, "probe", "pw")
	})
}

func TestAMissingImageIsRefusedWithBothWaysOut(t *testing.T) {
	p := provider(host(t), t.TempDir())
	p.Images = map[lab.Flavor]string{lab.MySQL: "registry.invalid/mysql:0"}
	_, err := p.Open(t.Context(), spec(t, lab.MySQL, 1))
	var hint *lab.HintError
	if !errors.Is(err, lab.ErrNoServer) || !errors.As(err, &hint) {
		t.Fatalf("got %v, want %v with hints", err, lab.ErrNoServer)
	}
	all := strings.Join(hint.Hints, "\n")
	for _, want := range []string{"docker pull registry.invalid/mysql:0", "faultlab servers image mysql"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in the hints:\n%s", want, all)
		}
	}
	nothingLeft(t, p.Host, p.StateDir)
}

func TestLimitsOfANodeAreItsContainers(t *testing.T) {
	p := provider(host(t), t.TempDir())
	p.CPUs, p.Memory, p.MTU = 0.5, 700<<20, 1400
	l := open(t, p, spec(t, lab.MariaDB, 1))
	n := l.Nodes()[0]
	if err := n.Start(t.Context(), lab.Start{Options: small}); err != nil {
		t.Fatal(err)
	}
	i, err := dockerClient(t, p.Host).ContainerInspect(t.Context(), "faultlab-"+l.Name()+"-n1")
	if err != nil {
		t.Fatal(err)
	}
	if i.HostConfig.NanoCPUs != 5e8 || i.HostConfig.Memory != 700<<20 {
		t.Errorf("got %d billionths of a processor and %d bytes", i.HostConfig.NanoCPUs, i.HostConfig.Memory)
	}
	err = netns.Do(n.Endpoint().Netns, func() error {
		dev, err := net.InterfaceByName(n.Endpoint().Interface)
		if err == nil && dev.MTU != 1400 {
			t.Errorf("MTU: got %d, want 1400", dev.MTU)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A daemon that crashes takes no lab with it; what it cannot remove then, clean
// removes when it is back.
func TestALabOutlivesItsDaemon(t *testing.T) {
	host(t)
	d, err := daemon()
	if err == nil && !d.Own() {
		if d, err = dockertest.StartOwn(t.Context()); err == nil {
			t.Cleanup(func() {
				if err := d.Stop(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if errors.Is(err, lab.ErrCannot) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := provider(d.Host, t.TempDir())
	s := spec(t, lab.MariaDB, 2)
	l, err := p.Open(t.Context(), s)
	if errors.Is(err, lab.ErrCannot) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	t.Cleanup(func() {
		if !closed {
			l.Close(context.Background())
		}
	})
	for _, n := range l.Nodes() {
		if err := n.Start(t.Context(), lab.Start{Options: small, InitSQL: "CREATE USER probe@'%' IDENTIFIED BY 'pw';\n"}); err != nil {
			t.Fatal(err)
		}
	}
	n1, n2 := l.Nodes()[0], l.Nodes()[1]
	db := connect(t, l, n1, "probe", "pw")
	connect(t, l, n2, "probe", "pw")
	d.Crash()
	time.Sleep(2 * time.Second) // for those who would take it for the servers' end
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("n1 does not answer: %v", err)
	}
	for _, n := range l.Nodes() {
		select {
		case <-n.Done():
			t.Errorf("%s is said to have ended: %s", n.Name(), n.Log(200))
		default:
		}
	}
	if err := n2.Kill(); err != nil {
		t.Errorf("kill: %v", err)
	}
	if !strings.Contains(n2.Log(300), "since the Docker daemon has gone") {
		t.Errorf("the log of n2 does not say that its end is unknown: %s", n2.Log(300))
	}
	err = l.Close(t.Context())
	closed = true
	var hint *lab.HintError
	if !errors.Is(err, lab.ErrCannot) || !errors.As(err, &hint) || !strings.Contains(fmt.Sprint(hint.Hints), "faultlab clean") {
		t.Errorf("close: got %v, want %v and to be told of clean", err, lab.ErrCannot)
	}
	if err := d.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The lab is this process's still, so what clean does is done by Close.
	if err := l.Close(t.Context()); err != nil {
		t.Errorf("close once the daemon is back: %v", err)
	}
	nothingLeft(t, d.Host, p.StateDir)
}
