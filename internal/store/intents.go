package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

// insertIntents inserts the intents of cards. An existing intent stays.
func (t *tx) insertIntents(ctx context.Context, cards []uuid.UUID) error {
	return insertAll(ctx, t, "insert intents", "intents (card_uuid, due_at)", []string{t.s.dialect.uuidType},
		"column1, 0", "ON CONFLICT (card_uuid) DO NOTHING",
		cards, func(id uuid.UUID) []any { return []any{id} })
}

// fairWindow is how many due intents the accounts take turns among.
const fairWindow = 2048

// unlimited is a LIMIT that separates a subquery, so that PostgreSQL reads
// intents in index order until it has enough whose card can be issued. Without
// it, PostgreSQL expects few such cards, and reads and sorts the cards of all
// due intents.
const unlimited = "9223372036854775807"

// stillOpen is the condition that an intent that was found by its uuid is open
// or pending. As a CASE it matches no index. Otherwise PostgreSQL would read
// the index of due intents in full, perhaps for each uuid, if its statistics
// show few due.
const stillOpen = "CASE WHEN intents.state IN ('open', 'pending') THEN TRUE ELSE FALSE END"

// foreignClaimDelay is how long an intent must be due before a process without
// its supplier may claim it. It is longer than any attempt, so that processes
// with the supplier come first while programs with different suppliers run side
// by side.
const foreignClaimDelay = 10 * time.Minute

// claimRow is an intent as its claim returns it.
type claimRow struct {
	CardUUID     uuid.UUID      `db:"card_uuid"`
	State        issue.State    `db:"state"`
	Supplier     string         `db:"supplier"`
	Key          string         `db:"key"`
	Reference    string         `db:"reference"`
	FirstAskedAt int64          `db:"first_asked_at"`
	OpenedAt     int64          `db:"opened_at"`
	DecidedAt    sql.NullInt64  `db:"decided_at"`
	DueAt        int64          `db:"due_at"`
	Answer       sql.NullString `db:"answer"`
	Refusals     sql.NullString `db:"refusals"`
	Declines     int            `db:"declines"`
	Attempts     int            `db:"attempts"`
	Fence        int64          `db:"fence"`
}

// ClaimIntents implements issue.Store. Each claim changes the fence; a claim
// whose reply is lost expires after its ttl. The statement accepts any numbers
// in a row: otherwise one corrupt intent would block all claims.
func (s *Store) ClaimIntents(ctx context.Context, claim issue.Claim, n int, ttl time.Duration) ([]issue.Intent, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	attested := "TRUE"
	if s.requireAttestation.Load() {
		var err error
		if attested, err = s.attested(ctx); err != nil {
			return nil, err
		}
	}
	now := "(SELECT " + s.dialect.now + ")" // once for the statement, so that an index can be searched by it
	known, names, ours, shares := sharesOf(claim, now)
	due := "q.state IN ('open', 'pending') AND q.due_at <= " + now
	stillDue := "CASE WHEN q.state IN ('open', 'pending') THEN q.due_at <= " + now + " ELSE FALSE END" // see stillOpen
	args := slices.Concat([]any{ttl.Milliseconds()}, names, []any{claim.Supplier}, shares,
		[]any{claim.Supplier, fairWindow, n})
	var found []claimRow
	// An earlier claim without an answer was interrupted: its answer is
	// unknown.
	err := s.list(ctx, s.w, &found, "claim intents", `UPDATE intents SET fence = CASE WHEN fence < 9223372036854775807 THEN fence + 1 ELSE 1 END,
		attempts = CASE WHEN attempts BETWEEN 0 AND 1000000000 THEN attempts + 1 ELSE 1 END, due_at = `+now+` + ?,
		supplier = CASE WHEN supplier IS NULL OR first_asked_at IS NULL AND answer IS NULL AND supplier NOT IN (`+known+`) THEN CAST(? AS TEXT) ELSE supplier END,
		key = COALESCE(key, CAST(card_uuid AS TEXT)), first_asked_at = COALESCE(first_asked_at, `+now+`), opened_at = COALESCE(opened_at, `+now+`),
		answer = CASE WHEN first_asked_at IS NULL THEN answer ELSE COALESCE(answer, 'unknown') END
		WHERE card_uuid IN (SELECT q.card_uuid FROM intents q WHERE q.card_uuid IN (SELECT y.card_uuid FROM (
				SELECT x.card_uuid, x.due_at, ROW_NUMBER() OVER (PARTITION BY x.account_id ORDER BY x.due_at, x.card_uuid) AS turn FROM (
					SELECT w.card_uuid, w.due_at, w.account_id FROM (
						SELECT q.card_uuid, q.due_at, (SELECT c.account_id FROM cards c
							WHERE c.uuid = q.card_uuid AND c.payment_state = 'paid' AND `+attested+` AND `+ours+` = CAST(? AS TEXT)
								AND NOT EXISTS (SELECT 1 FROM address_pools p WHERE p.currency = c.currency AND (p.conflict IS NOT NULL OR p.issue_after > `+now+`))
						) AS account_id FROM intents q WHERE `+due+` ORDER BY q.due_at, q.card_uuid LIMIT `+unlimited+`) w
					WHERE w.account_id IS NOT NULL ORDER BY w.due_at, w.card_uuid LIMIT ?) x) y
			ORDER BY y.turn, y.due_at, y.card_uuid LIMIT ?) AND `+stillDue+s.dialect.skipLocked+`)
		RETURNING card_uuid, state, supplier, key, COALESCE(reference, '') AS reference, first_asked_at, opened_at, decided_at, due_at, answer, refusals,
			declines, attempts, fence`, args...)
	intents := make([]issue.Intent, len(found))
	for i, f := range found {
		intents[i] = issue.Intent{CardUUID: f.CardUUID, State: f.State, Supplier: f.Supplier, Key: f.Key,
			Reference:    f.Reference,
			FirstAskedAt: fromMillis(f.FirstAskedAt), OpenedAt: fromMillis(f.OpenedAt),
			ClaimedAt: fromMillis(f.DueAt - ttl.Milliseconds()),
			Asked:     f.Answer.Valid, Answer: outcome(f.Answer.String), Declines: f.Declines, Attempts: f.Attempts,
			Fence: f.Fence}
		if f.DecidedAt.Valid {
			intents[i].DecidedAt = fromMillis(f.DecidedAt.Int64)
		}
		if f.Refusals.Valid && json.Unmarshal([]byte(f.Refusals.String), &intents[i].Refusals) != nil {
			intents[i].Refusals = nil // all suppliers are asked again
		}
	}
	return intents, err
}

