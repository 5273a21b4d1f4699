package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

// corruptions are ways to corrupt a card's row. Each has the text that must not
// appear in logs and errors.
var corruptions = map[string]string{
	"currency": "UPDATE cards SET currency = 'canary' WHERE uuid = $1",
	"state":    "UPDATE cards SET payment_state = 'canary' WHERE uuid = $1",
}

// eachCorruption runs a test on every database, for every corruption.
func eachCorruption(t *testing.T, f func(t *testing.T, d *corruptStore)) {
	t.Helper()
	for name, statement := range corruptions {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, url string) {
				f(t, newCorruptStore(t, url, statement))
			})
		})
	}
}

// corruptStore is a store with cards whose rows are corrupt.
type corruptStore struct {
	*store.Store
	t         *testing.T
	url       string
	statement string
	account   uuid.UUID
	log       bytes.Buffer
}

func newCorruptStore(t *testing.T, url, statement string) *corruptStore {
	t.Helper()
	d := &corruptStore{Store: open(t, url), t: t, url: url, statement: statement}
	d.LogTo(slog.New(slog.NewTextHandler(&d.log, nil)))
	d.account = newAccount(t, d.Store)
	return d
}

func (d *corruptStore) exec(statement string, args ...any) {
	d.t.Helper()
	_, err := rig.OpenSQL(d.t, d.url).Exec(statement, args...)
	check(d.t, err)
}

// cards inserts n cards, and corruptions some of them.
func (d *corruptStore) cards(n int, corrupt ...int) []*card.Card {
	d.t.Helper()
	cards := make([]*card.Card, n)
	for i := range cards {
		cards[i] = insertCard(d.t, d.Store, newCard(d.account))
	}
	for _, i := range corrupt {
		d.exec(d.statement, cards[i].UUID)
	}
	return cards
}

// reported fails the test unless each of the cards was reported once, and
// nothing else.
func (d *corruptStore) reported(cards ...*card.Card) {
	d.t.Helper()
	text := d.log.String()
	for _, c := range cards {
		if n := strings.Count(text, c.UUID.String()); n != 1 {
			d.t.Errorf("card %s was reported %d times", c.UUID, n)
		}
	}
	if n := strings.Count(text, "level=ERROR"); n != len(cards) || strings.Count(text, "\n") != n ||
		strings.Contains(text, "canary") {
		d.t.Errorf("%d cards are corrupt; logged:\n%s", len(cards), text)
	}
}

func wantCards(t *testing.T, got []*card.Card, want ...*card.Card) {
	t.Helper()
	ids := func(cards []*card.Card) (all []uuid.UUID) {
		for _, c := range cards {
			all = append(all, c.UUID)
		}
		return all
	}
	if !slices.Equal(ids(got), ids(want)) {
		t.Errorf("%v, want %v", ids(got), ids(want))
	}
}

// wantCorrupt fails the test unless an error reports that a card is corrupt,
// without quoting its row.
func wantCorrupt(t *testing.T, err error, c *card.Card) {
	t.Helper()
	if !errors.Is(err, card.ErrCorrupt) || !strings.Contains(err.Error(), c.UUID.String()) ||
		strings.Contains(err.Error(), "canary") {
		t.Errorf("error %v", err)
	}
}

func TestCards_CorruptRow_HidesNoOther(t *testing.T) {
	eachCorruption(t, func(t *testing.T, d *corruptStore) {
		cards := d.cards(7, 1, 2, 4, 6)
		for limit, want := range map[int][]*card.Card{1: {cards[5]}, 2: {cards[5], cards[3]},
			3: {cards[5], cards[3], cards[0]}, 4: {cards[5], cards[3], cards[0]}} {
			got, err := d.Cards(t.Context(), order.Filter{AccountID: d.account, Limit: limit})
			check(t, err)
			wantCards(t, got, want...)
		}
		got, err := d.Cards(t.Context(), order.Filter{AccountID: d.account, Before: cards[5].UUID, Limit: 1})
		check(t, err)
		wantCards(t, got, cards[3])
		d.reported(cards[6], cards[4], cards[2], cards[1])

		_, err = d.CardByUUID(t.Context(), d.account, cards[1].UUID)
		wantCorrupt(t, err, cards[1])
	})
}

func TestFindCards_CorruptRow_HidesNoOther(t *testing.T) {
	eachCorruption(t, func(t *testing.T, d *corruptStore) {
		cards := d.cards(4, 2)
		got, err := d.FindCards(t.Context(), operator.Search{Limit: 2})
		check(t, err)
		wantCards(t, got, cards[3], cards[1])
		d.exec("UPDATE cards SET credit_lost = 1")
		got, err = d.FindCards(t.Context(), operator.Search{NeedsOperator: true, Limit: 3})
		check(t, err)
		wantCards(t, got, cards[0], cards[1], cards[3])
		d.reported(cards[2])

		_, err = d.CardDetail(t.Context(), cards[2].UUID)
		wantCorrupt(t, err, cards[2])
	})
}

