package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/labtest"
	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/scenarios"
)

// world is everything that an engine is given, as fakes whose figures follow
// from each other: a transaction takes tx and one round trip between the first
// two nodes, which is what the emulator was asked for last, on top of wire.
// Hooks break it; they are told what the run was doing. It is made to run in a
// synctest bubble, where seconds take no time and transactions take some: they
// are long, unless a test is after figures.
type world struct {
	provider   labtest.Fake
	sink       fakeSink
	tx         time.Duration
	seed       uint64
	keep       func(*lab.Cluster)
	topologies map[string]lab.Topology

	bootstrap func(ctx context.Context, topology string) error
	prepare   func(ctx context.Context, topology string) error
	session   func(topology string) error
	emulator  func(topology string) error
	prober    func(topology string) error
	transact  func(at Progress) error
	health    func(at Progress, h *lab.Health)
	judge     func(at Progress) []string
	rtt       func(at Progress, r []RTT) []RTT
	counters  func(at Progress, c *netem.Counters)
	progress  func(at Progress)

	mu     sync.Mutex
	at     Progress
	states []state
	opened int // emulators, and probers, that were not closed
}

// state is what links were put to at a time; nil faults is no emulator in the
// path.
type state struct {
	at     time.Time
	faults faults
}

const wire = 20 * time.Microsecond // round trip of a link that nothing is done to

func newWorld() *world {
	w := &world{tx: 103_700_001 * time.Nanosecond, seed: 1, topologies: map[string]lab.Topology{}}
	for name, n := range map[string]int{"single": 1, "async": 3, "mgr": 3, "galera": 3, "pxc": 3} {
		flavor := lab.MySQL
		switch name {
		case "galera":
			flavor = lab.MariaDB
		case "pxc":
			flavor = lab.PXC
		}
		w.topologies[name] = fakeTopology{w, name, flavor, n}
	}
	return w
}

func (w *world) engine() *Engine {
	return &Engine{
		Provider: &w.provider, Topologies: w.topologies, Sink: &w.sink, Keep: w.keep,
		Rand: rand.New(rand.NewPCG(w.seed, 0)),
		Progress: func(p Progress) {
			w.mu.Lock()
			w.at = p
			w.mu.Unlock()
			if w.progress != nil {
				w.progress(p)
			}
		},
		Emulator: func(_ context.Context, l lab.Lab) (netem.Backend, error) {
			if w.emulator != nil {
				if err := w.emulator(w.now().Topology); err != nil {
					return nil, err
				}
			}
			w.count(1)
			return &fakeEmulator{world: w, began: time.Now()}, nil
		},
		Prober: func(pairs [][2]netem.Endpoint) (Prober, error) {
			if w.prober != nil {
				if err := w.prober(w.now().Topology); err != nil {
					return nil, err
				}
			}
			w.count(1)
			return &fakeProber{w, pairs}, nil
		},
		Driver: func(s scenarios.Workload) (workload.Driver, error) {
			if s.Name != "oltp_write_only" {
				return nil, fmt.Errorf("unknown workload %q", s.Name)
			}
			return fakeDriver{w}, nil
		},
	}
}

func (w *world) now() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *world) count(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened += n
}

// nothingLeft checks that a run has closed all that it opened.
func (w *world) nothingLeft(t *testing.T) {
	t.Helper()
	if open := w.provider.OpenLabs(); len(open) > 0 {
		t.Errorf("labs were left open: %v", open)
	}
	if w.mu.Lock(); w.opened != 0 {
		t.Errorf("%d emulators and probers were left open", w.opened)
	}
	w.mu.Unlock()
}

// roundTrip of a pair as the links are now.
func (w *world) roundTrip(a, b string) time.Duration {
	rtt, _ := w.linkAt(time.Now(), a, b)
	return rtt
}

// linkAt is the round trip of a pair at a time, and whether it was cut.
func (w *world) linkAt(t time.Time, a, b string) (rtt time.Duration, cut bool) {
	f := w.faultsAt(t)
	there, back := f[hop{a, b}], f[hop{b, a}]
	return wire + there.Delay + back.Delay, there.Partition || back.Partition
}

// faultsAt are what the links were put to at a time.
func (w *world) faultsAt(t time.Time) faults {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range slices.Backward(w.states) {
		if !s.at.After(t) {
			return s.faults
		}
	}
	return nil
}

