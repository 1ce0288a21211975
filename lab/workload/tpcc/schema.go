package tpcc

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/faultlab/faultlab/lab/workload"
)

// tables make the database. There are no foreign keys: the specification asks
// for none, and replication that applies in parallel suffers from them.
var tables = []struct{ name, columns string }{
	{"item", `
  i_id INT NOT NULL,
  i_im_id INT NOT NULL,
  i_name VARCHAR(24) NOT NULL,
  i_price DECIMAL(5,2) NOT NULL,
  i_data VARCHAR(50) NOT NULL,
  PRIMARY KEY (i_id)`},
	{"warehouse", `
  w_id INT NOT NULL,
  w_name VARCHAR(10) NOT NULL,
  w_street_1 VARCHAR(20) NOT NULL,
  w_street_2 VARCHAR(20) NOT NULL,
  w_city VARCHAR(20) NOT NULL,
  w_state CHAR(2) NOT NULL,
  w_zip CHAR(9) NOT NULL,
  w_tax DECIMAL(4,4) NOT NULL,
  w_ytd DECIMAL(12,2) NOT NULL,
  PRIMARY KEY (w_id)`},
	{"district", `
  d_w_id INT NOT NULL,
  d_id TINYINT NOT NULL,
  d_name VARCHAR(10) NOT NULL,
  d_street_1 VARCHAR(20) NOT NULL,
  d_street_2 VARCHAR(20) NOT NULL,
  d_city VARCHAR(20) NOT NULL,
  d_state CHAR(2) NOT NULL,
  d_zip CHAR(9) NOT NULL,
  d_tax DECIMAL(4,4) NOT NULL,
  d_ytd DECIMAL(12,2) NOT NULL,
  d_next_o_id INT NOT NULL,
  PRIMARY KEY (d_w_id, d_id)`},
	{"customer", `
  c_w_id INT NOT NULL,
  c_d_id TINYINT NOT NULL,
  c_id INT NOT NULL,
  c_first VARCHAR(16) NOT NULL,
  c_middle CHAR(2) NOT NULL,
  c_last VARCHAR(16) NOT NULL,
  c_street_1 VARCHAR(20) NOT NULL,
  c_street_2 VARCHAR(20) NOT NULL,
  c_city VARCHAR(20) NOT NULL,
  c_state CHAR(2) NOT NULL,
  c_zip CHAR(9) NOT NULL,
  c_phone CHAR(16) NOT NULL,
  c_since DATETIME NOT NULL,
  c_credit CHAR(2) NOT NULL,
  c_credit_lim DECIMAL(12,2) NOT NULL,
  c_discount DECIMAL(4,4) NOT NULL,
  c_balance DECIMAL(12,2) NOT NULL,
  c_ytd_payment DECIMAL(12,2) NOT NULL,
  c_payment_cnt INT NOT NULL,
  c_delivery_cnt INT NOT NULL,
  c_data VARCHAR(500) NOT NULL,
  PRIMARY KEY (c_w_id, c_d_id, c_id),
  KEY c_name (c_w_id, c_d_id, c_last, c_first)`},
	// The specification's history has no key of its own. This one keeps a
	// warehouse's rows together, and payments off one hot page.
	{"history", `
  h_w_id INT NOT NULL,
  h_id BIGINT NOT NULL AUTO_INCREMENT,
  h_d_id TINYINT NOT NULL,
  h_c_w_id INT NOT NULL,
  h_c_d_id TINYINT NOT NULL,
  h_c_id INT NOT NULL,
  h_date DATETIME NOT NULL,
  h_amount DECIMAL(6,2) NOT NULL,
  h_data VARCHAR(24) NOT NULL,
  PRIMARY KEY (h_w_id, h_id),
  KEY h_number (h_id)`},
	{"orders", `
  o_w_id INT NOT NULL,
  o_d_id TINYINT NOT NULL,
  o_id INT NOT NULL,
  o_c_id INT NOT NULL,
  o_entry_d DATETIME NOT NULL,
  o_carrier_id TINYINT,
  o_ol_cnt TINYINT NOT NULL,
  o_all_local TINYINT NOT NULL,
  PRIMARY KEY (o_w_id, o_d_id, o_id),
  KEY o_customer (o_w_id, o_d_id, o_c_id, o_id)`},
	{"new_order", `
  no_w_id INT NOT NULL,
  no_d_id TINYINT NOT NULL,
  no_o_id INT NOT NULL,
  PRIMARY KEY (no_w_id, no_d_id, no_o_id)`},
	{"order_line", `
  ol_w_id INT NOT NULL,
  ol_d_id TINYINT NOT NULL,
  ol_o_id INT NOT NULL,
  ol_number TINYINT NOT NULL,
  ol_i_id INT NOT NULL,
  ol_supply_w_id INT NOT NULL,
  ol_delivery_d DATETIME,
  ol_quantity TINYINT NOT NULL,
  ol_amount DECIMAL(6,2) NOT NULL,
  ol_dist_info CHAR(24) NOT NULL,
  PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)`},
	{"stock", `
  s_w_id INT NOT NULL,
  s_i_id INT NOT NULL,
  s_quantity SMALLINT NOT NULL,
  s_dist_01 CHAR(24) NOT NULL,
  s_dist_02 CHAR(24) NOT NULL,
  s_dist_03 CHAR(24) NOT NULL,
  s_dist_04 CHAR(24) NOT NULL,
  s_dist_05 CHAR(24) NOT NULL,
  s_dist_06 CHAR(24) NOT NULL,
  s_dist_07 CHAR(24) NOT NULL,
  s_dist_08 CHAR(24) NOT NULL,
  s_dist_09 CHAR(24) NOT NULL,
  s_dist_10 CHAR(24) NOT NULL,
  s_ytd INT NOT NULL,
  s_order_cnt INT NOT NULL,
  s_remote_cnt INT NOT NULL,
  s_data VARCHAR(50) NOT NULL,
  PRIMARY KEY (s_w_id, s_i_id)`},
}

