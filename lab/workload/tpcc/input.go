package tpcc

import "math/rand/v2"

// input is what a terminal would send: a transaction with its random choices
// made (clauses 2.4.1 to 2.8.1).
type input struct {
	kind string
	w, d int64

	// NewOrder, Payment and OrderStatus.
	customer customer

	lines []line // NewOrder

	amount int64 // Payment, in hundredths

	carrier int64 // Delivery

	threshold int64 // StockLevel
}

// customer is who orders, pays or asks.
type customer struct {
	w, d int64
	id   int64  // 0: by name
	name string // "": by id
}

// line is a line of a NewOrder.
type line struct{ item, supplier, quantity int64 }

// draw draws a transaction's input.
func (d *Driver) draw(r *rand.Rand, kind string, in *input) {
	*in = input{
		kind: kind, w: int64(between(r, 1, d.Warehouses)), d: int64(between(r, 1, districts)),
		lines: in.lines[:0],
	}
	switch kind {
	case NewOrder:
		in.customer = customer{w: in.w, d: in.d, id: d.size.customer.draw(r, 1, d.size.customers)}
		for range between(r, 5, 15) {
			l := line{item: d.size.item.draw(r, 1, d.size.items), supplier: in.w, quantity: int64(between(r, 1, 10))}
			if r.IntN(100) == 0 {
				l.supplier = d.other(r, in.w)
			}
			in.lines = append(in.lines, l)
		}
		if r.IntN(100) == 0 { // rolled back: there is no such item
			in.lines[len(in.lines)-1].item = int64(d.size.items + 1)
			in.kind = NewOrderRollback
		}
	case Payment:
		in.amount = int64(between(r, 1_00, 5000_00))
		in.customer = customer{w: in.w, d: in.d}
		if r.IntN(100) < 15 {
			in.customer = customer{w: d.other(r, in.w), d: int64(between(r, 1, districts))}
		}
		d.choose(r, &in.customer)
	case OrderStatus:
		in.customer = customer{w: in.w, d: in.d}
		d.choose(r, &in.customer)
	case Delivery:
		in.carrier = int64(between(r, 1, 10))
	case StockLevel:
		in.threshold = int64(between(r, 10, 20))
	}
}

// choose chooses a customer of a district: 60 of 100 by last name.
func (d *Driver) choose(r *rand.Rand, c *customer) {
	if r.IntN(100) < 60 {
		c.name = lastName(int(d.size.name.draw(r, 0, d.size.names-1)))
	} else {
		c.id = d.size.customer.draw(r, 1, d.size.customers)
	}
}

// other is another warehouse than w, or w if there is no other.
func (d *Driver) other(r *rand.Rand, w int64) int64 {
	if d.Warehouses == 1 {
		return w
	}
	o := int64(between(r, 1, d.Warehouses-1))
	if o >= w {
		o++
	}
	return o
}
