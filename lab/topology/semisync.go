package topology

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/mysql"
)

// Semisync is Async with a commit that waits, before the engine commits
// (AFTER_SYNC), for one replica to have the transaction. Both replicas
// acknowledge; the faster one counts.
type Semisync struct{ common }

func (Semisync) Name() string           { return "semisync" }
func (Semisync) Flavor() lab.Flavor     { return lab.MySQL }
func (Semisync) NodeCount() int         { return 3 }
func (Semisync) CheckNodes(n int) error { return atLeast("semisync", n, 2) }

// semisyncTimeoutMS is the server's own default. A commit that waited longer
// made replication asynchronous, and Judge tells.
const semisyncTimeoutMS = 10000

func (t Semisync) Bootstrap(ctx context.Context, c *lab.Cluster, report func(string)) error {
	return bootstrapReplication(ctx, t, c, report, func(source bool) []string {
		if source {
			return []string{
				"plugin_load_add", "semisync_source.so",
				"rpl_semi_sync_source_enabled", "ON",
				"rpl_semi_sync_source_wait_point", "AFTER_SYNC",
				"rpl_semi_sync_source_wait_for_replica_count", "1",
				"rpl_semi_sync_source_timeout", strconv.Itoa(semisyncTimeoutMS),
			}
		}
		return []string{
			"plugin_load_add", "semisync_replica.so",
			"rpl_semi_sync_replica_enabled", "ON",
		}
	})
}

func (Semisync) Writer(c *lab.Cluster) lab.Node { return c.Nodes()[0] }

func (t Semisync) Health(ctx context.Context, c *lab.Cluster) lab.Health {
	h := replicationHealth(ctx, t, c)
	for i := range h.Nodes {
		n, _ := c.Node(h.Nodes[i].Name)
		if len(h.Nodes[i].Problems) > 0 {
			continue
		}
		ask(ctx, c, n, &h.Nodes[i], func(ctx context.Context, db *sql.DB) error {
			s, err := mysql.Status(ctx, db, "Rpl_semi_sync_%")
			if err != nil {
				return err
			}
			h.Nodes[i].Problems = append(h.Nodes[i].Problems, semisyncProblems(h.Nodes[i].Role, s, len(c.Nodes())-1)...)
			return nil
		})
	}
	return h
}

// semisyncProblems says what of a node's status is not semisynchronous.
func semisyncProblems(role string, s map[string]float64, replicas int) []string {
	if role == "replica" {
		if s["rpl_semi_sync_replica_status"] != 1 {
			return []string{"replica does not acknowledge (Rpl_semi_sync_replica_status is OFF)"}
		}
		return nil
	}
	var out []string
	if s["rpl_semi_sync_source_status"] != 1 {
		out = append(out, "semisync is off: replication is asynchronous (Rpl_semi_sync_source_status is OFF)")
	}
	if n := int(s["rpl_semi_sync_source_clients"]); n != replicas {
		out = append(out, fmt.Sprintf("%d of %d replicas are semisync", n, replicas))
	}
	return out
}

func (Semisync) Counters(ctx context.Context, c *lab.Cluster) map[string]float64 {
	return statusCounters(ctx, c, "Rpl_semi_sync_%")
}

// Judge finds that semisync fell back to async even once.
func (Semisync) Judge(before, after map[string]float64) []string {
	out := restarted(before, after)
	for _, c := range []struct{ name, what string }{
		{"no_tx", "commits were not acknowledged by a replica"},
		{"no_times", "times semisync was switched off"},
	} {
		k := "n1.rpl_semi_sync_source_" + c.name
		a, ok := after[k]
		if !ok {
			return append(out, "n1: semisync counters could not be read")
		}
		if d := a - before[k]; d > 0 {
			out = append(out, fmt.Sprintf("n1: semisync fell back to async: %.0f %s", d, c.what))
		}
	}
	return out
}
