package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/results"
	"github.com/faultlab/faultlab/scenarios"
)

// session is a cluster under load, ready for windows.
type session struct {
	*measurement
	cluster  *lab.Cluster
	emulator netem.Backend // nil without links
	probes   Prober
	load     *workload.Runner
}

// warmup runs the load in the baseline condition and forgets it.
func (s *session) warmup(ctx context.Context) error {
	if err := s.shape(ctx, scenarios.BaselineName); err != nil {
		return err
	}
	return s.sleep(ctx, s.plan.Measure.Warmup, Progress{Step: "warm-up"})
}

// rounds measures the windows. Each round holds the baseline and every
// condition next to each other, in random order, and the first ones a window
// without emulator too.
func (s *session) rounds(ctx context.Context) error {
	for round := 1; round <= s.plan.Measure.Pairs; round++ {
		for _, condition := range s.order(round) {
			w, err := s.window(ctx, condition, round)
			if w != nil {
				s.windows = append(s.windows, *w)
				if serr := s.save(); serr != nil {
					return serr
				}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// order is which conditions a round measures, and in which order.
func (s *session) order(round int) []string {
	out := []string{scenarios.BaselineName}
	conditions := s.conditions()
	if len(conditions) == 0 {
		return out
	}
	for _, c := range conditions {
		out = append(out, c.Name)
	}
	if round <= s.plan.Measure.ObserverPairs {
		out = append(out, noEmulator)
	}
	s.Rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// shape puts the links in a condition.
func (s *session) shape(ctx context.Context, condition string) error {
	if s.emulator == nil {
		return nil
	}
	if condition == noEmulator {
		return s.emulator.Clear(ctx)
	}
	return s.emulator.Apply(ctx, s.net.links(s.net.course(condition)[0]))
}

// follow puts the links through the course of a condition, from its second
// moment on, and returns when each change was made. It ends with ctx.
func (s *session) follow(ctx context.Context, condition string) (cuts []time.Time, err error) {
	if s.emulator == nil || condition == noEmulator {
		return nil, nil
	}
	began := time.Now()
	for _, m := range s.net.course(condition)[1:] {
		select {
		case <-ctx.Done():
			return cuts, nil
		case <-time.After(time.Until(began.Add(m.at))):
		}
		if err := s.emulator.Apply(context.WithoutCancel(ctx), s.net.links(m)); err != nil {
			return cuts, err
		}
		cuts = append(cuts, time.Now())
		s.event(s.topology.Name(), "", "fault", fmt.Sprintf("%s: at %s %s", condition, scenarios.FormatDuration(m.at), s.net.describe(m)))
	}
	return cuts, nil
}

// heal brings the baseline back after a window that cut links, and waits until
// the cluster is whole again.
func (s *session) heal(ctx context.Context) error {
	if err := s.shape(ctx, scenarios.BaselineName); err != nil {
		return err
	}
	for deadline := time.Now().Add(recoverTimeout); ; {
		p := s.topology.Health(ctx, s.cluster).Problems()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(p) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the cluster was not whole again %v after its links: %s", recoverTimeout, p[0])
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// window measures one window. With the load at rest the cluster catches up and
// the links change; then the load runs, settles, and is measured while the
// nodes are asked for their health and the links for their round trip.
//
// An error with a window means that the cluster is not what it was: the window
// says why, and measuring it further makes no sense.
func (s *session) window(ctx context.Context, condition string, round int) (*window, error) {
	p := Progress{Condition: condition, Pair: round}
	if err := s.rest(ctx); err != nil {
		return nil, err
	}
	if err := s.shape(ctx, condition); err != nil {
		return nil, err
	}
	s.event(s.topology.Name(), "", "fault", "links: "+condition)
	s.load.Resume()
	p.Step = "settle"
	if err := s.sleep(ctx, s.plan.Measure.Settle, p); err != nil {
		return nil, err
	}

	w := &window{condition: condition, round: round}
	roles := s.topology.Health(ctx, s.cluster)
	before := s.topology.Counters(ctx, s.cluster)
	emBefore, err := s.counters(ctx)
	if err != nil {
		return nil, err
	}
	s.probes.Take()
	w.start = time.Since(s.began)
	stop := s.watch(ctx, w, roles)
	p.Step = "measure"
	cuts, load, err := s.timed(ctx, condition, p)
	w.load, w.latency = load, latency(load.Latency)
	w.phases = s.phases(condition, load, cuts, s.probes.Take(cuts...))
	emAfter, emErr := s.counters(context.WithoutCancel(ctx))
	w.problems = append(w.problems, stop()...)
	if ctx.Err() != nil {
		return nil, ctx.Err() // a window cut short is none
	}
	if err != nil {
		return nil, err
	}
	if emErr != nil {
		return nil, emErr
	}
	w.emulator = minus(emAfter, emBefore)
	after := s.topology.Counters(ctx, s.cluster)
	w.counters = difference(before, after)
	h := s.topology.Health(ctx, s.cluster)
	w.problems = append(w.problems, h.Problems()...)
	w.problems = append(w.problems, roleChanges(roles, h)...)
	w.problems = append(w.problems, s.topology.Judge(before, after)...)
	w.problems = unique(w.problems)
	if s.condition(condition).Partitions() {
		w.problems, w.troubles = nil, w.problems
		for _, p := range w.troubles {
			s.event(s.topology.Name(), "", "health", p)
		}
	}
	for _, n := range h.Nodes {
		w.lag = max(w.lag, n.Lag)
	}
	s.samples(w)
	if len(w.problems) > 0 {
		for _, p := range w.problems {
			s.event(s.topology.Name(), "", "health", p)
		}
		return w, fmt.Errorf("cluster failed in the %s window of pair %d: %s", condition, round, w.problems[0])
	}
	if s.condition(condition).Partitions() {
		p.Step = "heal"
		s.tell(p)
		return w, s.heal(ctx)
	}
	return w, nil
}

// rest pauses the load and waits until every node has applied all there is, so
// that no window inherits work from the one before it.
func (s *session) rest(ctx context.Context) error {
	pctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	if err := s.load.Pause(pctx); err != nil {
		return s.blame(ctx, err)
	}
	deadline := time.Now().Add(catchUpTimeout)
	for {
		h := s.topology.Health(ctx, s.cluster)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if p := h.Problems(); len(p) > 0 {
			return fmt.Errorf("cluster is not healthy before a window: %s", p[0])
		}
		if h.CaughtUp(0) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("replicas did not catch up within %v", catchUpTimeout)
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// blame names what is wrong with the cluster, if anything, in the place of an
// error that only shows its effect.
func (s *session) blame(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if p := s.topology.Health(ctx, s.cluster).Problems(); len(p) > 0 {
		return fmt.Errorf("cluster is not healthy before a window: %s", p[0])
	}
	return err
}

// watch asks all nodes for their health until stop, which returns what was
// wrong at any moment and which roles changed.
func (s *session) watch(ctx context.Context, w *window, first lab.Health) (stop func() []string) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan []string, 1)
	go func() {
		problems := first.Problems()
		tick := time.NewTicker(healthEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				done <- problems
				return
			case <-tick.C:
			}
			h := s.topology.Health(ctx, s.cluster)
			if ctx.Err() != nil {
				continue // stopped in the middle of asking: no answer counts
			}
			problems = append(problems, h.Problems()...)
			problems = append(problems, roleChanges(first, h)...)
		}
	}()
	return func() []string { cancel(); return <-done }
}

// roleChanges lists the nodes that have another role than they had. One that
// does not answer has a problem of its own.
func roleChanges(first, h lab.Health) []string {
	was := first.Roles()
	var out []string
	for _, n := range h.Nodes {
		if role := was[n.Name]; role != n.Role && role != "" {
			out = append(out, fmt.Sprintf("%s: role changed from %s to %s", n.Name, role, n.Role))
		}
	}
	return out
}

// counters reads the emulator's, zero without one.
func (s *session) counters(ctx context.Context) (netem.Counters, error) {
	if s.emulator == nil {
		return netem.Counters{}, nil
	}
	return s.emulator.Counters(ctx)
}

// timed measures the load for a window, tells its TPS meanwhile, and puts the
// links through the condition's course.
func (s *session) timed(ctx context.Context, condition string, p Progress) (cuts []time.Time, load workload.Window, err error) {
	stop := s.ticker(p)
	defer stop()
	course, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		var err error
		cuts, err = s.follow(course, condition)
		done <- err
	}()
	load, err = s.load.Measure(ctx, s.plan.Measure.Window)
	end()
	if cerr := <-done; err == nil {
		err = cerr
	}
	return cuts, load, err
}

// phases puts together what the links were asked for and what was measured.
func (s *session) phases(condition string, load workload.Window, cuts []time.Time, rtts [][]RTT) []phase {
	if s.net == nil {
		return nil
	}
	course := s.net.course(condition)
	var out []phase
	from := load.Start
	for i, rtt := range rtts {
		to := load.End
		if i < len(cuts) {
			to = cuts[i]
		}
		out = append(out, phase{course[i], to.Sub(from), rtt})
		from = to
	}
	return out
}

// sleep lets the load run for d.
func (s *session) sleep(ctx context.Context, d time.Duration, p Progress) error {
	stop := s.ticker(p)
	defer stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// ticker tells progress with the load's TPS until stopped.
func (s *session) ticker(p Progress) (stop func()) {
	p.TPS = s.load.Live().TPS
	s.tell(p)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				p.TPS = s.load.Live().TPS
				s.tell(p)
			}
		}
	}()
	return func() { close(quit); <-done }
}

// samples writes down the seconds of a window.
func (s *session) samples(w *window) {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	for i, x := range w.load.Samples {
		sec := x.Length.Seconds()
		if sec <= 0 {
			continue
		}
		_ = s.Sink.Sample(results.Sample{
			Time: x.Time.UTC(), Topology: s.topology.Name(), Variant: s.variant.Name, Condition: w.condition, Pair: w.round, Second: i,
			TPS: float64(x.Transactions) / sec, QPS: float64(x.Reads+x.Writes+x.Others) / sec,
			Reads: float64(x.Reads) / sec, Writes: float64(x.Writes) / sec, Others: float64(x.Others) / sec,
			P50: ms(x.P50), P95: ms(x.P95), P99: ms(x.P99), Max: ms(x.Max),
			Errors: x.Errors, Retries: x.Retries,
		})
	}
}

// left estimates what remains of the run.
func (r *runner) left() time.Duration {
	total := r.plan.Estimate()
	return max(0, total-time.Since(r.began)).Round(time.Second)
}

func minus(a, b netem.Counters) netem.Counters {
	a.Packets -= b.Packets
	a.Bytes -= b.Bytes
	a.Overrun -= b.Overrun
	a.Wakeups -= b.Wakeups
	a.CPU -= b.CPU
	return a
}

func difference(before, after map[string]float64) map[string]float64 {
	out := make(map[string]float64, len(after))
	for k, v := range after {
		if b, ok := before[k]; ok {
			out[k] = v - b
		}
	}
	return out
}

func unique(in []string) []string {
	var out []string
	for _, s := range in {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
