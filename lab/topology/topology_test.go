package topology

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/labtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func names() []string {
	var out []string
	for n := range All() {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// form bootstraps a cluster and returns the steps that were told.
func form(t *testing.T, topo lab.Topology, c *lab.Cluster) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var steps []string
	if err := topo.Bootstrap(ctx, c, func(s string) { steps = append(steps, s) }); err != nil {
		t.Fatalf("bootstrap: %v", err)
	}
	return steps
}

func starts(n lab.Node) []lab.Start { return n.(*labtest.FakeNode).Starts() }

var uuidRE = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func TestServersAreStartedAsAgreed(t *testing.T) {
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			topo := All()[name]
			c, _ := cluster(t, topo)
			form(t, topo, c)
			var b strings.Builder
			for _, n := range c.Nodes() {
				all := starts(n)
				if len(all) != 1 {
					t.Fatalf("%s was started %d times, want once", n.Name(), len(all))
				}
				s := all[0]
				fmt.Fprintf(&b, "== %s, %s %q\n%s", n.Name(), n.Flavor(), s.Args, s.Options)
				for f, text := range s.Files {
					fmt.Fprintf(&b, "-- file %s\n%s", f, text)
				}
				fmt.Fprintf(&b, "-- initial statements\n%s\n", s.InitSQL)
			}
			// Random names are numbered in the order in which they turn up.
			numbers := map[string]string{}
			got := uuidRE.ReplaceAllStringFunc(b.String(), func(id string) string {
				if numbers[id] == "" {
					numbers[id] = fmt.Sprintf("UUID-%d", len(numbers)+1)
				}
				return numbers[id]
			})
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("servers are started differently (-want +got):\n%s", diff)
			}
		})
	}
}

// options reads an option file as a server does: of a name given twice, the
// last counts.
func options(file string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(file) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		out[strings.ReplaceAll(strings.TrimSpace(name), "-", "_")] = strings.TrimSpace(value)
	}
	return out
}

// A comparison of topologies of which one may lose its last second is none.
func TestDurabilityIsEqualEverywhere(t *testing.T) {
	for _, name := range names() {
		topo := All()[name]
		c, _ := cluster(t, topo)
		form(t, topo, c)
		for _, n := range c.Nodes() {
			o := options(starts(n)[0].Options)
			if got := o["innodb_flush_log_at_trx_commit"]; got != "1" {
				t.Errorf("%s, %s: innodb_flush_log_at_trx_commit is %q, want 1", name, n.Name(), got)
			}
			// MariaDB has no binary log unless asked; all others have.
			if _, logs := o["log_bin"]; topo.Flavor() != lab.MariaDB || logs {
				if got := o["sync_binlog"]; got != "1" {
					t.Errorf("%s, %s: sync_binlog is %q, want 1", name, n.Name(), got)
				}
			}
			for _, never := range []string{"innodb_doublewrite", "innodb_flush_method", "skip_log_bin", "disable_log_bin", "innodb_fast_shutdown"} {
				if v, ok := o[never]; ok {
					t.Errorf("%s, %s: %s is set to %q, and not elsewhere", name, n.Name(), never, v)
				}
			}
			if got := o["innodb_buffer_pool_size"]; got != bufferPool {
				t.Errorf("%s, %s: innodb_buffer_pool_size is %q, want %s as everywhere", name, n.Name(), got, bufferPool)
			}
		}
	}
}

func TestNoOptionFileAndNoArgumentHoldsThePassword(t *testing.T) {
	for _, name := range names() {
		topo := All()[name]
		c, _ := cluster(t, topo)
		form(t, topo, c)
		for _, n := range c.Nodes() {
			s := starts(n)[0]
			for where, text := range map[string]string{"options": s.Options, "arguments": strings.Join(s.Args, " "), "files": fmt.Sprint(s.Files)} {
				if strings.Contains(text, c.Credentials.Password) {
					t.Errorf("%s, %s: the %s hold the password", name, n.Name(), where)
				}
			}
			if !strings.Contains(s.InitSQL, c.Credentials.Password) {
				t.Errorf("%s, %s: the account is not made", name, n.Name())
			}
		}
	}
}

// Each server of a GTID topology would else begin with a transaction of its
// own, and Galera's nodes would each make the same account for all.
func TestTheAccountIsMadeOnEachNodeForItself(t *testing.T) {
	for _, c := range []struct {
		flavor lab.Flavor
		first  string
	}{{lab.MySQL, "SET SESSION sql_log_bin = 0;"}, {lab.MariaDB, "SET SESSION wsrep_on = OFF;"}, {lab.PXC, "SET SESSION wsrep_on = OFF;"}} {
		sql := accountSQL(c.flavor, lab.Credentials{User: "u", Password: "p"})
		if !strings.HasPrefix(sql, c.first+"\n") {
			t.Errorf("%s: got %q, want %q first", c.flavor, sql, c.first)
		}
		for line := range strings.Lines(sql) {
			if !strings.HasSuffix(line, ";\n") {
				t.Errorf("%s: %q is not one statement a line", c.flavor, line)
			}
		}
	}
}

