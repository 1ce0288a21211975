package wire

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/netem"
)

const us = time.Microsecond

func TestALineKeepsItsOrderThroughGrowthAndWrap(t *testing.T) {
	var f fifo
	next, want := time.Duration(0), time.Duration(0)
	for _, step := range []int{50, -30, 60, -80, 300, -299, 5, -6} {
		for ; step > 0; step-- {
			f.push(packet{at: next})
			next++
		}
		for ; step < 0; step++ {
			if got := f.pop().at; got != want {
				t.Fatalf("packet %d came out, want %d", got, want)
			}
			want++
		}
	}
	if f.len() != 0 {
		t.Errorf("%d packets left, want none", f.len())
	}
}

func TestAChangedDelayHoldsForPacketsUnderWay(t *testing.T) {
	l := line{delay: 100 * us}
	l.q.push(packet{at: 10 * us})
	for _, delay := range []time.Duration{100 * us, 5 * us, 0, time.Minute} {
		l.delay = delay
		if at := l.deadline(); at != 10*us+delay {
			t.Errorf("deadline with delay %v = %v, want %v", delay, at, 10*us+delay)
		}
	}
}

// Or a packet drawn early under one jitter would be earlier than any delay asked.
func TestAChangeForgetsTheJitterOfPacketsUnderWay(t *testing.T) {
	l := &line{}
	newChange(l, impairment(t, "delay 10ms jitter 5ms")).apply()
	l.q.push(packet{at: 1000 * us, offset: -5000 * us})
	if at := l.deadline(); at != 6000*us {
		t.Errorf("deadline %v with its jitter, want 6ms", at)
	}
	for _, text := range []string{"partition", "delay 4ms jitter 1ms", "delay 4ms"} {
		newChange(l, impairment(t, text)).apply()
		want := 5000 * us
		if text == "partition" {
			want = 6000 * us // what is under way keeps its time
		}
		if at := l.deadline(); at != want {
			t.Errorf("deadline %v after %s, want %v", at, text, want)
		}
	}
}

func TestPacketsBehindALateOneWaitForIt(t *testing.T) {
	l := &line{}
	newChange(l, impairment(t, "delay 10ms jitter 5ms")).apply()
	l.q.push(packet{at: 0, offset: 4000 * us, b: make([]byte, 100)})
	l.q.push(packet{at: 1000 * us, offset: -4000 * us, b: make([]byte, 100)})
	for range 2 {
		if at := l.deadline(); at != 14_000*us {
			t.Errorf("deadline %v, want 14ms", at)
		}
		l.pop()
	}
	l.q.push(packet{at: 20_000 * us, offset: -4000 * us, b: make([]byte, 100)})
	if at := l.deadline(); at != 26_000*us {
		t.Errorf("deadline %v behind a silence, want 26ms", at)
	}
}

func TestBuffersAreUsedAgainAndBounded(t *testing.T) {
	var p pool
	small, big := p.get(100), p.get(smallBuffer+1)
	if len(small) != 100 || len(big) != smallBuffer+1 {
		t.Fatalf("lengths %d and %d, want 100 and %d", len(small), len(big), smallBuffer+1)
	}
	if b := p.get(bigBuffer + 1); b != nil {
		t.Errorf("a buffer of %d bytes, want none", len(b))
	}
	p.put(small)
	p.put(big[:1])
	if p.out != 0 {
		t.Errorf("%d bytes out after all came back", p.out)
	}
	if again := p.get(7); &again[0] != &small[0] {
		t.Error("a returned buffer was not used again")
	}
	p.out = maxHeld
	if b := p.get(1); b != nil {
		t.Error("a buffer beyond the bound")
	}
}

func TestArrivalsMatterOnlyWhenTheyCanBeDueFirst(t *testing.T) {
	for _, c := range []struct {
		name                     string
		next, lastLook, minDelay time.Duration
		want                     bool
	}{
		{"due before anything unseen", 130 * us, 100 * us, 50 * us, false},
		{"due when the first unseen is", 150 * us, 100 * us, 50 * us, false},
		{"a short link beside a long one", 900 * us, 100 * us, 50 * us, true},
		{"no delay", 900 * us, 100 * us, 0, true},
	} {
		if got := mayOvertake(c.next, c.lastLook, c.minDelay); got != c.want {
			t.Errorf("%s: mayOvertake(%v, %v, %v) = %t", c.name, c.next, c.lastLook, c.minDelay, got)
		}
	}
}

func TestTheLeadFollowsLatenessAndSurvivesOutliers(t *testing.T) {
	tune := defaultTuning
	lead := time.Duration(0)
	for range 100 {
		lead = tune.follow(lead, 60*us)
	}
	if lead < 55*us || lead > 60*us {
		t.Errorf("lead %v after wake-ups 60µs late", lead)
	}
	if got := tune.follow(lead, time.Second) - lead; got > 10*us {
		t.Errorf("one wake-up a second late moved the lead by %v", got)
	}
	for range 1000 {
		lead = tune.follow(lead, time.Second)
	}
	if lead != tune.maxLead {
		t.Errorf("lead %v, want the bound %v", lead, tune.maxLead)
	}
	for range 1000 {
		lead = tune.follow(lead, -us)
	}
	if lead < 0 || lead > us {
		t.Errorf("lead %v, want about 0", lead)
	}
}

func TestLatenessGivesMedianAndTailAndStartsAnew(t *testing.T) {
	var l lateness
	for i := 1; i <= 100; i++ {
		l.add(time.Duration(i) * us)
	}
	if p50, p99 := l.take(); p50 != 50*us || p99 != 99*us {
		t.Errorf("1 to 100 µs: %v, %v, want 50µs, 99µs", p50, p99)
	}
	l.add(-5 * us)
	if p50, p99 := l.take(); p50 != -5*us || p99 != -5*us {
		t.Errorf("one packet 5 µs early: %v, %v", p50, p99)
	}
	l.add(time.Hour)
	l.add(-time.Hour)
	if p50, p99 := l.take(); p50 != -lateMin*us || p99 != (lateMax-1)*us {
		t.Errorf("far off: %v, %v, want the bounds", p50, p99)
	}
	if p50, p99 := l.take(); p50 != 0 || p99 != 0 {
		t.Errorf("nothing: %v, %v, want 0", p50, p99)
	}
}

func TestErrorsKeepTheirKindThroughThePipe(t *testing.T) {
	var pipe bytes.Buffer
	c := newConn(&pipe, &pipe)
	want := reply{Seq: 7, Counters: netem.Counters{Packets: 3, CPU: time.Second, LateP50: -us}}
	for _, r := range []reply{want, failed(8, fmt.Errorf("%w: no TUN device", ErrUnsupported)), failed(9, errors.New("broken"))} {
		if err := c.write(r); err != nil {
			t.Fatal(err)
		}
	}
	var got [3]reply
	for i := range got {
		if err := c.read(&got[i]); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got[0]); diff != "" || got[0].err() != nil {
		t.Errorf("reply (-want +got): %s, error %v", diff, got[0].err())
	}
	if err := got[1].err(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("%v is not ErrUnsupported any more", err)
	}
	if err := got[2].err(); err == nil || errors.Is(err, ErrUnsupported) || err.Error() != "broken" {
		t.Errorf("error %v, want broken", err)
	}
}
