package wire

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// An engine whose bell stayed loud took most of a processor, and the throughput
// of what it delayed fell by a third.
func TestABellThatRingsAfterItsCommandDoesNotKeepTheEngineAwake(t *testing.T) {
	e, err := newEngine(defaultTuning)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(e.bell)
	ended := make(chan struct{})
	go func() { e.run(); close(ended) }()
	defer func() {
		e.do(func() { e.stopped = true })
		<-ended
	}()

	e.do(func() {})
	one := [8]byte{1}
	if _, err := unix.Write(e.bell, one[:]); err != nil { // the late ring
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)
	wakeups := func() (n uint64) {
		e.do(func() { n = e.total.Wakeups })
		return n
	}
	before := wakeups()
	time.Sleep(50 * time.Millisecond)
	// Two by the readings themselves, each perhaps with a late ring of its own.
	if n := wakeups() - before; n > 8 {
		t.Errorf("an engine with nothing to do woke %d times in 50 ms", n)
	}
}
