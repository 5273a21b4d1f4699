package server_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
	"github.com/cardmint/cardmint/openapi"
	"github.com/cardmint/cardmint/server"
)

// scopes has the scope of each operation of the contract; "" for none. It
// repeats the contract, so that a scope that is changed there by mistake fails
// the test.
var scopes = map[string]account.Scope{
	"listCards":       account.CardsRead,
	"createCard":      account.CardsCreate,
	"getCard":         account.CardsRead,
	"revealCard":      account.CredentialsReveal,
	"cancelCard":      account.CardsCreate,
	"listCurrencies":  "",
	"listOffers":      "",
	"simulatePayment": account.CardsCreate,

	"listEvents":          account.EventsRead,
	"listWebhooks":        account.WebhooksManage,
	"createWebhook":       account.WebhooksManage,
	"getWebhook":          account.WebhooksManage,
	"updateWebhook":       account.WebhooksManage,
	"deleteWebhook":       account.WebhooksManage,
	"rotateWebhookSecret": account.WebhooksManage,
	"testWebhook":         account.WebhooksManage,
	"listDeliveries":      account.WebhooksManage,
	"redeliver":           account.WebhooksManage,
	"recoverWebhook":      account.WebhooksManage,
}

// scoped returns a token of an account with nothing but these scopes.
func (d *deployment) scoped(t testing.TB, owner string, only account.Scopes) string {
	t.Helper()
	_, text, err := d.accounts.CreateToken(t.Context(), owner, account.TokenRequest{Scopes: only})
	need(t, err)
	return text.Reveal()
}

// lacks fails the test unless a request was refused for a missing scope.
func (a answer) lacks(t testing.TB, scope account.Scope) {
	t.Helper()
	p := a.refused(t, http.StatusForbidden, "insufficient_scope")
	equal(t, "WWW-Authenticate", a.header.Get("WWW-Authenticate"),
		`Bearer error="insufficient_scope", scope="`+string(scope)+`"`)
	if !strings.Contains(p.Detail, `"`+string(scope)+`"`) || !strings.Contains(p.Detail, "ask the operator") {
		t.Errorf("the detail has no remedy: %s", p.Detail)
	}
}

// Calls every operation of the contract with each single scope, and with all
// other scopes.
func TestScopes_EveryOperationWithEveryScope(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{poster: &receiver{answer: webhook.Attempt{Status: 200}}})
	owner, other := d.account(t), d.account(t)
	of := func(owner string) (only, without map[account.Scope]string) {
		only, without = map[account.Scope]string{}, map[account.Scope]string{}
		for _, s := range account.KnownScopes() {
			only[s], without[s] = d.scoped(t, owner, account.ScopesOf(s)),
				d.scoped(t, owner, account.AllScopes&^account.ScopesOf(s))
		}
		return only, without
	}
	only, without := of(owner)
	strangers, _ := of(other)
	mine := d.issued(t, d.scoped(t, owner, account.ScopesOf(account.CardsCreate)))
	unpaid, err := d.client(t, only[account.CardsCreate]).CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: number("50"), Currency: "monero"})
	need(t, err)
	who, err := d.accounts.Authenticate(t.Context(), only[account.CardsRead])
	need(t, err)

	target := func(t *testing.T, template string) string {
		id, hookID, event := mine, uuid.Nil, uuid.Nil
		if strings.HasSuffix(template, "/cancel") {
			id = unpaid.UUID
		}
		if strings.Contains(template, "{webhook_id}") {
			url := "https://shop.example.com/hooks"
			w, _, err := d.webhooks.CreateWebhook(t.Context(), who.AccountID, webhook.Request{URL: &url})
			need(t, err)
			t.Cleanup(func() { _ = d.webhooks.DeleteWebhook(context.Background(), who.AccountID, w.ID) })
			hookID, event = w.ID, d.happen(t, who.AccountID, card.EventLate)[0].ID
		}
		path := strings.NewReplacer("{uuid}", id.String(), "{webhook_id}", hookID.String(), "{event_id}",
			event.String()).Replace(template)
		if strings.HasSuffix(template, "/recover") {
			path += "?since=2026-01-01T00:00:00Z"
		}
		return path
	}
	seen := 0
	for template, item := range contract().Paths.Map() {
		for method, operation := range item.Operations() {
			needs, known := scopes[operation.OperationID]
			row, decided := access[operation.OperationID]
			if !known || !decided {
				t.Errorf("%s is missing in the table: decide which scope it needs", operation.OperationID)
				continue
			}
			seen++
			for _, s := range account.KnownScopes() {
				t.Run(operation.OperationID+" with "+string(s), func(t *testing.T) {
					path := target(t, template)
					if needs != "" && needs != s {
						d.send(t, method, path, only[s], row.body).lacks(t, needs)
						d.send(t, method, path, strangers[s], row.body).lacks(t, needs) // discloses nothing
						a := d.send(t, method, path, only[s], `{"no json`)
						a.lacks(t, needs) // or anything else about it
						equal(t, "the connection ends, so that nobody waits for the body", a.closed, true)
						d.send(t, method, path, without[s], row.body).want(t, row.own)    // has the scope
						d.send(t, method, path, without[needs], row.body).lacks(t, needs) // all other scopes together do not suffice
						return
					}
					d.send(t, method, path, only[s], row.body).want(t, row.own)
					d.send(t, method, target(t, template), strangers[s], row.body).want(t, row.other)
				})
			}
		}
	}
	equal(t, "operations of the contract", seen, len(scopes))
}

