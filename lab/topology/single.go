package topology

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/faultlab/faultlab/lab"
)

// Single is one MySQL server without replication, binary log on: what the
// others are compared with.
type Single struct{ common }

func (Single) Name() string       { return "single" }
func (Single) Flavor() lab.Flavor { return lab.MySQL }
func (Single) NodeCount() int     { return 1 }

func (Single) CheckNodes(n int) error {
	if n != 1 {
		return fmt.Errorf("single takes 1 node, not %d", n)
	}
	return nil
}

func (t Single) Bootstrap(ctx context.Context, c *lab.Cluster, report func(string)) error {
	report("start")
	if err := startAll(ctx, c, func(i int, n lab.Node) lab.Start {
		return lab.Start{Options: mysqlOptions(n, i+1).String()}
	}); err != nil {
		return err
	}
	return waitHealthy(ctx, t, c)
}

func (Single) Writer(c *lab.Cluster) lab.Node { return c.Nodes()[0] }

func (Single) Health(ctx context.Context, c *lab.Cluster) lab.Health {
	return lab.Health{Nodes: eachNode(c, func(n lab.Node) lab.NodeHealth {
		h := lab.NodeHealth{Name: n.Name(), Role: "single"}
		ask(ctx, c, n, &h, func(ctx context.Context, db *sql.DB) error {
			h.State = "ONLINE"
			return nil
		})
		return h
	})}
}

func (Single) Counters(ctx context.Context, c *lab.Cluster) map[string]float64 {
	return statusCounters(ctx, c)
}

func (Single) Judge(before, after map[string]float64) []string { return restarted(before, after) }