// sharesOf returns the names of all suppliers, and an expression for the
// supplier of card c with intent q, each with its arguments.
func sharesOf(claim issue.Claim, now string) (known string, names []any, supplier string, args []any) {
	for _, x := range claim.Shares {
		names = append(names, x.Supplier)
	}
	known = strings.TrimSuffix(strings.Repeat("?, ", len(names)), ", ")
	var by strings.Builder
	args = append(slices.Clone(names), foreignClaimDelay.Milliseconds())
	for _, x := range claim.Shares {
		by.WriteString(" WHEN q.supplier IS NULL AND c.usd_cents BETWEEN ? AND ? THEN CAST(? AS TEXT)")
		args = append(args, int64(x.Min), int64(x.Max), x.Supplier)
	}
	return known, names, "CASE WHEN q.supplier IN (" + known + `) THEN q.supplier
		WHEN q.supplier IS NOT NULL AND q.first_asked_at IS NOT NULL AND q.due_at > ` + now + ` - ? THEN ''` + by.String() +
		" ELSE CAST(? AS TEXT) END", append(args, names[0])
}

// ProlongIntents implements issue.Store.
func (s *Store) ProlongIntents(ctx context.Context, intents []issue.Intent, ttl time.Duration) error {
	return inChunks(intents, func(some []issue.Intent) error {
		values := make([][]any, len(some))
		for i, n := range some {
			values[i] = []any{n.CardUUID, n.Fence}
		}
		table, args := s.dialect.table(values, s.dialect.uuidType, "BIGINT")
		_, err := s.exec(ctx, s.w, "prolong claims", "UPDATE intents SET due_at = "+s.dialect.now+" + ? FROM "+table+
			" WHERE intents.card_uuid = v.column1 AND intents.fence = v.column2 AND "+stillOpen,
			append([]any{ttl.Milliseconds()}, args...)...)
		return err
	})
}

// ExpediteIntents implements issue.Store. A claimed intent may be claimed
// again: it is then looked up twice and stored once. For the CASE see
// stillOpen.
func (s *Store) ExpediteIntents(ctx context.Context, supplier string, cards []uuid.UUID) error {
	return inChunks(cards, func(some []uuid.UUID) error {
		query, args, err := sqlx.In("UPDATE intents SET due_at = "+s.dialect.now+
			" WHERE card_uuid IN (?) AND supplier = ? AND CASE state WHEN 'pending' THEN TRUE ELSE FALSE END", some, supplier)
		if err != nil {
			return err
		}
		_, err = s.exec(ctx, s.w, "expedite intents", query, args...)
		return err
	})
}

// outcome returns the outcome that is stored as text.
func outcome(text string) issue.Outcome {
	for _, o := range []issue.Outcome{issue.Issued, issue.Pending, issue.Declined} {
		if text == o.String() {
			return o
		}
	}
	return issue.Unknown
}

// SaveIntents implements issue.Store.
func (s *Store) SaveIntents(ctx context.Context, intents []issue.Intent) error {
	_, err := s.saveIntents(ctx, s.w, intents)
	return err
}

// SaveIntents implements issue.Tx.
func (t *tx) SaveIntents(ctx context.Context, intents []issue.Intent) error {
	n, err := t.s.saveIntents(ctx, t.t, intents)
	if err == nil && n != int64(len(intents)) {
		err = card.ErrFenced
	}
	return err
}