func TestCardsByUUID_CorruptRow_HidesNoOther(t *testing.T) {
	eachCorruption(t, func(t *testing.T, d *corruptStore) {
		cards := d.cards(3, 0)
		for range 2 {
			got, err := d.CardsByUUID(t.Context(), []uuid.UUID{cards[0].UUID, cards[1].UUID, cards[2].UUID})
			check(t, err)
			wantCards(t, got, cards[1], cards[2])
		}
		d.reported(cards[0])
	})
}

// Issuing and settling must not mistake a card that can't be decoded for a
// missing one.
func TestLockCardsByUUID_CorruptRow_Fails(t *testing.T) {
	eachCorruption(t, func(t *testing.T, d *corruptStore) {
		cards := d.cards(2, 1)
		err := d.Do(t.Context(), func(tx *store.Tx) error {
			_, err := tx.LockCardsByUUID(t.Context(), []uuid.UUID{cards[0].UUID, cards[1].UUID})
			return err
		})
		wantCorrupt(t, err, cards[1])
	})
}

// A card that can't be decoded does not delay a pass. It is due again with the
// next block, so that it is assessed once its row is repaired.
func TestLockCards_CorruptRow_IsPostponed(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		d := newCorruptStore(t, url, corruptions["state"]) // this card has another currency
		cards := d.cards(2, 0)
		lock := func(height int64, addresses []string, want ...*card.Card) {
			t.Helper()
			inTx(t, d.Store, func(ctx context.Context, tx *store.Tx) error {
				got, err := tx.LockCards(ctx, "monero", addresses, card.Tip{Height: height, Time: epoch})
				wantCards(t, got, want...)
				return err
			})
		}
		both := []string{cards[0].Address, cards[1].Address}
		lock(7, both, cards[1])
		lock(7, both, cards[1])
		d.reported(cards[0])
		d.exec("UPDATE cards SET payment_state = 'unpaid' WHERE uuid = $1", cards[0].UUID)
		lock(7, nil)
		lock(8, nil, cards[0])
	})
}

// The next attempt does not depend on the results of earlier ones.
func TestDeliveries_CorruptAttempts_CountAsNone(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		d := newCorruptStore(t, url, "")
		w := insertWebhook(t, d.Store, newWebhook(d.account))
		c := insertCard(t, d.Store, newCard(d.account))
		es := []card.Event{newEvent(c, card.EventDetected), newEvent(c, card.EventGenerated)}
		insertEvents(t, d.Store, es...)
		d.exec(`UPDATE deliveries SET attempts = '[{"canary' WHERE seq = 1`)
		for range 2 {
			due, err := d.DueDeliveries(t.Context(), w.ID, epoch, 10)
			check(t, err)
			all, err := d.Deliveries(t.Context(), w.ID, webhook.DeliveryFilter{Limit: 10})
			check(t, err)
			slices.Reverse(all)
			for name, got := range map[string][]webhook.Delivery{"due": due, "all": all} {
				if len(got) != 2 || got[0].Event.ID != es[0].ID || got[1].Event.ID != es[1].ID || len(got[0].Attempts) != 0 {
					t.Errorf("%s: %+v", name, got)
				}
			}
		}
		text := d.log.String()
		if strings.Count(text, "level=ERROR") != 1 || strings.Count(text, es[0].ID.String()) != 1 ||
			strings.Contains(text, "canary") {
			t.Errorf("logged:\n%s", text)
		}
		books := readBooks(t, d.Store)
		if want := (operator.Discrepancy{ID: w.ID, Text: fmt.Sprintf("the attempts to deliver its event %s can't be decoded", es[0].ID)}); !slices.Contains(books.Discrepancies, want) {
			t.Errorf("doubts %+v, want %+v", books.Discrepancies, want)
		}
	})
}

func TestBooks_CorruptRows_AreNamed(t *testing.T) {
	eachCorruption(t, func(t *testing.T, d *corruptStore) {
		cards := d.cards(3, 1)
		books := readBooks(t, d.Store)
		want := operator.Discrepancy{ID: cards[1].UUID,
			Text: "its row can't be decoded: this version does not know its currency or its payment's state"}
		if len(books.Discrepancies) != 1 || books.Discrepancies[0] != want {
			t.Errorf("doubts %+v, want %+v", books.Discrepancies, want)
		}
	})
}

// The memory for reported rows is bounded.
func TestReportCorrupt_LogsEachOnce(t *testing.T) {
	var log bytes.Buffer
	s := open(t, databases.SQLite(t))
	s.LogTo(slog.New(slog.NewTextHandler(&log, nil)))
	ids := make([]uuid.UUID, 50)
	for i := range ids {
		ids[i] = uuid.New()
	}
	for range 3 {
		for _, id := range ids {
			s.ReportCorrupt(t.Context(), "card", id, errors.New("the number is corrupt"))
		}
	}
	for _, id := range ids {
		if strings.Count(log.String(), id.String()) != 1 {
			t.Errorf("%s was reported %d times", id, strings.Count(log.String(), id.String()))
		}
	}
	if !strings.Contains(log.String(), "the number is corrupt") {
		t.Error(log.String())
	}
}
