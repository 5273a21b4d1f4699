package server_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/webhook"
)

// reality has real responses of the service, by the names of the contract's
// examples.
type reality map[string]any

const ownDataAndRefund = `{"usd_amount":"150.50","currency":"monero","refund_address":"` + refundTo +
	`","reference":"order-4711","metadata":{"customer":"c-1208","campaign":"winter"}}`

// cards records cards in all of their states.
func (r reality) cards(t *testing.T, d *deployment) {
	owner := d.account(t)
	_, token := d.tokenOf(t, owner, 0)
	read := func(name, id string) {
		r[name] = bodyOf[any](t, d.send(t, http.MethodGet, "/api/cards/"+id, token, "").want(t, http.StatusOK))
	}
	pay := func(id, body string) {
		d.send(t, http.MethodPost, "/api/sandbox/cards/"+id+"/payments", token, body).want(t, http.StatusOK)
	}
	newCard := func() string { return open(t, d, token, `"150.50"`) }

	r["CardsNone"] = bodyOf[any](t, d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK))
	r["EventsNone"] = bodyOf[any](t, d.send(t, http.MethodGet, "/api/events", token, "").want(t, http.StatusOK))
	made := d.send(t, http.MethodPost, "/api/cards", token, ownDataAndRefund).want(t, http.StatusCreated)
	r["CreatedWithOwnData"] = bodyOf[any](t, made)
	generated := strings.TrimPrefix(made.header.Get("Location"), "/api/cards/")
	pay(generated, "")
	read("CardGenerated", generated)
	bare := d.send(t, http.MethodPost, "/api/cards", token, orderBody(`"150.50"`)).want(t, http.StatusCreated)
	r["Created"] = bodyOf[any](t, bare)
	read("CardAwaiting", strings.TrimPrefix(bare.header.Get("Location"), "/api/cards/"))
	r["Cards"] = bodyOf[any](t, d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK))
	r["Events"] = bodyOf[any](t, d.send(t, http.MethodGet, "/api/events", token, "").want(t, http.StatusOK))

	id := newCard()
	pay(id, `{"confirmations":0}`)
	read("CardDetected", id)
	id = newCard()
	pay(id, `{"amount":"0.5"}`)
	read("CardUnderpaid", id)
	d.refund(t, id)
	read("CardRefunded", id)
	id = newCard()
	pay(id, `{"confirmations":4}`)
	read("CardConfirming", id)
	id = newCard()
	d.payUnissued(t, token, id)
	read("CardPaid", id)
	r.refused(t)
	id = newCard()
	d.send(t, http.MethodPost, "/api/cards/"+id+"/cancel", token, "").want(t, http.StatusOK)
	read("CardCanceled", id)

	masking := d.scoped(t, owner, account.AllScopes&^account.ScopesOf(account.CredentialsReveal))
	r["CardMasked"] = bodyOf[any](t,
		d.send(t, http.MethodGet, "/api/cards/"+generated, masking, "").want(t, http.StatusOK))
	_, err := d.store.PurgeCard(t.Context(),
		keys.Purge{ID: uuid.Must(uuid.NewV7()), CardUUID: uuid.MustParse(generated), Note: "n", Operator: "o"})
	need(t, err)
	read("CardPurged", generated)

	id = newCard()
	late := newCard()
	d.clock.advance(2 * time.Hour)
	pay(late, `{"amount":"0.5"}`)
	read("CardLate", late)
	read("CardExpired", id)
	id = newCard()
	pay(id, "")
	need(t, d.store.SimulatedReorg(t.Context(), "monero", 10, true))
	d.work()
	read("CardReversed", id)
}

// refused is a card that no supplier issues.
func (r reality) refused(t *testing.T) {
	d := deploy(t, setup{supplies: supplier.Declining})
	token := d.token(t)
	path := d.send(t, http.MethodPost, "/api/cards", token,
		`{"usd_amount":"150.50","currency":"monero","refund_address":"`+refundTo+`"}`).want(t,
		http.StatusCreated).header.Get("Location")
	d.payUnissued(t, token, strings.TrimPrefix(path, "/api/cards/"))
	d.work()
	r["CardRefundDue"] = bodyOf[any](t, d.send(t, http.MethodGet, path, token, "").want(t, http.StatusOK))
}

// refund makes the operator refund a card.
func (d *deployment) refund(t *testing.T, id string) {
	_, err := operator.New(d.store, d.rates, slog.New(slog.DiscardHandler)).ResolveCard(t.Context(), operator.Decision{
		CardUUID: uuid.MustParse(id), Kind: operator.Refund, Note: "n", Operator: "o", TxID: strings.Repeat("ab", 32)})
	need(t, err)
	d.work()
}

// payUnissued pays for a card and runs a pass, but issues nothing.
func (d *deployment) payUnissued(t *testing.T, token, id string) {
	who, err := d.accounts.Authenticate(t.Context(), token)
	need(t, err)
	c, err := d.store.CardByUUID(t.Context(), who.AccountID, uuid.MustParse(id))
	need(t, err)
	_, err = d.setup.sandbox["monero"].PayAs(t.Context(), strings.Repeat("cd", 32), c.Address, c.Amount, 10)
	need(t, err)
	need(t, d.watcher.Tick(t.Context()))
}

