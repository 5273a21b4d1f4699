package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

// calls calls every exported method of a store and of its transactions, on a
// database that fillPlans filled with n cards.
type calls struct {
	t     *testing.T
	s     *store.Store
	n     int
	begin func(method string)                                // is called before each method
	call  func(method string, f func(context.Context) error) // calls a method; if nil, an error ends the test

	withoutBooks bool

	own   uuid.UUID // an account with few cards
	card  *card.Card
	lease settle.Lease
	claim *webhook.Claim
}

// do calls f, which calls a method of the store. The name of the method may be
// followed by a space and a description of its arguments.
func (c *calls) do(method string, f func(ctx context.Context) error) {
	c.t.Helper()
	c.begin(method)
	if c.call != nil {
		c.call(method, f)
		return
	}
	if err := f(c.t.Context()); err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
}

// tx calls f, which calls a method of a transaction.
func (c *calls) tx(method string, f func(ctx context.Context, tx *store.Tx) error) {
	c.t.Helper()
	c.do("tx."+method, func(ctx context.Context) error {
		return c.s.Do(ctx, func(tx *store.Tx) error { return f(ctx, tx) })
	})
}

// first drops the first result of a method.
func first[T any](_ T, err error) error { return err }

// page is the page size of all lists.
const page = 10

// all calls every method, with every combination of the filters of lists.
func (c *calls) all() {
	c.together()
	c.filters()
	c.methods()
}

// methods calls every method. The last one closes the store.
func (c *calls) methods() {
	c.accounts()
	c.leases()
	c.addresses()
	c.cards()
	c.lists()
	c.transfers()
	c.intents()
	c.decisions()
	c.events()
	c.webhooks()
	c.simulated()
	c.rates()
	c.stock()
	c.keys()
	c.retention()
	c.others()
}

func (c *calls) accounts() {
	s := c.s
	token := account.Token{ID: uuid.Must(uuid.NewV7()), AccountID: c.own, Hash: []byte("own"), CreatedAt: epoch}
	c.do("InsertAccount", func(ctx context.Context) error {
		return s.InsertAccount(ctx, account.Account{ID: uuid.Must(uuid.NewV7()), Name: "another", CreatedAt: epoch})
	})
	c.do("AccountByName", func(ctx context.Context) error { return first(s.AccountByName(ctx, "even")) })
	c.do("Accounts", func(ctx context.Context) error { return first(s.Accounts(ctx)) })
	c.do("InsertToken", func(ctx context.Context) error { return s.InsertToken(ctx, token) })
	c.do("Tokens", func(ctx context.Context) error { return first(s.Tokens(ctx)) })
	c.do("TokenByHash", func(ctx context.Context) error { return first(s.TokenByHash(ctx, token.Hash)) })
	c.do("TokenByID", func(ctx context.Context) error { return first(s.TokenByID(ctx, token.ID)) })
	successor := account.Token{ID: uuid.Must(uuid.NewV7()), AccountID: c.own, Hash: []byte("next"), CreatedAt: epoch}
	c.do("RotateToken", func(ctx context.Context) error { return s.RotateToken(ctx, token, successor, epoch) })
	c.do("SaveUses", func(ctx context.Context) error {
		return s.SaveUses(ctx, map[uuid.UUID]time.Time{token.ID: epoch, successor.ID: epoch})
	})
	c.do("TokenUses", func(ctx context.Context) error { return first(s.TokenUses(ctx)) })
	c.do("RevokeToken", func(ctx context.Context) error { return s.RevokeToken(ctx, token) })
	c.do("SealTokens", func(ctx context.Context) error {
		check, err := s.Setting(ctx, "key_check", "before")
		if err != nil {
			return err
		}
		return s.SealTokens(ctx, []account.Token{token}, check, "after")
	})
	c.do("Setting", func(ctx context.Context) error { return first(s.Setting(ctx, "a setting", "x")) })
	c.do("Exposure", func(ctx context.Context) error { return first(s.Exposure(ctx, even, true)) })
}

