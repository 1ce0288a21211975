package engine

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/scenarios"
)

const (
	// readyTimeout bounds the building of a cluster, from its first server to
	// a healthy whole.
	readyTimeout = 3 * time.Minute
	// downTimeout bounds the taking down, so that Ctrl-C is done within 10 s.
	downTimeout = 8 * time.Second
	// catchUpTimeout bounds the wait for replicas before a window.
	catchUpTimeout = 30 * time.Second
	// recoverTimeout bounds the wait for a cluster whose links were cut.
	recoverTimeout = time.Minute
	// pauseTimeout bounds the wait for transactions in flight.
	pauseTimeout = 15 * time.Second
	// healthEvery is how often all nodes are asked during a window.
	healthEvery = time.Second
)

// noEmulator is the condition in which packets pass as if there were no
// emulator: its cost is measured against it.
const noEmulator = "no emulator"

// measurement is one topology being measured.
type measurement struct {
	*runner
	topology lab.Topology
	variant  scenarios.Variant
	index    int

	lab      results.Lab
	server   string // version
	emulator string
	net      *network
	windows  []window
	// failure is why the topology was not measured to the end; what Ctrl-C
	// cut short is no failure of what was measured before.
	failure     error
	interrupted bool
}

// window is what is kept of one timed measurement, raw: whether it is valid is
// judged when all of its neighbours are known.
type window struct {
	condition string
	round     int
	start     time.Duration // since the run began
	load      workload.Window
	latency   results.Latency // of load
	phases    []phase
	counters  map[string]float64 // after minus before
	emulator  netem.Counters     // after minus before
	problems  []string           // of the cluster: it was not what it claims to be
	troubles  []string           // of the cluster, in a window that cuts its links: no surprise
	lag       int64              // transactions that the last node was behind at the end
}

// phase is a part of a window in which the links stayed as they were.
type phase struct {
	moment moment
	length time.Duration
	rtt    []RTT
}

// longest is the phase that tells most of a window.
func (w window) longest() phase {
	var out phase
	for _, p := range w.phases {
		if p.length > out.length || out.rtt == nil {
			out = p
		}
	}
	return out
}

// measure builds the lab, measures it and takes it down. An error means that
// it was not measured to the end; what was measured is kept.
func (m *measurement) measure(ctx context.Context) (err error) {
	m.current = m
	m.lab = results.Lab{Topology: m.topology.Name(), Variant: m.variant.Name}
	defer func() {
		switch {
		case ctx.Err() != nil:
			m.interrupted = true
		case err != nil:
			m.failure = err
			m.lab.Error = firstLine(err)
		}
	}()
	m.step("lab")
	spec := m.spec(m.topology)
	if m.Keep != nil && len(m.plan.Variants) > 1 {
		spec.Name = labName(m.run.ID+"-"+m.tag, fmt.Sprintf("%s-%d", m.topology.Name(), m.index+1)) // beside those that are kept
	}
	l, err := m.Provider.Open(ctx, spec)
	if err != nil {
		return err
	}
	c := &lab.Cluster{Lab: l, Topology: m.topology.Name(), Credentials: NewCredentials(), Settings: m.settings()}
	closeLab := func() error {
		m.step("down")
		// Also after Ctrl-C: a context that has ended takes nothing down.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
		defer cancel()
		return l.Close(ctx)
	}
	defer func() {
		if m.Keep != nil && err == nil {
			m.Keep(c)
			return
		}
		if cerr := closeLab(); cerr != nil {
			// What was measured is none the worse for it.
			m.run.Notes = append(m.run.Notes, fmt.Sprintf("the lab of %s was not taken down cleanly: %s", m.topology.Name(), firstLine(cerr)))
			m.event(m.topology.Name(), "", "lab", "not taken down cleanly: "+cerr.Error())
		}
	}()

	if err := m.bootstrap(ctx, c); err != nil {
		return err
	}
	writer := m.topology.Writer(c)
	target := workload.Target{Addr: writer.Addr(), User: c.Credentials.User, Password: c.Credentials.Password,
		Database: "sbtest", Dial: c.Client().Dial}
	prepare := time.Now()
	m.step("prepare")
	if err := m.driver.Prepare(ctx, target, nil); err != nil {
		return fmt.Errorf("prepare on %s: %w", writer.Name(), err)
	}
	m.lab.Steps = append(m.lab.Steps, results.Step{Name: "prepare", Seconds: time.Since(prepare).Seconds()})
	if m.net, err = newNetwork(m.plan, l); err != nil {
		return err
	}
	em, err := m.openEmulator(ctx, l)
	if err != nil {
		return err
	}
	if em != nil {
		defer em.Close()
	}
	probes, err := m.openProber()
	if err != nil {
		return err
	}
	defer probes.Close()

	load, err := workload.Start(ctx, m.driver, target, workload.Options{
		Threads: m.threads(), Seed: m.Rand.Uint64()})
	if err != nil {
		return err
	}
	defer load.Stop()
	s := &session{measurement: m, cluster: c, emulator: em, probes: probes, load: load}
	if err := s.warmup(ctx); err != nil {
		return err
	}
	return s.rounds(ctx)
}

