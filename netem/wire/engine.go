package wire

import (
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
)

// An engine moves the packets of all ports. Its thread owns everything but the
// queue of commands: others reach it through do.
type engine struct {
	tune  tuning
	clock clock

	ports []*port
	pool  pool
	fds   []unix.PollFd // the bell, then every port's ring

	lastLook time.Duration // into the rings
	busy     bool          // something was in them
	minDelay time.Duration // of all lines
	blind    time.Duration // in which no ring can fill up
	lead     time.Duration // by which wake-ups are asked for early
	nap      time.Duration // up to which it costs less to wait awake
	awake    allowance     // for waiting awake

	total netem.Counters // without what lines count themselves
	late  lateness

	bell     int // eventfd: a command waits
	commands chan func()
	rung     atomic.Bool
	stopped  bool
}

// tuning holds the times that trade wake-ups against accuracy.
type tuning struct {
	// hold is how far from its deadline, early or late, a packet may leave in
	// order to share a wake-up with others.
	hold time.Duration
	// maxLead bounds how early a wake-up is asked for, and with it how long
	// the engine waits without sleeping.
	maxLead time.Duration
	// maxEarly bounds how far before its deadline a packet leaves because a sleep
	// would end behind it.
	maxEarly time.Duration
	// maxNap bounds how long the engine waits awake because it is cheaper.
	maxNap time.Duration
	// maxAwake bounds the share of its time that the engine waits awake: under
	// dense traffic there is always a packet due soon, and a thread above all
	// others that never sleeps takes a processor from them. Beyond it a packet
	// that is due before a sleep would end leaves at once.
	maxAwake float64
	// smooth is over how many wake-ups the lead is averaged.
	smooth int
	// pace is the shortest time between packets that arrive for long on end.
	pace time.Duration
}

// allowance is time that grows by a share of the time that passes, up to a
// millisecond, and is spent.
type allowance struct{ left, at time.Duration }

// spend takes d out of what is there at now, if it is there.
func (a *allowance) spend(now, d time.Duration, share float64) bool {
	a.left = min(a.left+time.Duration(share*float64(now-a.at)), time.Millisecond)
	a.at = now
	if d > a.left {
		return false
	}
	a.left -= max(d, 0)
	return true
}

var defaultTuning = tuning{
	hold:     20 * time.Microsecond,
	maxLead:  150 * time.Microsecond,
	maxEarly: 80 * time.Microsecond,
	maxNap:   50 * time.Microsecond,
	maxAwake: 0.03,
	smooth:   16,
	pace:     2 * time.Microsecond,
}

func newEngine(t tuning) (*engine, error) {
	bell, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	e := &engine{tune: t, clock: clock{time.Now()}, bell: bell, commands: make(chan func(), 1)}
	e.watch()
	return e, nil
}

// do runs f on the engine's thread and returns when it is done.
func (e *engine) do(f func()) {
	done := make(chan struct{})
	e.commands <- func() { f(); close(done) }
	e.rung.Store(true)
	one := [8]byte{1}
	unix.Write(e.bell, one[:])
	<-done
}

// run is the engine's thread. It returns after do has set stopped.
func (e *engine) run() {
	runtime.LockOSThread() // and never unlock: the thread is at real-time priority
	goRealtime()
	e.nap = min(2*sleepCost(), e.tune.maxNap)
	var until time.Duration
	for !e.stopped {
		if e.rung.Load() || e.fds[0].Revents != 0 {
			e.obey()
		}
		e.collect()
		e.release(until)
		until = e.wait()
	}
}

// goRealtime asks for the lowest real-time priority: above all ordinary work,
// below whatever the machine itself does at such a priority. Where that is not
// allowed the thread is as nice to itself as it may be; lateness shows it.
func goRealtime() {
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if unix.SchedSetAttr(0, &attr, 0) != nil {
		unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
	}
}

// sleepCost measures the processor time that one short sleep takes: a few
// microseconds on bare metal, twenty and more on a virtual machine where
// setting a timer and switching processes both need the host. What the other
// processes lose to the switch about doubles it.
func sleepCost() time.Duration {
	const times = 50
	used := func() int64 {
		var ts unix.Timespec
		unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
		return ts.Nano()
	}
	before := used()
	for range times {
		ts := unix.NsecToTimespec(20_000)
		unix.Ppoll(nil, &ts, nil)
	}
	return time.Duration(used()-before) / times
}

// obey does what is asked, and silences the bell. The bell can ring after its
// command was done, when do was interrupted between the two: left to ring it
// would end every sleep at once.
func (e *engine) obey() {
	e.rung.Store(false)
	e.fds[0].Revents = 0
	var count [8]byte
	unix.Read(e.bell, count[:])
	for {
		select {
		case f := <-e.commands:
			f()
		default:
			return
		}
	}
}

