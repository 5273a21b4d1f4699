package store

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// someDoubts limits how many discrepancies of one kind are returned.
const someDoubts = 20

// doubtsOfCard are conditions that hold for no card c in correct books. They
// are looked at for the cards that are read, so that none may cost more than
// some looks into an index: PostgreSQL turns EXISTS and joins into searches
// through whole tables, but not scalar subqueries.
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
		{card.ErrDamaged.Error() + ": one of its numbers is impossible", hasImpossibleNumber()},
	}
}

type doubtOfCard struct{ text, condition string }

const damagedCardDoubt = ": this version does not know its currency or its payment's state"

// doubts are the discrepancies that were found.
type doubts struct {
	cards  map[string]map[uuid.UUID]bool // by text
	others []operator.Doubt
}

func newDoubts() doubts { return doubts{cards: map[string]map[uuid.UUID]bool{}} }

func (d *doubts) add(text string, id uuid.UUID) {
	if d.cards[text] == nil {
		d.cards[text] = map[uuid.UUID]bool{}
	}
	d.cards[text][id] = true
}

// ids returns the cards that are to be looked at again.
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

// all returns the discrepancies, at most some of each kind.
func (d *doubts) all() (all []operator.Doubt) {
	add := func(text string) {
		ids := sorted(d.cards[text])
		for _, id := range ids[:min(len(ids), someDoubts)] {
			all = append(all, operator.Doubt{ID: id, Text: text})
		}
	}
	for _, of := range doubtsOfCard() {
		add(of.text)
	}
	add(card.ErrDamaged.Error() + damagedCardDoubt)
	return append(all, d.others...)
}

// earlier marks, beside the numbers of doubts, a young card whose address
// received money on a day that was kept: those transfers were unattributed
// then. That a young card is inserted is not noted, for it would cost a search.
const earlier = "e"

// doubtPiece looks at the cards of a day in a range.
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

// doubtCards looks at the cards of earlier days that changed or were doubted.
func (r *reading) doubtCards(ctx context.Context) error {
	return inBatches(sorted(r.notes.cards), func(some []uuid.UUID) error {
		_, err := r.doubt(ctx, "FALSE", nil, "c.uuid IN ("+rows("?", len(some))+")", anyOf(some)...)
		return err
	})
}

// doubt looks at the cards that match where, and returns those for which early
// holds.
func (r *reading) doubt(ctx context.Context, early string, bound []any, where string, args ...any) (found []uuid.UUID,
	err error) {
	all := doubtsOfCard()
	var columns []string
	for i, d := range all {
		columns = append(columns, fmt.Sprintf("CASE WHEN %s THEN '%d ' ELSE '' END", d.condition, i))
	}
	damaged, known, err := sqlx.In("c.currency NOT IN (?) OR c.payment_state NOT IN (?)",
		slices.Collect(maps.Keys(r.t.s.coins)), card.PaymentStates())
	if err != nil {
		return nil, err
	}
	columns = append(columns, fmt.Sprintf("CASE WHEN %s THEN '%d ' ELSE '' END", damaged, len(all)),
		"CASE WHEN "+early+" THEN '"+earlier+" ' ELSE '' END")
	all = append(all, doubtOfCard{text: card.ErrDamaged.Error() + damagedCardDoubt})
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

// doubtDays compares the days that were read with what was kept of them.
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
	r.doubts.others = append(r.doubts.others, operator.Doubt{Text: text})
}

// doubtedBefore reports whether a day was not believed anyway.
func (r *reading) doubtedBefore(d dayID) bool {
	for of, sums := range r.kept {
		if of.dayID == d && sums.doubted {
			return true
		}
	}
	return false
}
