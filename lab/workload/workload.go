// Package workload owns the load: sessions that run transactions, the
// closed-loop runner that keeps them busy, and what is recorded of each second.
//
// It speaks the MySQL protocol to any server and knows nothing of labs.
package workload

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// DialFunc opens the transport of a connection. It is how load runs inside
// the network namespace of a lab's client.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Target is a server to drive load at.
type Target struct {
	Addr     string // host:port
	User     string
	Password string
	Database string
	Dial     DialFunc // nil dials from this process's own network
}

// Driver is one kind of load: its tables and its transactions.
type Driver interface {
	// Name is the workload's name, e.g. "oltp_write_only".
	Name() string
	// Size is about how many bytes its tables take on a server once prepared.
	Size() int64
	// Prepare makes and fills the tables. Running it again finishes what is
	// missing. progress (may be nil) gets rows done and rows in all.
	Prepare(ctx context.Context, t Target, progress func(done, total int64)) error
	// Cleanup drops the tables.
	Cleanup(ctx context.Context, t Target) error
	// Session opens a connection with prepared statements. Sessions are used
	// by one goroutine each. seed makes its random choices repeatable.
	Session(ctx context.Context, t Target, seed uint64) (Session, error)
}

// Session runs transactions one after another on one connection.
type Session interface {
	// Transaction runs one transaction to its commit, and tells what it sent
	// even when it fails. A server's error (*mysql.MySQLError) leaves the
	// session usable after Rollback; after any other it must be closed. A
	// commit whose outcome a broken connection hid is ErrUnknownOutcome.
	//
	// A session may leave ctx unread: the runner ends a blocked transaction by
	// closing the connection that it dialled for it.
	Transaction(ctx context.Context) (Statements, error)
	// Rollback ends a failed transaction.
	Rollback(ctx context.Context) error
	Close() error
}

// Statements counts what one transaction sent, in sysbench's three classes.
type Statements struct {
	Read, Write, Other int
	// Kind is which of its workload's transactions it was, "" where all are
	// alike. It is set even when the transaction fails.
	Kind string
}

// Sample is what one second of load looked like.
type Sample struct {
	Time         time.Time     // when the second began
	Length       time.Duration // Options.Interval, or less for the last of a window
	Transactions int64         // committed
	Reads        int64
	Writes       int64
	Others       int64
	Errors       int64 // transactions given up, except unknown outcomes; connections refused
	Retries      int64 // transactions rolled back and tried again
	Unknown      int64 // commits whose outcome the broken connection hid
	Reconnects   int64 // connections opened anew
	P50, P95     time.Duration
	P99, Max     time.Duration
	// Of an open loop.
	Queue   int   // transactions that were due and waited for a thread, at the end
	Dropped int64 // that found the queue full
}

// Window is what was recorded between the start and the end of one
// measurement.
type Window struct {
	Start, End   time.Time
	Samples      []Sample
	Latency      *hdrhistogram.Histogram // microseconds, of committed transactions, retries included
	Transactions int64
	// Errors is what Sample.Errors counts, by the server's code ("1213"), or
	// "connection" for one that broke and "connect" for one that was refused.
	Errors  map[string]int64
	Retries int64
	Unknown int64
	// Queue is the longest of its samples' queues, and Dropped is what found
	// it full, of an open loop. Transactions that still wait at the end are in
	// no window's latencies.
	Queue   int
	Dropped int64
	// Kinds are the window's transactions by their kind, in the order of their
	// names. It is empty where all are alike.
	Kinds []Kind
	// Busy is the share of thread time spent inside transactions, 0 to 1.
	// Below about 0.9 the load did not keep its threads busy.
	Busy float64
}

// Kind is what the transactions of one kind did in a window. Its fields are as
// those of the same name in Window.
type Kind struct {
	Name         string
	Transactions int64
	Latency      *hdrhistogram.Histogram
	Errors       int64
	Retries      int64
	Unknown      int64
}

// TPS is committed transactions of this kind a second, in the window that they
// were recorded in.
func (k Kind) TPS(w Window) float64 { return perSecond(k.Transactions, w.End.Sub(w.Start)) }

// Kind is what the transactions of one kind did: nothing, if there were none.
func (w Window) Kind(name string) Kind {
	if i, ok := slices.BinarySearchFunc(w.Kinds, name, Kind.compare); ok {
		return w.Kinds[i]
	}
	return Kind{Name: name, Latency: newHistogram()}
}

func (k Kind) compare(name string) int { return strings.Compare(k.Name, name) }

// kind is where to count transactions of a kind.
func (w *Window) kind(name string) *Kind {
	i, ok := slices.BinarySearchFunc(w.Kinds, name, Kind.compare)
	if !ok {
		w.Kinds = slices.Insert(w.Kinds, i, Kind{Name: name, Latency: newHistogram()})
	}
	return &w.Kinds[i]
}

// TPS is committed transactions a second.
func (w Window) TPS() float64 { return perSecond(w.Transactions, w.End.Sub(w.Start)) }
