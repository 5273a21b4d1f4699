package store

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// someDoubts limits how many discrepancies of one kind are returned.
const someDoubts = 20

// doubtsOfCard are conditions that no card c meets in correct books. They are
// checked for every card that is read, so each may cost only a few index
// lookups: PostgreSQL turns EXISTS and joins into scans of whole tables, but
// not scalar subqueries.
func doubtsOfCard() []doubtOfCard {
	const credentials = "(SELECT s.card_uuid FROM credentials s WHERE s.card_uuid = c.uuid)"
	const intent = "(SELECT i.state FROM intents i WHERE i.card_uuid = c.uuid)"
	return []doubtOfCard{
		{"its received amount does not match its transfers", notSum("c.received", `SELECT t.amount FROM transfers t
			WHERE t.currency = c.currency AND t.address = c.address AND t.counted AND `+notAttributed+` UNION ALL
			SELECT t.amount FROM transfers t JOIN `+attributionOf+" WHERE a.card_uuid = c.uuid AND t.counted")},
		{"its credits do not add up to its received amount",
			notSum("c.received",
				"SELECT c.credit_paid AS amount UNION ALL SELECT c.credit_held UNION ALL SELECT c.credit_surplus UNION ALL SELECT c.credit_refunded")},
		{"its refunded amount does not match its resolutions",
			notSum("c.refunded", "SELECT r.amount FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund'")},
		{"its written-off amount does not match its resolutions",
			notSum("c.written_off", "SELECT r.amount FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'write_off'")},
		{"it is issued, but has no credentials",
			"c.status = 'generated' AND c.credentials_purged_at IS NULL AND " + credentials + " IS NULL"},
		{"it has credentials, but is not issued", "c.status <> 'generated' AND " + credentials + " IS NOT NULL"},
		{"its credentials were purged, but it has some",
			"c.credentials_purged_at IS NOT NULL AND " + credentials + " IS NOT NULL"},
		{"it is issued, but its intent is not done", "c.status = 'generated' AND COALESCE(" + intent + ", '') <> 'done'"},
		{"its intent is done, but it is not issued", "c.status <> 'generated' AND " + intent + " = 'done'"},
		{"it is paid, but has no intent", "c.payment_state = 'paid' AND " + intent + " IS NULL"},
		{card.ErrCorrupt.Error() + ": a number is out of range", hasImpossibleNumber()},
	}
}

type doubtOfCard struct{ text, condition string }

const corruptCardText = ": this version does not know its currency or its payment's state"

// doubts are the discrepancies of a reading.
type doubts struct {
	cards  map[string]map[uuid.UUID]bool // by text
	others []operator.Discrepancy
}

func newDoubts() doubts { return doubts{cards: map[string]map[uuid.UUID]bool{}} }

func (d *doubts) add(text string, id uuid.UUID) {
	if d.cards[text] == nil {
		d.cards[text] = map[uuid.UUID]bool{}
	}
	d.cards[text][id] = true
}

// ids returns the cards to check again.
func (d *doubts) ids() []uuid.UUID {
	all := map[uuid.UUID]bool{}
	for _, some := range d.cards {
		maps.Copy(all, some)
	}
	return sorted(all)
}

