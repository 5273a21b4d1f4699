package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

// arrive stores transfers that count.
func arrive(t *testing.T, s *store.Store, ts ...card.Transfer) {
	t.Helper()
	for i := range ts {
		ts[i].Currency, ts[i].Counted, ts[i].TxID, ts[i].FirstSeenAt = "monero", true, uuid.NewString(), epoch
	}
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.UpsertTransfers(ctx, ts) })
}

// assess stores an assessment of a card's current row, and its credits.
func assess(t *testing.T, s *store.Store, c *card.Card, a card.Assessment) {
	t.Helper()
	now, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID)
	check(t, err)
	now.State, now.Received, now.Settled = a.State, a.Received, a.Settled
	a.Credit = card.CreditOf(now)
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
		return tx.SaveVerdicts(ctx, verdicts([]*card.Card{c}, a))
	})
}

// An earlier release stored the price as due after a refund.
func TestCard_NothingIsDueAfterARefundThatAnEarlierReleaseStored(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		c := insertCard(t, s, newCard(newAccount(t, s)))
		if now, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID); err != nil || now.Credit.Due != c.Amount {
			t.Errorf("due %d, %v", now.Credit.Due, err)
		}
		_, err := rig.OpenSQL(t,
			url).Exec("UPDATE cards SET payment_state = 'expired', received = 5, refunded = 5, credit_refunded = 5, credit_due = amount")
		check(t, err)
		if now, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID); err != nil ||
			now.Credit != (card.Credit{Refunded: 5}) {
			t.Errorf("credits %+v, %v", now.Credit, err)
		}
	})
}

func TestFindCards_ThoseThatNeedAnOperator(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx, account := t.Context(), newAccount(t, s)
		var cards []*card.Card
		for range 6 {
			cards = append(cards, insertCard(t, s, newCard(account)))
		}
		generate(t, s, cards[2].UUID)
		generate(t, s, cards[3].UUID)
		assess(t, s, cards[1], card.Assessment{State: card.Late, Received: 5})
		assess(t, s, cards[2], card.Assessment{State: card.Reversed, Settled: 9, Received: 3})
		assess(t, s, cards[3], card.Assessment{State: card.Reversed, Settled: 9, Received: 3})
		settled := *cards[3]
		settled.WrittenOff = 6
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.InsertResolution(ctx,
				operator.Resolution{ID: uuid.New(), CardUUID: settled.UUID, Kind: operator.WriteOff, Amount: 6, Note: "n",
					Operator: "o", CreatedAt: epoch}, &settled)
		})
		assess(t, s, cards[3], card.Assessment{State: card.Reversed, Settled: 9, Received: 3}) // after a decision
		assess(t, s, cards[4], card.Assessment{State: card.Paid, Received: 9, Settled: 9})
		claims, err := s.ClaimIntents(ctx, claimOf("sandbox"), 1, time.Hour)
		check(t, err)
		claims[0].State = issue.StateParked
		check(t, s.SaveIntents(ctx, claims))
		for name, tt := range map[string]struct {
			search operator.Search
			want   []*card.Card
		}{
			"all":       {operator.Search{Limit: 3}, []*card.Card{cards[5], cards[4], cards[3]}},
			"attention": {operator.Search{NeedsOperator: true, Limit: 9}, []*card.Card{cards[1], cards[2], cards[4]}},
			"state":     {operator.Search{State: card.Late, Limit: 9}, []*card.Card{cards[1]}},
			"account": {operator.Search{AccountID: account, State: card.Unpaid, Limit: 9},
				[]*card.Card{cards[5], cards[0]}},
			"another account's": {operator.Search{AccountID: uuid.New(), Limit: 9}, nil},
		} {
			found, err := s.FindCards(ctx, tt.search)
			check(t, err)
			var got, want []uuid.UUID
			for _, c := range found {
				got = append(got, c.UUID)
			}
			for _, c := range tt.want {
				want = append(want, c.UUID)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		exposure, err := s.Exposure(ctx, account, true)
		check(t, err)
		if want := (order.Exposure{OpenUSD: 2 * 150_50, Reversed: true}); exposure != want {
			t.Errorf("exposure %+v, want %+v", exposure, want)
		}
	})
}