func (c *calls) leases() {
	s := c.s
	c.do("InvalidateEpochs", s.InvalidateEpochs)
	c.do("AcquireLease", func(ctx context.Context) (err error) {
		c.lease, err = s.AcquireLease(ctx, settle.LeaseName("monero"), "watcher", time.Hour)
		return err
	})
	c.do("BeginEpoch", func(ctx context.Context) error {
		begun, err := s.BeginEpoch(ctx, c.lease, settle.Epoch{Currency: "monero", Number: c.lease.Now.UnixMilli()})
		if err == nil {
			c.lease = begun
		}
		return err
	})
	held := c.lease
	c.do("AcquireLease again", func(ctx context.Context) (err error) {
		c.lease, err = s.AcquireLease(ctx, held.Name, held.Holder, time.Hour)
		return err
	})
	c.tx("CheckLease", func(ctx context.Context, tx *store.Tx) error { return tx.CheckLease(ctx, c.lease) })
	c.do("ResetFeeds", func(ctx context.Context) error { return s.ResetFeeds(ctx, c.lease, epoch) })
}

func (c *calls) keys() {
	s := c.s
	holder := keys.Holder{Process: "x", Keys: keys.Ring{IDs: []card.KeyID{1, 2}, Primary: 2}}
	c.do("SaveHolder", func(ctx context.Context) error { return s.SaveHolder(ctx, holder) })
	c.do("Holders", func(ctx context.Context) error { return first(s.Holders(ctx, time.Minute)) })
	c.do("DeleteHolder", func(ctx context.Context) error { return s.DeleteHolder(ctx, "x") })
	c.do("PromoteKey", func(ctx context.Context) error { return s.PromoteKey(ctx, 2) })
	c.do("MarkRetired", func(ctx context.Context) error { return s.MarkRetired(ctx, 1, true) })
	c.do("KnownKeys", func(ctx context.Context) error { return first(s.KnownKeys(ctx)) })
	purge := keys.Purge{ID: uuid.Must(uuid.NewV7()), CardUUID: numbered(cardKind, 3), Note: "n", Operator: "o"}
	c.do("PurgeCard", func(ctx context.Context) error { return first(s.PurgeCard(ctx, purge)) })
	c.sealed()
}

// sealed calls the methods that read all encrypted values.
func (c *calls) sealed() {
	s := c.s
	c.do("SealedSets", func(context.Context) error { s.SealedSets(); return nil })
	c.do("LongestWrite", func(context.Context) error { s.LongestWrite(); return nil })
	for _, set := range s.SealedSets() {
		for _, key := range []card.KeyID{1, 2, 3} { // used in the older half, in the newer half, and nowhere
			for _, after := range []uuid.UUID{uuid.Nil, numbered(cardKind, c.n/4)} {
				var rows []keys.Row
				c.do("SealedBy "+set.Name, func(ctx context.Context) (err error) {
					rows, err = s.SealedBy(ctx, set.Name, key, after, page)
					return err
				})
				if len(rows) > 0 {
					c.do("ReplaceSealed "+set.Name, func(ctx context.Context) error {
						return first(s.ReplaceSealed(ctx, set.Name, rows, rows))
					})
				}
			}
		}
		c.do("UsersOf "+set.Name, func(ctx context.Context) error {
			_, _, _, err := s.UsersOf(ctx, set.Name, 1, numbered(cardKind, c.n/4), page)
			return err
		})
	}
	c.do("CountSealed", func(ctx context.Context) error { return first(s.CountSealed(ctx)) })
	c.do("PurgeCredentials", func(ctx context.Context) error {
		_, _, err := s.PurgeCredentials(ctx, time.Hour, page) // PurgeCard purges
		return err
	})
}

func (c *calls) retention() {
	s := c.s
	c.do("AcquireRetention", func(ctx context.Context) error { return first(s.AcquireRetention(ctx, "x", time.Minute)) })
	c.do("AccountIDs", func(ctx context.Context) error { return first(s.AccountIDs(ctx)) })
	expired := c.newCard() // has no event
	expired.UUID = numbered("8009", 5)
	c.tx("InsertCard expired", func(ctx context.Context, tx *store.Tx) error { return tx.InsertCard(ctx, expired) })
	c.tx("SaveVerdicts expired", func(ctx context.Context, tx *store.Tx) error {
		return tx.SaveVerdicts(ctx, []card.Verdict{{Card: expired, Assessment: card.Assessment{State: card.Expired}}})
	})
	for _, of := range []struct {
		name    string
		account uuid.UUID
	}{{"even", even}, {"odd", odd}, {"old", old}, {"own", c.own}} {
		for range 2 { // the second time with a feed.reset
			c.do("PruneEvents "+of.name, func(ctx context.Context) error {
				return first(s.PruneEvents(ctx, of.account, time.Hour, page))
			})
		}
		after := uuid.Nil
		for range 3 {
			c.do("RetireCards "+of.name, func(ctx context.Context) (err error) {
				_, after, err = s.RetireCards(ctx, of.account, "monero", time.Hour, after, page)
				return err
			})
		}
	}
	c.do("ReleaseRetention", func(ctx context.Context) error { return s.ReleaseRetention(ctx, "x") })
	c.do("RetiredCards", func(ctx context.Context) error {
		return first(
			s.RetiredCards(ctx,
				[]card.Transfer{{Currency: "monero", Address: "address 3"}, {Currency: "monero", Address: "nobody 9"}}))
	})
}

