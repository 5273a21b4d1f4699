// Package store keeps cards in an SQL database: one set of statements for
// PostgreSQL (lib/pq) and SQLite.
//
// It may import package card, the actors whose ports it implements, and package
// batch. Its packages postgres and sqlite handle sessions and files. Times are
// stored as Unix milliseconds and amounts as integers of atomic units. After a
// crash a transaction has happened as a whole or not at all; running a
// statement outside of transactions twice is harmless. No type or error of a
// driver leaves the package. testdata/statements shows every statement as each
// database gets it.
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/batch"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store/postgres"
	"github.com/cardmint/cardmint/internal/store/sqlite"
	"github.com/cardmint/cardmint/internal/webhook"
)

// Store is an open database. It implements the Store of every actor.
type Store struct {
	w, r       *sqlx.DB // the same pool on PostgreSQL; on SQLite, one connection that writes and several that read
	corrupt    corruptRows
	dialect    dialect
	schema     Schema
	coins      map[string]card.Currency // the currencies that cards may have, by code
	pg         *postgres.Connector      // nil on SQLite
	writers    chan struct{}            // one element per connection that writes; nil for no limit
	statements struct {
		insertCard, insertCards, reserveCard withQuota
		insertRefundable, reserveRefundable  withQuota // of cards with a refund address
		cardByUUID                           *cardReader[oneCardRow]
		cardTag                              *cardReader[tagRow]
		tokenByHash                          statement
	}
	inserts            *batch.Batcher[insertion, bool]
	rollbacks          *rollbackDetector
	file               string                 // the file of SQLite and the boot of the machine; "" if unknown
	requireAttestation atomic.Bool            // see RequireAttestation
	historySQL         atomic.Pointer[string] // the expression of history that the role may use, once it is known
}

var (
	_ account.Store  = (*Store)(nil)
	_ keys.Store     = (*Store)(nil)
	_ issue.Store    = (*Store)(nil)
	_ operator.Store = (*Store)(nil)
	_ order.Store    = (*Store)(nil)
	_ settle.Store   = (*Store)(nil)
	_ webhook.Outbox = (*Store)(nil)
	_ webhook.Store  = (*Store)(nil)
)

// Open opens the database at databaseURL, "sqlite:PATH" or "postgres://...",
// with at most conns connections. coins are the currencies that its cards may
// have. Open does not migrate: the error is ErrNoSchema, ErrOlderSchema or
// ErrNewerSchema if this program can't use the schema that it finds. A
// statement is prepared when a connection first uses it; after that it costs
// one round trip. The caller must close the store.
func Open(ctx context.Context, databaseURL string, conns int, coins []card.Currency) (*Store, error) {
	return open(ctx, databaseURL, conns, txTimeout, coins)
}

func open(ctx context.Context, databaseURL string, conns int, timeout time.Duration,
	coins []card.Currency) (*Store, error) {
	s, err := connect(databaseURL, conns, timeout)
	if err != nil {
		return nil, err
	}
	if err := s.ready(ctx, databaseURL, coins); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// ready prepares the store for statements, if the program can use the database.
func (s *Store) ready(ctx context.Context, databaseURL string, coins []card.Currency) error {
	s.rollbacks = &rollbackDetector{}
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		s.file = sqlite.FileID(path)
	}
	s.coins = make(map[string]card.Currency, len(coins))
	for _, c := range coins {
		s.coins[c.Code] = c
	}
	if err := s.checkPooler(ctx); err != nil {
		return err
	}
	if err := s.checkSchema(ctx, databaseURL); err != nil {
		return err
	}
	s.buildStatements()
	s.inserts = s.newInsertBatcher()
	return nil
}

// connect opens a database. No statement may take more than timeout.
func connect(databaseURL string, conns int, timeout time.Duration) (*Store, error) {
	scheme, rest, _ := strings.Cut(databaseURL, ":")
	switch scheme {
	case "sqlite":
		if rest == "" {
			return nil, errors.New("database url: sqlite: names no file")
		}
		w, r, err := sqlite.Open(rest, conns)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", rest, err)
		}
		return &Store{w: w, r: r, dialect: sqliteDialect}, nil
	case "postgres", "postgresql":
		pg, err := postgres.NewConnector(databaseURL, timeout)
		if err != nil {
			return nil, err
		}
		db := pg.Open(conns)
		writers := max(1, conns-max(1, conns/8)) // leaves connections to readers while commits wait for a standby
		return &Store{w: db, r: db, dialect: postgresDialect, pg: pg, writers: make(chan struct{}, writers)}, nil
	}
	// never quote the URL: it may contain a password
	return nil, errors.New("database url: must be sqlite:PATH or postgres://...")
}

// IsServer reports whether a database is on a server, which may not be
// reachable yet.
func IsServer(databaseURL string) bool {
	scheme, _, _ := strings.Cut(databaseURL, ":")
	return scheme == "postgres" || scheme == "postgresql"
}

// UnverifiedHosts returns the hosts, by name or address, that a database is
// reached at by TCP without verifying the server's certificate. A SQLite
// database has none.
func UnverifiedHosts(databaseURL string) ([]string, error) {
	if !IsServer(databaseURL) {
		return nil, nil
	}
	return postgres.UnverifiedHosts(databaseURL)
}

// Errors that only a change to a pooler's configuration ends.
var (
	ErrPoolMode       = postgres.ErrPoolMode
	ErrPoolParameters = postgres.ErrPoolParameters
)

// checkPooler returns ErrPoolMode if a pooler shares sessions among its
// clients.
func (s *Store) checkPooler(ctx context.Context) error {
	if s.pg == nil {
		return nil
	}
	err := s.pg.CheckPooler(ctx, s.r)
	if errors.Is(err, ErrPoolMode) {
		return ErrPoolMode
	}
	return s.fail("check for a pooler", err)
}

// Close closes every connection.
func (s *Store) Close() error {
	if s.r != s.w {
		_ = s.r.Close()
	}
	return s.w.Close()
}

// buildStatements builds the statements with long texts once.
func (s *Store) buildStatements() {
	d := s.dialect
	write := func(query func(limited bool) string) withQuota {
		return withQuota{newStatement(s.w, query(false)), newStatement(s.w, query(true))}
	}
	st := &s.statements
	st.cardByUUID = newCardReader[oneCardRow](s, selectBaseCard, d.selectFullCard())
	st.cardTag = newCardReader[tagRow](s, selectBaseTag, d.selectFullTag())
	st.tokenByHash = newStatement(s.r, selectTokens+" WHERE t.hash = ?")
	st.insertCard = write(func(limited bool) string { return d.insertCard(limited, "") })
	st.insertRefundable = write(func(limited bool) string { return d.insertCard(limited, exceptServiceAddress) })
	if d.arrays {
		cards := d.batchTable()
		st.insertCards = write(func(limited bool) string { return d.insertCards(limited, cards) })
		st.reserveCard = write(func(limited bool) string { return d.reserveCard(limited, "") })
		st.reserveRefundable = write(func(limited bool) string { return d.reserveCard(limited, exceptServiceAddress) })
	}
}

// SingleWriter reports whether only one connection of a process can write. A
// second pool would only compete for it.
func (s *Store) SingleWriter() bool { return s.w != s.r }