// threads are the variant's, else the plan's.
func (m *measurement) threads() int {
	if m.variant.Threads > 0 {
		return m.variant.Threads
	}
	return m.plan.Workload.Threads
}

// settings are the server variables that the scenario sets; none is nil.
func (m *measurement) settings() map[string]string {
	if s := m.variant.SettingsOf(m.topology.Name()); len(s) > 0 {
		return s
	}
	return nil
}

// bootstrap forms the cluster and notes how long each step took, which servers
// run and with which settings.
func (m *measurement) bootstrap(ctx context.Context, c *lab.Cluster) error {
	began := time.Now()
	name, at := "", began
	next := func(step string) {
		if name != "" {
			m.lab.Steps = append(m.lab.Steps, results.Step{Name: name, Seconds: time.Since(at).Seconds()})
		}
		name, at = step, time.Now()
	}
	bctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := m.topology.Bootstrap(bctx, c, func(step string) {
		next(step)
		m.step(step)
	})
	next("")
	m.lab.ReadyS = time.Since(began).Seconds()
	if err != nil {
		return err
	}
	h := m.topology.Health(ctx, c)
	settings := m.topology.Settings(ctx, c)
	for _, n := range h.Nodes {
		m.server = n.Version
		m.lab.Nodes = append(m.lab.Nodes, results.LabNode{Name: n.Name, Role: n.Role, Settings: settings[n.Name]})
	}
	m.lab.Server = string(m.topology.Flavor()) + " " + m.server
	m.event(m.topology.Name(), "", "lab", fmt.Sprintf("%s ready in %.1f s", m.lab.Server, m.lab.ReadyS))
	return nil
}

func (m *measurement) openEmulator(ctx context.Context, l lab.Lab) (netem.Backend, error) {
	if len(m.net.hops) == 0 {
		return nil, nil
	}
	em, err := m.Emulator(ctx, l)
	if err != nil {
		return nil, err
	}
	m.emulator = em.Name()
	return em, nil
}

// noProber is for labs without links.
type noProber struct{}

func (noProber) Take(cuts ...time.Time) [][]RTT { return make([][]RTT, len(cuts)+1) }
func (noProber) Close() error                   { return nil }

func (m *measurement) openProber() (Prober, error) {
	if len(m.net.pairs) == 0 {
		return noProber{}, nil
	}
	var pairs [][2]netem.Endpoint
	for _, p := range m.net.pairs {
		pairs = append(pairs, [2]netem.Endpoint{m.net.ends[p[0]], m.net.ends[p[1]]})
	}
	return m.Prober(pairs)
}

// step tells what happens now.
func (m *measurement) step(what string) { m.tell(Progress{Step: what}) }

func (m *measurement) tell(p Progress) {
	if m.Progress == nil {
		return
	}
	p.Topology, p.Variant, p.Index, p.Count = m.topology.Name(), m.variant.Name, m.index+1, len(m.topologies)*len(m.plan.Variants)
	p.Pairs = m.plan.Measure.Pairs
	p.Left = m.left()
	m.Progress(p)
}

// NewCredentials makes an account with a random password.
func NewCredentials() lab.Credentials {
	b := make([]byte, 18)
	rand.Read(b)
	return lab.Credentials{User: "faultlab", Password: base64.RawURLEncoding.EncodeToString(b)}
}
