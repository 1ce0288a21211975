package workload

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// fake is a driver whose sessions do what transact says.
type fake struct {
	// transact is called for each attempt, with its number over all sessions
	// from 1. nil takes no time and succeeds.
	transact func(ctx context.Context, n int) error
	// open is called for each session, with its number from 1. nil succeeds.
	open     func(ctx context.Context, n int, t Target) error
	rollback error

	mu    sync.Mutex
	log   []string // begin, rollback, close, in order
	tries int
	opens int
	alive int // sessions
	seeds map[uint64]bool
}

func (f *fake) Name() string                                                   { return "fake" }
func (f *fake) Size() int64                                                    { return 0 }
func (f *fake) Prepare(context.Context, Target, func(done, total int64)) error { return nil }
func (f *fake) Cleanup(context.Context, Target) error                          { return nil }

func (f *fake) Session(ctx context.Context, t Target, seed uint64) (Session, error) {
	f.mu.Lock()
	f.opens++
	n := f.opens
	if f.seeds == nil {
		f.seeds = map[uint64]bool{}
	}
	f.seeds[seed] = true
	f.mu.Unlock()
	if f.open != nil {
		if err := f.open(ctx, n, t); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	f.alive++
	f.mu.Unlock()
	return fakeSession{f}, nil
}

// note logs what a session did, with a limit: some tests never end a session.
func (f *fake) note(what string) {
	if len(f.log) < 1000 {
		f.log = append(f.log, what)
	}
}

// first is the first n things that sessions did.
func (f *fake) first(n int) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log[:min(n, len(f.log))])
}

type fakeSession struct{ *fake }

func (s fakeSession) Transaction(ctx context.Context) (Statements, error) {
	s.mu.Lock()
	s.tries++
	n := s.tries
	s.note("begin")
	s.mu.Unlock()
	sent := Statements{Read: 3, Write: 2, Other: 1}
	if s.transact == nil {
		return sent, nil
	}
	return sent, s.transact(ctx, n)
}

func (s fakeSession) Rollback(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("rollback")
	return s.rollback
}

func (s fakeSession) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("close")
	s.alive--
	return nil
}

// takes is a transaction of that length.
func takes(d time.Duration) func(context.Context, int) error {
	return func(context.Context, int) error {
		time.Sleep(d)
		return nil
	}
}

func serverError(code uint16) error {
	return &mysql.MySQLError{Number: code, Message: "as the test wants"}
}

// blackhole is a server that takes connections and never says a word.
func blackhole(context.Context, string, string) (net.Conn, error) {
	ours, _ := net.Pipe()
	return ours, nil
}