func (c *calls) rates() {
	s, usd := c.s, card.Decimal{Units: 150_00000000, Scale: card.RateScale}
	c.do("InsertAcceptedRates", func(ctx context.Context) error {
		return s.InsertAcceptedRates(ctx,
			[]card.AcceptedRate{
				{ID: uuid.Must(uuid.NewV7()), Currency: "monero", USD: usd, Source: "x", At: time.Now(), By: "x"}}, time.Hour)
	})
	c.do("AcceptedRates", func(ctx context.Context) error {
		return first(s.AcceptedRates(ctx, []string{"monero"}, time.Hour))
	})
	c.do("SaveParkedRates", func(ctx context.Context) error {
		return s.SaveParkedRates(ctx, "x",
			[]card.ParkedRate{
				{Currency: "monero", USD: usd, Source: "x", Why: "x", Since: time.Now(), Until: time.Now().Add(time.Minute),
					By: "x"}})
	})
	c.do("ParkedRates", func(ctx context.Context) error { return first(s.ParkedRates(ctx)) })
	c.do("SaveUsage", func(ctx context.Context) error { return s.SaveUsage(ctx, "x", "[]") })
	c.do("UsageOfOthers", func(ctx context.Context) error { return first(s.UsageOfOthers(ctx, "y", time.Minute)) })
	c.do("DeleteUsage", func(ctx context.Context) error { return s.DeleteUsage(ctx, "x") })
}

func (c *calls) stock() {
	s, day := c.s, 24*time.Hour
	ordered := newCard(c.own)
	item := newItem(150_50, time.Now().Add(day))
	c.do("ImportStock", func(ctx context.Context) error {
		return s.ImportStock(ctx, func(add func([]card.StockItem) error) error { return add([]card.StockItem{item}) })
	})
	c.do("KnownNumbers", func(ctx context.Context) error {
		return first(s.KnownNumbers(ctx, [][]byte{[]byte("9"), []byte("x")}))
	})
	c.do("InsertCardReserving", func(ctx context.Context) error {
		return first(s.InsertCardReserving(ctx, ordered, 1000_00, shelf, time.Hour))
	})
	c.do("StockItem", func(ctx context.Context) error { return first(s.StockItem(ctx, shelf, ordered.UUID)) })
	c.do("CancelStock", func(ctx context.Context) error { return s.CancelStock(ctx, shelf, ordered.UUID) })
	c.do("TakeStock", func(ctx context.Context) error {
		return first(s.TakeStock(ctx, shelf, ordered.UUID, ordered.USD, time.Now()))
	})
	c.do("TakeStock again", func(ctx context.Context) error {
		return first(s.TakeStock(ctx, shelf, ordered.UUID, ordered.USD, time.Now()))
	})
	c.do("FreeStock", func(ctx context.Context) error { return first(s.FreeStock(ctx, shelf, time.Now())) })
	c.do("TidyStock", s.TidyStock)
	c.do("StockCounts", func(ctx context.Context) error { return first(s.StockCounts(ctx)) })
	c.do("HoldStock", func(ctx context.Context) error { return first(s.HoldStock(ctx, "another")) })
	c.do("ReleaseStock", func(ctx context.Context) error {
		return first(s.ReleaseStock(ctx, "another", []uuid.UUID{uuid.New()}))
	})
	c.do("DoubtfulStock", func(ctx context.Context) error { return first(s.DoubtfulStock(ctx)) })
	c.do("SaveOffers", func(ctx context.Context) error {
		return s.SaveOffers(ctx, card.SupplierOffers{Supplier: shelf, Offers: []card.Offer{{Min: 1, Max: 1, Left: 1}}})
	})
	c.do("PromisedUSD", func(ctx context.Context) error { return first(s.PromisedUSD(ctx, card.MinUSD, card.MaxUSD)) })
	c.do("KeepOffers", func(ctx context.Context) error { return s.KeepOffers(ctx, shelf, 1) })
	c.do("Offers", func(ctx context.Context) error { return first(s.Offers(ctx)) })
	c.do("DeleteOffers", func(ctx context.Context) error { return s.DeleteOffers(ctx, []string{shelf}) })
}

