// Package topology owns the kinds of replication: for each, how its servers
// are configured, how they are bound together, and how it is told whether the
// cluster is what it claims to be.
//
// One file a topology; what several share is here.
package topology

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/mysql"
)

// All returns every topology by its name.
func All() map[string]lab.Topology {
	m := map[string]lab.Topology{}
	for _, t := range []lab.Topology{Single{}, Async{}, Semisync{}, MGR{}, Galera{}, PXC{}} {
		m[t.Name()] = t
	}
	return m
}

// probeTimeout bounds one question to one server: a node that does not answer
// within it is not healthy.
const probeTimeout = 3 * time.Second

// bufferPool keeps three nodes within the memory of a laptop and the quick
// profile's tables within the pool.
const bufferPool = "256M"

// mysqlOptions are the settings that every MySQL node of every topology has.
// Durability is the same everywhere: the redo log is flushed at every commit
// and the binary log synced.
func mysqlOptions(n lab.Node, id int) mysql.Options {
	return mysql.Options{}.Set(
		"server_id", strconv.Itoa(id),
		"report_host", n.Endpoint().Addr.String(),
		"innodb_flush_log_at_trx_commit", "1",
		"sync_binlog", "1",
		"log_bin", "binlog",
		"gtid_mode", "ON",
		"enforce_gtid_consistency", "ON",
		"innodb_buffer_pool_size", bufferPool,
		// Room for what a short run writes: else it would measure how a
		// server flushes pages when its log is full.
		"innodb_redo_log_capacity", "512M",
		"max_connections", "2000",
		"max_prepared_stmt_count", "200000",
		"table_open_cache", "2000",
		// What a server touches when it starts is most of the time it takes:
		// buffers that a lab's load does not fill are made small.
		"innodb_log_buffer_size", "16M",
		"table_definition_cache", "400",
		"performance_schema_digests_size", "1000",
		"performance_schema_error_size", "0",
		"performance_schema_events_stages_history_long_size", "100",
		"performance_schema_events_statements_history_long_size", "100",
		"performance_schema_events_transactions_history_long_size", "100",
		"performance_schema_events_waits_history_long_size", "100",
		"replica_parallel_workers", "16",
		"replica_preserve_commit_order", "ON",
		"relay_log_recovery", "ON",
		"skip_replica_start", "ON",
	)
}

// accountSQL makes the lab's account, outside the binary log so that nodes do
// not differ in transactions, and closes root's empty password.
func accountSQL(f lab.Flavor, c lab.Credentials) string {
	unlogged := "SET SESSION sql_log_bin = 0;\n"
	root := fmt.Sprintf("ALTER USER 'root'@'localhost' IDENTIFIED BY '%s';\n", c.Password)
	if f != lab.MySQL {
		// Every node makes it for itself.
		unlogged = "SET SESSION wsrep_on = OFF;\n"
	}
	return unlogged +
		fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY '%s';\n", c.User, c.Password) +
		fmt.Sprintf("GRANT ALL ON *.* TO '%s'@'%%' WITH GRANT OPTION;\n", c.User) +
		root
}

// startAll starts every node with its options and waits until all answer.
func startAll(ctx context.Context, c *lab.Cluster, start func(i int, n lab.Node) lab.Start) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, n := range c.Nodes() {
		s := start(i, n)
		s.Options += settings(c)
		s.InitSQL = accountSQL(n.Flavor(), c.Credentials)
		g.Go(func() error {
			if err := n.Start(ctx, s); err != nil {
				return fmt.Errorf("start %s: %w", n.Name(), err)
			}
			return mysql.WaitReady(ctx, c, n)
		})
	}
	return g.Wait()
}

// settings are the user's, which come last and win. Of the provider's options,
// which are one variable, each wins for itself.
func settings(c *lab.Cluster) string {
	if len(c.Settings) == 0 {
		return ""
	}
	o := mysql.Options{}
	for _, k := range slices.Sorted(maps.Keys(c.Settings)) {
		v := c.Settings[k]
		if k == "wsrep_provider_options" {
			v = galeraProviderOptions + ";" + v
		}
		o = o.Set(k, v)
	}
	return o.String()
}

// eachNode asks all nodes at once and returns their answers in node order.
func eachNode[T any](c *lab.Cluster, ask func(n lab.Node) T) []T {
	out := make([]T, len(c.Nodes()))
	var wg sync.WaitGroup
	for i, n := range c.Nodes() {
		wg.Go(func() { out[i] = ask(n) })
	}
	wg.Wait()
	return out
}

