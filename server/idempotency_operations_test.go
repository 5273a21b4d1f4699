package server_test

import (
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/vault"
	"github.com/cardmint/cardmint/internal/webhook"
)

// repeats fails the test unless a response replays the first one.
func repeats(t testing.TB, first, again answer) {
	t.Helper()
	again.want(t, first.status)
	equal(t, "body", again.body, first.body)
	equal(t, "Location", again.header.Get("Location"), first.header.Get("Location"))
	equal(t, "Idempotency-Replayed of the first", first.header.Get("Idempotency-Replayed"), "")
	equal(t, "Idempotency-Replayed", again.header.Get("Idempotency-Replayed"), "true")
}

// keyedRequest is a request with an optional idempotency key.
type keyedRequest struct {
	target, body string
	other        string // another request of the same operation
	otherBody    string
}

// keyed returns a request of each operation on webhooks that has idempotency
// keys, each to its own webhook.
func (d *deployment) keyed(t testing.TB, token string) map[string]keyedRequest {
	t.Helper()
	d.send(t, http.MethodPost, "/api/cards", token, orderBody("150")).want(t, http.StatusCreated)
	hooks := make([]string, 4)
	for i := range hooks {
		hooks[i] = d.send(t, http.MethodPost, "/api/webhooks", token, hookURL).want(t,
			http.StatusCreated).header.Get("Location")
	}
	who, err := d.accounts.Authenticate(t.Context(), token)
	need(t, err)
	event := d.happen(t, who.AccountID, card.EventLate)[0].ID.String()
	return map[string]keyedRequest{
		"createWebhook": {"/api/webhooks", `{"url":"https://a.example","types":["card.generated"]}`, "/api/webhooks",
			`{"url":"https://a.example"}`},
		"rotateWebhookSecret": {hooks[0] + "/rotate-secret", "", hooks[1] + "/rotate-secret", ""},
		"testWebhook":         {hooks[0] + "/test", "", hooks[0] + "/test", `{"type":"payment.late"}`},
		"redeliver": {hooks[2] + "/deliveries/" + event + "/redeliver", "",
			hooks[1] + "/deliveries/" + event + "/redeliver", ""},
		"recoverWebhook": {hooks[3] + "/recover?since=2026-01-01T00:00:00Z", "",
			hooks[3] + "/recover?since=2026-01-02T00:00:00Z", ""},
	}
}

func TestIdempotency_Webhooks(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database, clock: &clock{}, poster: &receiver{answer: webhook.Attempt{Status: 200}}})
		token := d.token(t)
		d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"), key, "of-an-order").want(t, http.StatusCreated)
		for operation, r := range d.keyed(t, token) {
			d.send(t, http.MethodPost, r.target, token, r.body, key, "of-an-order").refused(t, http.StatusUnprocessableEntity,
				"idempotency_key_reused")
			first := d.send(t, http.MethodPost, r.target, token, r.body, key, operation)
			if first.status/100 != 2 {
				t.Fatalf("%s: %d %s", operation, first.status, first.body)
			}
			repeats(t, first, d.send(t, http.MethodPost, r.target, token, r.body, key, operation))
			repeats(t, first, d.send(t, http.MethodPost, r.target, token, r.body, key, `"`+operation+`"`))
			repeats(t, first, d.replica(t).send(t, http.MethodPost, r.target, token, r.body, key, operation))
			d.send(t, http.MethodPost, r.other, token, r.otherBody, key, operation).refused(t, http.StatusUnprocessableEntity,
				"idempotency_key_reused")
			another := d.send(t, http.MethodPost, r.target, token, r.body, key, operation+"-again")
			equal(t, operation+" with another key", another.header.Get("Idempotency-Replayed"), "")
			if strings.Contains(first.body, "whsec_") && another.body == first.body {
				t.Errorf("%s: two keys returned the same secret", operation)
			}
			d.send(t, http.MethodPost, r.target, token, r.body, key, `""`).refused(t, http.StatusUnprocessableEntity,
				"invalid_request")
		}
		d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"), key, "createWebhook").refused(t,
			http.StatusUnprocessableEntity, "idempotency_key_reused")
		d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"), key, "createWebhook").refused(t,
			http.StatusUnprocessableEntity, "idempotency_key_reused")
		d.send(t, http.MethodPost, "/api/webhooks", token, hookURL, key, "testWebhook").refused(t,
			http.StatusUnprocessableEntity, "idempotency_key_reused")
		// keys are scoped to an account
		d.send(t, http.MethodPost, "/api/webhooks", d.token(t), hookURL, key, "testWebhook").want(t, http.StatusCreated)
		if strings.Contains(d.log.String(), "whsec_") {
			t.Error("the log contains a secret")
		}
	})
}