func (c *calls) addresses() {
	s := c.s
	c.tx("CheckedPool", func(ctx context.Context, tx *store.Tx) error { return tx.CheckedPool(ctx, "monero") })
	c.tx("InsertAddresses", func(ctx context.Context, tx *store.Tx) error {
		return tx.InsertAddresses(ctx, []settle.Address{{Currency: "monero", Address: "another", Position: int64(c.n) + 1}},
			epoch)
	})
	c.do("AddressPool", func(ctx context.Context) error { return first(s.AddressPool(ctx, "monero")) })
	c.do("PoolState", func(ctx context.Context) error { return first(s.PoolState(ctx, "monero")) })
	c.do("TakeAddresses", func(ctx context.Context) error {
		taken, err := s.TakeAddresses(ctx, "monero", page)
		if err == nil && len(taken) == 0 {
			c.t.Log("no address was handed out: all have been paid to")
		}
		return err
	})
	c.do("DistrustPool", func(ctx context.Context) error { return s.DistrustPool(ctx, "monero") })
	c.do("RequestRescan", func(ctx context.Context) error { return s.RequestRescan(ctx, "monero", "x") })
	c.do("AskForRescan", func(ctx context.Context) error { return s.AskForRescan(ctx, "monero", true) })
	c.do("NoteRescan", func(ctx context.Context) error { return s.NoteRescan(ctx, "monero", "x") })
	c.tx("EndRescan", func(ctx context.Context, tx *store.Tx) error { return tx.EndRescan(ctx, "monero") })
}

// together calls methods concurrently, so that they share statements. On SQLite,
// three of the four cards do.
func (c *calls) together() {
	account, inserting := newAccount(c.t, c.s), make([]attempt, 4)
	for _, limit := range []card.USD{0, 10_000_00} {
		c.do(fmt.Sprint("InsertCard ", limit, " together"), func(ctx context.Context) error {
			for i := range inserting {
				inserting[i] = attempt{card: newCard(account), limit: limit}
			}
			_, errs, wait := together(c.t, c.s, ctx, inserting)
			wait()
			return errors.Join(errs...)
		})
	}
	if store.Arrays(c.s) {
		c.do("CardByUUID together", func(context.Context) error {
			return store.ReadTogether(c.s, account, inserting[0].card.UUID, inserting[1].card.UUID, inserting[2].card.UUID)
		})
	}
}

func (c *calls) newCard() *card.Card {
	made := newCard(c.own)
	made.IdempotencyKey = uuid.NewString()
	return made
}

func (c *calls) cards() {
	s := c.s
	c.card = c.newCard()
	c.do("InsertCard", func(ctx context.Context) error { return first(s.InsertCard(ctx, c.card, 0)) })
	c.do("InsertCard within", func(ctx context.Context) error { return first(s.InsertCard(ctx, c.newCard(), 1000_00)) })
	c.do("CardByUUID", func(ctx context.Context) error { return first(s.CardByUUID(ctx, c.own, c.card.UUID)) })
	c.do("CardOfKey", func(ctx context.Context) error {
		return first(s.CardOfKey(ctx, c.own, c.card.IdempotencyKey))
	})
	c.do("CardTag", func(ctx context.Context) error { return first(s.CardTag(ctx, c.own, c.card.UUID)) })
	c.do("TraceParents", func(ctx context.Context) error {
		return first(s.TraceParents(ctx, []uuid.UUID{c.card.UUID, numbered(cardKind, 7)}))
	})
	c.do("CardsByUUID", func(ctx context.Context) error {
		return first(s.CardsByUUID(ctx, []uuid.UUID{c.card.UUID, numbered(cardKind, 7)}))
	})
	c.do("AwaitReplication", s.AwaitReplication)
	c.do("CardDetail", func(ctx context.Context) error { return first(s.CardDetail(ctx, numbered(cardKind, 8))) })
	c.do("Confirmations", func(ctx context.Context) error { return first(s.Confirmations(ctx, chain.Currencies()[0])) })
	c.do("Confirmations of a coin without cards", func(ctx context.Context) error {
		return first(s.Confirmations(ctx, card.Currency{Code: "new"}))
	})
	canceled := c.newCard()
	check(c.t, first(s.InsertCard(c.t.Context(), canceled, 0)))
	c.do("CancelCard", func(ctx context.Context) error { return first(s.CancelCard(ctx, canceling(canceled))) })
	c.do("SealedCards", func(ctx context.Context) error {
		return first(s.SealedCards(ctx, numbered(cardKind, c.n/2), page))
	})
	c.do("SealedCardsOf", func(ctx context.Context) error {
		return first(s.SealedCardsOf(ctx, []uuid.UUID{numbered(cardKind, c.n/2), numbered(cardKind, 1)}))
	})
}

