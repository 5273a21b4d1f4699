package order_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

const home = "xmr:where-the-customer-lives"

// Valid addresses begin with "xmr:", and belong to the wallet's network.
var refunding = setup{config: func(c *order.Config) {
	c.CheckAddress = map[string]func(address, ours string) error{"monero": func(address, ours string) error {
		switch {
		case !strings.HasPrefix(address, "xmr:"):
			return errors.New("is no address")
		case ours != "" && strings.HasPrefix(address, "xmr:test"):
			return fmt.Errorf("is not on the network of %s", ours)
		}
		return nil
	}}
}}

// orderRefundTo orders a card with a refund address.
func (s *fixture) orderRefundTo(address, key string) (*card.Card, bool, error) {
	s.t.Helper()
	o, wrong := s.orders.Check(order.Request{USDAmount: "150", Currency: "monero", RefundAddress: address})
	if len(wrong) > 0 {
		s.t.Fatal(wrong)
	}
	return s.orders.CreateCard(s.t.Context(), s.account, o, key)
}

func TestCheck_RefundAddress_MustFitCurrency(t *testing.T) {
	onEach(t, refunding, func(t *testing.T, s *fixture) {
		type wrong = []card.FieldError
		for _, tt := range []struct {
			usd, currency, address string
			want                   wrong
		}{
			{"150", "monero", home, nil},
			{"150", "monero", "", nil},
			{"150", "monero", "btc:x", wrong{{Pointer: "/refund_address", Detail: "is no address"}}},
			{"49", "monero", "btc:x",
				wrong{{Pointer: "/usd_amount", Detail: outOfBounds}, {Pointer: "/refund_address", Detail: "is no address"}}},
			{"150", "dogecoin", "btc:x", wrong{{Pointer: "/currency", Detail: unknownCoin}}}, // can't be checked
			{"150", "pebble", "a", wrong{{Pointer: "/refund_address", Detail: "is not accepted with this currency"}}},
			{"150", "monero", "xmr:test", nil}, // no wallet address is known yet
		} {
			_, got := s.orders.Check(order.Request{USDAmount: tt.usd, Currency: tt.currency, RefundAddress: tt.address})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%+v: %s", tt, diff)
			}
		}
		s.stock("monero", 3)
		check(t, s.orders.Prepare(t.Context()))
		_, got := s.orders.Check(order.Request{USDAmount: "150", Currency: "monero", RefundAddress: "xmr:test"})
		if diff := cmp.Diff(wrong{{Pointer: "/refund_address", Detail: "is not on the network of monero-0"}},
			got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCreateCard_RefundAddress_IsEncrypted(t *testing.T) {
	onEach(t, refunding, func(t *testing.T, s *fixture) {
		s.stock("monero", 5)
		check(t, s.orders.Prepare(t.Context()))
		c, _, err := s.orderRefundTo(home, "k")
		check(t, err)
		without := s.create("150", "")
		if c.RefundAddress != home || without.RefundAddress != "" {
			t.Errorf("created with %q and %q", c.RefundAddress.Reveal(), without.RefundAddress.Reveal())
		}
		var sealed, hash []byte
		check(t, s.direct.QueryRow("SELECT refund_address, request_hash FROM cards WHERE uuid = $1", c.UUID).Scan(&sealed,
			&hash))
		if len(sealed) == 0 || bytes.Contains(sealed, []byte("customer")) {
			t.Errorf("stored as %q", sealed)
		}
		if plain := sha256.Sum256([]byte("createCard/1\x00" + "15000\x00monero\x00refund_address\x00" + home)); bytes.Equal(
			plain[:], hash) {
			t.Error("the hash of the order is not keyed: addresses could be guessed")
		}
		got, err := s.orders.GetCard(t.Context(), s.account, c.UUID)
		check(t, err)
		if got.RefundAddress != home {
			t.Errorf("read %q", got.RefundAddress.Reveal())
		}
		var listed []string
		check(t, s.orders.ListCards(t.Context(), order.Filter{AccountID: s.account}, func(c *card.Card) error {
			listed = append(listed, c.RefundAddress.Reveal())
			return nil
		}))
		if diff := cmp.Diff([]string{"", home}, listed); diff != "" {
			t.Error(diff)
		}
		// A ciphertext of another card is omitted; the card is returned.
		var log bytes.Buffer
		s.db.LogTo(slog.New(slog.NewTextHandler(&log, nil)))
		s.exec("UPDATE cards SET refund_address = (SELECT refund_address FROM cards WHERE uuid = $1) WHERE uuid = $2",
			c.UUID, without.UUID)
		for range 2 {
			if got, err := s.orders.GetCard(t.Context(), s.account, without.UUID); err != nil || got.RefundAddress != "" {
				t.Errorf("%v, or returned the address of another card", err)
			}
		}
		if n := len(s.list(order.Filter{})); n != 2 {
			t.Errorf("%d cards were listed", n)
		}
		if text := log.String(); strings.Count(text, "level=ERROR") != 1 ||
			!strings.Contains(text, "refund_address="+without.UUID.String()) {
			t.Errorf("logged:\n%s", text)
		}
		s.exec("UPDATE cards SET refund_address = $1 WHERE uuid = $2", []byte("canary"), c.UUID)
		if again, replay, err := s.orderRefundTo(home, "k"); err != nil || !replay || again.UUID != c.UUID ||
			again.RefundAddress != "" {
			t.Errorf("replay %t, %v", replay, err)
		}
	})
}

// A refund to the service itself would be lost to the customer.
func TestCreateCard_RefundAddressOfTheServiceItself_IsRefused(t *testing.T) {
	unchecked := setup{config: func(c *order.Config) {
		c.CheckAddress = map[string]func(address, ours string) error{"monero": func(string, string) error { return nil }}
	}}
	onEach(t, unchecked, func(t *testing.T, s *fixture) {
		s.stock("monero", 40)
		check(t, s.orders.Prepare(t.Context()))
		earlier, _, err := s.orderRefundTo("elsewhere", "k")
		check(t, err)
		s.exec("INSERT INTO chains (currency, fingerprint, height, hash, time) VALUES ('monero', 'mainnet genesis primary', 1, 'x', 0) " +
			"ON CONFLICT (currency) DO UPDATE SET fingerprint = excluded.fingerprint")
		s.shelve("shelf", 0, 1, 100_00)
		s.offer("other", 1, everything...)
		before := len(s.list(order.Filter{}))
		for name, address := range map[string]string{"of another card": earlier.Address, "that is free": "monero-3",
			"the wallet's own": "primary"} {
			for _, usd := range []string{"150", "100"} { // 100 would reserve an item of the stock
				o, wrong := s.orders.Check(order.Request{USDAmount: usd, Currency: "monero", RefundAddress: address})
				if len(wrong) > 0 {
					t.Fatal(wrong)
				}
				_, _, err := s.orders.CreateCard(t.Context(), s.account, o, "")
				var refused *card.Error
				if !errors.As(err, &refused) || refused.Code != card.ErrInvalidRequest.Code || len(refused.Fields) != 1 ||
					refused.Fields[0].Pointer != "/refund_address" {
					t.Errorf("%s, %s dollars: %v", name, usd, err)
				}
			}
		}
		if n := len(s.list(order.Filter{})); n != before {
			t.Errorf("%d cards were stored", n-before)
		}
		var free int
		check(t, s.direct.QueryRow("SELECT COUNT(*) FROM stock WHERE state = 'free'").Scan(&free))
		if free != 1 {
			t.Errorf("%d of 1 items are free", free)
		}
		// One round trip, like any other order, also for a replay.
		s.spy.takeCalls()
		_, _, err = s.orderRefundTo("genesis", "")
		check(t, err)
		s.wantCalls("InsertCard")
		if c, replay, err := s.orderRefundTo("elsewhere", "k"); err != nil || !replay || c.UUID != earlier.UUID {
			t.Errorf("replay %t, %v", replay, err)
		}
	})
}

func TestCreateCard_RefundAddress_IsHashed(t *testing.T) {
	onEach(t, refunding, func(t *testing.T, s *fixture) {
		s.stock("monero", 9)
		check(t, s.orders.Prepare(t.Context()))
		first, _, err := s.orderRefundTo(home, "k")
		check(t, err)
		again, replay, err := s.orderRefundTo(home, "k")
		check(t, err)
		if !replay || again.UUID != first.UUID || again.RefundAddress != home {
			t.Errorf("replay %t of %s to %q", replay, again.UUID, again.RefundAddress.Reveal())
		}
		for _, other := range []string{home + "2", ""} {
			if _, _, err := s.orderRefundTo(other, "k"); !errors.Is(err, card.ErrKeyReused) {
				t.Errorf("%q: error %v", other, err)
			}
		}
		if _, _, err := s.orderRefundTo("", "plain"); err != nil {
			t.Error(err)
		}
		if _, _, err := s.orderRefundTo(home, "plain"); !errors.Is(err, card.ErrKeyReused) {
			t.Errorf("error %v", err)
		}
	})
}

// Orders without a refund address have the same hash as in earlier releases.
func TestCreateCard_HashOfEarlierRelease_IsReplayed(t *testing.T) {
	onEach(t, refunding, func(t *testing.T, s *fixture) {
		s.stock("monero", 2)
		check(t, s.orders.Prepare(t.Context()))
		c := s.create("150", "k")
		var hash []byte
		check(t, s.direct.QueryRow("SELECT request_hash FROM cards").Scan(&hash))
		if want := sha256.Sum256([]byte("createCard/1\x0015000\x00monero")); !bytes.Equal(hash, want[:]) {
			t.Error("the hash changed")
		}
		again, replay, err := s.tryOrder("150", "k")
		check(t, err)
		if !replay || again.UUID != c.UUID {
			t.Errorf("replay %t of %s", replay, again.UUID)
		}
	})
}