// A failed request does not use its key. A successful one is replayed, even
// after later changes.
func TestIdempotency_FailedOrDeletedWebhooks(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database, clock: &clock{}, poster: &receiver{answer: webhook.Attempt{Status: 200}}})
		token := d.token(t)
		target := "/api/webhooks/" + uuid.NewString() + "/rotate-secret"
		d.send(t, http.MethodPost, target, token, "", key, "k").refused(t, http.StatusNotFound, "not_found")
		first := d.send(t, http.MethodPost, "/api/webhooks", token, hookURL, key, "k").want(t, http.StatusCreated)
		rotated := d.send(t, http.MethodPost, first.header.Get("Location")+"/rotate-secret", token, "", key, "r").want(t,
			http.StatusOK)
		d.send(t, http.MethodDelete, first.header.Get("Location"), token, "").want(t, http.StatusNoContent)
		repeats(t, first, d.send(t, http.MethodPost, "/api/webhooks", token, hookURL, key, "k"))
		repeats(t, rotated, d.send(t, http.MethodPost, first.header.Get("Location")+"/rotate-secret", token, "", key, "r"))
		for range 16 {
			d.send(t, http.MethodPost, "/api/webhooks", token, hookURL).want(t, http.StatusCreated)
		}
		d.send(t, http.MethodPost, "/api/webhooks", token, hookURL, key, "too-many").refused(t,
			http.StatusUnprocessableEntity, "too_many_webhooks")
		repeats(t, first, d.send(t, http.MethodPost, "/api/webhooks", token, hookURL, key, "k"))
	})
}

// Two processes receive the same request concurrently: it has one effect, and
// both return the same response.
func TestIdempotency_WebhooksInTwoProcesses(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database, clock: &clock{}, poster: &receiver{answer: webhook.Attempt{Status: 200}}})
		token := d.token(t)
		other := d.replica(t)
		for operation, r := range d.keyed(t, token) {
			var answers [8]answer
			var all sync.WaitGroup
			for i := range answers {
				all.Go(func() {
					at := []*deployment{d, other}[i%2]
					answers[i] = at.send(t, http.MethodPost, r.target, token, r.body, key, "k-"+operation)
				})
			}
			all.Wait()
			firsts := 0
			for _, a := range answers {
				if a.status == http.StatusServiceUnavailable && operation == "testWebhook" { // own limit
					continue
				}
				if a.header.Get("Idempotency-Replayed") == "" {
					firsts++
				}
				if a.status/100 != 2 {
					t.Errorf("%s: %d %s", operation, a.status, a.body)
				}
			}
			if firsts != 1 {
				t.Errorf("%s: %d responses are not replayed", operation, firsts)
			}
			for _, a := range answers[1:] {
				if operation != "testWebhook" {
					equal(t, operation, a.body, answers[0].body)
				}
			}
		}
		list := d.send(t, http.MethodGet, "/api/webhooks", token, "").want(t, http.StatusOK).body
		equal(t, "webhooks", strings.Count(list, `"id":`), 5)
	})
}

// Stored responses are encrypted again on key rotation, so that an old key can
// be retired.
func TestIdempotency_WebhooksAfterKeyRotation(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database, clock: &clock{}, poster: &receiver{answer: webhook.Attempt{Status: 200}}})
		token := d.token(t)
		first := d.send(t, http.MethodPost, "/api/webhooks", token, hookURL, key, "k").want(t, http.StatusCreated)
		before, err := vault.Open(d.keys)
		need(t, err)
		old := before.Keys().Primary
		fresh, err := vault.AddKey(d.keys)
		need(t, err)
		need(t, vault.PromoteKey(d.keys, fresh))
		need(t, d.store.PromoteKey(t.Context(), fresh))
		now, err := vault.Open(d.keys)
		need(t, err)
		need(t, keys.NewRotator(d.store, now, slog.New(slog.DiscardHandler)).Tick(t.Context()))
		if users, err := keys.Users(t.Context(), d.store, old); err != nil || users != 0 {
			t.Fatalf("the old key has sealed %d rows: %v", users, err)
		}
		need(t, vault.RetireKey(d.keys, old))
		d = d.restart(t)
		repeats(t, first, d.send(t, http.MethodPost, "/api/webhooks", token, hookURL, key, "k"))
	})
}

