package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
)

// errUnreplicated means that a transaction was committed, but perhaps on this
// server alone: whoever waited for the standby did not wait to the end. lib/pq
// takes that for success.
var errUnreplicated = errors.New("committed, but perhaps not replicated")

// errConnect marks errors of connecting: whatever the reason, the database
// can't be reached.
var errConnect = errors.New("connect")

// interpret has statements interpreted. PostgreSQL compiles those that it
// expects to take long, such as one that inserts a thousand cards of accounts
// with many open ones, and compiling takes longer than running any of ours. As
// a startup parameter, it would stop at every PgBouncer that was not told of
// it.
const interpret = "SET SESSION jit = off;"

// sessions makes the connections of a pool. It implements driver.Connector.
type sessions struct {
	*pq.Connector
	runtime    map[string]string      // the startup parameters
	settings   atomic.Pointer[string] // statements that a new session starts with, if a pooler swallows startup parameters
	generation atomic.Int64           // sessions of earlier generations are given up
	timelines  timelines

	statementLifetime time.Duration // of a prepared statement

	mu   sync.Mutex
	open map[*session]struct{}
}

// Connect implements driver.Connector.
func (all *sessions) Connect(ctx context.Context) (driver.Conn, error) {
	attempt := &dialing{ctx: ctx}
	defer attempt.end()
	generation := all.generation.Load()
	c, err := all.Connector.Connect(context.WithValue(ctx, dialingKey{}, attempt))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConnect, err)
	}
	s := &session{conn: c.(conn), network: attempt.conn, all: all, generation: generation, prepared: map[string]cachedStmt{}}
	pq.SetNoticeHandler(c, s.notice)
	settings := interpret
	if others := all.settings.Load(); others != nil {
		settings += *others
	}
	if _, err := s.ExecContext(ctx, settings, nil); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("%w: %w", errConnect, err)
	}
	if s.timeline, err = s.askTimeline(ctx); err == nil && all.timelines.leftBehind(s.timeline, time.Now()) {
		err = errLeftBehind
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("%w: %w", errConnect, err)
	}
	all.opened(s)
	return s, nil
}

// opened notes a session that was made. Those on older timelines are given up,
// also those that wait for an answer: a leader that was cut off or suspended
// would otherwise keep them waiting for a minute, and what waits for them in
// turn.
func (all *sessions) opened(s *session) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.open == nil {
		all.open = map[*session]struct{}{}
	}
	all.open[s] = struct{}{}
	for other := range all.open {
		if 0 < other.timeline && other.timeline < s.timeline {
			_ = other.network.SetDeadline(time.Now())
		}
	}
}

func (all *sessions) closed(s *session) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.open, s)
}

// distrust gives up all sessions that were made before. A session that can't
// write may stay so when the cause has gone.
func (all *sessions) distrust() { all.generation.Add(1) }

// conn is what lib/pq's connections implement.
type conn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// session is a connection that notices what lib/pq does not tell: a commit that
// may not be replicated, and a session that can't write.
type session struct {
	conn
	network      *deadlineConn
	all          *sessions
	generation   int64
	timeline     int64                 // of its server; 0 if that is not known
	unreplicated bool                  // the server said so during the statement
	prepared     map[string]cachedStmt // by text
}

// notice hears the server's warnings. Their texts may be in any language, and a
// proxy may leave out the routine.
func (s *session) notice(n *pq.Error) {
	if n.Routine == "SyncRepWaitForLSN" || strings.Contains(n.Message, "synchronous replication") {
		s.unreplicated = true
	}
}

// callerKey is the key of the context of a caller that a statement outlives.
type callerKey struct{}

// start starts a statement. It returns an error if the caller has gone before
// anything was sent.
func (s *session) start(ctx context.Context) (release func(), err error) {
	s.unreplicated = false
	// ctx ends after so long that the server's silence is no other limit
	if caller, ok := ctx.Value(callerKey{}).(context.Context); ok {
		return func() {}, caller.Err()
	}
	return s.network.limit(ctx), nil
}

// end returns what came of a statement.
func (s *session) end(err error) error {
	var e *pq.Error
	if errors.As(err, &e) && cannotWrite(e) {
		s.all.distrust()
	}
	if s.unreplicated {
		s.unreplicated = false
		return errUnreplicated // not driver.ErrBadConn, for database/sql would run the statement again
	}
	return err
}

// IsValid implements driver.Validator.
func (s *session) IsValid() bool { return s.generation == s.all.generation.Load() && s.conn.IsValid() }

// ResetSession implements driver.SessionResetter.
func (s *session) ResetSession(ctx context.Context) error {
	if !s.IsValid() || s.all.timelines.leftBehind(s.timeline, time.Now()) {
		return driver.ErrBadConn
	}
	return s.conn.ResetSession(ctx)
}

// ExecContext implements driver.ExecerContext.
func (s *session) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	release, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	exec := s.conn.ExecContext
	if prepares(ctx, args) {
		exec = s.execPrepared
	}
	result, err := exec(ctx, query, args)
	return result, s.end(err)
}

// QueryContext implements driver.QueryerContext.
func (s *session) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	run := s.conn.QueryContext
	if prepares(ctx, args) {
		run = s.queryPrepared
	}
	return s.query(ctx, func() (driver.Rows, error) { return run(ctx, query, args) })
}

func (s *session) query(ctx context.Context, f func() (driver.Rows, error)) (driver.Rows, error) {
	release, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	found, err := f()
	if err != nil {
		release()
		return nil, s.end(err)
	}
	return &result{Rows: found, s: s, release: release}, nil
}

// Close implements driver.Conn. It waits for nobody: a server that is frozen
// does not even read that the session ends.
func (s *session) Close() error {
	s.all.closed(s)
	_ = s.network.SetDeadline(time.Now().Add(goodbye))
	return s.conn.Close()
}

// Ping implements driver.Pinger.
func (s *session) Ping(ctx context.Context) error {
	defer s.network.limit(ctx)()
	return s.conn.Ping(ctx)
}

// BeginTx implements driver.ConnBeginTx. The transaction may outlive its
// caller, but BEGIN does not.
func (s *session) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	release, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	caller, ok := ctx.Value(callerKey{}).(context.Context)
	if !ok {
		caller = ctx
	}
	defer s.network.limit(caller)()
	t, err := s.conn.BeginTx(ctx, opts)
	if err != nil {
		release()
		var e *pq.Error
		if errors.As(err, &e) && e.Code == featureNotSupported { // a standby's, for a transaction that may write
			e.Code = readOnlyTransaction
		}
		return nil, s.end(err)
	}
	return &transaction{Tx: t, s: s, caller: caller, release: release}, nil
}

// transaction is a transaction of a session.
type transaction struct {
	driver.Tx
	s       *session
	caller  context.Context
	release func()
}

// Commit implements driver.Tx.
func (t *transaction) Commit() error {
	defer t.release()
	t.s.unreplicated = false
	return t.s.end(t.Tx.Commit())
}

// Rollback implements driver.Tx. It does not outlive the caller: a connection
// that is given up is rolled back as well.
func (t *transaction) Rollback() error {
	defer t.release()
	defer t.s.network.limit(t.caller)()
	return t.s.end(t.Tx.Rollback())
}

// result is what a query found. The server tells of its commit after the last
// row.
type result struct {
	driver.Rows
	s       *session
	release func()
}

// Next implements driver.Rows.
func (r *result) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if err == nil {
		return nil
	}
	return r.s.end(err)
}

// Close implements driver.Rows.
func (r *result) Close() error {
	defer r.release()
	return r.s.end(r.Rows.Close())
}
