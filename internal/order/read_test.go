package order_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

var credentials = card.Credentials{CardNumber: "4111111111111111", ExpirationDate: "12/29", SecurityCode: "123",
	URL: "https://a.example", URLPassword: "x"}

func TestGetCard_Generated_HasCredentials(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		c := s.create("150", "")
		s.spy.takeCalls()
		got, err := s.orders.GetCard(t.Context(), s.account, c.UUID)
		check(t, err)
		if got.Credentials != nil || got.Status != card.AwaitingPayment {
			t.Errorf("%s, credentials: %v", got.Status, got.Credentials != nil)
		}
		s.wantCalls("CardByUUID")
		s.generate(c, credentials)
		got, err = s.orders.GetCard(t.Context(), s.account, c.UUID)
		check(t, err)
		if diff := cmp.Diff(&credentials, got.Credentials); diff != "" ||
			got.Credentials.CardNumber.Reveal() != "4111111111111111" {
			t.Errorf("credentials: %s", diff)
		}
		s.wantCalls("CardByUUID")
	})
}

func TestGetCard_OtherAccount_IsNotFound(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		c := s.create("150", "")
		for _, ask := range []struct{ account, card uuid.UUID }{{s.newAccount(), c.UUID}, {s.account, uuid.New()}} {
			var refusal *card.Error
			got, err := s.orders.GetCard(t.Context(), ask.account, ask.card)
			if got != nil || !errors.Is(err, card.ErrNotFound) || !errors.As(err, &refusal) ||
				refusal.Message != "Your account has no card with this uuid." {
				t.Errorf("%v, %v", got, err)
			}
		}
		s.spy.fail("CardByUUID", card.ErrUnavailable)
		if got, err := s.orders.GetCard(t.Context(), s.account, c.UUID); got != nil || !errors.Is(err, card.ErrUnavailable) {
			t.Errorf("store unavailable: %v, %v", got, err)
		}
	})
}

// Credentials of another card are an error of the service, not a card without
// credentials.
func TestGetCard_CorruptCredentials_ReturnsError(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		c := s.create("150", "")
		s.generate(c, credentials)
		s.exec("UPDATE credentials SET card_number = url")
		if got, err := s.orders.GetCard(t.Context(), s.account, c.UUID); err == nil || got != nil {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

// An issued card whose credentials were purged can still be read.
func TestCards_IssuedWithoutCredentials_IsReturned(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		c := s.create("150", "")
		s.generate(c, credentials)
		s.exec("DELETE FROM credentials")
		got, err := s.orders.GetCard(t.Context(), s.account, c.UUID)
		if err != nil || got.Status != card.Generated || got.Credentials != nil {
			t.Errorf("got %v, %v", got, err)
		}
		listed := 0
		err = s.orders.ListCards(t.Context(), order.Filter{AccountID: s.account}, func(c *card.Card) error {
			listed++
			if c.Credentials != nil {
				t.Error("listed with credentials")
			}
			return nil
		})
		if err != nil || listed != 1 {
			t.Errorf("%d are listed, error %v", listed, err)
		}
	})
}

// insertCards stores n cards of a new account, and returns their ids, newest first.
func (s *fixture) insertCards(n int) []uuid.UUID {
	s.t.Helper()
	s.account = s.newAccount()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		id := uuid.Must(uuid.NewV7())
		ids[n-1-i] = id
		c := &card.Card{UUID: id, AccountID: s.account, CreatedAt: card.TimeOf(id), ExpiresAt: card.TimeOf(id), USD: 150_00,
			Coin: monero, Amount: coin,
			Address: id.String(), ConfirmationsRequired: 10}
		if inserted, err := s.db.InsertCard(s.t.Context(), c, 0); err != nil || !inserted {
			s.t.Fatal(inserted, err)
		}
	}
	return ids
}

// list returns the ids of the cards from ListCards.
func (s *fixture) list(filter order.Filter) []uuid.UUID {
	s.t.Helper()
	filter.AccountID = s.account
	var ids []uuid.UUID
	check(s.t, s.orders.ListCards(s.t.Context(), filter, func(c *card.Card) error {
		ids = append(ids, c.UUID)
		return nil
	}))
	return ids
}

func TestListCards_ManyPages_ReturnsAllCards(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.insertCards(1)
		all := s.insertCards(1000)
		for _, tt := range []struct {
			limit int
			want  []uuid.UUID
			asked []string
		}{
			{0, all, []string{"Cards 100", "Cards 250", "Cards 250", "Cards 250", "Cards 250"}},
			{1, all[:1], []string{"Cards 1"}},
			{100, all[:100], []string{"Cards 100"}},
			{101, all[:101], []string{"Cards 100", "Cards 1"}},
			{349, all[:349], []string{"Cards 100", "Cards 249"}},
			{350, all[:350], []string{"Cards 100", "Cards 250"}},
			{351, all[:351], []string{"Cards 100", "Cards 250", "Cards 1"}},
			{1000, all, []string{"Cards 100", "Cards 250", "Cards 250", "Cards 250", "Cards 150"}},
			{1001, all, []string{"Cards 100", "Cards 250", "Cards 250", "Cards 250", "Cards 151"}},
		} {
			if got := s.list(order.Filter{Limit: tt.limit}); !slices.Equal(got, tt.want) {
				t.Errorf("limit %d: %d cards, want %d in their order", tt.limit, len(got), len(tt.want))
			}
			s.wantCalls(tt.asked...)
		}
		if got := s.list(order.Filter{Before: all[649]}); !slices.Equal(got, all[650:]) {
			t.Errorf("%d cards are older than the 650th", len(got))
		}
		s.wantCalls("Cards 100", "Cards 250", "Cards 250") // the second page does not show that it is the last
		if got := s.list(order.Filter{Before: all[650]}); !slices.Equal(got, all[651:]) {
			t.Errorf("%d cards are older than the 651st", len(got))
		}
		s.wantCalls("Cards 100", "Cards 250")
	})
}

