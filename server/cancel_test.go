package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/order"
)

// paying pays with simulated money, and returns the card.
func (d *deployment) paying(t testing.TB, token string, id uuid.UUID, body string) client.Card {
	t.Helper()
	var c client.Card
	need(t, json.Unmarshal(
		[]byte(d.send(t, http.MethodPost, "/api/sandbox/cards/"+id.String()+"/payments", token, body).want(t,
			http.StatusOK).body), &c))
	return c
}

// feed returns the events of an account.
func (d *deployment) feed(t testing.TB, token string) (all []client.Event) {
	t.Helper()
	need(t, json.Unmarshal([]byte(d.send(t, http.MethodGet, "/api/events", token, "").want(t, http.StatusOK).body), &all))
	return all
}

func TestCancel_IsIdempotent(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token := d.token(t)
		first := d.send(t, http.MethodPost, "/api/cards", token, orderBody("150"), "Idempotency-Key", "k").want(t,
			http.StatusCreated)
		target := first.header.Get("Location") + "/cancel"
		canceled := d.send(t, http.MethodPost, target, token, "").want(t, http.StatusOK)
		if !strings.Contains(canceled.body, `"status":"awaiting_payment"`) ||
			!strings.Contains(canceled.body, `"state":"canceled"`) ||
			!strings.Contains(canceled.body, `"uri":"","amount_received":"0","amount_due":"0"`) {
			t.Error(canceled.body)
		}
		equal(t, "the second time", d.send(t, http.MethodPost, target, token, "").want(t, http.StatusOK).body, canceled.body)
		equal(t, "with a body", d.send(t, http.MethodPost, target, token, "{}").want(t, http.StatusOK).body, canceled.body)
		equal(t, "read", d.send(t, http.MethodGet, first.header.Get("Location"), token, "").want(t, http.StatusOK).body,
			canceled.body)
		equal(t, "created again",
			d.send(t, http.MethodPost, "/api/cards", token, orderBody("150"), "Idempotency-Key", "k").want(t,
				http.StatusCreated).body, first.body)
		d.clock.advance(2 * time.Hour) // the quote would have expired; no expiry is reported any more
		d.work()
		if list := d.feed(t, token); len(list) != 1 || list[0].Type != client.EventTypePaymentCanceled ||
			list[0].PaymentState != client.PaymentStateCanceled {
			t.Errorf("%+v", list)
		}
		equal(t, "in the end", d.send(t, http.MethodPost, target, token, "").want(t, http.StatusOK).body, canceled.body)
	})
}

func TestCancel_CardWithPayment_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	c := d.client(t, token)
	for name, body := range map[string]string{"in the mempool": `{"confirmations":0}`,
		"too little": `{"amount":"0.000000000001"}`, "generated": "{}"} {
		made, err := c.CreateCard(t.Context(), client.CreateCardRequest{USDAmount: number("150"), Currency: "monero"})
		need(t, err)
		d.paying(t, token, made.UUID, body)
		before := d.send(t, http.MethodGet, "/api/cards/"+made.UUID.String(), token, "").body
		d.send(t, http.MethodPost, "/api/cards/"+made.UUID.String()+"/cancel", token, "").refused(t, http.StatusConflict,
			"card_has_payments")
		equal(t, name, d.send(t, http.MethodGet, "/api/cards/"+made.UUID.String(), token, "").body, before)
	}
	d.send(t, http.MethodPost, "/api/cards/"+uuid.NewString()+"/cancel", token, "").refused(t, http.StatusNotFound,
		"not_found")
	d.send(t, http.MethodPost, "/api/cards/x/cancel", token, "").refused(t, http.StatusUnprocessableEntity,
		"invalid_request")
}

// A customer who pays a canceled card gets it if the payment is worth it at the
// current rate. Otherwise an operator decides; the payment is never forgotten.
func TestCancel_LaterPayment_IsLate(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token := d.token(t)
		c := d.client(t, token)
		for amount, want := range map[string]struct {
			status client.CardStatus
			state  client.PaymentState
		}{"whole": {client.CardStatusGenerated, client.PaymentStatePaid},
			"less": {client.CardStatusAwaitingPayment, client.PaymentStateLate}} {
			made, err := c.CreateCard(t.Context(), client.CreateCardRequest{USDAmount: number("150"), Currency: "monero"})
			need(t, err)
			target := "/api/cards/" + made.UUID.String() + "/cancel"
			d.send(t, http.MethodPost, target, token, "").want(t, http.StatusOK)
			sum := made.Payment.Amount.String()
			if amount == "less" {
				sum = "0.5"
			}
			got := d.paying(t, token, made.UUID, `{"amount":"`+sum+`"}`)
			if got.Status != want.status || got.Payment.State != want.state || got.Payment.AmountDue.String() != "0" {
				t.Errorf("%s: %s, %s, due %s", amount, got.Status, got.Payment.State, got.Payment.AmountDue)
			}
			d.send(t, http.MethodPost, target, token, "").refused(t, http.StatusConflict, "card_has_payments")
		}
	})
}

// An expired card has already ended. Canceling it returns the card.
func TestCancel_ExpiredCard_IsNoOp(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	made, err := d.client(t, token).CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: number("150"), Currency: "monero"})
	need(t, err)
	d.clock.advance(2 * time.Hour)
	need(t, d.store.SimulatedMine(t.Context(), "monero", 1))
	d.work()
	expired := d.send(t, http.MethodGet, "/api/cards/"+made.UUID.String(), token, "").want(t, http.StatusOK).body
	if !strings.Contains(expired, `"state":"expired"`) {
		t.Fatal(expired)
	}
	equal(t, "card",
		d.send(t, http.MethodPost, "/api/cards/"+made.UUID.String()+"/cancel", token, "").want(t, http.StatusOK).body,
		expired)
	equal(t, "events", len(d.feed(t, token)), 1)
}

func TestCancel_FreesQuotaImmediately(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{limits: func(c *order.Config) { c.MaxOpenUSD = 200_00 }})
	token := d.token(t)
	for range 3 {
		made := d.send(t, http.MethodPost, "/api/cards", token, orderBody("150")).want(t, http.StatusCreated)
		d.send(t, http.MethodPost, "/api/cards", token, orderBody("150")).refused(t, http.StatusTooManyRequests,
			"quota_exceeded")
		d.send(t, http.MethodPost, made.header.Get("Location")+"/cancel", token, "").want(t, http.StatusOK)
	}
}