// A token without credentials:reveal never receives credentials.
func TestScopes_NoReveal_MasksCredentials(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		owner := d.account(t)
		all := d.scoped(t, owner, account.AllScopes)
		id := d.issued(t, all)
		whole, err := d.client(t, all).RevealCard(t.Context(), id)
		need(t, err)
		d.audited(t)
		blind := d.scoped(t, owner, account.AllScopes&^account.ScopesOf(account.CredentialsReveal))
		one, cards := "/api/cards/"+id.String(), "/api/cards"
		pay := "/api/sandbox/cards/" + id.String() + "/payments"
		for _, r := range [][2]string{{http.MethodGet, one}, {http.MethodGet, cards}, {http.MethodGet, cards + "?limit=5"},
			{http.MethodPost, pay}} {
			a := d.send(t, r[0], r[1], blind, "").want(t, http.StatusOK)
			if !masked.MatchString(a.body) || !strings.Contains(a.body, "************"+whole.Credentials.CardNumber[12:]) {
				t.Errorf("%s %s shows %s", r[0], r[1], a.body)
			}
			for _, secret := range []string{whole.Credentials.CardNumber, whole.Credentials.URLPassword} {
				if strings.Contains(a.body, secret) {
					t.Errorf("%s %s shows credentials", r[0], r[1])
				}
			}
			if a := d.send(t, r[0], r[1], all, "").want(t, http.StatusOK); !strings.Contains(a.body,
				whole.Credentials.CardNumber) {
				t.Errorf("%s %s masks credentials although the token has the scope", r[0], r[1])
			}
		}
		d.send(t, http.MethodPost, one+"/reveal", blind, "").lacks(t, account.CredentialsReveal)
		// Masked credentials are not disclosed, and only disclosures are
		// logged.
		equal(t, "audit", len(d.audited(t)), 5) // a whole list also logs a line at its start
		a := d.send(t, http.MethodPost, one+"/reveal", d.scoped(t, owner, account.ScopesOf(account.CredentialsReveal)),
			"").want(t, http.StatusOK)
		if !strings.Contains(a.body, whole.Credentials.CardNumber) {
			t.Error("revealCard returns no credentials")
		}
	})
}

// The response of a replayed order has no credentials, regardless of the
// token's scopes.
func TestScopes_Replay_DisclosesNoCredentials(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	owner := d.account(t)
	for _, token := range []string{d.scoped(t, owner, account.AllScopes),
		d.scoped(t, owner, account.ScopesOf(account.CardsCreate))} {
		c := d.client(t, token)
		made, err := c.CreateCard(t.Context(), client.CreateCardRequest{USDAmount: number("50"), Currency: "monero"},
			client.WithIdempotencyKey(token))
		need(t, err)
		_, err = c.SimulatePayment(t.Context(), made.UUID, client.SimulatePaymentRequest{})
		need(t, err)
		a := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"), "Idempotency-Key", token).want(t,
			http.StatusCreated)
		if a.header.Get("Idempotency-Replayed") != "true" || !strings.Contains(a.body, noCredentials) {
			t.Errorf("%v %s", a.header, a.body)
		}
	}
}

// An operation without a scope must not be callable by default.
func TestNew_ContractWithoutScopes_ReturnsError(t *testing.T) {
	t.Parallel()
	text := string(openapi.YAML)
	for name, change := range map[string]func(string) string{
		"as it is":              func(s string) string { return s },
		"one operation without": func(s string) string { return strings.Replace(s, "      x-scope: cards:read\n", "", 1) },
		"one with an unknown one": func(s string) string {
			return strings.Replace(s, "x-scope: events:read", "x-scope: events:raed", 1)
		},
		"one with two": func(s string) string {
			return strings.Replace(s, "x-scope: events:read", "x-scope: [events:read]", 1)
		},
		"one with an empty one": func(s string) string { return strings.Replace(s, "x-scope: none", "x-scope: ''", 1) },
		"one with all":          func(s string) string { return strings.Replace(s, "x-scope: none", "x-scope: all", 1) },
	} {
		changed := change(text)
		err := server.CheckContract([]byte(changed))
		if (err == nil) != (changed == text) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !regexp.MustCompile(`operation [a-zA-Z]+: x-scope`).MatchString(err.Error()) {
			t.Errorf("%s: the error does not name the operation: %v", name, err)
		}
	}
}

// A rotated token becomes invalid on every replica as quickly as a revoked one,
// and the new token has the same scopes.
func TestRotation_TakesEffectWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		one := deploy(t, setup{database: database, clock: &clock{}})
		two := one.replica(t)
		token, text, err := one.accounts.CreateToken(t.Context(), one.account(t),
			account.TokenRequest{Scopes: account.ScopesOf(account.EventsRead)})
		need(t, err)
		use := func(d *deployment, token, path string) int { return d.send(t, http.MethodGet, path, token, "").status }
		both := func(token, path string) [2]int { return [2]int{use(one, token, path), use(two, token, path)} }
		equal(t, "before", both(text.Reveal(), "/api/events"), [2]int{200, 200})
		r, err := one.accounts.RotateToken(t.Context(), token.ID, time.Hour)
		need(t, err)
		for range 10 {
			one.clock.advance(5 * time.Minute)
			equal(t, "the old one", both(text.Reveal(), "/api/events"), [2]int{200, 200})
			equal(t, "the new one", both(r.Text.Reveal(), "/api/events"), [2]int{200, 200})
		}
		one.clock.advance(10*time.Minute + 5*time.Second)
		equal(t, "the old one, five seconds after the overlap", both(text.Reveal(), "/api/events"), [2]int{401, 401})
		equal(t, "the new one", both(r.Text.Reveal(), "/api/events"), [2]int{200, 200})
		equal(t, "cards", both(r.Text.Reveal(), "/api/cards"), [2]int{403, 403})
	})
}
