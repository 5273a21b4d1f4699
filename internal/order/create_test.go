package order_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/settle"
)

var errBroken = errors.New("broken pipe")

// wantRefused checks that an order is refused.
func (s *fixture) wantRefused(usd, key string, want error) error {
	s.t.Helper()
	c, replay, err := s.tryOrder(usd, key)
	if c != nil || replay || !errors.Is(err, want) {
		s.t.Errorf("%v, replay: %v, %v; want %v", c, replay, err, want)
	}
	return err
}

// wantCalls compares the calls to the store since the last check.
func (s *fixture) wantCalls(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.spy.takeCalls()); diff != "" {
		s.t.Errorf("calls to the store: %s", diff)
	}
}

// addTransfers adds transfers to addresses.
func (s *fixture) addTransfers(addresses ...string) {
	s.t.Helper()
	ts := make([]card.Transfer, len(addresses))
	for i, a := range addresses {
		ts[i] = card.Transfer{Currency: "monero", TxID: uuid.NewString(), Address: a, Amount: 1, FirstSeenAt: s.now,
			Counted: true}
	}
	check(s.t, s.db.SettleTx(s.t.Context(), func(tx settle.Tx) error { return tx.UpsertTransfers(s.t.Context(), ts) }))
}

func TestCreateCard_TakesOneRoundTrip(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 40)
		check(t, s.orders.Prepare(t.Context()))
		s.spy.takeCalls()
		s.create("150", "")
		s.wantCalls("InsertCard")
		s.create("150", "key")
		s.wantCalls("InsertCard")
	})
}

func TestCreateCard_ReturnsStoredCard(t *testing.T) {
	onEach(t, setup{config: func(c *order.Config) { c.QuoteTTL = 90 * time.Minute }}, func(t *testing.T, s *fixture) {
		s.stock("monero", 1)
		s.stock("pebble", 1)
		before := time.Now().Truncate(time.Millisecond)
		for currency, want := range map[string]*card.Card{
			"monero": {USD: 150_01, Coin: monero, Amount: 1_000066666667, Address: "monero-0", ConfirmationsRequired: 10,
				Credit: card.Credit{Due: 1_000066666667}},
			"pebble": {USD: 150_01, Coin: pebble, Amount: 50_01, Address: "pebble-0", ConfirmationsRequired: 3,
				Credit: card.Credit{Due: 50_01}},
		} {
			rate, err := s.rates.Rate(currency)
			check(t, err)
			c, replay, err := s.orders.CreateCard(t.Context(), s.account, s.check("150.01", currency), "")
			check(t, err)
			want.UUID, want.AccountID, want.Rate, want.Status, want.State = c.UUID, s.account, rate, card.AwaitingPayment,
				card.Unpaid
			want.CreatedAt = card.TimeOf(c.UUID)
			want.ExpiresAt = want.CreatedAt.Add(90 * time.Minute)
			if diff := cmp.Diff(want, c); diff != "" || replay {
				t.Errorf("replay: %v, %s", replay, diff)
			}
			if c.CreatedAt.Before(before) || c.CreatedAt.After(time.Now()) {
				t.Errorf("created at %s", c.CreatedAt)
			}
			stored, err := s.db.CardByUUID(t.Context(), s.account, c.UUID)
			check(t, err)
			want.Transfers, want.Tag = []card.Transfer{}, stored.Tag // CreateCard reads no transfers and no tag
			if diff := cmp.Diff(want, stored); diff != "" {
				t.Errorf("stored: %s", diff)
			}
		}
	})
}

func TestCreateCard_UncheckedOrder_ReturnsError(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		if _, _, err := s.orders.CreateCard(t.Context(), s.account, order.Order{}, "key"); err == nil {
			t.Error("an unchecked order was accepted")
		}
		s.wantCalls()
	})
}

func TestCreateCard_Replay_ReturnsCardAsCreated(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 40)
		first := s.create("150", "key")
		s.exec("UPDATE cards SET payment_state = 'paid', received = 5, settled = 5, height = 3, accepted = 5, refunded = 1, credit_paid = 4, credit_due = 0")
		s.generate(first, card.Credentials{CardNumber: "4111111111111111"})
		again, replay, err := s.tryOrder("150.00", "key") // the same amount
		check(t, err)
		if diff := cmp.Diff(first, again); diff != "" || !replay {
			t.Errorf("replay: %v, %s", replay, diff)
		}
	})
}