func sorted(ids map[uuid.UUID]bool) []uuid.UUID {
	return slices.SortedFunc(maps.Keys(ids), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
}

// all returns the discrepancies, up to a limit of each kind.
func (d *doubts) all() (all []operator.Discrepancy) {
	add := func(text string) {
		ids := sorted(d.cards[text])
		for _, id := range ids[:min(len(ids), someDoubts)] {
			all = append(all, operator.Discrepancy{ID: id, Text: text})
		}
	}
	for _, of := range doubtsOfCard() {
		add(of.text)
	}
	add(card.ErrCorrupt.Error() + corruptCardText)
	return append(all, d.others...)
}

// earlier is a mark, along with the numbers of doubts. It is on a recent card
// whose address received money on a stored day: the transfers had no card then.
// No trigger records the insertion of a recent card, because that would cost a
// search.
const earlier = "e"

// doubtPiece checks the cards of a day in a range.
func (r *reading) doubtPiece(ctx context.Context, day int64, from, end uuid.UUID) error {
	early, bound := "FALSE", []any(nil)
	if day >= r.young && r.young > 0 {
		early = "(SELECT COUNT(*) FROM transfers t WHERE t.currency = c.currency AND t.address = c.address AND t.first_seen_at < ?) > 0"
		bound = append(bound, seenFrom(r.young))
	}
	ids, err := r.doubt(ctx, early, bound, "c.uuid >= ? AND c.uuid < ?", from, end)
	for _, id := range ids {
		var times []int64
		if err == nil {
			err = r.list(ctx, &times, "select earlier transfers",
				"SELECT t.first_seen_at FROM cards c JOIN transfers t ON t.currency = c.currency AND t.address = c.address WHERE c.uuid = ?", id)
		}
		for _, at := range times {
			r.noteDay(dayID{ofTransfers, dayAt(at)})
		}
	}
	return err
}

// doubtCards checks cards of earlier days that changed or were doubted.
func (r *reading) doubtCards(ctx context.Context) error {
	return inChunks(sorted(r.notes.cards), func(some []uuid.UUID) error {
		_, err := r.doubt(ctx, "FALSE", nil, "c.uuid IN ("+rows("?", len(some))+")", anyOf(some)...)
		return err
	})
}

// doubt checks the cards that match where, and returns the cards that meet
// early.
func (r *reading) doubt(ctx context.Context, early string, bound []any, where string, args ...any) (found []uuid.UUID,
	err error) {
	all := doubtsOfCard()
	var columns []string
	for i, d := range all {
		columns = append(columns, fmt.Sprintf("CASE WHEN %s THEN '%d ' ELSE '' END", d.condition, i))
	}
	corrupt, known, err := sqlx.In("c.currency NOT IN (?) OR c.payment_state NOT IN (?)",
		slices.Collect(maps.Keys(r.t.s.coins)), card.PaymentStates())
	if err != nil {
		return nil, err
	}
	columns = append(columns, fmt.Sprintf("CASE WHEN %s THEN '%d ' ELSE '' END", corrupt, len(all)),
		"CASE WHEN "+early+" THEN '"+earlier+" ' ELSE '' END")
	all = append(all, doubtOfCard{text: card.ErrCorrupt.Error() + corruptCardText})
	var doubted []struct {
		UUID  uuid.UUID `db:"uuid"`
		Kinds string    `db:"kinds"`
	}
	err = r.list(ctx, &doubted, "look for doubts",
		"SELECT x.uuid, x.kinds FROM (SELECT c.uuid, "+strings.Join(columns, " || ")+
			" AS kinds FROM cards c WHERE "+where+") x WHERE x.kinds <> ''", slices.Concat(known, bound, args)...)
	for _, d := range doubted {
		for _, kind := range strings.Fields(d.Kinds) {
			if kind == earlier {
				found = append(found, d.UUID)
				continue
			}
			n, err := strconv.Atoi(kind)
			if err != nil {
				return nil, err
			}
			r.doubts.add(all[n].text, d.UUID)
		}
	}
	return found, err
}

// doubtDays compares the days that were read with their stored sums.
func (r *reading) doubtDays(context.Context) error {
	left, currencies := map[dayID]int64{}, map[dayID]map[string]bool{}
	for _, all := range []map[dayOf]daySums{r.kept, r.found} {
		for of := range all {
			if currencies[of.dayID] == nil {
				currencies[of.dayID] = map[string]bool{}
			}
			currencies[of.dayID][of.currency] = true
		}
	}
	for of, sums := range r.found {
		left[of.dayID] += sums.rows
	}
	days := slices.SortedFunc(maps.Keys(currencies), func(a, b dayID) int {
		return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.part, b.part))
	})
	for _, d := range days {
		if !r.wasRead(d) || d.day >= r.keptUntil {
			continue
		}
		for _, currency := range slices.Sorted(maps.Keys(currencies[d])) {
			of := dayOf{d, currency}
			was, is := r.kept[of], r.found[of]
			switch {
			case left[d] == 0:
				r.doubtDay(d, fmt.Sprintf("%s: %d %s of %s were kept, and none is left", d, was.rows, d.part, currency))
			case r.full && !r.notes.days[d] && !r.doubtedBefore(d) && !was.equal(is):
				r.doubtDay(d, fmt.Sprintf("%s: %d %s of %s were kept, which add up to (%s), but there are %d, which add up to (%s)",
					d, was.rows, d.part, currency, was.text(), is.rows, is.text()))
			}
		}
	}
	return nil
}

