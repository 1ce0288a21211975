package topology

import (
	"context"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/mysql"
)

// PXC is Percona XtraDB Cluster: Galera's library in Percona's server. It is
// measured only on that server; where none is at hand, galera is measured
// under its own name.
type PXC struct{ Galera }

func (PXC) Name() string           { return "pxc" }
func (PXC) Flavor() lab.Flavor     { return lab.PXC }
func (PXC) CheckNodes(n int) error { return atLeast("pxc", n, 3) }

// pxcProvider is where Percona's Debian packages put the replication library.
const pxcProvider = "/usr/lib/galera4/libgalera_smm.so"

// pxcOptions are Galera's with PXC's names, and durability made equal to the
// other topologies' (its image ships innodb_flush_log_at_trx_commit=2).
func pxcOptions(c *lab.Cluster, i int) mysql.Options {
	o := galeraOptions(c, i)
	var out mysql.Options
	for _, opt := range o {
		switch opt.Name {
		case "wsrep_slave_threads":
			opt.Name = "wsrep_applier_threads"
		case "wsrep_on":
			continue // always on
		case "wsrep_provider":
			opt.Value = pxcProvider
		case "wsrep_sst_method":
			opt.Value = "xtrabackup-v2"
		}
		out = append(out, opt)
	}
	return out.Set(
		"pxc_strict_mode", "ENFORCING",
		// The lab's network is private to it; certificates would measure TLS.
		"pxc_encrypt_cluster_traffic", "OFF",
		"sync_binlog", "1",
	)
}

func (t PXC) Bootstrap(ctx context.Context, c *lab.Cluster, report func(string)) error {
	return bootstrapGalera(ctx, t, c, report, pxcOptions)
}
