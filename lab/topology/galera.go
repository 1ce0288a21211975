package topology

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/mysql"
)

// Galera is a MariaDB Galera cluster: every node can write, the load writes on
// the first.
type Galera struct{ common }

func (Galera) Name() string           { return "galera" }
func (Galera) Flavor() lab.Flavor     { return lab.MariaDB }
func (Galera) NodeCount() int         { return 3 }
func (Galera) CheckNodes(n int) error { return atLeast("galera", n, 3) }

// galeraProvider is where Debian puts the replication library.
const galeraProvider = "/usr/lib/galera/libgalera_smm.so"

const galeraProviderOptions = "gcache.size=128M"

// galeraOptions: a commit is flushed on every node as elsewhere. There is no
// binary log: the write set is what the other nodes certify, and they hold it.
func galeraOptions(c *lab.Cluster, i int) mysql.Options {
	n := c.Nodes()[i]
	addrs := make([]string, len(c.Nodes()))
	for j, m := range c.Nodes() {
		addrs[j] = m.Endpoint().Addr.String()
	}
	return mysql.Options{}.Set(
		"innodb_flush_log_at_trx_commit", "1",
		"innodb_buffer_pool_size", bufferPool,
		"innodb_log_file_size", "512M",
		"max_connections", "2000",
		"max_prepared_stmt_count", "200000",
		"table_open_cache", "4000",
		"binlog_format", "ROW",
		"default_storage_engine", "InnoDB",
		"innodb_autoinc_lock_mode", "2",
		"wsrep_on", "ON",
		"wsrep_provider", galeraProvider,
		"wsrep_cluster_name", "faultlab", // labs never meet, and it may have 32 characters only
		"wsrep_cluster_address", "gcomm://"+strings.Join(addrs, ","),
		"wsrep_node_address", n.Endpoint().Addr.String(),
		"wsrep_node_name", n.Name(),
		"wsrep_sst_method", "rsync",
		"wsrep_slave_threads", "16",
		"wsrep_provider_options", galeraProviderOptions,
	)
}

func (t Galera) Bootstrap(ctx context.Context, c *lab.Cluster, report func(string)) error {
	return bootstrapGalera(ctx, t, c, report, galeraOptions)
}

// bootstrapGalera lets the nodes restore a primary component (pc.recovery), as
// after a power cut: all have the same data and a saved view that names all, so
// they form the cluster at once and no state is transferred.
func bootstrapGalera(ctx context.Context, t lab.Topology, c *lab.Cluster, report func(string), options func(*lab.Cluster, int) mysql.Options) error {
	views, err := savedViews(len(c.Nodes()))
	if err != nil {
		return err
	}
	report("start")
	if err := startAll(ctx, c, func(i int, n lab.Node) lab.Start {
		return lab.Start{Options: options(c, i).String(), Files: map[string]string{"gvwstate.dat": views[i]}}
	}); err != nil {
		return err
	}
	report("settle")
	return waitHealthy(ctx, t, c)
}

// savedViews renders gvwstate.dat for every node of a primary component of n.
func savedViews(n int) ([]string, error) {
	ids := make([]string, n)
	for i := range ids {
		id, err := uuid.NewUUID() // Galera's own are time-based too
		if err != nil {
			return nil, err
		}
		ids[i] = id.String()
	}
	out := make([]string, n)
	for i, id := range ids {
		var b strings.Builder
		fmt.Fprintf(&b, "my_uuid: %s\n#vwbeg\nview_id: 3 %s %d\nbootstrap: 0\n", id, ids[0], n)
		for _, m := range ids {
			fmt.Fprintf(&b, "member: %s 0\n", m)
		}
		b.WriteString("#vwend\n")
		out[i] = b.String()
	}
	return out, nil
}

func (Galera) Writer(c *lab.Cluster) lab.Node { return c.Nodes()[0] }

func (Galera) Health(ctx context.Context, c *lab.Cluster) lab.Health {
	return lab.Health{Nodes: eachNode(c, func(n lab.Node) lab.NodeHealth {
		h := lab.NodeHealth{Name: n.Name(), Role: "member"}
		ask(ctx, c, n, &h, func(ctx context.Context, db *sql.DB) error {
			s, err := mysql.Pairs(ctx, db, "SHOW GLOBAL STATUS LIKE 'wsrep_%'")
			if err != nil {
				return err
			}
			wsrepHealth(&h, s, len(c.Nodes()))
			return nil
		})
		return h
	})}
}

// wsrepHealth judges one node by its wsrep status.
func wsrepHealth(h *lab.NodeHealth, s map[string]string, want int) {
	h.State = s["wsrep_local_state_comment"]
	if h.State == "" {
		h.State = "UNKNOWN"
		h.Problems = append(h.Problems, "tells no wsrep state: the replication library is not loaded")
		return
	}
	for _, c := range []struct{ name, want, problem string }{
		{"wsrep_ready", "ON", "is not ready (wsrep_ready is %s)"},
		{"wsrep_cluster_status", "Primary", "is in a %s component"},
		{"wsrep_local_state_comment", "Synced", "is %s, not Synced"},
		{"wsrep_cluster_size", fmt.Sprint(want), "sees %s of " + fmt.Sprint(want) + " nodes"},
	} {
		if s[c.name] != c.want {
			h.Problems = append(h.Problems, fmt.Sprintf(c.problem, s[c.name]))
		}
	}
	var queue int64
	fmt.Sscan(s["wsrep_local_recv_queue"], &queue)
	h.Lag = queue
}

func (Galera) Counters(ctx context.Context, c *lab.Cluster) map[string]float64 {
	return statusCounters(ctx, c, "wsrep\\_%")
}

// Judge finds configuration changes: a node that left and came back within a
// window would look healthy at both ends.
func (Galera) Judge(before, after map[string]float64) []string {
	return append(restarted(before, after), membershipChanges(".wsrep_cluster_conf_id", before, after)...)
}
