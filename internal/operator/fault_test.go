package operator_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

var errBroken = errors.New("broken pipe")

// faultyStore is a store with faults.
type faultyStore struct {
	operator.Store
	books  error  // returned by ReadBooks
	keep   error  // returned by KeepBooks
	sealed error  // returned by SealedCards
	call   string // the call of a transaction that fails
	twice  bool   // transactions run twice, as after a serialization failure
	lost   error  // returned after a COMMIT that succeeds

	kept operator.Reading // last reading
}

var errAgain = errors.New("could not serialize")

func (f *faultyStore) ReadBooks(ctx context.Context, full bool, progress func(operator.Progress)) (operator.Reading, error) {
	if f.books != nil {
		return operator.Reading{Books: operator.Books{Coins: []operator.CoinBooks{{Currency: "half"}}}}, f.books
	}
	return f.Store.ReadBooks(ctx, full, progress)
}

func (f *faultyStore) KeepBooks(ctx context.Context, r operator.Reading) error {
	if f.keep != nil {
		return f.keep
	}
	f.kept = r
	return f.Store.KeepBooks(ctx, r)
}

func (f *faultyStore) SealedCards(ctx context.Context, after uuid.UUID, n int) ([]operator.SealedCard, error) {
	if f.sealed != nil {
		return nil, f.sealed
	}
	return f.Store.SealedCards(ctx, after, n)
}

func (f *faultyStore) OperatorTx(ctx context.Context, do func(operator.Tx) error) error {
	if f.twice {
		err := f.Store.OperatorTx(ctx, func(tx operator.Tx) error { return errors.Join(do(tx), errAgain) })
		if !errors.Is(err, errAgain) {
			return err
		}
	}
	err := f.Store.OperatorTx(ctx, func(tx operator.Tx) error { return do(faultyTx{tx, f.call}) })
	if err == nil {
		err = f.lost
	}
	return err
}

type faultyTx struct {
	operator.Tx
	call string
}

func (f faultyTx) fail(call string) error {
	if f.call == call {
		return errBroken
	}
	return nil
}

func (f faultyTx) LockCardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error) {
	cards, err := f.Tx.LockCardsByUUID(ctx, ids)
	return cards, errors.Join(err, f.fail("lock"))
}

func (f faultyTx) Tip(ctx context.Context, currency string) (card.Tip, error) {
	tip, err := f.Tx.Tip(ctx, currency)
	return tip, errors.Join(err, f.fail("tip"))
}

func (f faultyTx) TransfersTo(ctx context.Context, currency string, addresses []string) ([]card.Transfer, error) {
	ts, err := f.Tx.TransfersTo(ctx, currency, addresses)
	return ts, errors.Join(err, f.fail("transfers"))
}

func (f faultyTx) Intent(ctx context.Context, id uuid.UUID) (*operator.IntentRecord, error) {
	i, err := f.Tx.Intent(ctx, id)
	return i, errors.Join(err, f.fail("intent"))
}

func (f faultyTx) ReopenIntent(ctx context.Context, id uuid.UUID) error {
	return errors.Join(f.Tx.ReopenIntent(ctx, id), f.fail("reopen"))
}

func (f faultyTx) InsertResolution(ctx context.Context, r operator.Resolution, c *card.Card) error {
	return errors.Join(f.Tx.InsertResolution(ctx, r, c), f.fail("resolution"))
}

func (f faultyTx) SaveVerdicts(ctx context.Context, vs []card.Verdict) error {
	return errors.Join(f.Tx.SaveVerdicts(ctx, vs), f.fail("verdicts"))
}

func (f faultyTx) HasEvent(ctx context.Context, id uuid.UUID, kind card.EventType) (bool, error) {
	found, err := f.Tx.HasEvent(ctx, id, kind)
	return found, errors.Join(err, f.fail("event"))
}

func (f faultyTx) LockChain(ctx context.Context, currency string) error {
	return errors.Join(f.Tx.LockChain(ctx, currency), f.fail("chain"))
}

func (f faultyTx) Arrival(ctx context.Context, id operator.TransferID) (operator.Arrival, error) {
	a, err := f.Tx.Arrival(ctx, id)
	return a, errors.Join(err, f.fail("arrival"))
}

func (f faultyTx) InsertCard(ctx context.Context, c *card.Card) error {
	return errors.Join(f.Tx.InsertCard(ctx, c), f.fail("card"))
}

func (f faultyTx) InsertAttributions(ctx context.Context, as []operator.Attribution) error {
	return errors.Join(f.Tx.InsertAttributions(ctx, as), f.fail("attributions"))
}