// lists calls every list with every filter, both with values that the newest
// cards match and with values that they don't.
func (c *calls) lists() {
	s := c.s
	for name, account := range map[string]uuid.UUID{"even": even, "odd": odd, "old": old, "own": c.own} {
		for _, status := range []card.Status{"", card.AwaitingPayment, card.Generated} {
			for where, before := range map[string]uuid.UUID{"": uuid.Nil, " further": numbered(cardKind, c.n-c.n/10)} {
				c.do("Cards "+name+" "+string(status)+where, func(ctx context.Context) error {
					return first(s.Cards(ctx, order.Filter{AccountID: account, Status: status, Before: before, Limit: page}))
				})
				c.do("PageTags "+name+" "+string(status)+where, func(ctx context.Context) error {
					return first(s.PageTags(ctx, order.Filter{AccountID: account, Status: status, Before: before, Limit: page}))
				})
			}
		}
	}
	for name, account := range map[string]uuid.UUID{"all": uuid.Nil, "even": even, "odd": odd, "old": old} {
		for _, state := range []card.PaymentState{"", card.Unpaid, card.Expired, card.Canceled, card.Paid, card.Late} {
			for which, attention := range map[string]bool{"": false, " attention": true} {
				c.do("FindCards "+name+" "+string(state)+which, func(ctx context.Context) error {
					found, err := s.FindCards(ctx,
						operator.Search{AccountID: account, State: state, NeedsOperator: attention, Limit: page})
					if err == nil && attention && name == "all" && state == "" && len(found) < page {
						c.t.Errorf("%d cards need an operator", len(found))
					}
					return err
				})
			}
		}
	}
	c.do("Unattributed", func(ctx context.Context) error {
		found, err := s.Unattributed(ctx, page)
		if err == nil && len(found) < page {
			c.t.Errorf("%d transfers are unattributed", len(found))
		}
		return err
	})
	c.do("Strays", func(ctx context.Context) error { return first(s.Strays(ctx, page)) })
	for name, hook := range map[string]uuid.UUID{"even": evenHook, "odd": oddHook} {
		for _, state := range []webhook.DeliveryState{"", webhook.DeliveryPending, webhook.DeliveryFailed,
			webhook.DeliveryDelivered} {
			for where, before := range map[string]int64{"": 0, " further": int64(c.n/2 - c.n/20)} {
				c.do("Deliveries "+name+" "+string(state)+where, func(ctx context.Context) error {
					return first(s.Deliveries(ctx, hook, webhook.DeliveryFilter{State: state, Before: before, Limit: page}))
				})
			}
		}
	}
	c.do("ArrivalsIn", func(ctx context.Context) error { return first(s.ArrivalsIn(ctx, "stray 1")) })
}

func (c *calls) transfers() {
	coin := chain.Currencies()[0]
	c.do("Cursor", func(ctx context.Context) error { return first(c.s.Cursor(ctx, coin)) })
	c.do("SettleTx", func(ctx context.Context) error { return c.s.SettleTx(ctx, func(settle.Tx) error { return nil }) })
	c.tx("SaveCursor", func(ctx context.Context, tx *store.Tx) error {
		return tx.SaveCursor(ctx, "monero", settle.Cursor{Tip: card.Tip{Height: int64(c.n / 10), Time: epoch}})
	})
	c.tx("Tip", func(ctx context.Context, tx *store.Tx) error { return first(tx.Tip(ctx, "monero")) })
	c.tx("TransfersIn", func(ctx context.Context, tx *store.Tx) error {
		return first(
			tx.TransfersIn(ctx, "monero", int64(c.n/10)-1, []settle.Blocks{{First: 5, Last: 5}, {First: 9, Last: 12}}))
	})
	c.tx("TransfersOf", func(ctx context.Context, tx *store.Tx) error {
		return first(tx.TransfersOf(ctx, "monero", []string{"stray 5", "stray 6", "of nobody"}))
	})
	c.do("LockedBlocks", func(ctx context.Context) error {
		return first(c.s.LockedBlocks(ctx, "monero", settle.Blocks{First: 1, Last: int64(c.n)}, page))
	})
	c.tx("TransfersTo", func(ctx context.Context, tx *store.Tx) error {
		return first(tx.TransfersTo(ctx, "monero", []string{c.card.Address, "address 9", "nobody 9"}))
	})
	c.tx("UpsertTransfers", func(ctx context.Context, tx *store.Tx) error {
		return tx.UpsertTransfers(ctx,
			[]card.Transfer{newTransfer("own", 0, c.card.Address, 1), newTransfer("own", 1, "nobody", 1),
				newTransfer("stray 5", 0, "nobody 5", 1)})
	})
	c.tx("LockCards", func(ctx context.Context, tx *store.Tx) error {
		return first(
			tx.LockCards(ctx, "monero", []string{c.card.Address, "address 9", "nobody 9"},
				card.Tip{Height: int64(c.n / 10), Time: time.UnixMilli(0)}))
	})
	c.tx("LockCardsByUUID", func(ctx context.Context, tx *store.Tx) error {
		return first(tx.LockCardsByUUID(ctx, []uuid.UUID{c.card.UUID, numbered(cardKind, 7)}))
	})
	c.tx("SaveVerdicts", func(ctx context.Context, tx *store.Tx) error {
		e := newEvent(c.card, card.EventDetected)
		return tx.SaveVerdicts(ctx,
			[]card.Verdict{{Card: c.card, Assessment: card.Assessment{State: card.Paid}, Issue: true, Event: &e}})
	})
}