// A replay succeeds without a rate, an address, or quota.
func TestCreateCard_Replay_NeedsNoRateAddressOrQuota(t *testing.T) {
	limits := setup{config: func(c *order.Config) { c.MaxOpenUSD, c.FreezeReversed = 150_00, true }}
	for name, tt := range map[string]struct {
		take func(*fixture) // removes a precondition
		want error
	}{
		"no rate":    {func(s *fixture) { s.rates.usd = nil }, card.ErrNoRate},
		"no address": {func(*fixture) {}, card.ErrNoAddress},
		"no quota": {func(s *fixture) {
			s.exec("UPDATE cards SET payment_state = 'underpaid'")
		}, card.ErrQuotaExceeded},
		"frozen": {func(s *fixture) {
			s.exec("UPDATE cards SET payment_state = 'reversed', credit_lost = 1")
		}, card.ErrAccountFrozen},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, limits, func(t *testing.T, s *fixture) {
				s.stock("monero", 1)
				first := s.create("150", "key")
				s.exec("UPDATE cards SET payment_state = 'paid'")
				s.now = s.now.Add(time.Minute)
				tt.take(s)
				again, replay, err := s.tryOrder("150", "key")
				check(t, err)
				if diff := cmp.Diff(first, again); diff != "" || !replay {
					t.Errorf("replay: %v, %s", replay, diff)
				}
				s.wantRefused("151", "key", card.ErrKeyReused)
				s.wantRefused("150", "other", tt.want)
				s.wantRefused("150", "", tt.want)
				s.spy.fail("CardOfKey", errBroken)
				s.wantRefused("150", "key", errBroken)
			})
		})
	}
}

func TestCreateCard_KeyReused_IsRefused(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 40)
		first := s.create("150", "key")
		s.wantRefused("151", "key", card.ErrKeyReused)
		if _, _, err := s.orders.CreateCard(t.Context(), s.account, s.check("150", "pebble"), "key"); !errors.Is(err,
			card.ErrKeyReused) {
			t.Errorf("with another currency: %v", err)
		}
		s.account = s.newAccount()
		if other := s.create("151", "key"); other.UUID == first.UUID {
			t.Error("returned the card of another account")
		}
	})
}

// Of two concurrent requests with one key, one creates the card, and the other
// returns it.
func TestCreateCard_KeyTakenConcurrently_IsReplayed(t *testing.T) {
	for name, theirs := range map[string]string{"for the same": "150", "for another": "151"} {
		t.Run(name, func(t *testing.T) {
			onEach(t, setup{}, func(t *testing.T, s *fixture) {
				s.stock("monero", 64)
				rival, mine := s.replica(s.db, setup{}), ""
				var first *card.Card
				s.spy.inserting = func(c *card.Card) (err error) {
					s.spy.inserting, mine = nil, c.Address
					first, _, err = rival.CreateCard(t.Context(), s.account, s.check(theirs, "monero"), "key")
					return err
				}
				wanted := []string{"TakeAddresses monero 32", "InsertCard", "CardByUUID", "CardOfKey", "CardOfKey",
					"CardByUUID"}
				if theirs == "150" {
					wanted = append(wanted, "AwaitReplication")
					again, replay, err := s.tryOrder("150", "key")
					check(t, err)
					if diff := cmp.Diff(first, again); diff != "" || !replay {
						t.Errorf("replay: %v, %s", replay, diff)
					}
				} else {
					s.wantRefused("150", "key", card.ErrKeyReused)
				}
				s.wantCalls(wanted...)
				if next := s.create("150", ""); next.Address != mine {
					t.Errorf("unused address %s is not handed out again, but %s", mine, next.Address)
				}
			})
		})
	}
}

func TestCreateCard_LostReply_CreatesOneCard(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 40)
		for _, key := range []string{"", "key"} {
			s.spy.inserting = func(c *card.Card) error { // the statement runs twice
				s.spy.inserting = nil
				_, err := s.db.InsertCard(t.Context(), c, 0)
				return err
			}
			c := s.create("150", key)
			stored, err := s.db.CardByUUID(t.Context(), s.account, c.UUID)
			check(t, err)
			c.RequestHash, stored.RequestHash, stored.Transfers = nil, nil, nil // one is empty, the other nil
			stored.Tag = ""                                                     // it was read
			if diff := cmp.Diff(c, stored); diff != "" {
				t.Error(diff)
			}
		}
		cards, err := s.db.Cards(t.Context(), order.Filter{AccountID: s.account, Limit: 9})
		check(t, err)
		if len(cards) != 2 {
			t.Errorf("%d cards, want 2", len(cards))
		}
	})
}

