package topology

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/mysql"
)

// Async is one source and its replicas with GTIDs and parallel appliers. A
// commit waits for nobody.
type Async struct{ common }

func (Async) Name() string           { return "async" }
func (Async) Flavor() lab.Flavor     { return lab.MySQL }
func (Async) NodeCount() int         { return 3 }
func (Async) CheckNodes(n int) error { return atLeast("async", n, 2) }

func (t Async) Bootstrap(ctx context.Context, c *lab.Cluster, report func(string)) error {
	return bootstrapReplication(ctx, t, c, report, nil)
}

// Writer is the source: the first node.
func (Async) Writer(c *lab.Cluster) lab.Node { return c.Nodes()[0] }

func (t Async) Health(ctx context.Context, c *lab.Cluster) lab.Health {
	return replicationHealth(ctx, t, c)
}

func (Async) Counters(ctx context.Context, c *lab.Cluster) map[string]float64 {
	return statusCounters(ctx, c)
}

func (Async) Judge(before, after map[string]float64) []string { return restarted(before, after) }

// bootstrapReplication starts a source and replicas; extra adds settings for
// a node by its role.
func bootstrapReplication(ctx context.Context, t lab.Topology, c *lab.Cluster, report func(string), extra func(source bool) []string) error {
	source := t.Writer(c)
	report("start")
	if err := startAll(ctx, c, func(i int, n lab.Node) lab.Start {
		o := mysqlOptions(n, i+1)
		if n != source {
			o = o.Set("super_read_only", "ON")
		}
		if extra != nil {
			o = o.Set(extra(n == source)...)
		}
		return lab.Start{Options: o.String()}
	}); err != nil {
		return err
	}
	report("replicate")
	g, gctx := errgroup.WithContext(ctx)
	for _, n := range c.Nodes() {
		if n == source {
			continue
		}
		g.Go(func() error {
			db, err := mysql.OpenNode(c, n, 0) // no probe: ctx bounds it
			if err != nil {
				return err
			}
			defer db.Close()
			host, port, _ := strings.Cut(source.Addr(), ":")
			err = mysql.Exec(gctx, db,
				fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%s, SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=86400, SOURCE_USER='%s', SOURCE_PASSWORD='%s'",
					host, port, c.Credentials.User, c.Credentials.Password),
				"START REPLICA")
			if err != nil {
				return fmt.Errorf("replication on %s: %w", n.Name(), err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	report("settle")
	return waitHealthy(ctx, t, c)
}

// replicationHealth asks a source and its replicas. Lag of a replica is what
// the source has committed and the replica has not.
func replicationHealth(ctx context.Context, t lab.Topology, c *lab.Cluster) lab.Health {
	source := t.Writer(c)
	executed := make(map[string]string, len(c.Nodes()))
	type answer struct {
		lab.NodeHealth
		executed string
	}
	answers := eachNode(c, func(n lab.Node) answer {
		a := answer{NodeHealth: lab.NodeHealth{Name: n.Name(), Role: "replica"}}
		if n == source {
			a.Role = "source"
		}
		ask(ctx, c, n, &a.NodeHealth, func(ctx context.Context, db *sql.DB) error {
			var readOnly bool
			if err := db.QueryRowContext(ctx, "SELECT @@gtid_executed, @@super_read_only").Scan(&a.executed, &readOnly); err != nil {
				return err
			}
			if n == source {
				a.State = "ONLINE"
				if readOnly {
					a.State = "READ_ONLY"
					a.Problems = append(a.Problems, "source is read-only")
				}
				return nil
			}
			r, err := mysql.Row(ctx, db, "SHOW REPLICA STATUS")
			if err != nil {
				return err
			}
			a.State = "REPLICATING"
			if r == nil {
				a.State = "STOPPED"
				a.Problems = append(a.Problems, "is no replica of any source")
				return nil
			}
			if r["Replica_IO_Running"] != "Yes" {
				a.State = "IO " + strings.ToUpper(r["Replica_IO_Running"])
				a.Problems = append(a.Problems, strings.TrimSpace("receiver is not connected to the source: "+r["Last_IO_Error"]))
			}
			if r["Replica_SQL_Running"] != "Yes" {
				a.State = "SQL " + strings.ToUpper(r["Replica_SQL_Running"])
				a.Problems = append(a.Problems, strings.TrimSpace("applier is not running: "+r["Last_SQL_Error"]))
			}
			if !readOnly {
				a.Problems = append(a.Problems, "replica is not read-only")
			}
			return nil
		})
		return a
	})
	var h lab.Health
	for _, a := range answers {
		executed[a.Name] = a.executed
	}
	for _, a := range answers {
		if a.Role == "replica" && len(a.Problems) == 0 {
			a.Lag = missing(executed[source.Name()], a.executed)
		}
		h.Nodes = append(h.Nodes, a.NodeHealth)
	}
	return h
}

// missing counts what is in GTID set a and not in b, -1 if it cannot be told.
func missing(a, b string) int64 {
	sa, err := mysql.ParseGTIDSet(a)
	if err != nil {
		return -1
	}
	sb, err := mysql.ParseGTIDSet(b)
	if err != nil {
		return -1
	}
	return sa.Missing(sb)
}