func TestListCards_FilterByStatus(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		waiting, made := s.create("150", ""), s.create("150", "")
		s.generate(made, credentials)
		for status, want := range map[card.Status][]uuid.UUID{
			"":                   {made.UUID, waiting.UUID},
			card.AwaitingPayment: {waiting.UUID},
			card.Generated:       {made.UUID},
		} {
			if got := s.list(order.Filter{Status: status}); !slices.Equal(got, want) {
				t.Errorf("status %q: %v, want %v", status, got, want)
			}
		}
		err := s.orders.ListCards(t.Context(), order.Filter{AccountID: s.account, Limit: 1}, func(c *card.Card) error {
			if diff := cmp.Diff(&credentials, c.Credentials); diff != "" {
				t.Error(diff)
			}
			return nil
		})
		check(t, err)
	})
}

// A slow reader does not block writers, and reads no card twice.
func TestListCards_CardsCreatedDuringList(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		all, listed := s.insertCards(501), []uuid.UUID(nil)
		check(t, s.orders.ListCards(t.Context(), order.Filter{AccountID: s.account}, func(c *card.Card) error {
			if len(listed) < 3 {
				s.create("150", "")
			}
			listed = append(listed, c.UUID)
			return nil
		}))
		if !slices.Equal(listed, all) {
			t.Errorf("listed %d cards, want %d in their order", len(listed), len(all))
		}
	})
}

// The next page is read while f receives a page. After a disconnect, ListCards
// waits only for the store to return.
func TestListCards_ReadsAPageAhead(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		all := s.insertCards(500)
		ahead := make(chan struct{})
		s.spy.before = func(call string) error {
			if call == "Cards 250" {
				ahead <- struct{}{}
			}
			return nil
		}
		n := 0
		check(t, s.orders.ListCards(t.Context(), order.Filter{AccountID: s.account}, func(*card.Card) error {
			if n == 0 || n == 100 { // the first card of a page
				<-ahead
			}
			n++
			return nil
		}))
		if n != len(all) {
			t.Errorf("%d cards", n)
		}

		ended := false
		s.spy.before = func(call string) error {
			if call == "Cards 250" {
				ended = true
				panic(errBroken)
			}
			return nil
		}
		defer func() {
			if got := recover(); got != errBroken || !ended { //nolint:errorlint // must not be wrapped
				t.Errorf("panic %v, call has ended: %t", got, ended)
			}
		}()
		_ = s.orders.ListCards(t.Context(), order.Filter{AccountID: s.account}, func(*card.Card) error { return errBroken })
		t.Error("the store's panic is lost")
	})
}

func TestListCards_StoreFails_ReturnsError(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.insertCards(3)
		n := 0
		err := s.orders.ListCards(t.Context(), order.Filter{AccountID: s.account}, func(*card.Card) error {
			n++
			return errBroken
		})
		if !errors.Is(err, errBroken) || n != 1 {
			t.Errorf("after %d cards: %v", n, err)
		}
		s.spy.fail("Cards 100", card.ErrUnavailable)
		err = s.orders.ListCards(t.Context(), order.Filter{AccountID: s.account}, func(*card.Card) error { n++; return nil })
		if !errors.Is(err, card.ErrUnavailable) || n != 1 {
			t.Errorf("store unavailable after %d cards: %v", n, err)
		}
	})
}

func TestListCurrencies_SortsByCode(t *testing.T) {
	backwards := setup{config: func(c *order.Config) { c.Currencies = []card.Currency{pebble, monero} }}
	onEach(t, backwards, func(t *testing.T, s *fixture) {
		stones, err := s.rates.Rate("pebble")
		check(t, err)
		coins, err := s.rates.Rate("monero")
		check(t, err)
		for name, tt := range map[string]struct {
			usd  map[string]string
			want []order.CurrencyRate
		}{
			"both": {s.rates.usd, []order.CurrencyRate{{Currency: monero, Rate: &coins}, {Currency: pebble, Rate: &stones}}},
			"one": {map[string]string{"pebble": "3"},
				[]order.CurrencyRate{{Currency: monero}, {Currency: pebble, Rate: &stones}}},
			"neither": {nil, []order.CurrencyRate{{Currency: monero}, {Currency: pebble}}},
		} {
			s.rates.usd = tt.usd
			got, err := s.orders.ListCurrencies()
			check(t, err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		s.rates.err = errBroken
		if got, err := s.orders.ListCurrencies(); got != nil || !errors.Is(err, errBroken) {
			t.Errorf("%v, %v", got, err)
		}
		s.wantCalls()
	})
}
