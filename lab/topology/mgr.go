package topology

import (
	"context"
	"database/sql"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/mysql"
)

// MGR is MySQL Group Replication, single-primary.
type MGR struct{ common }

func (MGR) Name() string           { return "mgr" }
func (MGR) Flavor() lab.Flavor     { return lab.MySQL }
func (MGR) NodeCount() int         { return 3 }
func (MGR) CheckNodes(n int) error { return atLeast("mgr", n, 3) }

// grPort is where members talk to each other.
const grPort = 33061

func mgrOptions(c *lab.Cluster, group string, i int) mysql.Options {
	seeds := make([]string, len(c.Nodes()))
	for j, n := range c.Nodes() {
		seeds[j] = fmt.Sprintf("%s:%d", n.Endpoint().Addr, grPort)
	}
	return mysqlOptions(c.Nodes()[i], i+1).Set(
		"plugin_load_add", "group_replication.so",
		"group_replication_group_name", group,
		"group_replication_local_address", seeds[i],
		"group_replication_group_seeds", strings.Join(seeds, ","),
		"group_replication_start_on_boot", "OFF",
		"group_replication_bootstrap_group", "OFF",
		"group_replication_recovery_get_public_key", "ON",
		// AUTOMATIC covers private ranges only, and a lab's is not one.
		"group_replication_ip_allowlist", lab.Subnet4.String(),
		"group_replication_single_primary_mode", "ON",
		"group_replication_enforce_update_everywhere_checks", "OFF",
		// A lab's first member must stay the writer, whatever its uuid.
		"group_replication_member_weight", strconv.Itoa(max(100-10*i, 10)),
	)
}

func (t MGR) Bootstrap(ctx context.Context, c *lab.Cluster, report func(string)) error {
	group := uuid.NewString()
	report("start")
	if err := startAll(ctx, c, func(i int, n lab.Node) lab.Start {
		return lab.Start{Options: mgrOptions(c, group, i).String()}
	}); err != nil {
		return err
	}
	channel := fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_USER='%s', SOURCE_PASSWORD='%s' FOR CHANNEL 'group_replication_recovery'",
		c.Credentials.User, c.Credentials.Password)
	run := func(ctx context.Context, n lab.Node, stmts ...string) error {
		// Joining takes as long as it takes; ctx bounds it.
		db, err := mysql.OpenNode(c, n, 0)
		if err != nil {
			return err
		}
		defer db.Close()
		if err := mysql.Exec(ctx, db, stmts...); err != nil {
			return fmt.Errorf("group replication on %s: %w; the end of its log:\n%s", n.Name(), err, n.Log(1500))
		}
		return nil
	}
	report("bootstrap group")
	if err := run(ctx, t.Writer(c), channel, "SET GLOBAL group_replication_bootstrap_group = ON", "START GROUP_REPLICATION",
		"SET GLOBAL group_replication_bootstrap_group = OFF"); err != nil {
		return err
	}
	report("join")
	g, gctx := errgroup.WithContext(ctx)
	for _, n := range c.Nodes()[1:] {
		g.Go(func() error { return run(gctx, n, channel, "START GROUP_REPLICATION") })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	report("settle")
	return waitHealthy(ctx, t, c)
}

// Writer is the first node, which bootstraps the group and so is its primary.
func (MGR) Writer(c *lab.Cluster) lab.Node { return c.Nodes()[0] }

// Health compares the views of all members: under a partial failure they
// differ, and each one alone looks whole.
func (MGR) Health(ctx context.Context, c *lab.Cluster) lab.Health {
	return lab.Health{Nodes: eachNode(c, func(n lab.Node) lab.NodeHealth {
		h := lab.NodeHealth{Name: n.Name(), Role: "none", Lag: -1}
		ask(ctx, c, n, &h, func(ctx context.Context, db *sql.DB) error {
			members, err := mysql.Rows(ctx, db, "SELECT MEMBER_ID, MEMBER_HOST, MEMBER_STATE, MEMBER_ROLE, MEMBER_ID = @@server_uuid AS self FROM performance_schema.replication_group_members")
			if err != nil {
				return err
			}
			stats, err := mysql.Row(ctx, db, "SELECT COUNT_TRANSACTIONS_IN_QUEUE AS certify, COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE AS apply FROM performance_schema.replication_group_member_stats WHERE MEMBER_ID = @@server_uuid")
			if err != nil {
				return err
			}
			groupHealth(&h, members, len(c.Nodes()))
			if stats != nil {
				certify, _ := strconv.ParseInt(stats["certify"], 10, 64)
				apply, _ := strconv.ParseInt(stats["apply"], 10, 64)
				h.Lag = certify + apply
			}
			return nil
		})
		return h
	})}
}

// groupHealth judges one member's view of the group.
func groupHealth(h *lab.NodeHealth, members []map[string]string, want int) {
	online := 0
	var others []string
	for _, m := range members {
		if m["MEMBER_STATE"] == "ONLINE" {
			online++
		} else {
			others = append(others, fmt.Sprintf("%s %s", m["MEMBER_HOST"], m["MEMBER_STATE"]))
		}
		if m["self"] == "1" {
			h.State = m["MEMBER_STATE"]
			if role := strings.ToLower(m["MEMBER_ROLE"]); role != "" {
				h.Role = role
			}
		}
	}
	if h.State == "" {
		h.State = "OFFLINE"
	}
	if h.State != "ONLINE" {
		h.Problems = append(h.Problems, "member is "+h.State)
	}
	if online != want {
		p := fmt.Sprintf("sees %d of %d members online", online, want)
		if len(others) > 0 {
			sort.Strings(others)
			p += " (" + strings.Join(others, ", ") + ")"
		}
		h.Problems = append(h.Problems, p)
	}
}

func (MGR) Counters(ctx context.Context, c *lab.Cluster) map[string]float64 {
	out := statusCounters(ctx, c, "Gr\\_%")
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for i, m := range eachNode(c, func(n lab.Node) map[string]string {
		db, err := mysql.OpenNode(c, n, probeTimeout)
		if err != nil {
			return nil
		}
		defer db.Close()
		m, _ := mysql.Row(ctx, db, `SELECT COUNT_TRANSACTIONS_CHECKED AS gr_checked, COUNT_CONFLICTS_DETECTED AS gr_conflicts,
			COUNT_TRANSACTIONS_REMOTE_APPLIED AS gr_remote_applied, COUNT_TRANSACTIONS_LOCAL_PROPOSED AS gr_local_proposed,
			COUNT_TRANSACTIONS_LOCAL_ROLLBACK AS gr_local_rollback, SUBSTRING_INDEX(VIEW_ID, ':', -1) AS gr_view
			FROM performance_schema.replication_group_member_stats WHERE MEMBER_ID = @@server_uuid`)
		return m
	}) {
		for k, v := range m {
			if f, err := strconv.ParseFloat(v, 64); err == nil {
				out[c.Nodes()[i].Name()+"."+k] = f
			}
		}
	}
	return out
}

// Judge finds changes of the group's view: a member that left and came back
// within a window would look healthy at both ends.
func (MGR) Judge(before, after map[string]float64) []string {
	return append(restarted(before, after), membershipChanges(".gr_view", before, after)...)
}
