package mysql

import (
	"context"
	"database/sql"
	"regexp"
	"strconv"
	"strings"
)

var versionRE = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+`)

// Version is the server's version as it says it itself, e.g. "9.7.4".
func Version(ctx context.Context, db *sql.DB) (string, error) {
	var v string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&v); err != nil {
		return "", err
	}
	// What distributions append says nothing about behaviour.
	if number := versionRE.FindString(v); number != "" {
		return number, nil
	}
	return v, nil
}

// Status reads SHOW GLOBAL STATUS for names that match any of the LIKE
// patterns, as numbers; ON is 1, OFF is 0, other words are left out.
func Status(ctx context.Context, db *sql.DB, like ...string) (map[string]float64, error) {
	out := map[string]float64{}
	for _, l := range like {
		m, err := Pairs(ctx, db, "SHOW GLOBAL STATUS LIKE '"+l+"'")
		if err != nil {
			return nil, err
		}
		for k, v := range m {
			if f, ok := number(v); ok {
				out[strings.ToLower(k)] = f
			}
		}
	}
	return out, nil
}

func number(v string) (float64, bool) {
	switch strings.ToUpper(v) {
	case "ON", "YES":
		return 1, true
	case "OFF", "NO":
		return 0, true
	}
	f, err := strconv.ParseFloat(v, 64)
	return f, err == nil
}

// settings bear on speed, durability and replication: a result names them for
// every node.
var settings = []string{
	"version", "version_comment",
	"innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin", "innodb_flush_method", "innodb_doublewrite",
	"innodb_buffer_pool_size", "innodb_redo_log_capacity", "innodb_log_file_size", "transaction_isolation", "tx_isolation",
	"max_connections", "binlog_format", "binlog_row_image", "binlog_order_commits", "gtid_mode",
	"replica_parallel_workers", "replica_preserve_commit_order", "binlog_transaction_dependency_history_size",
	"rpl_semi_sync_source_enabled", "rpl_semi_sync_source_wait_point", "rpl_semi_sync_source_wait_for_replica_count",
	"rpl_semi_sync_source_timeout", "rpl_semi_sync_replica_enabled",
	"group_replication_single_primary_mode", "group_replication_consistency", "group_replication_flow_control_mode",
	"group_replication_flow_control_applier_threshold", "group_replication_flow_control_certifier_threshold",
	"group_replication_paxos_single_leader", "group_replication_transaction_size_limit", "group_replication_communication_stack",
	"wsrep_on", "wsrep_slave_threads", "wsrep_applier_threads", "wsrep_sync_wait", "wsrep_provider_version",
	"wsrep_trx_fragment_size", "wsrep_sst_method",
}

// Settings reads the settings that a result names, those which this server
// knows.
func Settings(ctx context.Context, db *sql.DB) (map[string]string, error) {
	quoted := make([]string, len(settings))
	for i, s := range settings {
		quoted[i] = "'" + s + "'"
	}
	in := strings.Join(quoted, ",")
	all, err := Pairs(ctx, db, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ("+in+")")
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(all))
	for k, v := range all {
		out[strings.ToLower(k)] = v
	}
	return out, nil
}
