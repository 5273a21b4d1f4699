package postgres

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
	"github.com/lib/pq/pqerror"
)

// disableJIT disables PostgreSQL's compiler. It compiles statements with a high
// estimated cost, such as an INSERT of a thousand cards of accounts with many
// open ones, and compiling takes longer than running any of these statements.
// It is no startup parameter, because every PgBouncer that is not configured
// for it would reject it.
const disableJIT = "SET SESSION jit = off;"

// Connector opens sessions. It implements driver.Connector.
type Connector struct {
	*pq.Connector
	// StatementLifetime is how long a session keeps a statement prepared.
	StatementLifetime time.Duration

	runtime    map[string]string      // the startup parameters
	settings   atomic.Pointer[string] // the same as statements, if a pooler drops startup parameters
	generation atomic.Int64           // sessions of earlier generations are closed
	timelines  timelines

	mu   sync.Mutex
	open map[*session]struct{}
}

// Connect implements driver.Connector.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	s, err := c.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConnect, err)
	}
	return s, nil
}

func (c *Connector) connect(ctx context.Context) (*session, error) {
	attempt := &dialAttempt{ctx: ctx}
	defer attempt.end()
	generation := c.generation.Load()
	connected, err := c.Connector.Connect(context.WithValue(ctx, dialAttemptKey{}, attempt))
	if err != nil {
		return nil, err
	}
	s := &session{conn: connected.(conn), network: attempt.conn, connector: c, generation: generation,
		prepared: map[string]cachedStmt{}}
	pq.SetNoticeHandler(connected, s.handleNotice)
	if err := s.initialize(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	c.add(s)
	return s, nil
}

// add registers a new session, and closes those on older timelines. Otherwise a
// primary that was cut off or suspended would keep their callers waiting for a
// minute.
func (c *Connector) add(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*session]struct{}{}
	}
	c.open[s] = struct{}{}
	for other := range c.open {
		if 0 < other.timeline && other.timeline < s.timeline {
			_ = other.network.SetDeadline(time.Now())
		}
	}
}

func (c *Connector) remove(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, s)
}

// replaceSessions closes all present sessions once they are idle. A session
// that can't write may stay so after the server has recovered.
func (c *Connector) replaceSessions() { c.generation.Add(1) }

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

// session is a connection that detects what lib/pq ignores: a commit that may
// not be replicated, and a session that can't write.
type session struct {
	conn
	network      *deadlineConn
	connector    *Connector
	generation   int64
	timeline     int64                 // of its server; 0 if it is not known
	unreplicated bool                  // the server warned during the statement
	prepared     map[string]cachedStmt // by text
}

func (s *session) initialize(ctx context.Context) error {
	settings := disableJIT
	if startup := s.connector.settings.Load(); startup != nil {
		settings += *startup
	}
	if _, err := s.ExecContext(ctx, settings, nil); err != nil {
		return err
	}
	var err error
	if s.timeline, err = s.readTimeline(ctx); err != nil {
		return err
	}
	if s.connector.timelines.isObsolete(s.timeline, time.Now()) {
		return errObsolete
	}
	return nil
}

// handleNotice handles the server's warnings. Their texts may be in any
// language, and a proxy may leave out the routine.
func (s *session) handleNotice(n *pq.Error) {
	if n.Routine == "SyncRepWaitForLSN" || strings.Contains(n.Message, "synchronous replication") {
		s.unreplicated = true
	}
}

type callerKey struct{}

// WithCaller returns a context for a statement that continues after its
// caller's context has ended. If that ends before the statement is sent, the
// statement fails with its error. ctx must have a deadline.
func WithCaller(ctx, caller context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// start prepares for a statement. It returns an error if its caller's context
// has ended before anything was sent.
func (s *session) start(ctx context.Context) (release func(), err error) {
	s.unreplicated = false
	if caller, ok := ctx.Value(callerKey{}).(context.Context); ok {
		return func() {}, caller.Err() // ctx has a later deadline than the network
	}
	return s.network.limit(ctx), nil
}

// end returns the error of a statement.
func (s *session) end(err error) error {
	if cannotWrite(err) {
		s.connector.replaceSessions()
	}
	if s.unreplicated {
		s.unreplicated = false
		return ErrUnreplicated // not driver.ErrBadConn: database/sql would repeat the statement
	}
	return err
}

// IsValid implements driver.Validator.
func (s *session) IsValid() bool {
	return s.generation == s.connector.generation.Load() && s.conn.IsValid()
}

// ResetSession implements driver.SessionResetter.
func (s *session) ResetSession(ctx context.Context) error {
	if !s.IsValid() || s.connector.timelines.isObsolete(s.timeline, time.Now()) {
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
	if Prepares(ctx, args) {
		exec = s.execPrepared
	}
	result, err := exec(ctx, query, args)
	return result, s.end(err)
}

// QueryContext implements driver.QueryerContext.
func (s *session) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	release, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	run := s.conn.QueryContext
	if Prepares(ctx, args) {
		run = s.queryPrepared
	}
	found, err := run(ctx, query, args)
	if err != nil {
		release()
		return nil, s.end(err)
	}
	return &rows{Rows: found, s: s, release: release}, nil
}

// Close implements driver.Conn. It does not wait: a server that is frozen does
// not read the message that ends the session.
func (s *session) Close() error {
	s.connector.remove(s)
	_ = s.network.SetDeadline(time.Now().Add(closeTimeout))
	return s.conn.Close()
}

// Ping implements driver.Pinger.
func (s *session) Ping(ctx context.Context) error {
	defer s.network.limit(ctx)()
	return s.conn.Ping(ctx)
}

// BeginTx implements driver.ConnBeginTx. COMMIT may continue after the caller's
// context has ended (WithCaller), but BEGIN does not.
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
		if e, is := errors.AsType[*pq.Error](err); is && e.Code == pqerror.FeatureNotSupported {
			e.Code = pqerror.ReadOnlySQLTransaction // from a standby, for a transaction that may write
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

// Rollback implements driver.Tx. It ends with the caller's context: the server
// also rolls back when the connection is closed.
func (t *transaction) Rollback() error {
	defer t.release()
	defer t.s.network.limit(t.caller)()
	return t.s.end(t.Tx.Rollback())
}

// rows are the rows of a query. The server reports its commit after the last
// one.
type rows struct {
	driver.Rows
	s       *session
	release func()
}

// Next implements driver.Rows.
func (r *rows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if err == nil {
		return nil
	}
	return r.s.end(err)
}

// Close implements driver.Rows.
func (r *rows) Close() error {
	defer r.release()
	return r.s.end(r.Rows.Close())
}