func (c *calls) intents() {
	s := c.s
	var claimed []issue.Intent
	c.do("ClaimIntents", func(ctx context.Context) (err error) {
		claimed, err = s.ClaimIntents(ctx, claimOf("sandbox"), 3, time.Hour) // more remain for a second call
		if err == nil && len(claimed) < 3 {
			return errors.New("too few")
		}
		return err
	})
	c.do("ProlongIntents", func(ctx context.Context) error { return s.ProlongIntents(ctx, claimed, time.Hour) })
	c.do("ExpediteIntents", func(ctx context.Context) error {
		return s.ExpediteIntents(ctx, "sandbox", []uuid.UUID{claimed[0].CardUUID})
	})
	claimed[0].State = "parked"
	c.do("SaveIntents", func(ctx context.Context) error { return s.SaveIntents(ctx, claimed[:1]) })
	c.do("IssueTx", func(ctx context.Context) error { return s.IssueTx(ctx, func(issue.Tx) error { return nil }) })
	c.tx("SaveIntents", func(ctx context.Context, tx *store.Tx) error {
		kept := claimed[2]
		kept.Reason = "the supplier is busy"
		return tx.SaveIntents(ctx, []issue.Intent{kept})
	})
	c.tx("SaveIssued", func(ctx context.Context, tx *store.Tx) error {
		return tx.SaveIssued(ctx, []issue.IssuedCard{issued(claimed[1], uuid.NewString())})
	})
	c.tx("ReopenIntent", func(ctx context.Context, tx *store.Tx) error {
		return tx.ReopenIntent(ctx, claimed[0].CardUUID)
	})
	c.tx("Intent", func(ctx context.Context, tx *store.Tx) error { return first(tx.Intent(ctx, claimed[0].CardUUID)) })
}

func (c *calls) decisions() {
	c.do("OperatorTx", func(ctx context.Context) error {
		return c.s.OperatorTx(ctx, func(operator.Tx) error { return nil })
	})
	c.tx("LockChain", func(ctx context.Context, tx *store.Tx) error { return tx.LockChain(ctx, "monero") })
	c.tx("Arrival", func(ctx context.Context, tx *store.Tx) error {
		return first(tx.Arrival(ctx, operator.TransferID{Currency: "monero", TxID: "own", Output: 1}))
	})
	another, resolution := c.newCard(),
		operator.Resolution{ID: uuid.Must(uuid.NewV7()), CardUUID: c.card.UUID, Kind: operator.Retry}
	c.tx("InsertCard", func(ctx context.Context, tx *store.Tx) error { return tx.InsertCard(ctx, another) })
	c.tx("InsertAttributions", func(ctx context.Context, tx *store.Tx) error {
		return tx.InsertAttributions(ctx,
			[]operator.Attribution{newAttribution(newTransfer("own", 1, "nobody", 1), uuid.Nil)})
	})
	c.tx("Resolutions", func(ctx context.Context, tx *store.Tx) error {
		return first(tx.Resolutions(ctx, numbered(cardKind, 8)))
	})
	c.tx("HasEvent", func(ctx context.Context, tx *store.Tx) error {
		return first(tx.HasEvent(ctx, numbered(cardKind, 8), card.EventDetected))
	})
	c.tx("InsertResolution", func(ctx context.Context, tx *store.Tx) error {
		return tx.InsertResolution(ctx, resolution, c.card)
	})
}