// Keys expire, but no earlier than documented.
func TestIdempotency_WebhookKeys_AreKeptForADay(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{clock: &clock{}, poster: &receiver{answer: webhook.Attempt{Status: 200}}})
	token := d.token(t)
	opened, err := vault.Open(d.keys)
	need(t, err)
	sender, err := webhook.NewSender(d.store, opened, nil, func() {}, slog.New(slog.DiscardHandler), webhook.Config{
		Now: d.clock.now})
	need(t, err)
	first := d.send(t, http.MethodPost, "/api/webhooks", token, hookURL, key, "k").want(t, http.StatusCreated)
	d.clock.advance(25 * time.Hour)
	need(t, sender.Prune(t.Context()))
	repeats(t, first, d.send(t, http.MethodPost, "/api/webhooks", token, hookURL, key, "k"))
	d.clock.advance(24 * time.Hour)
	need(t, sender.Prune(t.Context()))
	again := d.send(t, http.MethodPost, "/api/webhooks", token, hookURL, key, "k").want(t, http.StatusCreated)
	equal(t, "Idempotency-Replayed", again.header.Get("Idempotency-Replayed"), "")
}

// These operations are idempotent without a key.
func TestIdempotency_IdempotentOperations_IgnoreKey(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	made := d.send(t, http.MethodPost, "/api/cards", token, orderBody("150")).want(t,
		http.StatusCreated).header.Get("Location")
	for _, target := range []string{made + "/reveal", made + "/cancel"} {
		d.send(t, http.MethodPost, target, token, "", key, "k").want(t, http.StatusOK)
		d.send(t, http.MethodPost, target, token, "", key, "k").want(t, http.StatusOK)
		d.send(t, http.MethodPost, target, token, "", key, `""`).refused(t, http.StatusUnprocessableEntity, "invalid_request")
		d.send(t, http.MethodPost, target, token, "", key, "not visible").refused(t, http.StatusUnprocessableEntity,
			"invalid_request")
	}
}

// A payment is sent once, even if another process receives the retry.
func TestIdempotency_SimulatedPayments(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database, clock: &clock{}})
		token := d.token(t)
		other := d.replica(t)
		made, second := "", ""
		for _, location := range []*string{&made, &second} {
			*location = strings.Replace(
				d.send(t, http.MethodPost, "/api/cards", token, orderBody("150")).want(t,
					http.StatusCreated).header.Get("Location"), "/api", "/api/sandbox", 1) + "/payments"
		}
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				at := []*deployment{d, other}[i%2]
				at.send(t, http.MethodPost, made, token, `{"amount":"0.1"}`, key, "k").want(t, http.StatusOK)
			})
		}
		all.Wait()
		again := d.send(t, http.MethodPost, made, token, `{"amount":"0.1"}`, key, "k").want(t, http.StatusOK)
		if !strings.Contains(again.body, `"amount_received":"0.1"`) {
			t.Error(again.body)
		}
		for target, body := range map[string]string{made: `{"amount":"0.2"}`, second: `{"amount":"0.1"}`} {
			d.send(t, http.MethodPost, target, token, body, key, "k").refused(t, http.StatusUnprocessableEntity,
				"idempotency_key_reused")
		}
		d.send(t, http.MethodPost, second, token, "", key, "the-rest").want(t, http.StatusOK)
		// nothing is due
		rest := d.send(t, http.MethodPost, second, token, "", key, "the-rest").want(t, http.StatusOK)
		if !strings.Contains(rest.body, `"state":"paid"`) || strings.Count(rest.body, `"txid"`) != 1 {
			t.Error(rest.body)
		}
		d.send(t, http.MethodPost, made, token, `{"amount":"0.1"}`, key, `""`).refused(t, http.StatusUnprocessableEntity,
			"invalid_request")
	})
}

// One key never succeeds for two operations, even concurrent ones. Either may
// be refused.
func TestIdempotency_KeyInTwoConcurrentOperations_OneSucceeds(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t,
			setup{database: database, clock: &clock{}, pool: 500, poster: &receiver{answer: webhook.Attempt{Status: 200}}})
		other := d.replica(t)
		winners, rounds := map[string]int{}, 200
		if testing.Short() {
			rounds = 40
		}
		for round := range rounds {
			token := d.token(t)
			var made, registered answer
			start := make(chan struct{})
			var both sync.WaitGroup
			both.Go(func() {
				<-start
				made = d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"), key, "k")
				for made.status == http.StatusServiceUnavailable && t.Context().Err() == nil { // until addresses are attested again
					d.clock.advance(time.Second)
					if err := d.watcher.Mark(t.Context()); err != nil {
						t.Error(err)
						return
					}
					made = d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"), key, "k")
				}
			})
			both.Go(func() {
				<-start
				registered = other.send(t, http.MethodPost, "/api/webhooks", token, hookURL, key, "k")
			})
			close(start)
			both.Wait()
			won, lost := "createCard", registered
			if made.status != http.StatusCreated {
				won, lost = "createWebhook", made
				registered.want(t, http.StatusCreated)
			}
			lost.refused(t, http.StatusUnprocessableEntity, "idempotency_key_reused")
			if t.Failed() {
				t.Fatalf("round %d, which %s won", round, won)
			}
			winners[won]++
		}
		t.Logf("won: %v", winners)
	})
}
