package server_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/supplier"
)

const refundTo = "4AdUndXHHZ6cfufTMvppY6JwXNouMBzSkbLYfpAV5Usx3skxNgYeYTRj5UzqtReoS44qo9mtmXCqY45DJ852K5Jv2684Rge"

func TestRefund_Address_IsMasked(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token := d.token(t)
		c := d.client(t, token)
		made, err := c.CreateCard(t.Context(),
			client.CreateCardRequest{USDAmount: number("150"), Currency: "monero", RefundAddress: refundTo},
			client.WithIdempotencyKey("k"))
		need(t, err)
		again, err := c.CreateCard(t.Context(),
			client.CreateCardRequest{USDAmount: number("150"), Currency: "monero", RefundAddress: refundTo},
			client.WithIdempotencyKey("k"))
		need(t, err)
		read, err := c.GetCard(t.Context(), made.UUID)
		need(t, err)
		paid, err := c.SimulatePayment(t.Context(), made.UUID, client.SimulatePaymentRequest{})
		need(t, err)
		for what, got := range map[string]*client.Card{"created": made, "repeated": again, "read": read, "paid": paid} {
			equal(t, what, got.RefundAddress, "4AdUnd...684Rge")
			if got.Refund != nil {
				t.Errorf("%s: refund %+v", what, got.Refund)
			}
		}
		list := d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK).body
		if !strings.Contains(list, `"refund_address":"4AdUnd...684Rge","refund":null`) ||
			strings.Contains(list+d.log.String(), refundTo) {
			t.Errorf("listed %s", list)
		}
	})
}

func TestRefund_InvalidAddress_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	for sent, want := range map[string]string{
		`"` + strings.Replace(refundTo, "Und", "Unb", 1) +
			`"`: "is not an address of Monero: its checksum is wrong, so a character is missing or mistyped",
		`"bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq"`: "is not an address of Monero",
		`"` + strings.Repeat("4", 201) + `"`:           "is not an address of Monero",
		`" "`:                                          "is not an address of Monero",
	} {
		answer := d.send(t, http.MethodPost, "/api/cards", token,
			`{"usd_amount":"150","currency":"monero","refund_address":`+sent+`}`).want(t, http.StatusUnprocessableEntity)
		if !strings.Contains(answer.body, `"errors":[{"pointer":"/refund_address","detail":"`+want+`"}]`) {
			t.Errorf("%s: %s", sent, answer.body)
		}
	}
	for _, sent := range []string{`""`, "null", "7", "[]"} {
		answer := d.send(t, http.MethodPost, "/api/cards", token,
			`{"usd_amount":"150","currency":"monero","refund_address":`+sent+`}`).want(t, http.StatusUnprocessableEntity)
		if !strings.Contains(answer.body, `"pointer":"/refund_address"`) {
			t.Errorf("%s: %s", sent, answer.body)
		}
	}
}

func TestRefund_MadeByOperator_IsReturned(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		c, made := d.create(t, "150")
		half := made.Payment.Amount.Div(number("2")).Truncate(12)
		_, err := c.SimulatePayment(t.Context(), made.UUID, client.SimulatePaymentRequest{Amount: &half})
		need(t, err)
		rates, err := rate.NewFixed(nil, d.clock.now)
		need(t, err)
		desk := operator.New(d.store, rates, slog.New(slog.DiscardHandler))
		refund := func(txid string) {
			t.Helper()
			_, err := desk.ResolveCard(t.Context(),
				operator.Decision{CardUUID: made.UUID, Kind: operator.Refund, Note: "x", Operator: "x", TxID: txid})
			need(t, err)
		}
		refund("")
		read, err := c.GetCard(t.Context(), made.UUID)
		need(t, err)
		if r := read.Refund; r == nil || !r.Amount.Equal(half) || r.TxID != "" || r.At.Before(made.CreatedAt) {
			t.Fatalf("%+v", r)
		}
		at := read.Refund.At
		refund(strings.Repeat("ab", 32))
		read, err = c.GetCard(t.Context(), made.UUID)
		need(t, err)
		want := &client.Refund{Amount: half, TxID: strings.Repeat("ab", 32), At: at}
		if diff := cmp.Diff(want, read.Refund); diff != "" {
			t.Error(diff)
		}
		for listed, err := range c.ListCards(t.Context(), client.ListCardsOptions{}) {
			need(t, err)
			if diff := cmp.Diff(want, listed.Refund); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// A card that no supplier issues shows that a refund is due, and how much,
// including the surplus.
func TestRefund_Due_IsReturned(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database, supplies: supplier.Declining})
		token := d.token(t)
		made := bodyOf[client.Card](t,
			d.send(t, http.MethodPost, "/api/cards", token, orderBody("150")).want(t, http.StatusCreated))
		path := "/api/cards/" + made.UUID.String()
		desk := operator.New(d.store, d.rates, slog.New(slog.DiscardHandler))
		decide := func(kind operator.ResolutionKind) {
			t.Helper()
			_, err := desk.ResolveCard(t.Context(), operator.Decision{CardUUID: made.UUID, Kind: kind, Note: "x", Operator: "x"})
			need(t, err)
		}
		shows := func(when, due string) {
			t.Helper()
			for _, target := range []string{path, "/api/cards", "/api/cards?limit=1"} {
				body := d.send(t, http.MethodGet, target, token, "").want(t, http.StatusOK).body
				if due == "" && strings.Contains(body, "refund_due") || due != "" &&
					!strings.Contains(body, `"refund_due":"`+due+`"`) {
					t.Errorf("%s: %s: want %q due: %s", when, target, due, body)
				}
			}
		}
		shows("unpaid", "")
		d.payUnissued(t, token, made.UUID.String())
		shows("paid", "")
		d.work()
		due := made.Payment.Amount.String()
		shows("declined", due)
		decide(operator.Retry)
		shows("tried again", "")
		d.work()
		shows("declined again", due)
		one := number("1")
		_, err := d.client(t, token).SimulatePayment(t.Context(), made.UUID, client.SimulatePaymentRequest{Amount: &one})
		need(t, err)
		shows("overpaid", made.Payment.Amount.Add(one).String())
		decide(operator.Refund)
		shows("refunded", "")
	})
}