func (c *calls) events() {
	s := c.s
	c.do("Events", func(ctx context.Context) error { return first(s.Events(ctx, even, int64(c.n/4), page)) })
	c.do("CardEvents", func(ctx context.Context) error {
		return first(s.CardEvents(ctx, even, numbered(cardKind, 8), 0, page))
	})
	c.do("LastSeqs", func(ctx context.Context) error { return first(s.LastSeqs(ctx, []uuid.UUID{even, c.own})) })
	c.do("LastSeqsOfCards", func(ctx context.Context) error {
		return first(s.LastSeqsOfCards(ctx, []uuid.UUID{numbered(cardKind, 7), numbered(cardKind, 8)}))
	})
	c.do("LastSeq", func(ctx context.Context) error { return first(s.LastSeq(ctx, even)) })
	c.do("SeqBefore", func(ctx context.Context) error {
		return first(s.SeqBefore(ctx, even, time.Now().Add(-25*time.Hour)))
	})
	c.tx("InsertEvents", func(ctx context.Context, tx *store.Tx) error {
		e := newEvent(c.card, card.EventDetected)
		e.AccountID = even
		return tx.InsertEvents(ctx, []card.Event{newEvent(c.card, card.EventDetected), e})
	})
}

func (c *calls) webhooks() {
	s, now := c.s, time.Now()
	own := newWebhook(c.own)
	c.do("WebhookTx", func(ctx context.Context) error { return s.WebhookTx(ctx, func(webhook.Tx) error { return nil }) })
	c.tx("LockAccount", func(ctx context.Context, tx *store.Tx) error { return tx.LockAccount(ctx, c.own) })
	c.tx("CountWebhooks", func(ctx context.Context, tx *store.Tx) error { return first(tx.CountWebhooks(ctx, c.own)) })
	c.tx("InsertWebhook", func(ctx context.Context, tx *store.Tx) error { return tx.InsertWebhook(ctx, own) })
	c.tx("LockWebhook", func(ctx context.Context, tx *store.Tx) error { return first(tx.LockWebhook(ctx, c.own, own.ID)) })
	c.tx("SaveWebhook", func(ctx context.Context, tx *store.Tx) error { return tx.SaveWebhook(ctx, own) })
	c.do("WebhookByID", func(ctx context.Context) error { return first(s.WebhookByID(ctx, c.own, own.ID)) })
	c.do("Webhooks", func(ctx context.Context) error { return first(s.Webhooks(ctx, c.own)) })
	for name, hook := range map[string]uuid.UUID{"even": evenHook, "odd": oddHook} {
		c.do("DueDeliveries "+name, func(ctx context.Context) error { return first(s.DueDeliveries(ctx, hook, now, page)) })
		c.do("DueRetries "+name, func(ctx context.Context) error { return first(s.DueRetries(ctx, hook, now, page)) })
	}
	c.do("ClaimWebhooks", func(ctx context.Context) error {
		claimed, err := s.ClaimWebhooks(ctx, now, 1, time.Hour) // one is left for a second call
		if err == nil && len(claimed) < 1 {
			return errors.New("too few")
		}
		if err == nil {
			c.claim = claimed[0]
		}
		return err
	})
	c.tx("CheckClaim", func(ctx context.Context, tx *store.Tx) error { return tx.CheckClaim(ctx, c.claim) })
	c.tx("SaveWebhookState", func(ctx context.Context, tx *store.Tx) error {
		return tx.SaveWebhookState(ctx, c.claim, webhook.State{PausedUntil: webhook.Immediately()}, now, time.Hour)
	})
	c.do("ReleaseWebhook", func(ctx context.Context) error { return s.ReleaseWebhook(ctx, c.claim) })
	due, err := s.DueDeliveries(c.t.Context(), evenHook, now, page)
	check(c.t, err)
	c.tx("SaveDeliveries", func(ctx context.Context, tx *store.Tx) error {
		return tx.SaveDeliveries(ctx, evenHook, due, due)
	})
	c.tx("Redeliver", func(ctx context.Context, tx *store.Tx) error {
		return tx.Redeliver(ctx, even, evenHook, numbered(eventKind, 8), now)
	})
	reply := newReply(c.own, "a key")
	c.tx("InsertReply", func(ctx context.Context, tx *store.Tx) error { return tx.InsertReply(ctx, reply) })
	c.tx("Reply", func(ctx context.Context, tx *store.Tx) error { return first(tx.Reply(ctx, c.own, reply.Key)) })
	c.do("PruneReplies", func(ctx context.Context) error { return first(s.PruneReplies(ctx, epoch, page)) })
	c.tx("RecoverDeliveries", func(ctx context.Context, tx *store.Tx) error {
		_, _, err := tx.RecoverDeliveries(ctx, even, evenHook, time.UnixMilli(0), int64(c.n/4), page, now)
		return err
	})
	c.do("DeleteDeliveries", func(ctx context.Context) error { return first(s.DeleteDeliveries(ctx, evenHook, page)) })
	c.do("PruneDeliveries", func(ctx context.Context) error {
		return first(s.PruneDeliveries(ctx, now.Add(-24*time.Hour), page))
	})
	c.do("DeleteWebhook", func(ctx context.Context) error { return s.DeleteWebhook(ctx, c.own, own.ID) })
}

