package docker

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/client"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
)

func TestASpecThatCannotBeBuiltIsRefused(t *testing.T) {
	for what, s := range map[string]lab.Spec{
		"no nodes":        {Name: "x"},
		"bad name":        {Name: "X", Nodes: []lab.NodeSpec{{Name: "n1"}}},
		"bad node name":   {Name: "x", Nodes: []lab.NodeSpec{{Name: "n/1"}}},
		"a name twice":    {Name: "x", Nodes: []lab.NodeSpec{{Name: "n1"}, {Name: "n1"}}},
		"a reserved name": {Name: "x", Nodes: []lab.NodeSpec{{Name: "client"}}},
		"too many nodes":  {Name: "x", Nodes: make([]lab.NodeSpec, maxNodes+1)},
	} {
		if err := check(s); err == nil {
			t.Errorf("%s: %+v passes", what, s)
		}
	}
}

func TestEveryLabHasASubnetOfItsOwnWithinTheRangeOfLabs(t *testing.T) {
	var all []netip.Prefix
	for i := range subnets {
		v4, v6 := subnet(i)
		if !lab.Subnet4.Contains(v4.Addr()) || !lab.Subnet6.Contains(v6.Addr()) || v4 != v4.Masked() || v6 != v6.Masked() {
			t.Fatalf("subnet %d: %s and %s", i, v4, v6)
		}
		if overlaps(all, v4) || overlaps(all, v6) {
			t.Fatalf("subnet %d: %s or %s is an earlier one's", i, v4, v6)
		}
		all = append(all, v4, v6)
	}
	v4, v6 := subnet(257)
	if got, want := v4.String()+" "+v6.String(), "198.19.1.0/24 2001:2:0:101::/64"; got != want {
		t.Errorf("subnet 257: got %s, want %s", got, want)
	}
	if got, want := host(v4, 11).String()+" "+host(v6, 11).String(), "198.19.1.11 2001:2:0:101::b"; got != want {
		t.Errorf("first node: got %s, want %s", got, want)
	}
}

// testNode is a node of an image as its makers ship it.
func testNode(i serverImage) *node {
	return &node{
		lab:  &dockerLab{name: "x", labels: map[string]string{labelFaultlab: "lab", labelLab: "x", labelJournal: "j"}},
		spec: lab.NodeSpec{Name: "n1", Flavor: i.flavor}, image: i, volume: "faultlab-x-n1", cpus: 1.5, memory: 1 << 30,
		place: &place{id: "the-place", endpoint: netem.Endpoint{Name: "n1", Addr: netip.MustParseAddr("198.18.0.11")}},
	}
}

// What a container of an official image is given instead of its entry point.
func TestAServersContainerIsUnprivilegedAndJoinsItsPlace(t *testing.T) {
	for _, i := range []serverImage{
		{id: "mysql:8.4", flavor: lab.MySQL, daemon: "mysqld", uid: 999, gid: 999},
		{id: "mariadb:11", flavor: lab.MariaDB, daemon: "mariadbd", uid: 999, gid: 999, galera: "/usr/lib/galera/libgalera_smm.so"},
		{id: "percona/percona-xtradb-cluster:8.4", flavor: lab.PXC, daemon: "mysqld", uid: 1001, gid: 1001, galera: "/usr/lib64/galera4/libgalera_smm.so"},
	} {
		const secret = "s3cr3t"
		c, h := testNode(i).serverConfig(lab.Start{Args: []string{"--wsrep-new-cluster"}, InitSQL: "SET PASSWORD = '" + secret + "'", Options: "[mysqld]\nwsrep_sst_auth = u:" + secret})
		if strings.Contains(fmt.Sprintf("%+v %+v", c, h), secret) {
			t.Errorf("%s: the password is in the container's configuration", i.id)
		}
		got := []string{strings.Join(append(c.Entrypoint, c.Cmd...), " "), c.User, strings.Join(h.CapDrop, " "), string(h.NetworkMode), string(h.PidMode),
			fmt.Sprint(h.Privileged, h.PublishAllPorts, len(h.PortBindings), len(c.Env), h.NanoCPUs, h.Memory, c.OpenStdin, c.StdinOnce), c.Labels[labelNode]}
		want := []string{i.daemon + " --defaults-file=/etc/faultlab.cnf --wsrep-new-cluster", fmt.Sprintf("%d:%[1]d", i.uid), "ALL", "container:the-place", "container:the-place",
			"false false 0 0 1500000000 1073741824 true true", "n1"}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", i.id, d)
		}
		if len(h.Mounts) != 1 || h.Mounts[0].Source != "faultlab-x-n1" || !h.Mounts[0].VolumeOptions.NoCopy {
			t.Errorf("%s: mounts %+v", i.id, h.Mounts)
		}
		if c, _ := testNode(i).serverConfig(lab.Start{}); c.OpenStdin {
			t.Errorf("%s: standard input is open without init SQL", i.id)
		}
	}
}