func (r *reading) doubtDay(d dayID, text string) {
	r.wrong[d] = true
	r.doubts.others = append(r.doubts.others, operator.Discrepancy{Text: text})
}

// doubtedBefore reports whether the stored sums of a day were already marked as
// doubted.
func (r *reading) doubtedBefore(d dayID) bool {
	for of, sums := range r.kept {
		if of.dayID == d && sums.doubted {
			return true
		}
	}
	return false
}

// doubtOthers checks everything that is neither a day nor a single card.
func (r *reading) doubtOthers(ctx context.Context) error {
	days := r.doubts.others
	r.doubts.others = nil
	if err := r.doubtIntents(ctx); err != nil {
		return err
	}
	if err := r.doubtFeeds(ctx); err != nil {
		return err
	}
	if err := r.doubtDeliveries(ctx); err != nil {
		return err
	}
	r.doubts.others = append(r.doubts.others, days[:min(len(days), someDoubts)]...)
	return nil
}

// doubtIntents finds paid cards whose next attempt is due later than any
// backoff allows.
func (r *reading) doubtIntents(ctx context.Context) error {
	var ids []uuid.UUID
	err := r.list(ctx, &ids, "find impossible intents", `SELECT c.uuid FROM intents i JOIN cards c ON c.uuid = i.card_uuid
		WHERE i.state IN ('open', 'pending') AND i.due_at > (SELECT `+r.t.s.dialect.now+`) + ? AND c.payment_state = 'paid'
		ORDER BY i.due_at, i.card_uuid LIMIT ?`, maxDueMillis, someDoubts)
	for _, id := range ids {
		r.doubts.others = append(r.doubts.others, operator.Discrepancy{ID: id,
			Text: "it is paid, but its next attempt is due in more than an hour: the intent's due_at is out of range"})
	}
	return err
}

// feed is the events of an account.
type feed struct {
	AccountID uuid.UUID `db:"id"`
	LastSeq   int64     `db:"last_seq"`
	Newest    int64     `db:"newest"`
	Checked   int64     `db:"checked"` // up to which there is no gap
}

// doubtFeeds finds gaps in the events that no earlier reading has checked.
func (r *reading) doubtFeeds(ctx context.Context) error {
	doubted := 0
	for after := uuid.Nil; ; {
		var found []feed
		err := r.list(ctx, &found, "select feeds", `SELECT a.id, a.last_seq, (SELECT COALESCE(MAX(e.seq), 0) FROM events e WHERE e.account_id = a.id) AS newest,
			COALESCE((SELECT f.seq FROM books_feeds f WHERE f.account_id = a.id), 0) AS checked FROM accounts a WHERE a.id > ? ORDER BY a.id LIMIT ?`, after, booksPage)
		if err != nil {
			return err
		}
		for _, f := range found {
			after = f.AccountID
			was := f.Checked
			if r.full || r.notes.accounts[f.AccountID] {
				f.Checked = 0
			}
			gap, err := r.gap(ctx, &f)
			if err != nil {
				return err
			}
			if f.Checked != was {
				r.feeds = append(r.feeds, f)
			}
			if (gap || f.LastSeq != f.Newest) && doubted < someDoubts {
				doubted++
				r.doubts.others = append(r.doubts.others,
					operator.Discrepancy{ID: f.AccountID, Text: "the account's events have gaps"})
			}
		}
		if len(found) < booksPage {
			return nil
		}
	}
}

