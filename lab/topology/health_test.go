package topology

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab"
)

func TestAWholeClusterIsHealthyAndTellsItsRoles(t *testing.T) {
	for name, roles := range map[string]map[string]string{
		"single":   {"n1": "single"},
		"async":    {"n1": "source", "n2": "replica", "n3": "replica"},
		"semisync": {"n1": "source", "n2": "replica", "n3": "replica"},
		"mgr":      {"n1": "primary", "n2": "secondary", "n3": "secondary"},
		"galera":   {"n1": "member", "n2": "member", "n3": "member"},
		"pxc":      {"n1": "member", "n2": "member", "n3": "member"},
	} {
		topo := All()[name]
		c, _ := cluster(t, topo)
		form(t, topo, c)
		h := topo.Health(t.Context(), c)
		if p := h.Problems(); len(p) > 0 {
			t.Errorf("%s: got problems %q, want none", name, p)
		}
		if !h.CaughtUp(0) {
			t.Errorf("%s: not caught up: %+v", name, h)
		}
		if diff := cmp.Diff(roles, h.Roles()); diff != "" {
			t.Errorf("%s: roles differ (-want +got):\n%s", name, diff)
		}
		if h.Roles()[topo.Writer(c).Name()] == "replica" || h.Roles()[topo.Writer(c).Name()] == "secondary" {
			t.Errorf("%s: %s takes the load and cannot write", name, topo.Writer(c).Name())
		}
		for _, n := range h.Nodes {
			if !regexp.MustCompile(`^[0-9.]+$`).MatchString(n.Version) {
				t.Errorf("%s: version of %s is %q, want a number", name, n.Name, n.Version)
			}
		}
	}
}

