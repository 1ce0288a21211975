// Package engine owns the course of a run: which lab is built when, the order
// of windows, the proof that each window is what it claims to be, and the rows
// that valid windows add up to.
//
// It builds nothing itself: providers, emulators, drivers and sinks are handed
// to it, so that a scenario also runs on fakes, without root.
package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/scenarios"
)

// Engine runs plans. All fields but Progress, Rand and Keep must be set.
type Engine struct {
	Provider   lab.Provider
	Topologies map[string]lab.Topology
	// Emulator is opened for the endpoints of one lab.
	Emulator func(ctx context.Context, l lab.Lab) (netem.Backend, error)
	// Prober measures the round trip between pairs of endpoints of one lab,
	// lightly, until it is closed.
	Prober func(pairs [][2]netem.Endpoint) (Prober, error)
	Driver func(scenarios.Workload) (workload.Driver, error)
	Sink   results.Sink

	Progress func(Progress) // nil tells nobody
	Rand     *rand.Rand     // nil is seeded from the clock
	// Keep leaves the labs running at the end, and hands them to Kept.
	Keep func(*lab.Cluster)
}

// Prober measures round trips on live links.
type Prober interface {
	// Take returns what was measured since the last Take, in the order of the
	// pairs: for each of the parts into which the cuts divide the time, probes
	// under way at a cut left out. Without cuts it is one part.
	Take(cuts ...time.Time) [][]RTT
	Close() error
}

// RTT is what the probes of one pair of endpoints met.
type RTT struct {
	From, To   string
	Sent, Lost int64
	P50, P99   time.Duration
	// P50Low and P50High are the 95% interval of P50 that so many probes
	// allow; zero where it is not known.
	P50Low, P50High time.Duration
}

// Progress is what a run is doing.
type Progress struct {
	Topology  string
	Variant   string
	Index     int // of the topology in this variant, from 1
	Count     int // of all of them
	Condition string
	Pair      int
	Pairs     int
	Step      string  // in a few words
	TPS       float64 // 0 where no load runs
	Left      time.Duration
}

// Preflight finds out whether the plan can be carried out here. It creates
// nothing.
func (e *Engine) Preflight(ctx context.Context, plan scenarios.Plan) error {
	return e.newRunner(results.Run{}, plan).preflight(ctx)
}

func (e *Engine) newRunner(run results.Run, plan scenarios.Plan) *runner {
	if e.Rand == nil {
		e.Rand = rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	}
	if len(plan.Variants) == 0 {
		plan.Variants = []scenarios.Variant{{}}
	}
	return &runner{Engine: e, plan: plan, run: run, began: time.Now(), tag: fmt.Sprintf("%04x", e.Rand.Uint32N(1<<16))}
}

// Run carries the plan out. The run it returns is what was measured, also when
// it comes with an error: of ctx, of the sink, or of a preflight before
// anything was created. A topology that cannot be measured is no error: its
// rows are invalid.
func (e *Engine) Run(ctx context.Context, run results.Run, plan scenarios.Plan) (results.Run, error) {
	r := e.newRunner(run, plan)
	if err := r.preflight(ctx); err != nil {
		return r.run, err
	}
	r.describe()
	if err := e.Sink.Save(r.run); err != nil {
		return r.run, err
	}
	var failure error
	for i, part := range r.parts() {
		name := part.topology
		m := &measurement{runner: r, topology: e.Topologies[name], variant: part.variant, index: i}
		err := m.measure(ctx)
		r.add(m)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errSink) {
			r.event(name, "", "lab", "not measured to the end: "+err.Error())
			err = nil
		}
		if serr := r.save(); serr != nil && err == nil {
			err = serr
		}
		if err != nil {
			failure = err
			break
		}
	}
	r.run.Finished = time.Now().UTC()
	switch {
	case ctx.Err() != nil:
		r.run.Status = results.Interrupted
		failure = ctx.Err()
	case failure != nil:
		r.run.Status = results.Failed
	default:
		r.run.Status = results.Complete
	}
	if err := e.Sink.Save(r.run); err != nil && failure == nil {
		failure = err
	}
	return r.run, failure
}

// errSink marks that results cannot be kept: there is no point in going on.
var errSink = errors.New("results cannot be kept")

// runner is one run under way.
type runner struct {
	*Engine
	plan       scenarios.Plan
	driver     workload.Driver
	run        results.Run
	topologies []string
	began      time.Time
	tag        string // tells the labs of runs apart that began in the same second
	finished   []*measurement
	current    *measurement
}

// part is a topology in one variant: what has labs of its own.
type part struct {
	topology string
	variant  scenarios.Variant
}

// parts are those of the run, in the order in which they are measured: all
// variants of a topology, then the next.
func (r *runner) parts() []part {
	var out []part
	for _, t := range r.topologies {
		for _, v := range r.plan.Variants {
			out = append(out, part{t, v})
		}
	}
	return out
}