// gap finds a gap after the checked events, page by page, and advances Checked.
func (r *reading) gap(ctx context.Context, f *feed) (bool, error) {
	for f.Checked < f.Newest {
		var piece struct {
			Newest int64 `db:"newest"`
			Gaps   int64 `db:"gaps"`
		}
		err := r.get(ctx, &piece, "look for gaps", `SELECT COALESCE(MAX(x.seq), 0) AS newest,
			COUNT(CASE WHEN x.type <> 'feed.reset' AND x.seq <> x.previous + 1 THEN 1 END) AS gaps
			FROM (SELECT e.seq, e.type, LAG(e.seq, 1, CAST(? AS BIGINT)) OVER (ORDER BY e.seq) AS previous
				FROM (SELECT seq, type FROM events WHERE account_id = ? AND seq > ? ORDER BY seq LIMIT ?) e) x`, f.Checked, f.AccountID, f.Checked, booksPage)
		if err != nil || piece.Gaps > 0 {
			return piece.Gaps > 0, err
		}
		f.Checked = piece.Newest
	}
	return false, nil
}

// doubtDeliveries finds attempts that cannot be decoded: of a page of pending
// deliveries, or of all. Before version 16, PostgreSQL has no function that
// checks whether a text is JSON.
func (r *reading) doubtDeliveries(ctx context.Context) error {
	where, order := "d.due_at IS NOT NULL", "d.webhook_id, d.due_at, d.seq"
	if r.full {
		where, order = "(d.webhook_id, d.seq) > (?, ?)", "d.webhook_id, d.seq"
	}
	doubted := 0
	for webhook, seq := uuid.Nil, int64(math.MinInt64); ; {
		var found []struct {
			WebhookID uuid.UUID     `db:"webhook_id"`
			Seq       int64         `db:"seq"`
			DueAt     *int64        `db:"due_at"`
			Tries     int64         `db:"tries"`
			Attempts  string        `db:"attempts"`
			EventID   uuid.NullUUID `db:"event_id"`
		}
		args := []any{mostTries, maxMillis, booksPage}
		if r.full {
			args = []any{mostTries, maxMillis, webhook, seq, booksPage}
		}
		err := r.list(ctx, &found, "look for corrupt deliveries", `SELECT d.webhook_id, d.seq, d.due_at, d.tries, d.attempts,
			CASE WHEN d.attempts <> '[]' OR d.tries NOT BETWEEN 0 AND ? OR d.due_at NOT BETWEEN 0 AND ? THEN (SELECT e.id FROM events e WHERE e.account_id = d.account_id AND e.seq = d.seq) END AS event_id
			FROM deliveries d WHERE `+where+" ORDER BY "+order+" LIMIT ?", args...)
		if err != nil {
			return err
		}
		for _, f := range found {
			webhook, seq = f.WebhookID, f.Seq
			_, err := storedAttempts(f.Attempts)
			if err == nil {
				err = checkDelivery(f.DueAt, f.Tries)
			}
			if err != nil && doubted < someDoubts {
				doubted++
				r.doubts.others = append(r.doubts.others,
					operator.Discrepancy{ID: f.WebhookID,
						Text: fmt.Sprintf("the attempts to deliver its event %s can't be decoded", f.EventID.UUID)})
			}
		}
		if !r.full || len(found) < booksPage {
			return nil
		}
	}
}

// waitingQuery selects cards that wait for an operator: uuid, currency, the
// amount in question, and since when.
type waitingQuery struct {
	kind  operator.WaitingKind
	query string
	args  []any
}