func TestFilesOfAServerAreForItsUserAlone(t *testing.T) {
	i := serverImage{flavor: lab.PXC, uid: 1001, gid: 1001, galera: "/usr/lib64/galera4/libgalera_smm.so"}
	r, err := testNode(i).files(lab.Start{Options: "[mysqld]\nwsrep_provider = /usr/lib/galera4/libgalera_smm.so\n", InitSQL: "s3cr3t", Files: map[string]string{"gvwstate.dat": "view"}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o600 || h.Uid != 1001 || h.Gid != 1001 {
			t.Errorf("%s: mode %o, owner %d:%d", h.Name, h.Mode, h.Uid, h.Gid)
		}
		b, _ := io.ReadAll(tr)
		got[h.Name] = string(b)
	}
	if got["var/lib/mysql/gvwstate.dat"] != "view" || len(got) != 2 {
		t.Errorf("files: %q", got)
	}
	options := got["etc/faultlab.cnf"]
	if strings.Contains(options, "s3cr3t") || !strings.Contains(options, "init-file = /dev/stdin\n") {
		t.Errorf("options:\n%s", options)
	}
	// The last one counts.
	if !strings.HasSuffix(options, "wsrep_provider = /usr/lib64/galera4/libgalera_smm.so\n") {
		t.Errorf("the image's Galera library is not last in\n%s", options)
	}
}

func TestTheUserOfAServerIsReadFromItsImage(t *testing.T) {
	const passwd = "root:x:0:0:root:/root:/bin/bash\nmysql2:x:7:7::/:/\nmysql:x:1001:1002:Default user:/:/sbin/nologin\n"
	if uid, gid, err := findUser(strings.NewReader(passwd), "mysql"); uid != 1001 || gid != 1002 || err != nil {
		t.Errorf("got %d:%d, %v, want 1001:1002", uid, gid, err)
	}
	for _, bad := range []string{"", "root:x:0:0::/:/\n", "mysql:x:many:1::/:/\n"} {
		if _, _, err := findUser(strings.NewReader(bad), "mysql"); err == nil {
			t.Errorf("%q has a user mysql", bad)
		}
	}
}

func TestExitStatusesTellSignals(t *testing.T) {
	for status, want := range map[int64]string{1: "exit status 1", 137: "signal: killed", 139: "signal: segmentation fault", 255: "exit status 255"} {
		if got := exitError(status).Error(); got != want {
			t.Errorf("%d: got %q, want %q", status, got, want)
		}
	}
}

func TestAMissingImageNamesTheWaysOut(t *testing.T) {
	for f, want := range map[lab.Flavor][]string{
		lab.MySQL: {"docker pull x:1", "faultlab servers image mysql"},
		lab.PXC:   {"docker pull x:1", "--image pxc="},
	} {
		err := missing(f, "x:1", errors.New("no route"))
		var hint *lab.HintError
		if !errors.As(err, &hint) || !errors.Is(err, lab.ErrNoServer) || !errors.Is(err, lab.ErrCannot) {
			t.Fatalf("%s: %v", f, err)
		}
		for _, w := range want {
			if !strings.Contains(strings.Join(hint.Hints, "\n"), w) {
				t.Errorf("%s: no %q in %q", f, w, hint.Hints)
			}
		}
	}
}

// fakeDaemon answers every question about itself with info.
func fakeDaemon(t *testing.T, version, info string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("API-Version", version)
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/info") {
			io.WriteString(w, info)
			return
		}
		if !strings.HasSuffix(r.URL.Path, "/_ping") {
			http.Error(w, `{"message":"not asked for"}`, http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return "tcp://" + strings.TrimPrefix(s.URL, "http://")
}

func TestADaemonThatWillNotDoIsRefusedBeforeAnythingIsMade(t *testing.T) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	kernel := unix.ByteSliceToString(u.Release[:])
	here := fmt.Sprintf(`{"OSType":"linux","OperatingSystem":"Debian","KernelVersion":%q,"DockerRootDir":"/"}`, kernel)
	s := lab.Spec{Name: "x", Nodes: []lab.NodeSpec{{Name: "n1", Flavor: lab.MySQL}}}
	for what, c := range map[string]struct{ host, want string }{
		"no daemon":      {"unix://" + filepath.Join(t.TempDir(), "none.sock"), "no daemon answers"},
		"too old":        {fakeDaemon(t, "1.24", here), "its API is 1.24"},
		"Docker Desktop": {fakeDaemon(t, "1.43", strings.Replace(here, "Debian", "Docker Desktop", 1)), "virtual machine"},
		"another kernel": {fakeDaemon(t, "1.43", strings.Replace(here, kernel, "2.4.0", 1)), "another kernel"},
		"ssh":            {"ssh://user@somewhere", "another machine's"},
		"Windows":        {fakeDaemon(t, "1.43", strings.Replace(here, `"linux"`, `"windows"`, 1)), "not Linux's"},
	} {
		dir := t.TempDir()
		p := &Provider{Host: c.host, StateDir: dir}
		err := p.Preflight(t.Context(), s)
		var hint *lab.HintError
		if !errors.Is(err, lab.ErrCannot) || !strings.Contains(fmt.Sprint(err), c.want) || !errors.As(err, &hint) {
			t.Errorf("%s: got %v, want %v with %q and a hint", what, err, lab.ErrCannot, c.want)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: it left %v", what, left)
		}
	}
}

func TestTheDaemonIsTheOneThatTheDockerCommandTalksTo(t *testing.T) {
	dir := t.TempDir()
	// sha256 of "there"
	meta := filepath.Join(dir, "contexts", "meta", "e244f187f696561d5fd7e00f618e7ba641dc52e3c137380f6fa23a854b773aac")
	if err := os.MkdirAll(meta, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(meta, "meta.json"), `{"Name":"there","Endpoints":{"docker":{"Host":"unix:///there.sock"}}}`)
	write(filepath.Join(dir, "config.json"), `{"currentContext":"there"}`)
	for _, c := range []struct {
		what string
		env  map[string]string
		want string
	}{
		{"the current context", nil, "unix:///there.sock"},
		{"DOCKER_HOST", map[string]string{"DOCKER_HOST": "unix:///env.sock"}, client.DefaultDockerHost},
		{"the default context", map[string]string{"DOCKER_CONTEXT": "default"}, client.DefaultDockerHost},
		{"a context that is not there", map[string]string{"DOCKER_CONTEXT": "nowhere"}, ""},
		{"no configuration", map[string]string{"DOCKER_CONFIG": filepath.Join(dir, "none")}, client.DefaultDockerHost},
	} {
		opts, err := contextOptions(func(name string) string {
			if v, ok := c.env[name]; ok || name != "DOCKER_CONFIG" {
				return v
			}
			return dir
		})
		if c.want == "" {
			if err == nil {
				t.Errorf("%s: no error", c.what)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		d, err := client.NewClientWithOpts(opts...)
		if err != nil || d.DaemonHost() != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.what, d.DaemonHost(), err, c.want)
		}
	}
}

func TestProgressIsReportedOnceAndItsErrorIsTheEnd(t *testing.T) {
	body := `{"status":"Pulling from mysql","id":"8.4"}{"status":"Downloading","id":"a"}{"status":"Downloading","id":"b"}{"status":"Downloading","id":"a"}{"error":"no space left"}`
	var got []string
	err := follow(io.NopCloser(strings.NewReader(body)), func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) })
	if err == nil || err.Error() != "no space left" {
		t.Errorf("got error %v, want no space left", err)
	}
	if d := cmp.Diff([]string{"8.4 Pulling from mysql", "a Downloading", "b Downloading"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