// preflight finds out, before anything is created, whether all labs can be
// built, and puts galera in the place of pxc where there is no PXC server.
func (r *runner) preflight(ctx context.Context) (err error) {
	if r.driver, err = r.Driver(r.plan.Workload); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, name := range r.plan.Topologies {
		t, ok := r.Topologies[name]
		if !ok {
			return fmt.Errorf("topology %s is not known", name)
		}
		err := r.Provider.Preflight(ctx, r.spec(t))
		if name == "pxc" && errors.Is(err, lab.ErrNoServer) {
			r.run.Notes = append(r.run.Notes, "no Percona XtraDB Cluster server is at hand: galera (the same replication library in MariaDB) was measured instead, under its own name")
			name, t = "galera", r.Topologies["galera"]
			err = nil
			if !seen[name] {
				err = r.Provider.Preflight(ctx, r.spec(t))
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !seen[name] {
			seen[name] = true
			r.topologies = append(r.topologies, name)
		}
		if _, err := r.rules(t, r.plan.Baseline); err != nil {
			return err
		}
		for _, c := range r.plan.Conditions {
			if _, err := r.rules(t, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// describe fills in the run what is known before anything is measured.
func (r *runner) describe() {
	p := r.plan
	r.run.Schema = results.Schema
	r.run.Scenario, r.run.Question, r.run.Profile = p.Scenario, p.Question, p.Profile
	r.run.Started = r.began.UTC()
	r.run.Status = results.Running
	if r.Keep != nil && len(r.topologies) > 1 {
		r.run.Notes = append(r.run.Notes, "the labs were kept: those measured first ran on while the later ones were measured, and took processor time and memory from them")
	}
	w := p.Workload
	r.run.Workload = results.Workload{Name: r.driver.Name(), Tables: w.Tables, Rows: w.Rows, Threads: w.Threads,
		Distribution: w.Distribution, Warehouses: w.Warehouses, Scale: w.Scale}
	r.run.Environment.Provider = r.Provider.Name()
	if r.run.Environment.Servers == nil {
		r.run.Environment.Servers = map[string]string{}
	}
	r.run.Rows, r.run.Windows, r.run.Labs = []results.Row{}, []results.Window{}, []results.Lab{}
	r.run.Observer, r.run.Verdicts = []results.Observer{}, []results.Verdict{}
	for _, p := range p.Published {
		r.run.Published = append(r.run.Published, results.Published(p))
	}
}

// spec is the lab of a topology. Its name is the run's and the topology's.
func (r *runner) spec(t lab.Topology) lab.Spec {
	s := lab.Spec{Name: labName(r.run.ID+"-"+r.tag, t.Name()), Data: r.driver.Size()}
	for i := range t.NodeCount() {
		s.Nodes = append(s.Nodes, lab.NodeSpec{Name: fmt.Sprintf("n%d", i+1), Flavor: t.Flavor()})
	}
	return s
}

// labName makes a lab's name of a run's, the end of which is what tells two
// runs apart.
func labName(run, topology string) string {
	clean := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			return c
		case c >= 'A' && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '-'
	}, run)
	if max := 48 - 1 - len(topology); len(clean) > max {
		clean = clean[len(clean)-max:]
	}
	return strings.TrimLeft(clean, "-") + "-" + topology
}

// add takes over what a topology's measurement has become.
func (r *runner) add(m *measurement) {
	r.finished = append(r.finished, m)
	r.current = nil
}

// save keeps the run as it stands.
func (r *runner) save() error {
	all := r.finished
	if r.current != nil {
		all = append(all[:len(all):len(all)], r.current)
	}
	r.run.Labs, r.run.Windows, r.run.Rows, r.run.Observer = r.run.Labs[:0:0], r.run.Windows[:0:0], r.run.Rows[:0:0], r.run.Observer[:0:0]
	for _, m := range all {
		r.run.Labs = append(r.run.Labs, m.lab)
		if m.server != "" {
			r.run.Environment.Servers[string(m.topology.Flavor())] = m.server
		}
		if m.emulator != "" {
			r.run.Environment.Emulator = m.emulator
		}
		rows, windows, observer := m.rows()
		r.run.Rows = append(r.run.Rows, rows...)
		r.run.Windows = append(r.run.Windows, windows...)
		if observer != nil {
			r.run.Observer = append(r.run.Observer, *observer)
		}
	}
	versusSingle(r.run.Rows, all)
	r.run.Verdicts = verdicts(r.run, r.plan.Expect)
	if err := r.Sink.Save(r.run); err != nil {
		return fmt.Errorf("%w: %w", errSink, err)
	}
	return nil
}

// event writes down that something happened. Events help to understand; a
// sink that cannot take them fails at the next window.
func (r *runner) event(topology, node, kind, text string) {
	_ = r.Sink.Event(results.Event{Time: time.Now().UTC(), Topology: topology, Node: node, Kind: kind, Text: text})
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