// waitingCards returns the queries for cards that wait. Each reads an index of
// only such cards.
func (d dialect) waitingCards(now time.Time) []waitingQuery {
	const ofIntents = `SELECT i.card_uuid AS uuid, c.currency, c.credit_paid AS amount, i.decided_at AS since FROM intents i JOIN cards c ON c.uuid = i.card_uuid
		WHERE c.payment_state = 'paid' AND `
	return []waitingQuery{
		{operator.WaitingLate, `SELECT x.uuid, x.currency, x.amount, x.since FROM (SELECT c.uuid, c.currency, c.credit_held AS amount,
			(SELECT MAX(e.created_at) FROM events e WHERE e.card_uuid = c.uuid AND e.type = 'payment.late') AS since FROM cards c` + d.by("cards_late") + ` WHERE c.payment_state = 'late') x
			WHERE x.since IS NULL OR x.since <= ?`, []any{now.Add(-operator.LateLasts).UnixMilli()}},
		{operator.WaitingUnissued,
			ofIntents + "i.state IN ('open', 'pending') AND (i.attempts >= ? OR i.decided_at IS NULL OR i.decided_at <= ?)",
			[]any{operator.ManyAttempts, now.Add(-operator.UnissuedLasts).UnixMilli()}},
		{operator.WaitingParked, ofIntents + "i.state IN ('parked', 'refund_due') AND i.state = 'parked'", nil},
		{operator.WaitingRefundDue, ofIntents + "i.state IN ('parked', 'refund_due') AND i.state = 'refund_due'", nil},
		{operator.WaitingReversed, `SELECT c.uuid, c.currency, c.credit_lost - c.credit_written_off AS amount,
			(SELECT MAX(e.created_at) FROM events e WHERE e.card_uuid = c.uuid AND e.type = 'payment.reversed') AS since FROM cards c WHERE ` + isLost +
			// rows beyond these bounds are corrupt, and doubted as such
			" AND c.credit_lost <= ? AND c.credit_written_off >= 0", []any{int64(card.Currency{}.MaxAmount())}},
	}
}

// readWaiting lists what waits for an operator.
func (r *reading) readWaiting(ctx context.Context) error {
	strays, err := r.t.transfers(ctx,
		selectTransfers+" t WHERE t.counted AND NOT t.attributed AND "+isStray+" AND NOT "+isAttributed+lastSeen+" LIMIT ?",
		someDoubts)
	if err != nil {
		return err
	}
	for _, x := range strays {
		r.waiting = append(r.waiting,
			operator.Waiting{Kind: operator.WaitingUnattributed, Currency: x.Currency, TxID: x.TxID, Output: x.Output,
				Amount: x.Amount, Since: x.FirstSeenAt})
	}
	for _, q := range r.t.s.dialect.waitingCards(r.now) {
		var found []struct {
			UUID     uuid.UUID     `db:"uuid"`
			Currency string        `db:"currency"`
			Amount   int64         `db:"amount"`
			Since    sql.NullInt64 `db:"since"`
		}
		if err := r.list(ctx, &found, "select what waits", q.query+" ORDER BY uuid LIMIT ?",
			append(q.args, someDoubts)...); err != nil {
			return err
		}
		for _, f := range found {
			w := operator.Waiting{Kind: q.kind, Currency: f.Currency, Amount: card.Amount(f.Amount), CardUUID: f.UUID}
			if f.Since.Valid {
				w.Since = fromMillis(f.Since.Int64)
			}
			r.waiting = append(r.waiting, w)
		}
	}
	return nil
}

// readUnconfirmed sums the transfers in the mempool. They get their blocks
// after their day was stored, so they are read each time.
func (r *reading) readUnconfirmed(ctx context.Context) error {
	r.unconfirmed = map[string]card.Total{}
	for code := range r.t.s.coins {
		var sums string
		if err := r.get(ctx, &sums, "add up mempool",
			"SELECT "+sumOf("t.amount", "TRUE")+" FROM transfers t WHERE t.currency = ? AND t.counted AND t.height = 0",
			code); err != nil {
			return err
		}
		all, err := totals(sums)
		if err != nil {
			return fmt.Errorf("add up mempool: %w", err)
		}
		r.unconfirmed[code] = all[0]
	}
	return nil
}
