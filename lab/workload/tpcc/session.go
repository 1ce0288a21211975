package tpcc

import (
	"context"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"

	"github.com/faultlab/faultlab/lab/workload"
)

// query is a statement of the transactions.
type query int

const (
	begin query = iota
	commit
	rollback

	selectBuyer
	selectDistrict
	updateNextOrder
	insertOrder
	insertNewOrder
	selectItem
	selectStock
	updateStock
	insertLine

	updateWarehouseYTD
	selectWarehouseAddress
	updateDistrictYTD
	selectDistrictAddress
	selectByName
	selectPayer
	updatePayer
	updateBadPayer
	insertHistory

	selectCustomer
	selectLastOrder
	selectLines

	selectOldest
	deleteNewOrder
	updateCarrier
	selectOrderCustomer
	updateDelivered
	selectOrderAmount
	updateDeliveredCustomer

	selectNextOrder
	selectLowStock

	queries // how many there are
)

// texts are the statements and how many columns their rows have.
//
// What a transaction will change it reads with FOR UPDATE, or after its own
// change: a plain read sees the snapshot that the transaction's first one made,
// in which rows that others have committed since are missing.
var texts = [queries]struct {
	text    string
	columns int
}{
	begin:    {text: "BEGIN"},
	commit:   {text: "COMMIT"},
	rollback: {text: "ROLLBACK"},

	// NewOrder, clause 2.4.2.
	selectBuyer:     {"SELECT w_tax, c_discount, c_last, c_credit FROM warehouse, customer WHERE w_id = ? AND c_w_id = ? AND c_d_id = ? AND c_id = ?", 4},
	selectDistrict:  {"SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ? AND d_id = ? FOR UPDATE", 2},
	updateNextOrder: {text: "UPDATE district SET d_next_o_id = ? WHERE d_w_id = ? AND d_id = ?"},
	insertOrder: {text: "INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)" +
		" VALUES (?, ?, ?, ?, NOW(), ?, ?)"},
	insertNewOrder: {text: "INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (?, ?, ?)"},
	selectItem:     {"SELECT i_price, i_name, i_data FROM item WHERE i_id = ?", 3},
	selectStock: {"SELECT s_quantity, s_data, ELT(?, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05," +
		" s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10) FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE", 3},
	updateStock: {text: "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ?" +
		" WHERE s_w_id = ? AND s_i_id = ?"},
	insertLine: {text: "INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info)" +
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"},

	// Payment, clause 2.5.2.
	updateWarehouseYTD:     {text: "UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?"},
	selectWarehouseAddress: {"SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = ?", 6},
	updateDistrictYTD:      {text: "UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?"},
	selectDistrictAddress:  {"SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district WHERE d_w_id = ? AND d_id = ?", 6},
	selectByName:           {"SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first", 1},
	selectPayer: {"SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since, c_credit," +
		" c_credit_lim, c_discount, c_balance, c_data FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE", 15},
	updatePayer: {text: "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, c_payment_cnt = c_payment_cnt + 1" +
		" WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?"},
	updateBadPayer: {text: "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, c_payment_cnt = c_payment_cnt + 1," +
		" c_data = ? WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?"},
	insertHistory: {text: "INSERT INTO history (h_w_id, h_d_id, h_c_w_id, h_c_d_id, h_c_id, h_date, h_amount, h_data)" +
		" VALUES (?, ?, ?, ?, ?, NOW(), ?, ?)"},

	// OrderStatus, clause 2.6.2.
	selectCustomer: {"SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?", 4},
	selectLastOrder: {"SELECT o_id, o_carrier_id, o_entry_d FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ?" +
		" ORDER BY o_id DESC LIMIT 1", 3},
	selectLines: {"SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line" +
		" WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?", 5},

	// Delivery, clause 2.7.4.
	selectOldest:        {"SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ? ORDER BY no_o_id LIMIT 1 FOR UPDATE", 1},
	deleteNewOrder:      {text: "DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?"},
	updateCarrier:       {text: "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?"},
	selectOrderCustomer: {"SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?", 1},
	updateDelivered:     {text: "UPDATE order_line SET ol_delivery_d = NOW() WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?"},
	selectOrderAmount:   {"SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?", 1},
	updateDeliveredCustomer: {text: "UPDATE customer SET c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1" +
		" WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?"},

	// StockLevel, clause 2.8.2.
	selectNextOrder: {"SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?", 1},
	selectLowStock: {"SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id < ? AND ol_o_id >= ?" +
		" AND s_w_id = ol_w_id AND s_i_id = ol_i_id AND s_quantity < ?", 1},
}

// session is one connection with its statements.
type session struct {
	*Driver
	conn  *workload.Conn
	rng   *rand.Rand
	stmts [queries]*workload.Stmt
	rows  [queries][]driver.Value

	deck  []string
	dealt int
	in    input
	again bool // the transaction before is to be tried again, as it was

	sent workload.Statements // of the transaction under way
}

// Session implements workload.Driver. The tables must be of the driver's size.
func (d *Driver) Session(ctx context.Context, t workload.Target, seed uint64) (workload.Session, error) {
	t.Database = t.DatabaseName()
	conn, err := workload.Connect(ctx, t)
	if err != nil {
		return nil, err
	}
	s := &session{Driver: d, conn: conn, rng: rand.New(rand.NewPCG(seed, 0)), deck: deck()}
	s.dealt = len(s.deck)
	if err := s.prepare(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

func (s *session) prepare(ctx context.Context) (err error) {
	if err := s.checkSize(ctx, s.conn); err != nil {
		return err
	}
	for q, t := range texts {
		if s.stmts[q], err = s.conn.Prepare(ctx, t.text); err != nil {
			return err
		}
		s.rows[q] = make([]driver.Value, t.columns)
	}
	return nil
}

// Transaction implements workload.Session. After a conflict the next call runs
// the same transaction again, with the same choices: new ones would let those
// that conflict most have less than their share of the mix.
func (s *session) Transaction(context.Context) (workload.Statements, error) {
	if !s.again {
		s.Driver.draw(s.rng, s.deal(), &s.in)
	}
	s.sent = workload.Statements{Kind: s.in.kind}
	err := s.run()
	s.again = workload.Retryable(err)
	return s.sent, err
}

// deal is the next kind of transaction.
func (s *session) deal() string {
	if s.dealt == len(s.deck) {
		s.rng.Shuffle(len(s.deck), func(i, j int) { s.deck[i], s.deck[j] = s.deck[j], s.deck[i] })
		s.dealt = 0
	}
	s.dealt++
	return s.deck[s.dealt-1]
}

// run runs the transaction that in describes.
func (s *session) run() error {
	if err := s.other(begin); err != nil {
		return err
	}
	var err error
	switch s.in.kind {
	case NewOrder, NewOrderRollback:
		err = s.newOrder()
	case Payment:
		err = s.payment()
	case OrderStatus:
		err = s.orderStatus()
	case Delivery:
		err = s.delivery()
	case StockLevel:
		err = s.stockLevel()
	}
	if err == errNoItem {
		return s.other(rollback)
	}
	if err != nil {
		return err
	}
	err = s.other(commit)
	// A transaction that wrote nothing has no outcome to be unsure of.
	if err != nil && s.sent.Write > 0 && workload.OutcomeHidden(err) {
		return fmt.Errorf("%w: %w", workload.ErrUnknownOutcome, err)
	}
	return err
}

func (s *session) other(q query) error {
	s.sent.Other++
	return s.stmts[q].Exec(nil)
}

// write runs a statement that changes rows.
func (s *session) write(q query, args ...driver.Value) error {
	s.sent.Write++
	return s.stmts[q].Exec(args)
}

// one reads the one row of a query. See each for what take may keep of it.
func (s *session) one(q query, take func(row []driver.Value) error, args ...driver.Value) error {
	n := 0
	err := s.each(q, func(row []driver.Value) error {
		n++
		if take == nil {
			return nil
		}
		return take(row)
	}, args...)
	if err == nil && n != 1 {
		err = fmt.Errorf("%d rows instead of one for %v: %s", n, args, texts[q].text)
	}
	return err
}

// each reads the rows of a query. What a row has in []byte is gone after take.
func (s *session) each(q query, take func(row []driver.Value) error, args ...driver.Value) error {
	s.sent.Read++
	return s.stmts[q].Query(args, s.rows[q], take)
}

// Rollback implements workload.Session.
func (s *session) Rollback(ctx context.Context) error { return s.conn.Exec(ctx, "ROLLBACK") }

// Close implements workload.Session.
func (s *session) Close() error { return s.conn.Close() }