func TestRecord_HoldsEverythingButTheCredentials(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		arrive(t, s, card.Transfer{Address: c.Address, Amount: 7, Height: 3}, card.Transfer{Address: "elsewhere", Amount: 8})
		generate(t, s, c.UUID)
		decided := *c
		decided.Refunded = 4
		resolution := operator.Resolution{ID: uuid.New(), CardUUID: c.UUID, Kind: operator.Refund, Amount: 4,
			Note: "too much", Operator: "alice", CreatedAt: epoch}
		event := card.Event{ID: uuid.New(), AccountID: account, Type: card.EventGenerated, CardUUID: c.UUID,
			Status: card.Generated, State: card.Paid, CreatedAt: epoch}
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			if err := tx.InsertResolution(ctx, resolution, &decided); err != nil {
				return err
			}
			return tx.InsertEvents(ctx, []card.Event{event})
		})
		r, err := s.CardDetail(t.Context(), c.UUID)
		check(t, err)
		event.Seq = 1
		if r.Card.Sealed != nil || r.Card.Refunded != 4 || len(r.Transfers) != 1 || r.Transfers[0].Amount != 7 ||
			r.Intent == nil || r.Intent.State != "done" {
			t.Errorf("%+v", r)
		}
		if diff := cmp.Diff([]operator.Resolution{resolution}, r.Resolutions); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]card.Event{event}, r.Events); diff != "" {
			t.Error(diff)
		}
		_, err = s.CardDetail(t.Context(), uuid.New())
		wantError(t, err, card.ErrNoRow)
		foreign, err := s.Unattributed(t.Context(), 9)
		check(t, err)
		if len(foreign) != 1 || foreign[0].Address != "elsewhere" {
			t.Errorf("unattributed: %+v", foreign)
		}
	})
}

func TestBooks_AddUp(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		books := readBooks(t, s)
		if len(books.Coins) != 0 || len(books.Discrepancies) != 0 {
			t.Errorf("of nothing: %+v", books)
		}
		price := newCard(account).Amount
		open, late, made, lost := insertCard(t, s, newCard(account)), insertCard(t, s, newCard(account)),
			insertCard(t, s, newCard(account)), insertCard(t, s, newCard(account))
		arrive(t, s, card.Transfer{Address: open.Address, Amount: price + 5},
			card.Transfer{Address: late.Address, Amount: 20}, card.Transfer{Address: late.Address, Amount: 3},
			card.Transfer{Address: made.Address, Amount: price + 11, Height: 2},
			card.Transfer{Address: lost.Address, Amount: 6}, card.Transfer{Address: "elsewhere", Amount: 1 << 61},
			card.Transfer{Address: "elsewhere", Amount: 1 << 61})
		generate(t, s, made.UUID)
		generate(t, s, lost.UUID)
		assess(t, s, open, card.Assessment{State: card.Detected, Received: price + 5})
		assess(t, s, late, card.Assessment{State: card.Late, Received: 23})
		assess(t, s, made, card.Assessment{State: card.Paid, Received: price + 11, Settled: price})
		assess(t, s, lost, card.Assessment{State: card.Reversed, Received: 6, Settled: price})
		books = readBooks(t, s)
		want := operator.CoinBooks{Currency: "monero", Counted: card.TotalOf(2*price + 5 + 23 + 11 + 6 + 1<<62),
			Unattributed: card.TotalOf(1 << 62),
			Made:         card.TotalOf(price + 6), Open: card.TotalOf(price + 5), Held: card.TotalOf(23),
			Surplus:     card.TotalOf(11),
			Lost:        card.TotalOf(price - 6),
			Unconfirmed: card.TotalOf(price + 5 + 23 + 6 + 1<<62), SoldCents: card.TotalOf(30100), Paid: 2, Issued: 2, Late: 1}
		if diff := cmp.Diff([]operator.CoinBooks{want}, books.Coins); diff != "" {
			t.Error(diff)
		}
		if got := books.Coins[0].Credited().Add(books.Coins[0].Surplus,
			books.Coins[0].Unattributed); !got.Equal(books.Coins[0].Counted) {
			t.Errorf("%s is not %s", got, books.Coins[0].Counted)
		}
		if len(books.Discrepancies) != 0 || len(books.Waiting) == 0 ||
			books.Waiting[len(books.Waiting)-1].CardUUID != lost.UUID {
			t.Errorf("doubts: %+v, waiting: %+v", books.Discrepancies, books.Waiting)
		}
	})
}