// at returns a service on a store with faults.
func (s *fixture) at(f *faultyStore) *operator.Service {
	f.Store = s.store
	return operator.New(f, s.rates, slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

func TestResolve_AnyFailure_NothingStored(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		refused := s.order()
		s.supplier.fault = func(int, *card.Credentials) error { return errDeclined }
		s.pay(refused, coin, 10)
		s.settle()
		s.supplier.fault = nil
		late := s.late(coin / 2)
		s.discrepancies = []string{declined}
		for _, tt := range []struct {
			call string
			kind operator.ResolutionKind
			card *card.Card
		}{
			{"lock", operator.Accept, late},
			{"tip", operator.Accept, late},
			{"intent", operator.Accept, late},
			{"transfers", operator.Accept, late},
			{"resolution", operator.Accept, late},
			{"event", operator.Accept, late},
			{"verdicts", operator.Accept, late},
			{"reopen", operator.Retry, refused},
		} {
			before, err := s.store.CardDetail(t.Context(), tt.card.UUID)
			check(t, err)
			done, err := s.at(&faultyStore{call: tt.call}).ResolveCard(t.Context(),
				operator.Decision{CardUUID: tt.card.UUID, Kind: tt.kind, Note: "x", Operator: "x"})
			if diff := cmp.Diff(operator.Resolved{}, done); diff != "" || !errors.Is(err, errBroken) {
				t.Errorf("%s: %v, %s", tt.call, err, diff)
			}
			after, err := s.store.CardDetail(t.Context(), tt.card.UUID)
			check(t, err)
			if diff := cmp.Diff(before, after, cmpopts.IgnoreFields(operator.Books{}, "AsOf")); diff != "" {
				t.Errorf("%s changed %s", tt.call, diff)
			}
		}
		if s.log.Len() > 0 {
			t.Errorf("no decision, but logged: %s", &s.log)
		}
	})
}

func TestResolve_CommitReplyLost_Unchanged(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin / 2)
		refund := operator.Decision{CardUUID: c.UUID, Kind: operator.Refund, Note: "x", Operator: "x"}
		if _, err := s.at(&faultyStore{lost: card.ErrUnavailable}).ResolveCard(t.Context(), refund); !errors.Is(err,
			card.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		s.wantNothingToDo(c, operator.Refund)
		s.wantBooks(ledger{Counted: coin / 2, Refunded: coin / 2})
	})
}

func TestResolve_TransactionRetried_DecidedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin / 2)
		refund := operator.Decision{CardUUID: c.UUID, Kind: operator.Refund, Note: "x", Operator: "x"}
		done, err := s.at(&faultyStore{twice: true}).ResolveCard(t.Context(), refund)
		if err != nil || done.Unchanged || done.Resolution.Amount != coin/2 || done.Card.Refunded != 0 ||
			done.After != card.Expired {
			t.Errorf("%+v, %v", done, err)
		}
		s.wantBooks(ledger{Counted: coin / 2, Refunded: coin / 2})
	})
}

func TestAttribute_AnyFailure_NothingStored(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c, taken := s.order(), s.order()
		a, earlier := s.payStray(coin, 10), s.payStray(5, 10)
		s.attribute(s.toCard(earlier, taken))
		s.log.Reset()
		before, err := operator.New(s.store, s.rates, slog.New(slog.DiscardHandler)).Reconcile(t.Context(), operator.Audit{})
		check(t, err)
		for _, tt := range []struct {
			call string
			d    operator.AttributionDecision
		}{
			{"chain", s.toCard(a, c)},
			{"arrival", s.toCard(a, c)},
			{"lock", s.toCard(a, c)},
			{"lock", s.toCard(earlier, taken)},
			{"transfers", s.toCard(a, c)},
			{"transfers", s.toNew(a)},
			{"tip", s.decision(a, operator.GiveBack)},
			{"card", s.toNew(a)},
			{"attributions", s.toNew(a)},
			{"attributions", s.decision(a, operator.GiveBack)},
			{"verdicts", s.toCard(a, c)},
			{"verdicts", s.toNew(a)},
		} {
			done, err := s.at(&faultyStore{call: tt.call}).AttributeTransfer(t.Context(), tt.d)
			if diff := cmp.Diff(operator.Attributed{}, done); diff != "" || !errors.Is(err, errBroken) {
				t.Errorf("%s, %s: %v, %s", tt.call, tt.d.Kind, err, diff)
			}
			after, err := operator.New(s.store, s.rates, slog.New(slog.DiscardHandler)).Reconcile(t.Context(), operator.Audit{})
			check(t, err)
			if diff := cmp.Diff(before, after, cmpopts.IgnoreFields(operator.Books{}, "AsOf")); diff != "" {
				t.Errorf("%s, %s changed %s", tt.call, tt.d.Kind, diff)
			}
		}
		if found, err := s.store.FindCards(t.Context(), operator.Search{Limit: 10}); err != nil || len(found) != 2 {
			t.Errorf("%d cards, %v", len(found), err)
		}
		s.wantUnattributed(1)
		if s.log.Len() > 0 {
			t.Errorf("no decision, but logged: %s", &s.log)
		}
	})
}

func TestAttribute_CommitReplyLost_Unchanged(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		for _, d := range []operator.AttributionDecision{s.toCard(s.payStray(coin, 10), c), s.toNew(s.payStray(coin, 10)),
			s.decision(s.payStray(coin, 10), operator.GiveBack)} {
			if _, err := s.at(&faultyStore{lost: card.ErrUnavailable}).AttributeTransfer(t.Context(), d); !errors.Is(err,
				card.ErrUnavailable) {
				t.Errorf("%v", err)
			}
			if done := s.attribute(d); !done.Unchanged {
				t.Errorf("%+v", done)
			}
		}
		s.settle()
		s.wantIssued(2)
		s.wantBooks(ledger{Counted: 3 * coin, Made: 2 * coin, Returned: coin, Paid: 2, Issued: 2})
	})
}

func TestAttribute_TransactionRetried_DecidedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		done, err := s.at(&faultyStore{twice: true}).AttributeTransfer(t.Context(), s.toNew(s.payStray(coin, 10)))
		if err != nil || done.Unchanged || done.Amount != coin || done.After != card.Paid {
			t.Errorf("%+v, %v", done, err)
		}
		s.settle()
		s.want(done.Card, card.Generated, card.Paid, coin, 10)
		s.wantIssued(1)
	})
}