// About what InnoDB takes for a warehouse of full size and for an item, in
// bytes (information_schema.INNODB_TABLESPACES).
const (
	warehouseBytes = 140 << 20
	itemBytes      = 190
)

// label is the comment of the tables: rows of one scale mean nothing among
// those of another.
func (d *Driver) label() string { return labelPrefix + strconv.Itoa(d.Scale) }

const labelPrefix = "faultlab tpcc scale "

// made tells the comments of those of the tables that there are.
func made(ctx context.Context, c *workload.Conn) (map[string]string, error) {
	var names []string
	for _, t := range tables {
		names = append(names, "'"+t.name+"'")
	}
	labels := map[string]string{}
	err := c.Query(ctx, "SELECT table_name, table_comment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ("+
		strings.Join(names, ", ")+")", make([]driver.Value, 2), func(row []driver.Value) error {
		labels[fmt.Sprintf("%s", row[0])] = fmt.Sprintf("%s", row[1])
		return nil
	})
	return labels, err
}

// makeTables makes the tables that there are not.
func (d *Driver) makeTables(ctx context.Context, c *workload.Conn) error {
	labels, err := made(ctx, c)
	if err != nil {
		return err
	}
	if err := d.ours(labels); err != nil {
		return err
	}
	for _, t := range tables {
		if _, there := labels[t.name]; there {
			continue
		}
		err := c.Exec(ctx, fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (%s\n) ENGINE = InnoDB COMMENT = '%s'", t.name, t.columns, d.label()))
		if err != nil {
			return fmt.Errorf("making %s: %w", t.name, err)
		}
	}
	return nil
}

// ours checks that no table is another program's or of another scale.
func (d *Driver) ours(labels map[string]string) error {
	for _, t := range tables {
		if label, there := labels[t.name]; there && label != d.label() {
			return fmt.Errorf("table %s is of another scale, or another program's: its comment is %q, not %q (clean up first, or use another database)", t.name, label, d.label())
		}
	}
	return nil
}

// checkSize checks that the database is prepared, and of this driver's size.
func (d *Driver) checkSize(ctx context.Context, c *workload.Conn) error {
	labels, err := made(ctx, c)
	if err != nil {
		return err
	}
	if err := d.ours(labels); err != nil {
		return err
	}
	if len(labels) < len(tables) {
		return errors.New("the tables are not prepared")
	}
	got := make([]driver.Value, 1)
	if err := c.QueryRow(ctx, "SELECT COUNT(*) FROM warehouse", got); err != nil {
		return err
	}
	if got[0] != int64(d.Warehouses) {
		return fmt.Errorf("there are %v warehouses, not %d: prepare as many as are used", got[0], d.Warehouses)
	}
	return nil
}

// Cleanup implements workload.Driver. It drops tables of every scale, and leaves
// the database. Tables of other programs are left alone: names like "history"
// and "orders" are anybody's.
func (d *Driver) Cleanup(ctx context.Context, t workload.Target) error {
	t.Database = t.DatabaseName()
	c, err := workload.Connect(ctx, t)
	if workload.ServerCode(err) == workload.NoDatabase {
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	labels, err := made(ctx, c)
	if err != nil {
		return err
	}
	for name, label := range labels {
		if !strings.HasPrefix(label, labelPrefix) {
			return fmt.Errorf("table %s.%s was not made by this program: nothing was dropped", t.Database, name)
		}
	}
	for name := range labels {
		if err := c.Exec(ctx, "DROP TABLE IF EXISTS "+name); err != nil {
			return fmt.Errorf("dropping %s.%s: %w", t.Database, name, err)
		}
	}
	return nil
}
