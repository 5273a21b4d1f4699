package postgres

import (
	"errors"
	"strings"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

var (
	// ErrConnect marks errors of connecting. They all mean that the database
	// can't be reached.
	ErrConnect = errors.New("connect")
	// ErrUnreplicated means that a transaction was committed, but perhaps on
	// this server alone: the wait for its standby was canceled. lib/pq reports
	// that as success.
	ErrUnreplicated = errors.New("committed, but perhaps not replicated")
	// ErrParameters replaces errors of lib/pq, which quote the text that they
	// could not parse: it may be part of the password.
	ErrParameters = errors.New("database url: its parameters can't be read")

	errReadOnly = errors.New("the session is read only")
)

// code returns the SQLSTATE of an error, or the code of success if it has none.
func code(err error) pqerror.Code {
	if e, is := errors.AsType[*pq.Error](err); is && e.Code != "" {
		return e.Code
	}
	return pqerror.SuccessfulCompletion
}

// IsDuplicate reports whether a statement failed because of a unique index.
func IsDuplicate(err error) bool { return code(err) == pqerror.UniqueViolation }

// IsRetryable reports whether a transaction failed because of concurrent ones,
// so that the whole of it may run again.
func IsRetryable(err error) bool {
	switch code(err) {
	case pqerror.TRSerializationFailure, pqerror.TRDeadlockDetected, pqerror.LockNotAvailable:
		return true
	}
	return false
}

// IsUnavailable reports whether the state of the server or of the session
// caused an error, not the statement.
func IsUnavailable(err error) bool {
	switch code(err).Class() {
	case pqerror.ClassConnectionException, pqerror.ClassInsufficientResources,
		pqerror.ClassOperatorIntervention: // shutting down, or canceled
		return true
	}
	switch code(err) {
	case pqerror.IdleInTransactionSessionTimeout, pqerror.TransactionTimeout:
		return true
	}
	return cannotWrite(err) || errors.Is(err, ErrConnect) || errors.Is(err, ErrUnreplicated)
}

// IsBadRow reports whether a statement failed because of the values of a row.
func IsBadRow(err error) bool {
	switch code(err).Class() {
	case pqerror.ClassDataException, pqerror.ClassIntegrityConstraintViolation:
		return true
	}
	return false
}

// IsForbidden reports whether a function does not exist, or may not be called.
func IsForbidden(err error) bool {
	switch code(err) {
	case pqerror.InsufficientPrivilege, pqerror.UndefinedFunction, pqerror.FeatureNotSupported:
		return true
	}
	return false
}

// IsDenied reports whether the role lacks rights. A role that may use no schema
// has none to create tables in.
func IsDenied(err error) bool {
	c := code(err)
	return c == pqerror.InsufficientPrivilege || c == pqerror.InvalidSchemaName
}

// cannotWrite reports whether an error means that the session can't write, so
// that another one should be tried. A standby returns the second code when
// asked for its position in the log.
func cannotWrite(err error) bool {
	c := code(err)
	return c == pqerror.ReadOnlySQLTransaction || c == pqerror.ObjectNotInPrerequisiteState
}

// WhyUnready returns the reason why the database can't be used, in words that
// can be shown to anyone.
func WhyUnready(err error) string {
	text := err.Error()
	switch c := code(err); {
	case errors.Is(err, ErrPoolMode), errors.Is(err, ErrPoolParameters):
		return "wrong mode of the connection pooler"
	case errors.Is(err, errReadOnly), cannotWrite(err),
		strings.Contains(text, "session is read-only"), strings.Contains(text, "in hot standby mode"): // of lib/pq
		return "read only"
	case c.Class() == pqerror.ClassInvalidAuthorizationSpecification:
		return "login refused"
	case c == pqerror.InvalidCatalogName:
		return "database missing"
	case c == pqerror.CannotConnectNow:
		return "starting up or shutting down"
	case c == pqerror.TooManyConnections:
		return "too many connections"
	}
	return "does not answer"
}