// watch brings what follows from ports and lines up to date.
func (e *engine) watch() {
	e.fds = append(e.fds[:0], unix.PollFd{Fd: int32(e.bell), Events: unix.POLLIN})
	e.minDelay, e.blind = netem.MaxDelay, time.Second
	for _, p := range e.ports {
		e.blind = min(e.blind, time.Duration(p.frames)*e.tune.pace)
		e.fds = append(e.fds, unix.PollFd{Fd: int32(p.recv), Events: unix.POLLIN})
		for _, l := range p.lines {
			e.minDelay = min(e.minDelay, l.minDelay())
		}
	}
}

// collect moves what has arrived from the rings to the lines.
func (e *engine) collect() {
	now, wall := e.clock.now()
	e.lastLook = now
	e.busy = false
	for _, p := range e.ports {
		for range p.frames { // at most once round
			a, ok := p.arrived()
			if !ok {
				break
			}
			e.busy = true
			if a.wall > wall {
				now, wall = e.clock.now() // it came since
			}
			// A stamp from the future still is a wall clock that was set back.
			at := now - max(0, time.Duration(wall-a.wall))
			switch l := p.table.find(a.frame); {
			case l == nil:
				e.pass(p, a, at)
			case l.faults != nil:
				e.decide(p, l, a, at)
			default:
				if b := e.take(p, a); b != nil {
					p.push(l, packet{at: at, b: b})
				} else {
					e.total.Overrun++
				}
			}
		}
	}
}

// pass sends a packet on that belongs to no line: its filter has just been
// taken out. What the sink itself says is for nobody.
func (e *engine) pass(p *port, a arrival, at time.Duration) {
	if p.fromSink(a.frame) {
		e.drop(p, a)
	} else if b := e.take(p, a); b != nil {
		e.total.Packets++
		e.total.Bytes += uint64(len(b) - vnetHeader)
		e.send(p, b, at)
	} else {
		e.total.Overrun++
	}
}

// decide does to a packet what delay alone does not.
func (e *engine) decide(p *port, l *line, a arrival, at time.Duration) {
	f := l.faults
	v := f.fate.Decide()
	if v.N == 0 {
		e.drop(p, a)
		l.dropped++
		return
	}
	b := e.take(p, a)
	if b == nil {
		e.total.Overrun++
		return
	}
	for i, fate := range v.Copies[:v.N] {
		c := packet{at, fate.Offset, b}
		if i < v.N-1 {
			if c.b = e.pool.get(len(b)); c.b == nil {
				e.total.Overrun++
				continue
			}
			copy(c.b, b)
		}
		if l.q.len() >= f.limit {
			e.pool.put(c.b)
			if f.lossy {
				l.dropped++
			} else {
				e.total.Overrun++
			}
			continue
		}
		if fate.Flip >= 0 {
			c.flip(fate.Flip)
		}
		if fate.Ahead {
			l.packets++
			l.bytes += uint64(c.size())
			e.send(p, c.b, at)
			continue
		}
		p.push(l, c)
	}
}

// take copies the packet that came first and frees its slot. It gives nil when
// the packet is lost.
func (e *engine) take(p *port, a arrival) (b []byte) {
	switch {
	case a.cut:
	case a.large:
		b = e.pool.get(bigBuffer)
		n := p.takeLarge(b)
		if n == 0 && b != nil {
			e.pool.put(b)
			b = nil
		}
		b = b[:n]
	default:
		if b = e.pool.get(len(a.frame)); b != nil {
			copy(b, a.frame)
		}
	}
	p.free()
	return b
}

// drop frees the slot of the packet that came first.
func (e *engine) drop(p *port, a arrival) {
	if a.large {
		p.takeLarge(nil)
	}
	p.free()
}

// send queues a packet, due at the given time, to leave with the next flush.
func (e *engine) send(p *port, b []byte, at time.Duration) {
	if len(p.held) == sendBatch {
		e.flush(p)
	}
	p.queue(b, at)
}

// release sends what is due until then, and in any case what is due so soon
// that it shares this wake-up.
func (e *engine) release(until time.Duration) {
	now, _ := e.clock.now()
	until = max(until, now+e.tune.hold)
	for _, p := range e.ports {
		for i := 0; i < len(p.active); {
			l := p.active[i]
			for {
				at := l.deadline()
				if at > until {
					i++
					break
				}
				e.send(p, l.q.peek().b, at)
				if l.pop(); l.q.len() == 0 {
					p.idle(i)
					break
				}
			}
		}
		if len(p.held) > 0 {
			e.flush(p)
		}
	}
}

// drain sends all that lines of a port hold, whatever its time.
func (e *engine) drain(p *port, lines []*line) {
	now, _ := e.clock.now()
	for _, l := range lines {
		for l.q.len() > 0 {
			e.send(p, l.q.peek().b, now)
			l.pop()
		}
	}
	p.active = slices.DeleteFunc(p.active, func(l *line) bool { return l.q.len() == 0 })
	e.flush(p)
}