// saveIntents returns for how many intents the claim was still valid.
func (s *Store) saveIntents(ctx context.Context, on runner, intents []issue.Intent) (saved int64, err error) {
	err = inChunks(intents, func(some []issue.Intent) error {
		values := make([][]any, len(some))
		for i, n := range some {
			asked, answer, refusals := any(nil), any(nil), any(nil)
			if !n.FirstAskedAt.IsZero() {
				asked = n.FirstAskedAt.UnixMilli()
			}
			if n.Asked {
				answer = n.Answer.String()
			}
			if len(n.Refusals) > 0 {
				text, err := json.Marshal(n.Refusals)
				if err != nil {
					return err
				}
				refusals = string(text)
			}
			values[i] = []any{n.CardUUID, n.Fence, string(n.State), orNull(n.Reference), asked, answer, orNull(n.Reason),
				n.Wait.Milliseconds(),
				orNull(n.Supplier), refusals, int64(n.Declines)}
		}
		table, args := s.dialect.table(values, s.dialect.uuidType, "BIGINT", "TEXT", "TEXT", "BIGINT", "TEXT", "TEXT",
			"BIGINT", "TEXT", "TEXT", "BIGINT")
		n, err := s.exec(ctx, on, "save intents", `UPDATE intents SET state = v.column3, reference = v.column4, first_asked_at = v.column5,
			answer = v.column6, reason = v.column7, due_at = `+s.dialect.now+` + v.column8, supplier = v.column9, refusals = v.column10, declines = v.column11
			FROM `+table+` WHERE intents.card_uuid = v.column1 AND intents.fence = v.column2 AND `+stillOpen, args...)
		saved += n
		return err
	})
	return saved, err
}

// orNull returns nil for an empty string.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// SaveIssued implements issue.Tx.
func (t *tx) SaveIssued(ctx context.Context, cards []issue.IssuedCard) error {
	finished := int64(0)
	err := inChunks(cards, func(some []issue.IssuedCard) error {
		values := make([][]any, len(some))
		for i, c := range some {
			values[i] = []any{c.Intent.CardUUID, c.Intent.Fence, c.NumberHash, orNull(c.Intent.Reference)}
		}
		table, args := t.s.dialect.table(values, t.s.dialect.uuidType, "BIGINT", t.s.dialect.bytes, "TEXT")
		n, err := t.s.exec(ctx, t.t, "finish intents", `UPDATE intents SET state = 'done', answer = 'issued', reason = NULL, card_number_hash = v.column3,
			reference = v.column4 FROM `+table+` WHERE intents.card_uuid = v.column1 AND intents.fence = v.column2
			AND `+stillOpen, args...)
		finished += n
		return err
	})
	if err != nil {
		return err
	}
	if finished != int64(len(cards)) {
		return card.ErrFenced
	}
	sealed := t.s.dialect.bytes
	err = insertAll(ctx, t, "insert credentials",
		"credentials (card_uuid, card_number, expiration_date, security_code, url, url_password, last_four, issued_at)",
		[]string{t.s.dialect.uuidType, sealed, sealed, sealed, sealed, sealed, "TEXT"}, "v.*, "+t.s.dialect.now, "", cards,
		func(c issue.IssuedCard) []any {
			return []any{c.Intent.CardUUID, c.Sealed.CardNumber, c.Sealed.ExpirationDate, c.Sealed.SecurityCode, c.Sealed.URL,
				c.Sealed.URLPassword,
				nullString(c.Sealed.LastFour)}
		})
	if err != nil {
		return err
	}
	return inChunks(cards, func(some []issue.IssuedCard) error {
		ids := make([]uuid.UUID, len(some))
		for i, c := range some {
			ids[i] = c.Intent.CardUUID
		}
		these, args := in(t.s.dialect, "uuid", t.s.dialect.uuidType, ids)
		_, err := t.s.exec(ctx, t.t, "update cards", "UPDATE cards SET status = ? WHERE "+these,
			append([]any{card.Generated}, args...)...)
		return err
	})
}

// ReopenIntent implements operator.Tx. A parked intent is looked up before it
// is submitted again. It is submitted only while the supplier keeps its key, or
// after an operator was prompted to check. After a refusal by all suppliers,
// all are asked again.
func (t *tx) ReopenIntent(ctx context.Context, id uuid.UUID) error {
	_, err := t.s.exec(ctx, t.t, "reopen intent", `UPDATE intents SET state = 'open', due_at = 0, refusals = NULL, opened_at = NULL,
		first_asked_at = CASE state WHEN 'refund_due' THEN NULL ELSE first_asked_at END,
		supplier = CASE state WHEN 'refund_due' THEN NULL ELSE supplier END, reference = CASE state WHEN 'refund_due' THEN NULL ELSE reference END
		WHERE card_uuid = ? AND state IN ('parked', 'refund_due')`, id)
	return err
}