func (c *calls) simulated() {
	s, height := c.s, int64(c.n)
	c.do("SimulatedAddresses", func(ctx context.Context) error { return first(s.SimulatedAddresses(ctx, "monero", page)) })
	c.do("SimulatedPay", func(ctx context.Context) error {
		return first(s.SimulatedPay(ctx, "monero", "own", c.card.Address, 1, math.MaxInt64, 1, epoch))
	})
	c.do("SimulatedTransfer", func(ctx context.Context) error {
		_, _, err := s.SimulatedTransfer(ctx, "monero", "own")
		return err
	})
	c.do("SimulatedMine", func(ctx context.Context) error { return s.SimulatedMine(ctx, "monero", 1) })
	c.do("SimulatedScan", func(ctx context.Context) error {
		_, _, _, err := s.SimulatedScan(ctx, "monero", height-page,
			[]settle.Blocks{{First: 5, Last: 5}, {First: 9, Last: 12}})
		return err
	})
	c.do("SimulatedReorg", func(ctx context.Context) error { return s.SimulatedReorg(ctx, "monero", page, false) })
	c.do("SimulatedReorg drop", func(ctx context.Context) error { return s.SimulatedReorg(ctx, "monero", page, true) })
}

func (c *calls) others() {
	s := c.s
	c.do("NoteConflict", func(ctx context.Context) error { return s.NoteConflict(ctx, "monero", "x") })
	c.do("ClaimWallet", func(ctx context.Context) error { return s.ClaimWallet(ctx, "monero") })
	c.do("MarkRestored", func(ctx context.Context) error { return s.MarkRestored(ctx, epoch) })
	c.do("Ping", s.Ping)
	c.do("Stats", func(ctx context.Context) error { return first(s.Stats(ctx)) })
	c.do("Pools", func(context.Context) error { _ = s.Pools(); return nil })
	if !c.withoutBooks {
		c.books()
	}
	c.do("Clock", func(ctx context.Context) error { return first(s.Clock(ctx)) })
	c.do("AwaitLease", func(ctx context.Context) error { return s.AwaitLease(ctx, c.lease.Name, "another", time.Minute) })
	c.do("LeaseAwaited", func(ctx context.Context) error { return first(s.LeaseAwaited(ctx, c.lease)) })
	c.do("ReleaseLease", func(ctx context.Context) error { return s.ReleaseLease(ctx, c.lease) })
	c.do("LogTo", func(context.Context) error { s.LogTo(slog.New(slog.DiscardHandler)); return nil })
	c.do("ReportCorrupt", func(ctx context.Context) error {
		s.ReportCorrupt(ctx, "x", uuid.New(), errors.New("x"))
		return nil
	})
	c.do("Schema", func(context.Context) error { _ = s.Schema(); return nil })
	c.do("SingleWriter", func(context.Context) error { _ = s.SingleWriter(); return nil })
	c.do("ShareDetector", func(context.Context) error { s.ShareDetector(s); return nil })
	c.do("RequireAttestation", func(context.Context) error { s.RequireAttestation(); return nil })
	c.do("Close", func(context.Context) error { return s.Close() })
}

func (c *calls) books() {
	s := c.s
	var books operator.Reading
	for _, read := range []struct {
		name string
		full bool
	}{{"ReadBooks first", false}, {"ReadBooks", false}, {"ReadBooks full", true}} {
		c.do(read.name, func(ctx context.Context) (err error) {
			books, err = s.ReadBooks(ctx, read.full, nobody)
			return err
		})
		c.do(strings.Replace(read.name, "Read", "Keep", 1), func(ctx context.Context) error {
			return s.KeepBooks(ctx, books)
		})
	}
}