func (e *engine) flush(p *port) {
	e.total.Overrun += p.flush()
	now, _ := e.clock.now()
	for i, b := range p.held {
		e.late.add(now - p.due[i])
		e.pool.put(b)
	}
	p.held, p.due = p.held[:0], p.due[:0]
}

// wait returns when something may have to be done, and until when packets are
// due that leave now.
func (e *engine) wait() (until time.Duration) {
	next, queued := e.nextDeadline()
	if !queued {
		e.poll(e.fds, time.Second)
		return 0
	}
	now, _ := e.clock.now()
	left := next - now
	// A sleep takes some time, even the shortest.
	asked := max(left-e.lead, time.Microsecond)
	switch {
	case left <= max(e.lead, e.nap) && e.awake.spend(now, left, e.tune.maxAwake):
		// Sleeping would take longer, or cost more, than waiting awake.
		for now < next-e.tune.hold/2 && !e.rung.Load() {
			now, _ = e.clock.now()
		}
	case left <= min(e.lead, e.tune.maxEarly):
		// A sleep would end later than that.
		return next
	case mayOvertake(next, e.lastLook, e.minDelay), left > e.blind && !e.busy:
		e.sleep(e.fds, now, asked)
	default:
		e.sleep(e.fds[:1], now, min(asked, e.blind))
	}
	return 0
}

// sleep learns from how late it ends.
func (e *engine) sleep(fds []unix.PollFd, now, asked time.Duration) {
	if !e.poll(fds, asked) {
		woken, _ := e.clock.now()
		e.lead = e.tune.follow(e.lead, woken-now-asked)
	}
}

// mayOvertake tells whether a packet that arrives after the look can be due
// before next: it is due a shortest delay later at the earliest. Only then need
// arrivals end a sleep.
func mayOvertake(next, lastLook, minDelay time.Duration) bool { return next > lastLook+minDelay }

// follow brings the lead nearer to the lateness of a wake-up just seen: quickly
// while far, as when a machine falls idle, and never by much, since single
// wake-ups are late by anything.
func (t *tuning) follow(lead, late time.Duration) time.Duration {
	off := min(max(late-lead, -t.maxLead), t.maxLead)
	return min(max(lead+off/time.Duration(t.smooth), 0), t.maxLead)
}

func (e *engine) nextDeadline() (next time.Duration, queued bool) {
	for _, p := range e.ports {
		for _, l := range p.active {
			if at := l.deadline(); !queued || at < next {
				next, queued = at, true
			}
		}
	}
	return next, queued
}

// poll sleeps and reports whether anything else than the time ended it.
func (e *engine) poll(fds []unix.PollFd, timeout time.Duration) bool {
	ts := unix.NsecToTimespec(int64(timeout))
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	e.total.Wakeups++
	return errno != 0 || n != 0
}

// counters runs on the engine's thread.
func (e *engine) counters() netem.Counters {
	e.total.LateP50, e.total.LateP99 = e.late.take()
	for _, p := range e.ports {
		e.total.Overrun += p.drops()
	}
	c := e.total
	for _, p := range e.ports {
		for _, l := range p.lines {
			l.addTo(&c)
		}
	}
	return c
}

// attach and detach have it serve a port or forget it. The lines of one that is
// forgotten are empty.
func (e *engine) attach(p *port) { e.ports = append(e.ports, p) }

func (e *engine) detach(p *port) {
	e.ports = slices.DeleteFunc(e.ports, func(o *port) bool { return o == p })
	e.total.Overrun += p.drops()
	e.retire(p.lines)
	p.lines = nil
}

// retire keeps the counts of lines that are no more.
func (e *engine) retire(lines []*line) {
	for _, l := range lines {
		l.addTo(&e.total)
	}
}

// lateness counts by the microsecond how far from their deadlines packets
// left.
type lateness struct {
	n      uint64
	counts [lateMin + lateMax]uint32
}

const (
	lateMin = 256   // microseconds early
	lateMax = 16384 // microseconds late; the last stands for all beyond
)

func (l *lateness) add(d time.Duration) {
	i := lateMin + int(d.Round(time.Microsecond)/time.Microsecond)
	l.counts[min(max(i, 0), len(l.counts)-1)]++
	l.n++
}

// take gives median and 99th percentile and starts anew.
func (l *lateness) take() (p50, p99 time.Duration) {
	if l.n == 0 {
		return 0, 0
	}
	at := func(q uint64) time.Duration { // q in percent
		rank, sum := (l.n*q+99)/100, uint64(0)
		for i, c := range l.counts {
			if sum += uint64(c); sum >= rank {
				return time.Duration(i-lateMin) * time.Microsecond
			}
		}
		return lateMax * time.Microsecond
	}
	p50, p99 = at(50), at(99)
	*l = lateness{}
	return p50, p99
}
