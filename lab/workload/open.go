package workload

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Arrivals is how transactions arrive in an open loop.
type Arrivals string

const (
	// Exponential arrivals are independent of one another, as those of many
	// users are. It is the default.
	Exponential Arrivals = "exponential"
	// Fixed arrivals have all the same distance.
	Fixed Arrivals = "fixed"
)

// DefaultQueue is how many transactions may wait for a thread where Options.Queue
// does not say.
const DefaultQueue = 10_000

// Rate is how many transactions arrive a second: pieces one after another, of
// the same length each, in which it goes straight from one figure to another.
// The zero value is no rate: a closed loop.
type Rate []Piece

// Piece of a Rate.
type Piece struct{ From, To float64 }

// ParseRate reads 500 (steady), 100..2000 (rising straight), 100,200,400 (in
// steps) or any of these in a row, in transactions a second.
func ParseRate(s string) (Rate, error) {
	// Rarer than one in a quarter of an hour nothing can be measured, and far
	// rarer the time to the next would not be a time.
	const least, greatest = 0.001, 1_000_000
	var out Rate
	for _, part := range strings.Split(s, ",") {
		from, to, ramp := strings.Cut(strings.TrimSpace(part), "..")
		if !ramp {
			to = from
		}
		var p Piece
		for _, v := range []struct {
			text string
			to   *float64
		}{{from, &p.From}, {to, &p.To}} {
			x, err := strconv.ParseFloat(v.text, 64)
			if err != nil || !(x >= least && x <= greatest) {
				return nil, fmt.Errorf("rate %q is not %g to %d a second", v.text, least, greatest)
			}
			*v.to = x
		}
		out = append(out, p)
	}
	return out, nil
}

// String is the form that ParseRate reads, "" for none.
func (r Rate) String() string {
	var out []string
	for _, p := range r {
		s := strconv.FormatFloat(p.From, 'g', -1, 64)
		if p.To != p.From {
			s += ".." + strconv.FormatFloat(p.To, 'g', -1, 64)
		}
		out = append(out, s)
	}
	return strings.Join(out, ",")
}

// at is the rate at a time, of which over is the first window; before and after
// it, as at its ends. There was no window yet where over is nil.
func (r Rate) at(t time.Duration, over *span) float64 {
	if over == nil || t <= over.begin {
		return r[0].From
	}
	x := float64(t-over.begin) / float64(over.end-over.begin) * float64(len(r))
	i := int(x)
	if i >= len(r) {
		return r[len(r)-1].To
	}
	return r[i].From + (r[i].To-r[i].From)*(x-float64(i))
}

// arrive puts transactions into the queue when they are due, whatever becomes of
// the ones before: that is what an open loop is. What finds the queue full is
// dropped and counted. While the load is paused nothing arrives.
func (r *Runner) arrive() {
	rng := rand.New(rand.NewPCG(r.opt.Seed, mix(r.opt.Seed)))
	gap := func(at time.Duration) time.Duration {
		d := float64(time.Second) / r.opt.Rate.at(at, r.first.Load())
		if r.opt.Arrivals != Fixed {
			d *= rng.ExpFloat64()
		}
		return time.Duration(d)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := r.now()
	next += gap(next)
	for {
		select {
		case <-timer.C:
		case <-r.stop:
			return
		}
		if resumed := r.paused.Load(); resumed != nil {
			select {
			case <-*resumed:
			case <-r.stop:
				return
			}
			next = r.now()
			next += gap(next)
		}
		now := r.now()
		for next <= now {
			select {
			case r.arrivals <- next:
			default:
				r.dropped.Add(1)
			}
			next += gap(next)
		}
		timer.Reset(next - now)
	}
}

// await waits for the next arrival, and tells when it was due. ok is false when
// there is something else to do first. A worker that waits is at rest.
func (w *worker) await() (due time.Duration, ok bool) {
	for {
		select {
		case due = <-w.r.arrivals: // it waited already
		default:
			w.rest()
			w.atGate(true)
			select {
			case due = <-w.r.arrivals:
				w.atGate(false)
			case <-w.r.stop:
				w.atGate(false)
				return 0, false
			}
		}
		if w.r.paused.Load() != nil {
			return 0, false // Pause may have taken this worker for one that rests
		}
		if due >= time.Duration(w.r.resumed.Load()) {
			return due, true
		}
		// It waited for the end of a pause, and not for the server.
	}
}