// A feed that was reset may have gaps where events were pruned.
func TestBooks_NumbersOfEventsJumpOnlyWhereTheFeedWasReset(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		c := insertCard(t, s, newCard(newAccount(t, s)))
		insertEvents(t, s, newEvent(c, card.EventDetected), newEvent(c, card.EventLate))
		l, err := s.AcquireLease(t.Context(), settle.LeaseName("monero"), "watcher", time.Hour)
		check(t, err)
		for i := range int64(2) {
			l.Now = l.Now.Add(time.Duration(i) * time.Millisecond)
			check(t, s.ResetFeeds(t.Context(), l, l.Now.Add(-time.Minute)))
			insertEvents(t, s, newEvent(c, card.EventDetected), newEvent(c, card.EventLate), newEvent(c, card.EventExpired))
		}
		if got := seqs(t, s, c.AccountID); len(got) != 10 || got[2] < 1000 {
			t.Errorf("events %v", got)
		}
		books := readBooks(t, s)
		if len(books.Discrepancies) != 0 {
			t.Errorf("doubts: %+v", books.Discrepancies)
		}
		_, err = rig.OpenSQL(t, url).Exec("DELETE FROM events WHERE seq = (SELECT last_seq - 1 FROM accounts)")
		check(t, err)
		books = readBooks(t, s)
		if want := []operator.Discrepancy{{ID: c.AccountID, Text: "the account's events have gaps"}}; !slices.Equal(
			books.Discrepancies,
			want) {
			t.Errorf("with one event deleted, doubts: %+v", books.Discrepancies)
		}
	})
}

func TestRescan_IsAskedForOnceAndEnds(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		wantError(t, s.RequestRescan(ctx, "monero", "why"), card.ErrNoRow)
		wantError(t, s.AskForRescan(ctx, "monero", false), card.ErrNoRow)
		_, err := s.PoolState(ctx, "monero")
		wantError(t, err, card.ErrNoRow)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			if err := tx.InsertAddresses(ctx, []settle.Address{{Currency: "monero", Address: "a", Position: 1}},
				time.Time{}); err != nil {
				return err
			}
			return tx.SaveCursor(ctx, "monero",
				settle.Cursor{Fingerprint: "f", Tip: card.Tip{Height: 5, Hash: "h", Time: epoch}})
		})
		attest(t, s)
		if state, err := s.PoolState(ctx, "monero"); err != nil || state.CheckedAgo < 0 || state.CheckedAgo > time.Minute {
			t.Errorf("state %+v, error %v", state, err)
		}
		rescan := func(want string) {
			t.Helper()
			cursor, err := s.Cursor(ctx, chain.Currencies()[0])
			check(t, err)
			if cursor.Rescan != want {
				t.Errorf("rescan %q, want %q", cursor.Rescan, want)
			}
		}
		rescan("")
		check(t, s.NoteRescan(ctx, "monero", "nothing to note"))
		rescan("")
		check(t, s.RequestRescan(ctx, "monero", "first"))
		check(t, s.RequestRescan(ctx, "monero", "second"))
		rescan("first")
		believed := func(want bool) {
			t.Helper()
			if cursor, err := s.Cursor(ctx, chain.Currencies()[0]); err != nil || cursor.Believe != want {
				t.Errorf("trusted: %t, want %t; error %v", cursor.Believe, want, err)
			}
		}
		for _, believe := range []bool{false, true} {
			check(t, s.AskForRescan(ctx, "monero", believe))
			rescan(settle.Asked)
			believed(believe)
		}
		check(t, s.AskForRescan(ctx, "monero", false)) // withdraws nothing
		believed(true)
		check(t, s.NoteRescan(ctx, "monero", "half"))
		rescan("half")
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.EndRescan(ctx, "monero") })
		rescan("")
		believed(false)
		check(t, s.DistrustPool(ctx, "monero"))
		if taken, err := s.TakeAddresses(ctx, "monero", 1); err != nil || len(taken) != 0 {
			t.Errorf("took %v, error %v", taken, err)
		}
	})
}