// run carries a plan out and checks that nothing is left of it.
func (w *world) run(t *testing.T, ctx context.Context, plan scenarios.Plan) (results.Run, error) {
	t.Helper()
	run, err := w.engine().Run(ctx, results.Run{ID: "test-20000101T000000Z", Environment: results.Environment{
		Kernel: "6.12", CPUs: 2, MemoryBytes: 4 << 30, Faultlab: "test"}}, plan)
	w.nothingLeft(t)
	return run, err
}

// plan is 0.6 ms on a LAN, in windows that are short for a bubble too.
func plan(topologies ...string) scenarios.Plan {
	between := func(rtt time.Duration) []scenarios.LinkRule {
		return []scenarios.LinkRule{{From: "nodes", To: "nodes", Impairment: netem.Impairment{Delay: rtt / 2}}}
	}
	return scenarios.Plan{
		Scenario: "test", Question: "What does it cost?", Profile: "quick", Topologies: topologies,
		Baseline:   scenarios.Condition{Name: scenarios.BaselineName, Links: between(100 * time.Microsecond)},
		Conditions: []scenarios.Condition{{Name: "+0.6ms", Links: between(600 * time.Microsecond)}},
		Workload:   scenarios.Workload{Name: "oltp_write_only", Tables: 1, Rows: 100, Threads: 2, Distribution: "uniform"},
		Measure: scenarios.Measure{Warmup: time.Second, Settle: 500 * time.Millisecond, Window: 3 * time.Second, Pairs: 5,
			ObserverPairs: 2, RTTTolerance: 60 * time.Microsecond},
	}
}

// rowOf finds a row of a run.
func rowOf(t *testing.T, run results.Run, topology, condition string) results.Row {
	t.Helper()
	for _, r := range run.Rows {
		if r.Topology == topology && r.Condition == condition {
			return r
		}
	}
	t.Fatalf("there is no row %s, %s", topology, condition)
	return results.Row{}
}

// rowNames lists the rows of a run: "topology condition".
func rowNames(run results.Run) []string {
	var out []string
	for _, r := range run.Rows {
		out = append(out, r.Topology+" "+r.Condition)
	}
	return out
}

type fakeTopology struct {
	*world
	name   string
	flavor lab.Flavor
	nodes  int
}

func (f fakeTopology) Name() string           { return f.name }
func (f fakeTopology) Flavor() lab.Flavor     { return f.flavor }
func (f fakeTopology) NodeCount() int         { return f.nodes }
func (f fakeTopology) CheckNodes(n int) error { return nil }

func (f fakeTopology) Bootstrap(ctx context.Context, c *lab.Cluster, report func(string)) error {
	report("start")
	for _, n := range c.Nodes() {
		if err := n.Start(ctx, lab.Start{}); err != nil {
			return err
		}
	}
	time.Sleep(2 * time.Second)
	report("settle")
	time.Sleep(time.Second)
	if f.bootstrap != nil {
		return f.bootstrap(ctx, f.name)
	}
	return nil
}

func (f fakeTopology) Writer(c *lab.Cluster) lab.Node { return c.Nodes()[0] }

func (f fakeTopology) Health(_ context.Context, c *lab.Cluster) lab.Health {
	var h lab.Health
	for i, n := range c.Nodes() {
		role := "replica"
		if i == 0 {
			role = "source"
		}
		h.Nodes = append(h.Nodes, lab.NodeHealth{Name: n.Name(), Role: role, State: "ONLINE", Version: "9.7.4"})
	}
	if f.health != nil {
		f.health(f.now(), &h)
	}
	return h
}

func (f fakeTopology) Counters(context.Context, *lab.Cluster) map[string]float64 {
	return map[string]float64{"n1.uptime": time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Truncate(time.Second).Seconds()}
}

func (f fakeTopology) Settings(_ context.Context, c *lab.Cluster) map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, n := range c.Nodes() {
		out[n.Name()] = map[string]string{"sync_binlog": "1"}
	}
	return out
}

func (f fakeTopology) Judge(before, after map[string]float64) []string {
	if f.judge != nil {
		return f.judge(f.now())
	}
	return nil
}

type fakeEmulator struct {
	*world
	began  time.Time
	closed bool
}