// waitHealthy asks until the cluster has no problems and is caught up.
func waitHealthy(ctx context.Context, t lab.Topology, c *lab.Cluster) error {
	var h lab.Health
	return mysql.Poll(ctx, 100*time.Millisecond, func() (bool, error) {
		for _, n := range c.Nodes() {
			select {
			case <-n.Done():
				return false, fmt.Errorf("server of %s ended while the cluster formed; the end of its log:\n%s", n.Name(), n.Log(2000))
			default:
			}
		}
		h = t.Health(ctx, c)
		return len(h.Problems()) == 0 && h.CaughtUp(0), nil
	}, func() error {
		err := fmt.Errorf("%s cluster does not become healthy: %v", t.Name(), h.Problems())
		for _, n := range c.Nodes() {
			err = fmt.Errorf("%w\nthe end of the log of %s:\n%s", err, n.Name(), n.Log(1500))
		}
		return err
	})
}

// ended is the problem of a node whose server is not running.
func ended(n lab.Node) (string, bool) {
	select {
	case <-n.Done():
		return "server ended", true
	default:
		return "server is not started", n.Done() == nil
	}
}

// statusCounters reads status counters of every node that answers, by
// "node.counter". Commands and commits are in every topology's.
func statusCounters(ctx context.Context, c *lab.Cluster, like ...string) map[string]float64 {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	like = append([]string{"Com_commit", "Com_rollback", "Innodb_row_lock_time", "Innodb_row_lock_waits", "Innodb_os_log_fsyncs", "Uptime"}, like...)
	all := eachNode(c, func(n lab.Node) map[string]float64 {
		db, err := mysql.OpenNode(c, n, probeTimeout)
		if err != nil {
			return nil
		}
		defer db.Close()
		m, err := mysql.Status(ctx, db, like...)
		if err != nil {
			return nil
		}
		return m
	})
	out := map[string]float64{}
	for i, n := range c.Nodes() {
		for k, v := range all[i] {
			out[n.Name()+"."+k] = v
		}
	}
	return out
}

// common is what all topologies do alike.
type common struct{}

func (common) Settings(ctx context.Context, c *lab.Cluster) map[string]map[string]string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out := map[string]map[string]string{}
	for i, s := range eachNode(c, func(n lab.Node) map[string]string {
		db, err := mysql.OpenNode(c, n, probeTimeout)
		if err != nil {
			return nil
		}
		defer db.Close()
		s, _ := mysql.Settings(ctx, db)
		return s
	}) {
		if s != nil {
			out[c.Nodes()[i].Name()] = s
		}
	}
	return out
}

// restarted tells of servers that were restarted between two readings: their
// other counters began anew.
func restarted(before, after map[string]float64) []string {
	var out []string
	for k, v := range after {
		if node, ok := strings.CutSuffix(k, ".uptime"); ok && v < before[k] {
			out = append(out, node+": server was restarted")
		}
	}
	slices.Sort(out)
	return out
}

// membershipChanges tells of nodes whose count of configurations, of which each
// has its own number, is another than it was.
func membershipChanges(counter string, before, after map[string]float64) []string {
	var out []string
	for k, v := range after {
		node, ok := strings.CutSuffix(k, counter)
		if was, known := before[k]; ok && known && v != was {
			out = append(out, fmt.Sprintf("%s: cluster membership changed (configuration %.0f, was %.0f)", node, v, was))
		}
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(after)), func(k string) bool { return strings.HasSuffix(k, counter) }) {
		out = append(out, "the cluster's membership could not be read")
	}
	slices.Sort(out)
	return out
}

// atLeast is the node count rule of clusters with a smallest size.
func atLeast(name string, n, least int) error {
	if n < least || n > 9 {
		return fmt.Errorf("%s takes %d to 9 nodes, not %d", name, least, n)
	}
	return nil
}

// ask fills in what is the same for every node, then lets f ask the rest. A
// node that does not answer has that as its problem.
func ask(ctx context.Context, c *lab.Cluster, n lab.Node, h *lab.NodeHealth, f func(ctx context.Context, db *sql.DB) error) {
	if why, gone := ended(n); gone {
		h.State = "DOWN"
		h.Problems = append(h.Problems, why)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	db, err := mysql.OpenNode(c, n, probeTimeout)
	if err == nil {
		defer db.Close()
		h.Version, err = mysql.Version(ctx, db)
	}
	if err == nil {
		err = f(ctx, db)
	}
	if err != nil {
		if h.State == "" {
			h.State = "UNREACHABLE"
		}
		h.Problems = append(h.Problems, "does not answer: "+err.Error())
	}
}
