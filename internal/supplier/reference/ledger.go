package reference

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/cardmint/cardmint/internal/card"
)

// Kinds of entries.
const (
	Asked    = "asked"     // requestCard, each time
	LookedUp = "looked up" // getCard, each time
	Made     = "made"      // a card was issued
	Declined = "declined"  // a new key; Detail is the reason
	Cancel   = "cancel"    // cancelCard, each time; Detail is the resulting state
	Forgot   = "forgot"    // a key, after Config.ForgetAfter
)

// Entry is one line of the ledger.
type Entry struct {
	ID     int64     `json:"id"`
	At     time.Time `json:"at"`
	What   string    `json:"what"`
	Key    string    `json:"key"`
	USD    card.USD  `json:"usd"`
	Number string    `json:"number,omitempty"` // of the card, if one was issued; masked except for the last four digits
	Detail string    `json:"detail,omitempty"`
}

const schema = `
CREATE TABLE IF NOT EXISTS requests (
	key        TEXT PRIMARY KEY,
	usd        INTEGER NOT NULL, -- cents; 0 if it was canceled before it came
	state      TEXT NOT NULL,
	reason     TEXT NOT NULL DEFAULT '',
	temporary  INTEGER NOT NULL DEFAULT 0,
	asked_at   INTEGER NOT NULL, -- Unix milliseconds
	due_at     INTEGER NOT NULL DEFAULT 0, -- of a pending card
	calls_left INTEGER NOT NULL DEFAULT 0, -- attempts to send its callback
	serial     INTEGER NOT NULL, -- how many cards were made for the key before it was forgotten
	number     TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS ledger (
	id     INTEGER PRIMARY KEY AUTOINCREMENT,
	at     INTEGER NOT NULL,
	what   TEXT NOT NULL,
	key    TEXT NOT NULL,
	usd    INTEGER NOT NULL,
	number TEXT NOT NULL,
	detail TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS ledger_key ON ledger (key);
CREATE TRIGGER IF NOT EXISTS ledger_no_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER IF NOT EXISTS ledger_no_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
`

// open opens or creates the file.
func open(file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn(file, "_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // serializes requests for the same key
	if _, err := db.Exec(schema); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("open %s: %w", file, err)
	}
	return db, nil
}

func dsn(file, params string) string {
	return "file:" + (&url.URL{Path: file}).EscapedPath() + "?_pragma=busy_timeout(5000)&" + params
}

// ReadLedger reads the ledger in a file, even while a server uses it. Card
// numbers are masked.
func ReadLedger(ctx context.Context, file string) ([]Entry, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn(file, "_pragma=query_only(1)"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	return entries(ctx, db)
}

func entries(ctx context.Context, db *sql.DB) ([]Entry, error) {
	rows, err := db.QueryContext(ctx, "SELECT id, at, what, key, usd, number, detail FROM ledger ORDER BY id")
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	defer func() { _ = rows.Close() }()
	all := []Entry{}
	for rows.Next() {
		var e Entry
		var at int64
		if err := rows.Scan(&e.ID, &at, &e.What, &e.Key, &e.USD, &e.Number, &e.Detail); err != nil {
			return nil, fmt.Errorf("read ledger: %w", err)
		}
		if e.At = time.UnixMilli(at).UTC(); e.Number != "" {
			e.Number = "..." + e.Number[max(0, len(e.Number)-4):]
		}
		all = append(all, e)
	}
	return all, rows.Err()
}

// request is the stored request of a key.
type request struct {
	key       string
	usd       card.USD
	state     AnswerStatus
	reason    DeclineReason
	temporary bool
	askedAt   time.Time
	dueAt     time.Time
	callsLeft int
	serial    int
	number    string
}

var errUnknownKey = &fault{404, ProblemCodeUnknownKey, "No request has this key."}

// book is a transaction.
type book struct {
	*sql.Tx
	now time.Time
}

// write runs f in a transaction.
func (s *Server) write(ctx context.Context, f func(b book) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := f(book{tx, s.cfg.Now()}); err != nil {
		return err
	}
	return tx.Commit()
}

func (b book) enter(what string, r request, detail string) error {
	number := ""
	if what == Made {
		number = r.number
	}
	_, err := b.Exec("INSERT INTO ledger (at, what, key, usd, number, detail) VALUES (?, ?, ?, ?, ?, ?)",
		b.now.UnixMilli(), what, r.key, r.usd, number, detail)
	return err
}

const columns = "key, usd, state, reason, temporary, asked_at, due_at, calls_left, serial, number"

func (b book) save(r request) error {
	_, err := b.Exec("INSERT OR REPLACE INTO requests ("+columns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", r.key, r.usd,
		r.state, r.reason, r.temporary,
		r.askedAt.UnixMilli(), r.dueAt.UnixMilli(), r.callsLeft, r.serial, r.number)
	return err
}

func scan(row interface{ Scan(...any) error }) (r request, err error) {
	var asked, due int64
	err = row.Scan(&r.key, &r.usd, &r.state, &r.reason, &r.temporary, &asked, &due, &r.callsLeft, &r.serial, &r.number)
	r.askedAt, r.dueAt = time.UnixMilli(asked), time.UnixMilli(due)
	return r, err
}

// find returns the current state of a request, or errUnknownKey. It deletes the
// request if it is older than forgetAfter, and issues its card if that is due.
func (b book) find(key string, forgetAfter time.Duration) (request, error) {
	r, err := scan(b.QueryRow("SELECT "+columns+" FROM requests WHERE key = ?", key))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return request{}, errUnknownKey
	case err != nil:
		return request{}, err
	case forgetAfter > 0 && b.now.Sub(r.askedAt) >= forgetAfter:
		if _, err := b.Exec("DELETE FROM requests WHERE key = ?", key); err != nil {
			return request{}, err
		}
		if err := b.enter(Forgot, r, ""); err != nil {
			return request{}, err
		}
		return request{}, errUnknownKey
	case r.state == AnswerStatusPending && !b.now.Before(r.dueAt):
		return b.make(r, "")
	}
	return r, nil
}

// make issues the card of a request, with the given number unless that is "".
func (b book) make(r request, number string) (request, error) {
	r.state, r.number = AnswerStatusIssued, number
	if number == "" {
		r.number = r.card().CardNumber.Reveal()
	}
	return r, errors.Join(b.save(r), b.enter(Made, r, ""))
}

// uncalled returns the keys of due cards without a callback.
func (b book) uncalled() (keys []string, err error) {
	rows, err := b.Query("SELECT key FROM requests WHERE calls_left > 0 AND due_at <= ? ORDER BY due_at LIMIT 100",
		b.now.UnixMilli())
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, rows.Err()
}

// count returns the number of issued cards that match a condition.
func (b book) count(where string, args ...any) (n int, err error) {
	err = b.QueryRow("SELECT COUNT(*) FROM ledger WHERE what = '"+Made+"' AND "+where, args...).Scan(&n)
	return n, err
}

// latest returns the number and key of the last card that was issued for
// another key, or "".
func (b book) latest(key string) (number, other string, err error) {
	err = b.QueryRow("SELECT number, key FROM ledger WHERE what = ? AND key <> ? ORDER BY id DESC LIMIT 1", Made,
		key).Scan(&number, &other)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return number, other, err
}