// A failover may lose the row of an attempt with an unknown outcome. It is
// acknowledged only once it is replicated.
func TestCreateCard_NotReplicated_IsNotAcknowledged(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 40)
		check(t, s.orders.Prepare(t.Context()))
		first := s.create("150", "key")
		s.spy.fail("AwaitReplication", card.ErrUnavailable)
		s.spy.takeCalls()
		s.wantRefused("150", "key", card.ErrUnavailable)
		s.wantCalls("InsertCard", "CardByUUID", "CardOfKey", "CardOfKey", "CardByUUID", "AwaitReplication")
		s.wantRefused("151", "key", card.ErrKeyReused) // needs no replication

		s.spy.inserting = func(c *card.Card) error { // the statement runs, its reply is lost, and it runs again
			s.spy.inserting = nil
			_, err := s.db.InsertCard(t.Context(), c, 0)
			return err
		}
		s.spy.takeCalls()
		s.wantRefused("150", "other", card.ErrUnavailable)
		s.wantCalls("InsertCard", "CardByUUID", "AwaitReplication")

		s.spy.fail("", nil)
		again, replay, err := s.tryOrder("150", "key")
		check(t, err)
		if diff := cmp.Diff(first, again); diff != "" || !replay {
			t.Errorf("replay: %v, %s", replay, diff)
		}
	})
}

func TestCreateCard_AddressTaken_TriesThree(t *testing.T) {
	for _, key := range []string{"", "key"} {
		t.Run("key "+key, func(t *testing.T) {
			onEach(t, setup{}, func(t *testing.T, s *fixture) {
				s.stock("monero", 12) // one account may take six of them
				check(t, s.orders.Prepare(t.Context()))
				s.addTransfers("monero-11", "monero-10")
				if c := s.create("150", key); c.Address != "monero-9" {
					t.Errorf("paid to %s", c.Address)
				}
				s.addTransfers("monero-8", "monero-7", "monero-6") // the remaining addresses are for other orders
				s.spy.takeCalls()
				s.wantRefused("150", key+"other", card.ErrNoAddress)
				inserted := 0
				for _, call := range s.spy.takeCalls() {
					if call == "InsertCard" {
						inserted++
					}
				}
				if inserted != 3 {
					t.Errorf("tried %d addresses, want 3", inserted)
				}
			})
		})
	}
}

// A card may have been stored although its insert failed, so its address is not
// reused.
func TestCreateCard_InsertFails_AddressIsNotReused(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 6) // one account may take three of them
		check(t, s.orders.Prepare(t.Context()))
		s.spy.fail("InsertCard", errBroken)
		s.spy.takeCalls()
		s.wantRefused("150", "key", errBroken)
		s.wantCalls("InsertCard") // the outcome is unknown, so no replay is looked up

		s.spy.fail("CardByUUID", errBroken)
		s.addTransfers("monero-4")
		s.wantRefused("150", "key", errBroken)
		s.wantCalls("InsertCard", "CardByUUID")

		s.spy.fail("CardOfKey", errBroken)
		s.addTransfers("monero-3")
		s.wantRefused("150", "key", errBroken)
		s.wantCalls("InsertCard", "CardByUUID", "CardOfKey")
	})
}

// An address that may have received money does not return to the pool: every
// later order would fail with it.
func TestCreateCard_KeyLookupFails_AddressIsNotReturned(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 10) // one account may take five of them
		check(t, s.orders.Prepare(t.Context()))
		s.addTransfers("monero-9", "monero-8", "monero-7", "monero-6")
		s.spy.fail("CardOfKey", errBroken)
		for range 4 {
			s.wantRefused("150", "key", errBroken)
		}
		s.spy.fail("", nil)
		s.spy.takeCalls()
		if c := s.create("150", "key"); c.Address != "monero-5" {
			t.Errorf("paid to %s", c.Address)
		}
		s.wantCalls("InsertCard")
	})
}

func TestCreateCard_NoRate_ReturnsError(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 40)
		s.rates.usd = map[string]string{"pebble": "3"}
		s.wantRefused("150", "", card.ErrNoRate)
		s.rates.usd = map[string]string{"monero": "0.00000001"}
		if err := s.wantRefused("150", "", card.ErrNoRate); err == nil || !strings.Contains(err.Error(), "do not fit") {
			t.Errorf("logged error: %v", err)
		}
		s.rates.err = errBroken
		s.wantRefused("150", "key", errBroken)
		s.wantCalls() // no address was taken
	})
}