func (*fakeEmulator) Name() string { return "fake" }

func (f *fakeEmulator) Apply(_ context.Context, links []netem.Link) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := faults{}
	if n := len(f.states); n > 0 {
		maps.Copy(now, f.states[n-1].faults)
	}
	for _, l := range links {
		now[hop{l.From.Name, l.To.Name}] = l.Impairment
	}
	f.states = append(f.states, state{time.Now(), now})
	return nil
}

func (f *fakeEmulator) Clear(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states = append(f.states, state{at: time.Now()})
	return nil
}

func (f *fakeEmulator) Show(context.Context) ([]netem.LinkState, error) { return nil, nil }

func (f *fakeEmulator) Counters(context.Context) (netem.Counters, error) {
	up := time.Since(f.began)
	c := netem.Counters{Packets: uint64(up.Milliseconds()), CPU: up / 4}
	if f.counters != nil {
		f.counters(f.now(), &c)
	}
	return c, nil
}

func (f *fakeEmulator) Close() error {
	if !f.closed {
		f.closed = true
		f.count(-1)
	}
	return f.Clear(context.Background())
}

type fakeProber struct {
	*world
	pairs [][2]netem.Endpoint
}

func (f *fakeProber) Take(cuts ...time.Time) [][]RTT {
	var parts [][]RTT
	for _, end := range append(cuts, time.Now()) {
		parts = append(parts, f.part(end.Add(-1)))
	}
	return parts
}

func (f *fakeProber) part(at time.Time) []RTT {
	var out []RTT
	for _, p := range f.pairs {
		rtt, cut := f.linkAt(at, p[0].Name, p[1].Name)
		if cut {
			out = append(out, RTT{From: p[0].Name, To: p[1].Name, Sent: 60, Lost: 60})
			continue
		}
		out = append(out, RTT{From: p[0].Name, To: p[1].Name, Sent: 60, P50: rtt, P99: rtt + 50*time.Microsecond})
	}
	if f.rtt != nil {
		out = f.rtt(f.now(), out)
	}
	return out
}

func (f *fakeProber) Close() error {
	f.count(-1)
	return nil
}

type fakeDriver struct{ *world }

// fakeSize is what the fake driver's tables take.
const fakeSize = 123 << 30

func (fakeDriver) Name() string                                   { return "oltp_write_only" }
func (fakeDriver) Size() int64                                    { return fakeSize }
func (fakeDriver) Cleanup(context.Context, workload.Target) error { return nil }

func (f fakeDriver) Prepare(ctx context.Context, _ workload.Target, _ func(done, total int64)) error {
	time.Sleep(time.Second)
	if f.prepare != nil {
		return f.prepare(ctx, f.now().Topology)
	}
	return nil
}

func (f fakeDriver) Session(context.Context, workload.Target, uint64) (workload.Session, error) {
	if f.session != nil {
		if err := f.session(f.now().Topology); err != nil {
			return nil, err
		}
	}
	return fakeSession(f), nil
}

type fakeSession struct{ *world }

func (f fakeSession) Transaction(context.Context) (workload.Statements, error) {
	if f.transact != nil {
		if err := f.transact(f.now()); err != nil {
			return workload.Statements{}, err
		}
	}
	time.Sleep(f.tx + f.roundTrip("n1", "n2"))
	return workload.Statements{Write: 4, Other: 2}, nil
}

func (fakeSession) Rollback(context.Context) error { return nil }
func (fakeSession) Close() error                   { return nil }

// fakeSink keeps what it is given as it was when it was given.
type fakeSink struct {
	fail func(saves int) error // of the save of that number, from 1

	mu      sync.Mutex
	saves   []results.Run
	samples []results.Sample
	events  []results.Event
}

func (f *fakeSink) Sample(s results.Sample) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.samples = append(f.samples, s)
	return nil
}

func (f *fakeSink) Event(e results.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
	return nil
}

func (f *fakeSink) Save(r results.Run) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var kept results.Run
	if err := json.Unmarshal(b, &kept); err != nil {
		return err
	}
	f.saves = append(f.saves, kept)
	if f.fail != nil {
		return f.fail(len(f.saves))
	}
	return nil
}

// told reports whether an event says exactly that.
func (f *fakeSink) told(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.events, func(e results.Event) bool { return e.Text == text })
}
