package server_test

import (
	"log/slog"
	"net/http"
	"path"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
)

// Each open card is an option to pay at an old rate: an account that opens
// many, and pays only when the rate has moved in its favor, costs money.
func TestCreateCard_QuotaExceeded_IsRefused(t *testing.T) {
	t.Parallel()
	clock := &clock{}
	d := deploy(t, setup{clock: clock, limits: func(c *order.Config) { c.MaxOpenUSD = 500_00 }})
	token := d.token(t)
	paid := open(t, d, token, "300")
	open(t, d, token, "150")
	a := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50.01"))
	a.refused(t, http.StatusTooManyRequests, "quota_exceeded")
	equal(t, "headers",
		[]string{a.header.Get("Retry-After"), firstOf(a.header.Get("RateLimit")), firstOf(a.header.Get("RateLimit-Policy"))},
		[]string{"60", `"open-usd";r=50`, `"open-usd";q=500`})
	open(t, d, token, "50") // exactly the rest
	open(t, d, d.token(t), "500")

	d.send(t, http.MethodPost, "/api/sandbox/cards/"+paid+"/payments", token, "").want(t, http.StatusOK)
	clock.advance(6 * time.Second)
	open(t, d, token, "300")
	d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).refused(t, http.StatusTooManyRequests,
		"quota_exceeded")

	clock.advance(2 * time.Hour) // the cards have expired
	d.work()
	open(t, d, token, "500")
}

// A replay does not count toward the quota.
func TestCreateCard_Replay_DoesNotCountTowardQuota(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{limits: func(c *order.Config) { c.MaxOpenUSD = 100_00 }})
	token := d.token(t)
	first := d.send(t, http.MethodPost, "/api/cards", token, orderBody("100"), key, "one").want(t, http.StatusCreated)
	again := d.send(t, http.MethodPost, "/api/cards", token, orderBody("100"), key, "one").want(t, http.StatusCreated)
	equal(t, "replay", again.body, first.body)
	d.send(t, http.MethodPost, "/api/cards", token, orderBody("100"), key, "two").refused(t, http.StatusTooManyRequests,
		"quota_exceeded")
}

func TestCreateCard_PaymentReversed_AccountIsFrozen(t *testing.T) {
	t.Parallel()
	clock := &clock{}
	d := deploy(t, setup{clock: clock, limits: func(c *order.Config) { c.FreezeReversed = true }})
	token, other := d.token(t), d.token(t)
	id := open(t, d, token, "150")
	d.send(t, http.MethodPost, "/api/sandbox/cards/"+id+"/payments", token, "").want(t, http.StatusOK)
	need(t, d.store.SimulatedReorg(t.Context(), "monero", 10, true))
	d.work()
	clock.advance(6 * time.Second)
	d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).refused(t, http.StatusForbidden, "account_frozen")
	open(t, d, other, "50")

	decision := operator.Decision{CardUUID: uuid.MustParse(id), Kind: operator.WriteOff, Note: "a deep reorganization",
		Operator: "alice"}
	_, err := operator.New(d.store, d.rates, slog.New(slog.DiscardHandler)).ResolveCard(t.Context(), decision)
	need(t, err)
	clock.advance(6 * time.Second)
	open(t, d, token, "50")
}

// Orders are refused while payments can't be detected. Existing orders remain.
func TestCreateCard_ChainNotWatched_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	id := open(t, d, token, "150")
	need(t, d.orders.Prepare(t.Context()))
	need(t, d.store.DistrustPool(t.Context(), "monero"))
	need(t, d.orders.Prepare(t.Context()))
	d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).refused(t, http.StatusServiceUnavailable,
		"address_unavailable")
	d.send(t, http.MethodGet, "/api/cards/"+id, token, "").want(t, http.StatusOK)
}

// open creates a card and returns its uuid.
func open(t testing.TB, d *deployment, token, usd string) string {
	t.Helper()
	a := d.send(t, http.MethodPost, "/api/cards", token, orderBody(usd)).want(t, http.StatusCreated)
	return path.Base(a.header.Get("Location"))
}
