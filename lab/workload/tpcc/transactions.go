package tpcc

import (
	"cmp"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// errNoItem ends a NewOrder whose last item does not exist.
var errNoItem = errors.New("there is no such item")

func (s *session) newOrder() error {
	in := &s.in
	allLocal := int64(1)
	for _, l := range in.lines {
		if l.supplier != in.w {
			allLocal = 0
		}
	}
	// Locks on stock are taken in one order by all, or two orders could wait
	// for each other. The item that does not exist is the last still.
	slices.SortFunc(in.lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.item, b.item), cmp.Compare(a.supplier, b.supplier))
	})

	if err := s.one(selectBuyer, nil, in.w, in.w, in.d, in.customer.id); err != nil {
		return err
	}
	var order int64
	if err := s.one(selectDistrict, ints(&order), in.w, in.d); err != nil {
		return err
	}
	if err := s.write(updateNextOrder, order+1, in.w, in.d); err != nil {
		return err
	}
	if err := s.write(insertOrder, in.w, in.d, order, in.customer.id, int64(len(in.lines)), allLocal); err != nil {
		return err
	}
	if err := s.write(insertNewOrder, in.w, in.d, order); err != nil {
		return err
	}
	for i, l := range in.lines {
		if err := s.orderLine(order, int64(i+1), l); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) orderLine(order, number int64, l line) error {
	in := &s.in
	var price int64
	found := false
	err := s.each(selectItem, func(row []driver.Value) (err error) {
		found = true
		price, err = cents(row[0])
		return err
	}, l.item)
	if err != nil {
		return err
	}
	if !found && in.kind == NewOrderRollback {
		return errNoItem
	}
	if !found {
		return fmt.Errorf("item %d is missing", l.item)
	}
	var quantity int64
	var dist string
	err = s.one(selectStock, func(row []driver.Value) error {
		dist = text(row[2])
		return ints(&quantity)(row)
	}, in.d, l.supplier, l.item)
	if err != nil {
		return err
	}
	if quantity -= l.quantity; quantity < 10 {
		quantity += 91
	}
	remote := int64(0)
	if l.supplier != in.w {
		remote = 1
	}
	if err := s.write(updateStock, quantity, l.quantity, remote, l.supplier, l.item); err != nil {
		return err
	}
	return s.write(insertLine, in.w, in.d, order, number, l.item, l.supplier, l.quantity, money(price*l.quantity), dist)
}

func (s *session) payment() error {
	in := &s.in
	amount := money(in.amount)
	if err := s.write(updateWarehouseYTD, amount, in.w); err != nil {
		return err
	}
	var data string // of history
	if err := s.one(selectWarehouseAddress, func(row []driver.Value) error {
		data = text(row[0]) + "    "
		return nil
	}, in.w); err != nil {
		return err
	}
	if err := s.write(updateDistrictYTD, amount, in.w, in.d); err != nil {
		return err
	}
	if err := s.one(selectDistrictAddress, func(row []driver.Value) error {
		data += text(row[0])
		return nil
	}, in.w, in.d); err != nil {
		return err
	}
	id, err := s.find(in.customer)
	if err != nil {
		return err
	}
	c := in.customer
	var note string // of a customer with bad credit
	if err := s.one(selectPayer, func(row []driver.Value) error {
		if text(row[10]) == badCredit {
			note = text(row[14])
			note = fmt.Sprintf("%d %d %d %d %d %s|%s", id, c.d, c.w, in.d, in.w, amount, note)
			note = note[:min(len(note), 500)]
		}
		return nil
	}, c.w, c.d, id); err != nil {
		return err
	}
	if note == "" {
		err = s.write(updatePayer, amount, amount, c.w, c.d, id)
	} else {
		err = s.write(updateBadPayer, amount, amount, note, c.w, c.d, id)
	}
	if err != nil {
		return err
	}
	return s.write(insertHistory, in.w, in.d, c.w, c.d, id, amount, data)
}

// find tells a customer's id: the middle one, rounded up, of those who have the
// name.
func (s *session) find(c customer) (int64, error) {
	if c.id != 0 {
		return c.id, nil
	}
	var ids []int64
	err := s.each(selectByName, func(row []driver.Value) error {
		var id int64
		err := ints(&id)(row)
		ids = append(ids, id)
		return err
	}, c.w, c.d, c.name)
	if err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, fmt.Errorf("no customer of warehouse %d, district %d is called %s", c.w, c.d, c.name)
	}
	return ids[(len(ids)-1)/2], nil
}

func (s *session) orderStatus() error {
	c := s.in.customer
	id, err := s.find(c)
	if err != nil {
		return err
	}
	if err := s.one(selectCustomer, nil, c.w, c.d, id); err != nil {
		return err
	}
	var order int64
	if err := s.one(selectLastOrder, ints(&order), c.w, c.d, id); err != nil {
		return err
	}
	return s.each(selectLines, func([]driver.Value) error { return nil }, c.w, c.d, order)
}

func (s *session) delivery() error {
	in := &s.in
	for d := int64(1); d <= districts; d++ {
		var order int64
		if err := s.each(selectOldest, ints(&order), in.w, d); err != nil {
			return err
		}
		if order == 0 {
			continue // all are delivered
		}
		if err := s.write(deleteNewOrder, in.w, d, order); err != nil {
			return err
		}
		if err := s.write(updateCarrier, in.carrier, in.w, d, order); err != nil {
			return err
		}
		var customer int64
		if err := s.one(selectOrderCustomer, ints(&customer), in.w, d, order); err != nil {
			return err
		}
		if err := s.write(updateDelivered, in.w, d, order); err != nil {
			return err
		}
		var amount string
		if err := s.one(selectOrderAmount, func(row []driver.Value) error {
			amount = text(row[0])
			return nil
		}, in.w, d, order); err != nil {
			return err
		}
		if err := s.write(updateDeliveredCustomer, amount, in.w, d, customer); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) stockLevel() error {
	in := &s.in
	var next int64
	if err := s.one(selectNextOrder, ints(&next), in.w, in.d); err != nil {
		return err
	}
	return s.one(selectLowStock, nil, in.w, in.d, next, next-20, in.threshold)
}

// ints takes the first columns of a row, which are numbers.
func ints(to ...*int64) func(row []driver.Value) error {
	return func(row []driver.Value) error {
		for i, t := range to {
			n, ok := row[i].(int64)
			if !ok {
				return fmt.Errorf("server answered %v where a number was asked for", row[i])
			}
			*t = n
		}
		return nil
	}
}

// text is a column of characters, or a DECIMAL. nil is empty.
func text(v driver.Value) string {
	b, _ := v.([]byte)
	return string(b)
}

// cents reads a DECIMAL with two digits after the point.
func cents(v driver.Value) (int64, error) {
	t := text(v)
	if n := len(t); n > 3 && t[n-3] == '.' {
		if c, err := strconv.ParseInt(t[:n-3]+t[n-2:], 10, 64); err == nil {
			return c, nil
		}
	}
	return 0, fmt.Errorf("server answered %q where an amount was asked for", t)
}

// money writes hundredths as a DECIMAL.
func money(cents int64) string {
	return string(appendDecimal(make([]byte, 0, 12), cents, 2))
}