func TestWhatIsWrongWithAClusterIsSaid(t *testing.T) {
	for _, c := range []struct {
		name, topology string
		change         func(s *servers)
		want           []string
	}{
		{"a receiver lost its source", "async", func(s *servers) {
			s.nodes["n3"].replica["Replica_IO_Running"] = "Connecting"
			s.nodes["n3"].replica["Last_IO_Error"] = "Error reconnecting to source 'faultlab@198.18.0.11:3306'."
		}, []string{"n3: receiver is not connected to the source: Error reconnecting to source 'faultlab@198.18.0.11:3306'."}},
		{"an applier stopped", "async", func(s *servers) {
			s.nodes["n2"].replica["Replica_SQL_Running"] = "No"
			s.nodes["n2"].replica["Last_SQL_Error"] = "Could not execute Write_rows event on table sbtest.sbtest1"
		}, []string{"n2: applier is not running: Could not execute Write_rows event on table sbtest.sbtest1"}},
		{"a replica that is none", "async", func(s *servers) { s.nodes["n2"].replica = nil }, []string{"n2: is no replica of any source"}},
		{"a replica that takes writes", "async", func(s *servers) { s.nodes["n2"].readOnly = false }, []string{"n2: replica is not read-only"}},
		{"a source that takes none", "async", func(s *servers) { s.nodes["n1"].readOnly = true }, []string{"n1: source is read-only"}},
		{"a server that refuses", "async", func(s *servers) { s.nodes["n2"].fail = "Too many connections" },
			[]string{"n2: does not answer: Error 1105 (HY000): Too many connections"}},
		{"semisync off at the source", "semisync", func(s *servers) { s.nodes["n1"].status["Rpl_semi_sync_source_status"] = "OFF" },
			[]string{"n1: semisync is off: replication is asynchronous (Rpl_semi_sync_source_status is OFF)"}},
		{"semisync with one replica of two", "semisync", func(s *servers) {
			s.nodes["n1"].status["Rpl_semi_sync_source_clients"] = "1"
			s.nodes["n3"].status["Rpl_semi_sync_replica_status"] = "OFF"
		}, []string{"n1: 1 of 2 replicas are semisync", "n3: replica does not acknowledge (Rpl_semi_sync_replica_status is OFF)"}},
		{"semisync without its plugins", "semisync", func(s *servers) {
			for _, n := range s.nodes {
				maps.DeleteFunc(n.status, func(k, _ string) bool { return len(k) > 4 && k[:4] == "Rpl_" })
			}
		}, []string{
			"n1: semisync is off: replication is asynchronous (Rpl_semi_sync_source_status is OFF)", "n1: 0 of 2 replicas are semisync",
			"n2: replica does not acknowledge (Rpl_semi_sync_replica_status is OFF)", "n3: replica does not acknowledge (Rpl_semi_sync_replica_status is OFF)",
		}},
		{"a member that recovers", "mgr", func(s *servers) {
			for _, n := range s.nodes {
				n.members[2]["MEMBER_STATE"] = "RECOVERING"
			}
		}, []string{
			"n1: sees 2 of 3 members online (198.18.0.13 RECOVERING)", "n2: sees 2 of 3 members online (198.18.0.13 RECOVERING)",
			"n3: member is RECOVERING", "n3: sees 2 of 3 members online (198.18.0.13 RECOVERING)",
		}},
		{"a member that was expelled sees itself alone", "mgr", func(s *servers) {
			s.nodes["n1"].members = s.nodes["n1"].members[:2]
			s.nodes["n2"].members = s.nodes["n2"].members[:2]
			s.nodes["n3"].members = s.nodes["n3"].members[2:]
			s.nodes["n3"].members[0]["MEMBER_STATE"] = "ERROR"
			s.nodes["n3"].members[0]["MEMBER_ROLE"] = ""
		}, []string{
			"n1: sees 2 of 3 members online", "n2: sees 2 of 3 members online",
			"n3: member is ERROR", "n3: sees 0 of 3 members online (198.18.0.13 ERROR)",
		}},
		// Each view alone looks whole but for its own.
		{"views that differ", "mgr", func(s *servers) { s.nodes["n2"].members[0]["MEMBER_STATE"] = "UNREACHABLE" },
			[]string{"n2: sees 2 of 3 members online (198.18.0.11 UNREACHABLE)"}},
		{"a server without a group", "mgr", func(s *servers) {
			s.nodes["n3"].members, s.nodes["n3"].memberOf = nil, nil
		}, []string{"n3: member is OFFLINE", "n3: sees 0 of 3 members online"}},
		{"a donor", "galera", func(s *servers) { s.nodes["n2"].status["wsrep_local_state_comment"] = "Donor/Desynced" },
			[]string{"n2: is Donor/Desynced, not Synced"}},
		{"a minority", "galera", func(s *servers) {
			st := s.nodes["n3"].status
			st["wsrep_ready"], st["wsrep_cluster_status"], st["wsrep_local_state_comment"], st["wsrep_cluster_size"] = "OFF", "non-Primary", "Initialized", "1"
			s.nodes["n1"].status["wsrep_cluster_size"], s.nodes["n2"].status["wsrep_cluster_size"] = "2", "2"
		}, []string{
			"n1: sees 2 of 3 nodes", "n2: sees 2 of 3 nodes",
			"n3: is not ready (wsrep_ready is OFF)", "n3: is in a non-Primary component", "n3: is Initialized, not Synced", "n3: sees 1 of 3 nodes",
		}},
		{"a server without a provider", "galera", func(s *servers) {
			maps.DeleteFunc(s.nodes["n1"].status, func(k, _ string) bool { return k != "Uptime" })
		}, []string{"n1: tells no wsrep state: the replication library is not loaded"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			topo := All()[c.topology]
			cl, s := cluster(t, topo)
			form(t, topo, cl)
			s.mu.Lock()
			c.change(s)
			s.mu.Unlock()
			if diff := cmp.Diff(c.want, topo.Health(t.Context(), cl).Problems()); diff != "" {
				t.Errorf("problems differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAServerThatEndedIsAProblemOfItsNode(t *testing.T) {
	for _, name := range names() {
		topo := All()[name]
		c, _ := cluster(t, topo)
		form(t, topo, c)
		last := c.Nodes()[len(c.Nodes())-1]
		if err := last.Kill(); err != nil {
			t.Fatal(err)
		}
		h := topo.Health(t.Context(), c)
		want := last.Name() + ": server ended"
		if p := h.Problems(); !slices.Contains(p, want) {
			t.Errorf("%s: got problems %q, want %q among them", name, p, want)
		}
		if got := h.Nodes[len(h.Nodes)-1]; got.State != "DOWN" {
			t.Errorf("%s: state of %s is %q, want DOWN", name, got.Name, got.State)
		}
		for k := range topo.Counters(t.Context(), c) {
			if len(c.Nodes()) > 1 && k[:3] == last.Name()+"." {
				t.Errorf("%s: got counter %s of a server that ended", name, k)
			}
		}
	}
}

func TestAServerThatWasNeverStartedIsAProblemOfItsNode(t *testing.T) {
	c, _ := cluster(t, Single{})
	if got := (Single{}).Health(t.Context(), c).Problems(); !slices.Equal(got, []string{"n1: server is not started"}) {
		t.Errorf("got problems %q", got)
	}
}

func TestLagIsWhatANodeHasYetToApply(t *testing.T) {
	for _, c := range []struct {
		name, topology string
		change         func(s *servers)
		want           map[string]int64
	}{
		{"a replica lacks transactions", "async", func(s *servers) { s.nodes["n3"].gtid = sourceGTID + ":1-12:15" }, map[string]int64{"n1": 0, "n2": 0, "n3": 7}},
		{"a replica has none", "semisync", func(s *servers) { s.nodes["n2"].gtid = "" }, map[string]int64{"n1": 0, "n2": 20, "n3": 0}},
		{"a replica's own transactions are no lag", "async", func(s *servers) {
			s.nodes["n3"].gtid += ",\n4f22fa47-71ca-11e1-9e33-c80aa9429562:1-9"
		}, map[string]int64{"n1": 0, "n2": 0, "n3": 0}},
		{"what is no set cannot be told", "async", func(s *servers) { s.nodes["n1"].gtid = "rubbish" }, map[string]int64{"n1": 0, "n2": -1, "n3": -1}},
		{"queues of a member", "mgr", func(s *servers) {
			s.nodes["n2"].memberOf["certify"], s.nodes["n2"].memberOf["apply"] = "3", "40"
		}, map[string]int64{"n1": 0, "n2": 43, "n3": 0}},
		{"queue of a node", "galera", func(s *servers) { s.nodes["n3"].status["wsrep_local_recv_queue"] = "17" }, map[string]int64{"n1": 0, "n2": 0, "n3": 17}},
	} {
		t.Run(c.name, func(t *testing.T) {
			topo := All()[c.topology]
			cl, s := cluster(t, topo)
			form(t, topo, cl)
			s.mu.Lock()
			c.change(s)
			s.mu.Unlock()
			got := map[string]int64{}
			for _, n := range topo.Health(t.Context(), cl).Nodes {
				got[n.Name] = n.Lag
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("lag differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCountersAndSettingsAreReadFromEveryNode(t *testing.T) {
	for name, want := range map[string]string{
		"single": "uptime", "async": "com_commit", "semisync": "rpl_semi_sync_source_no_tx", "mgr": "gr_view", "galera": "wsrep_cluster_conf_id", "pxc": "wsrep_cluster_conf_id",
	} {
		topo := All()[name]
		c, _ := cluster(t, topo)
		form(t, topo, c)
		counters, settings := topo.Counters(t.Context(), c), topo.Settings(t.Context(), c)
		if _, ok := counters["n1."+want]; !ok {
			t.Errorf("%s: got counters %v, want n1.%s among them", name, counters, want)
		}
		for _, n := range c.Nodes() {
			if _, ok := counters[n.Name()+".uptime"]; !ok {
				t.Errorf("%s: uptime of %s is not counted", name, n.Name())
			}
			if got := settings[n.Name()]["innodb_flush_log_at_trx_commit"]; topo.Flavor() == lab.MySQL && got != "1" {
				t.Errorf("%s: settings of %s are %v", name, n.Name(), settings[n.Name()])
			}
		}
		if p := topo.Judge(counters, counters); len(p) > 0 {
			t.Errorf("%s: judged %q where nothing changed", name, p)
		}
	}
}

func TestCountersThatBelieTheTopologySpoilAWindow(t *testing.T) {
	for _, c := range []struct {
		topology      string
		before, after map[string]float64
		want          []string
	}{
		{"semisync",
			map[string]float64{"n1.rpl_semi_sync_source_no_tx": 3, "n1.rpl_semi_sync_source_no_times": 1, "n1.uptime": 50},
			map[string]float64{"n1.rpl_semi_sync_source_no_tx": 3, "n1.rpl_semi_sync_source_no_times": 1, "n1.uptime": 60}, nil},
		{"semisync",
			map[string]float64{"n1.rpl_semi_sync_source_no_tx": 3, "n1.rpl_semi_sync_source_no_times": 1},
			map[string]float64{"n1.rpl_semi_sync_source_no_tx": 45, "n1.rpl_semi_sync_source_no_times": 2},
			[]string{"n1: semisync fell back to async: 42 commits were not acknowledged by a replica", "n1: semisync fell back to async: 1 times semisync was switched off"}},
		{"semisync", nil, map[string]float64{"n1.uptime": 5}, []string{"n1: semisync counters could not be read"}},
		{"galera", map[string]float64{"n1.wsrep_cluster_conf_id": 4, "n2.wsrep_cluster_conf_id": 4}, map[string]float64{"n1.wsrep_cluster_conf_id": 6, "n2.wsrep_cluster_conf_id": 6},
			[]string{"n1: cluster membership changed (configuration 6, was 4)", "n2: cluster membership changed (configuration 6, was 4)"}},
		{"pxc", map[string]float64{"n1.wsrep_cluster_conf_id": 4}, map[string]float64{"n1.wsrep_cluster_conf_id": 5},
			[]string{"n1: cluster membership changed (configuration 5, was 4)"}},
		{"mgr", map[string]float64{"n1.gr_view": 3, "n3.uptime": 90}, map[string]float64{"n1.gr_view": 5, "n3.uptime": 2},
			[]string{"n3: server was restarted", "n1: cluster membership changed (configuration 5, was 3)"}},
		{"mgr", map[string]float64{"n1.gr_view": 3}, map[string]float64{"n1.gr_view": 3, "n2.gr_view": 3}, nil}, // n2 answered late
		{"single", map[string]float64{"n1.uptime": 90}, map[string]float64{"n1.uptime": 2}, []string{"n1: server was restarted"}},
		{"async", map[string]float64{"n2.uptime": 90}, map[string]float64{"n2.uptime": 93}, nil},
	} {
		if diff := cmp.Diff(c.want, All()[c.topology].Judge(c.before, c.after)); diff != "" {
			t.Errorf("%s, %v then %v (-want +got):\n%s", c.topology, c.before, c.after, diff)
		}
	}
}