// market reads currencies and offers, with and without optional fields.
func (r reality) market(t *testing.T, d *deployment) {
	token := d.token(t)
	read := func(d *deployment, name, target, token string) {
		r[name] = bodyOf[any](t, d.send(t, http.MethodGet, target, token, "").want(t, http.StatusOK))
	}
	read(d, "Currencies", "/api/currencies", token)
	ratesGone := deploy(t, setup{rates: noRates{}})
	read(ratesGone, "CurrenciesWithoutRate", "/api/currencies", ratesGone.token(t))
	read(d, "OffersUncounted", "/api/offers", token)
	need(t, d.store.SaveOffers(t.Context(), card.SupplierOffers{Supplier: "sandbox", Offers: []card.Offer{
		{Min: 50_00, Max: 50_00, Left: 3, Life: time.Hour}, {Min: 100_00, Max: 200_00, Left: card.Unlimited}}}))
	need(t, d.orders.RefreshOffers(t.Context()))
	read(d, "Offers", "/api/offers", token)
	need(t, d.store.SaveOffers(t.Context(), card.SupplierOffers{Supplier: "sandbox"}))
	need(t, d.orders.RefreshOffers(t.Context()))
	read(d, "OffersNone", "/api/offers", token)
}

type noRates struct{}

func (noRates) Rate(string) (card.Rate, error) { return card.Rate{}, card.ErrNoRate }

// webhooks records webhooks and deliveries in all of their states.
func (r reality) webhooks(t *testing.T) {
	h := deployHooks(t, setup{clock: &clock{}})
	read := func(name, target string) {
		r[name] = bodyOf[any](t, h.ask(t, http.StatusOK, http.MethodGet, target, ""))
	}
	read("WebhooksNone", "/api/webhooks")
	made := h.ask(t, http.StatusCreated, http.MethodPost, "/api/webhooks",
		`{"url":"https://shop.example.com/hooks/cardmint","description":"order service","types":["card.generated"]}`)
	r["WebhookCreated"] = bodyOf[any](t, made)
	one := made.header.Get("Location")
	read("WebhookEnabled", one)
	read("DeliveriesNone", one+"/deliveries")
	r["WebhookRotated"] = bodyOf[any](t, h.ask(t, http.StatusOK, http.MethodPost, one+"/rotate-secret", ""))
	h.answer = webhook.Attempt{At: h.clock.now(), Took: 84 * time.Millisecond, Status: 200, Answer: "ok"}
	r["AttemptAnswered"] = bodyOf[any](t, h.ask(t, http.StatusOK, http.MethodPost, one+"/test", ""))
	h.answer = webhook.Attempt{At: h.clock.now(), Took: 15 * time.Second, Error: "no answer within 15s"}
	r["AttemptUnanswered"] = bodyOf[any](t, h.ask(t, http.StatusOK, http.MethodPost, one+"/test", ""))

	h.happen(t, h.account, card.EventGenerated, card.EventGenerated)
	h.settle(t, 200)
	h.settle(t, 0)
	read("WebhookFailing", one)
	h.happen(t, h.account, card.EventGenerated)
	read("Deliveries", one+"/deliveries")
	r["Recovery"] = bodyOf[any](t,
		h.ask(t, http.StatusAccepted, http.MethodPost, one+"/recover?since=2026-01-01T00:00:00Z", ""))
	h.ask(t, http.StatusOK, http.MethodPatch, one, `{"enabled":false}`)
	read("WebhookDisabled", one)
	for name, reason := range map[string]webhook.DisabledReason{"WebhookGone": webhook.DisabledGone,
		"WebhookDisabledAsFailing": webhook.DisabledFailing} {
		h.ask(t, http.StatusOK, http.MethodPatch, one, `{"enabled":true}`)
		h.disabled(t, reason)
		read(name, one)
	}
	h.ask(t, http.StatusOK, http.MethodPatch, one, `{"enabled":true}`)
	other, _ := h.register(t, hookURL)
	h.ask(t, http.StatusOK, http.MethodPatch, other, `{"enabled":false}`)
	read("Webhooks", "/api/webhooks")
}

// disabled makes the service disable the only enabled webhook.
func (h *hooks) disabled(t *testing.T, reason webhook.DisabledReason) {
	h.happen(t, h.account, card.EventGenerated)
	now := h.clock.now()
	claims, err := h.store.ClaimWebhooks(t.Context(), now, 9, time.Hour)
	need(t, err)
	since := now.Add(-time.Hour)
	need(t, h.store.WebhookTx(t.Context(), func(tx webhook.Tx) error {
		return tx.SaveWebhookState(t.Context(), claims[0],
			webhook.State{FailingSince: &since, PausedUntil: webhook.Immediately(), DisabledReason: reason}, now, time.Hour)
	}))
	need(t, h.store.ReleaseWebhook(t.Context(), claims[0]))
}

// events are the bodies of requests to receivers, one of each type.
func (r reality) events(t *testing.T, d *deployment) {
	_, owner := d.owner(t)
	for _, e := range d.happen(t, owner, card.EventGenerated, card.EventWebhookDisabled, card.EventFeedReset) {
		body := bodyOf[any](t, answer{body: string(e.Payload())})
		r[map[card.EventType]string{card.EventGenerated: "PayloadGenerated",
			card.EventWebhookDisabled: "PayloadWebhookDisabled", card.EventFeedReset: "PayloadFeedReset"}[e.Type]] = body
	}
}