func TestServersHaveNamesOfTheirOwn(t *testing.T) {
	for _, name := range names() {
		topo := All()[name]
		c, _ := cluster(t, topo)
		form(t, topo, c)
		for _, option := range []string{"server_id", "report_host", "group_replication_local_address", "wsrep_node_address", "wsrep_node_name"} {
			seen := map[string]string{}
			for _, n := range c.Nodes() {
				v, ok := options(starts(n)[0].Options)[option]
				if !ok {
					continue
				}
				if other := seen[v]; other != "" {
					t.Errorf("%s: %s is %s on %s and on %s", name, option, v, other, n.Name())
				}
				seen[v] = n.Name()
			}
		}
	}
}

func TestGroupReplicationNamesAllSeedsAndAllowsTheLabsAddresses(t *testing.T) {
	c, _ := cluster(t, MGR{})
	form(t, MGR{}, c)
	var groups []string
	for i, n := range c.Nodes() {
		o := options(starts(n)[0].Options)
		own := n.Endpoint().Addr.String() + ":33061"
		if got := o["group_replication_local_address"]; got != own {
			t.Errorf("%s: local address is %q, want %s", n.Name(), got, own)
		}
		seeds := strings.Split(o["group_replication_group_seeds"], ",")
		if len(seeds) != len(c.Nodes()) || seeds[i] != own {
			t.Errorf("%s: seeds are %v, want every node in order", n.Name(), seeds)
		}
		// AUTOMATIC covers private ranges only.
		if got := o["group_replication_ip_allowlist"]; got != lab.Subnet4.String() {
			t.Errorf("%s: allowlist is %q, want %s", n.Name(), got, lab.Subnet4)
		}
		if got := o["group_replication_start_on_boot"] + o["group_replication_bootstrap_group"]; got != "OFFOFF" {
			t.Errorf("%s: a restarted member would join, or found a second group, by itself", n.Name())
		}
		groups = append(groups, o["group_replication_group_name"])
	}
	if groups = slices.Compact(groups); len(groups) != 1 || !uuidRE.MatchString(groups[0]) {
		t.Errorf("group names are %v, want one and the same uuid", groups)
	}
}

func TestGaleraNamesAllNodesAndPXCHasItsOwnNames(t *testing.T) {
	for _, topo := range []lab.Topology{Galera{}, PXC{}} {
		c, _ := cluster(t, topo)
		form(t, topo, c)
		var all []string
		for _, n := range c.Nodes() {
			all = append(all, n.Endpoint().Addr.String())
		}
		for _, n := range c.Nodes() {
			o := options(starts(n)[0].Options)
			if got, want := o["wsrep_cluster_address"], "gcomm://"+strings.Join(all, ","); got != want {
				t.Errorf("%s, %s: cluster address is %q, want %s", topo.Name(), n.Name(), got, want)
			}
			if got := o["wsrep_node_address"]; got != n.Endpoint().Addr.String() {
				t.Errorf("%s, %s: node address is %q, want %s", topo.Name(), n.Name(), got, n.Endpoint().Addr)
			}
			if o["innodb_autoinc_lock_mode"] != "2" || o["binlog_format"] != "ROW" {
				t.Errorf("%s, %s: without row events and interleaved numbers nodes differ: %v", topo.Name(), n.Name(), o)
			}
		}
		o := options(starts(c.Nodes()[0])[0].Options)
		has := func(name string) bool { _, ok := o[name]; return ok }
		pxc := topo.Name() == "pxc"
		for name, want := range map[string]bool{
			"wsrep_applier_threads": pxc, "wsrep_slave_threads": !pxc, // renamed in 8.0.26
			"pxc_strict_mode": pxc, "pxc_encrypt_cluster_traffic": pxc,
			"wsrep_on":       !pxc, // PXC knows no such option
			"wsrep_provider": true,
		} {
			if has(name) != want {
				t.Errorf("%s: option %s is there: %v, want %v", topo.Name(), name, has(name), want)
			}
		}
	}
}

