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
	erServerShutdown      = 1053
	erCheckRead           = 1020 // record has changed since last read: snapshot conflict
	erUnknownCommand      = 1047 // Galera: node is not ready (WSREP has not prepared it)
	erLockWaitTimeout     = 1205
	erLockDeadlock        = 1213 // also Galera's certification failure
	erOptionPrevents      = 1290 // --read-only, --super-read-only
	erUnsupportedPS       = 1295 // not in the prepared statement protocol
	erQueryInterrupted    = 1317 // PXC: aborted by a replicated transaction
	erReadOnlyTransaction = 1792
	erReadOnlyMode        = 1836
	erConnectionKilled    = 1927 // MariaDB
	erOfflineMode         = 3032
	erReplicationHook     = 3100 // Group Replication: the member cannot certify
	erRolledBackByPlugin  = 3101 // Group Replication: certification failure
)

// Retryable reports whether err is a conflict between transactions: the server
// is well, and the transaction may succeed when it is tried again after a
// rollback.
func Retryable(err error) bool {
	switch serverCode(err) {
	case erCheckRead, erLockWaitTimeout, erLockDeadlock, erQueryInterrupted, erRolledBackByPlugin:
		return true
	}
	return false
}

// Unavailable reports whether err means that the server does not take this
// load now: it is read-only, shutting down or outside its cluster.
func Unavailable(err error) bool {
	switch serverCode(err) {
	case erServerShutdown, erUnknownCommand, erOptionPrevents, erReadOnlyTransaction,
		erReadOnlyMode, erConnectionKilled, erOfflineMode, erReplicationHook:
		return true
	}
	return false
}

// OutcomeHidden reports whether err, the answer to a commit, leaves open
// whether the transaction was committed: the connection broke after the commit
// was sent, or the server ended the session while it was committing.
func OutcomeHidden(err error) bool {
	switch serverCode(err) {
	case 0:
		// The driver says ErrBadConn only where nothing was sent.
		return err != nil && !isNotSent(err)
	case erServerShutdown, erConnectionKilled:
		return true
	}
	return false
}

// serverCode is the server's error number, 0 if the error is not the server's.
func serverCode(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// errorKey is the word under which a window counts err.
func errorKey(err error) string {
	if code := serverCode(err); code != 0 {
		return strconv.Itoa(int(code))
	}
	return "connection"
}
