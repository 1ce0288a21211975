package workload

import (
	"errors"
	"strconv"

	"github.com/go-sql-driver/mysql"
)

// ErrUnknownOutcome marks a commit that was sent and whose answer never came:
// the transaction may have been committed or not, so it is never retried.
var ErrUnknownOutcome = errors.New("outcome of the commit is unknown")

// ErrStopped is returned by a runner that has been stopped.
var ErrStopped = errors.New("load was stopped")

// Server codes that decide what becomes of a transaction.
const (
	erCheckRead          = 1020 // snapshot conflict: record has changed since last read
	erServerShutdown     = 1053
	erLockWaitTimeout    = 1205
	erLockDeadlock       = 1213 // Galera: certification failure
	erUnsupportedPS      = 1295 // not in the prepared statement protocol
	erQueryInterrupted   = 1317 // PXC: aborted by a replicated transaction
	erConnectionKilled   = 1927 // MariaDB
	erRolledBackByPlugin = 3101 // Group Replication: certification failure
)

// Retryable reports whether err is a conflict between transactions: the server
// is well, and the transaction may succeed when it is tried again after a
// rollback. Whatever else a server says is counted and the transaction given
// up, with a growing pause before the next: most of it (1047, 1290, 1836, 3100)
// means that this node takes no writes now.
func Retryable(err error) bool {
	switch ServerCode(err) {
	case erCheckRead, erLockWaitTimeout, erLockDeadlock, erQueryInterrupted, erRolledBackByPlugin:
		return true
	}
	return false
}

// OutcomeHidden reports whether err, the answer to a commit, leaves open
// whether the transaction was committed: the connection broke after the commit
// was sent, or the server ended the session while it was committing.
func OutcomeHidden(err error) bool {
	switch ServerCode(err) {
	case 0:
		// The driver says ErrBadConn only where nothing was sent.
		return err != nil && !isNotSent(err)
	case erServerShutdown, erConnectionKilled:
		return true
	}
	return false
}

// NoDatabase is servers' code for a database that does not exist.
const NoDatabase = 1049

// ServerCode is the server's error number, 0 if the error is not the server's.
func ServerCode(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// errorKey is the word under which a window counts err.
func errorKey(err error) string {
	if code := ServerCode(err); code != 0 {
		return strconv.Itoa(int(code))
	}
	return "connection"
}