func TestSavedViewsLetEveryNodeFindTheSameCluster(t *testing.T) {
	const n = 4
	views, err := savedViews(n)
	if err != nil {
		t.Fatal(err)
	}
	own := regexp.MustCompile(`(?m)^my_uuid: (\S+)$`)
	var ids, shared []string
	for i, v := range views {
		m := own.FindStringSubmatch(v)
		if m == nil {
			t.Fatalf("view %d names no own uuid:\n%s", i, v)
		}
		ids = append(ids, m[1])
		shared = append(shared, own.ReplaceAllString(v, ""))
	}
	for i, v := range views {
		if shared[i] != shared[0] {
			t.Errorf("views 0 and %d differ in more than their own uuid:\n%s\n%s", i, views[0], v)
		}
		if got := strings.Count(v, "member: "); got != n {
			t.Errorf("view %d has %d members, want %d:\n%s", i, got, n, v)
		}
		for _, id := range ids {
			if strings.Count(v, "member: "+id+" 0\n") != 1 {
				t.Errorf("view %d does not name %s once:\n%s", i, id, v)
			}
		}
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != n {
		t.Errorf("own uuids are not distinct: %v", ids)
	}
}

func TestClustersAreBoundTogetherByTheseStatements(t *testing.T) {
	const account = "SOURCE_USER='faultlab', SOURCE_PASSWORD='the-password'"
	change := "CHANGE REPLICATION SOURCE TO SOURCE_HOST='198.18.0.11', SOURCE_PORT=3306, SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=86400, " + account
	channel := "CHANGE REPLICATION SOURCE TO " + account + " FOR CHANNEL 'group_replication_recovery'"
	replication := map[string][]string{"n2": {change, "START REPLICA"}, "n3": {change, "START REPLICA"}}
	for name, want := range map[string]map[string][]string{
		"single": {}, "galera": {}, "pxc": {}, "async": replication, "semisync": replication,
		"mgr": {
			"n1": {channel, "SET GLOBAL group_replication_bootstrap_group = ON", "START GROUP_REPLICATION", "SET GLOBAL group_replication_bootstrap_group = OFF"},
			"n2": {channel, "START GROUP_REPLICATION"},
			"n3": {channel, "START GROUP_REPLICATION"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := cluster(t, All()[name])
			steps := form(t, All()[name], c)
			if len(steps) == 0 || steps[0] != "start" {
				t.Errorf("told steps %q, want start first", steps)
			}
			got := map[string][]string{}
			for _, x := range s.statements() {
				node, stmt, _ := strings.Cut(x, ": ")
				got[node] = append(got[node], stmt)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("statements differ (-want +got):\n%s", diff)
			}
		})
	}
}

// A member that joins a group not yet there would wait in vain.
func TestAGroupIsFoundedBeforeItIsJoined(t *testing.T) {
	c, s := cluster(t, MGR{})
	form(t, MGR{}, c)
	all := s.statements()
	founded := slices.Index(all, "n1: SET GLOBAL group_replication_bootstrap_group = OFF")
	for _, n := range []string{"n2", "n3"} {
		if joined := slices.Index(all, n+": START GROUP_REPLICATION"); joined < founded {
			t.Errorf("%s joined at %d, the group was founded at %d", n, joined, founded)
		}
	}
}

func TestAServerThatDoesNotStartIsNamed(t *testing.T) {
	for _, name := range names() {
		topo := All()[name]
		f := &labtest.Fake{OnStart: func(n *labtest.FakeNode, _ lab.Start) error {
			if n.Name() == "n1" {
				return fmt.Errorf("no room")
			}
			return nil
		}}
		spec := lab.Spec{Name: "broken"}
		for i := range topo.NodeCount() {
			spec.Nodes = append(spec.Nodes, lab.NodeSpec{Name: fmt.Sprintf("n%d", i+1), Flavor: topo.Flavor()})
		}
		l, err := f.Open(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(t.Context())
		err = topo.Bootstrap(t.Context(), &lab.Cluster{Lab: l}, func(string) {})
		if err == nil || !strings.Contains(err.Error(), "start n1") || !strings.Contains(err.Error(), "no room") {
			t.Errorf("%s: got %v, want what failed and why", name, err)
		}
	}
}

func TestNodeCountsHaveLimits(t *testing.T) {
	for name, least := range map[string]int{"single": 1, "async": 2, "semisync": 2, "mgr": 3, "galera": 3, "pxc": 3} {
		topo := All()[name]
		for n := range 12 {
			ok := n >= least && n <= 9
			if name == "single" {
				ok = n == 1
			}
			err := topo.CheckNodes(n)
			if (err == nil) != ok {
				t.Errorf("%s with %d nodes: got %v, want ok %v", name, n, err, ok)
			}
			if err != nil && !strings.HasPrefix(err.Error(), name+" takes ") {
				t.Errorf("%s with %d nodes: %q does not name the topology", name, n, err)
			}
		}
		if err := topo.CheckNodes(topo.NodeCount()); err != nil {
			t.Errorf("%s does not take its own default: %v", name, err)
		}
	}
}
