package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

// access is the response of an operation to the owner of a card, and to another
// account. An operation that is missing here fails the test, so that its access
// is decided.
var access = map[string]struct {
	body       string
	own, other int
}{
	"listCards":       {"", http.StatusOK, http.StatusOK},
	"createCard":      {orderBody("50"), http.StatusCreated, http.StatusCreated},
	"getCard":         {"", http.StatusOK, http.StatusNotFound},
	"revealCard":      {"", http.StatusOK, http.StatusNotFound},
	"cancelCard":      {"", http.StatusOK, http.StatusNotFound},
	"listCurrencies":  {"", http.StatusOK, http.StatusOK},
	"listOffers":      {"", http.StatusOK, http.StatusOK},
	"simulatePayment": {`{"confirmations":0}`, http.StatusOK, http.StatusNotFound},

	"listEvents":          {"", http.StatusOK, http.StatusOK},
	"listWebhooks":        {"", http.StatusOK, http.StatusOK},
	"createWebhook":       {hookURL, http.StatusCreated, http.StatusCreated},
	"getWebhook":          {"", http.StatusOK, http.StatusNotFound},
	"updateWebhook":       {`{"description":"ours"}`, http.StatusOK, http.StatusNotFound},
	"deleteWebhook":       {"", http.StatusNoContent, http.StatusNotFound},
	"rotateWebhookSecret": {"", http.StatusOK, http.StatusNotFound},
	"testWebhook":         {"", http.StatusOK, http.StatusNotFound},
	"listDeliveries":      {"", http.StatusOK, http.StatusNotFound},
	"redeliver":           {"", http.StatusAccepted, http.StatusNotFound},
	"recoverWebhook":      {"", http.StatusAccepted, http.StatusNotFound},
}

func TestAccess_EveryOperationWithEveryToken(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{clock: &clock{}, poster: &receiver{answer: webhook.Attempt{Status: 200}}})
	live := deploy(t, setup{database: d.database, keys: d.keys, clock: d.clock, mode: card.LiveMode})

	account := d.account(t)
	_, own := d.tokenOf(t, account, 0)
	_, second := d.tokenOf(t, account, time.Hour)
	_, expired := d.tokenOf(t, account, time.Minute)
	revokedID, revoked := d.tokenOf(t, account, 0)
	_, liveToken := live.tokenOf(t, account, 0)
	stranger := d.token(t)
	unknown := deploy(t, setup{}).token(t)
	mine, err := d.client(t, own).CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: number("50"), Currency: "monero"})
	need(t, err)
	for _, token := range []string{expired, revoked} { // cached before
		d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK)
	}
	need(t, d.accounts.RevokeToken(t.Context(), revokedID))
	d.clock.advance(time.Minute + time.Second)

	who, err := d.accounts.Authenticate(t.Context(), own)
	need(t, err)
	// hook creates a webhook of the owner, for the duration of a test.
	hook := func(t *testing.T) (id, event uuid.UUID) {
		url := "https://shop.example.com/hooks"
		w, _, err := d.webhooks.CreateWebhook(t.Context(), who.AccountID, webhook.Request{URL: &url})
		need(t, err)
		t.Cleanup(func() { _ = d.webhooks.DeleteWebhook(context.Background(), who.AccountID, w.ID) })
		return w.ID, d.happen(t, who.AccountID, card.EventLate)[0].ID
	}

	refused := map[string]string{
		"revoked":                      "Bearer " + revoked,
		"expired":                      "Bearer " + expired,
		"none":                         absent,
		"empty":                        "",
		"of the live mode":             "Bearer " + liveToken,
		"well formed but unknown":      "Bearer " + unknown,
		"malformed":                    "Bearer abc",
		"with a wrong checksum":        "Bearer " + own[:len(own)-1] + string('a'+(own[len(own)-1]-'a'+1)%2),
		"with another prefix":          "Bearer cm_prod_" + own[len("cm_test_"):],
		"in other letters":             "Bearer " + strings.ToUpper(own),
		"cut short":                    "Bearer " + own[:len(own)-1],
		"with a tail":                  "Bearer " + own + "x",
		"twice in one":                 "Bearer " + own + " " + own,
		"in a list":                    "Bearer " + own + ", Bearer " + own,
		"behind two blanks":            "Bearer  " + own,
		"behind a tab":                 "Bearer\t" + own,
		"without a scheme":             own,
		"of another scheme":            "Basic " + own,
		"of a scheme that begins so":   "Bearers " + own,
		"that is empty":                "Bearer ",
		"that is a scheme":             "Bearer Bearer",
		"64 kB long":                   "Bearer cm_test_" + strings.Repeat("a", 64<<10),
		"not ASCII":                    "Bearer cm_test_\xf0\x9f\x8e\x89",
		"of SQL":                       "Bearer ' OR '1'='1",
		"that is the account's name":   "Bearer " + account,
		"that is its own id":           "Bearer " + revokedID.String(),
		"good, but the second of them": "Bearer abc" + again + "Bearer " + own,
		"good, but the first of them":  "Bearer " + own + again + "Bearer abc",
		"good, but sent twice":         "Bearer " + own + again + "Bearer " + own,
		"good, before an empty one":    "Bearer " + own + again,
	}

	seen := map[string]bool{}
	for template, item := range contract().Paths.Map() {
		if len(item.Parameters) > 0 {
			t.Errorf("%s: parameters must be checked if and only if the operation has any", template)
		}
		for method, operation := range item.Operations() {
			row, known := access[operation.OperationID]
			if !known {
				t.Errorf("%s is missing in the table: decide who may call it", operation.OperationID)
				continue
			}
			seen[operation.OperationID] = true
			if operation.Security != nil || len(contract().Security) != 1 || contract().Security[0]["bearer"] == nil {
				t.Errorf("%s: the contract does not require a token", operation.OperationID)
			}
			of := func(card, hook, event uuid.UUID) string {
				target := strings.NewReplacer("{uuid}", card.String(), "{webhook_id}", hook.String(), "{event_id}",
					event.String()).Replace(template)
				if operation.OperationID == "recoverWebhook" {
					target += "?since=2026-01-01T00:00:00Z"
				}
				return target
			}
			target := func(t *testing.T) string {
				if operation.OperationID == "cancelCard" { // the owner's may have been paid
					unpaid, err := d.client(t, own).CreateCard(t.Context(),
						client.CreateCardRequest{USDAmount: number("50"), Currency: "monero"})
					need(t, err)
					return of(unpaid.UUID, uuid.Nil, uuid.Nil)
				}
				if !strings.Contains(template, "{webhook_id}") {
					return of(mine.UUID, uuid.Nil, uuid.Nil)
				}
				id, event := hook(t)
				return of(mine.UUID, id, event)
			}
			t.Run(operation.OperationID+" with a token of its own", func(t *testing.T) {
				d.send(t, method, target(t), own, row.body).want(t, row.own)
				d.send(t, method, target(t), second, row.body).want(t, row.own)
			})
			t.Run(operation.OperationID+" with another account's", func(t *testing.T) {
				a := d.send(t, method, target(t), stranger, row.body).want(t, row.other)
				if strings.Contains(a.body, mine.UUID.String()) || strings.Contains(a.body, mine.Payment.Address) {
					t.Errorf("the response shows another account's card: %s", a.body)
				}
				if row.other == http.StatusNotFound { // indistinguishable from a card that does not exist
					nobodys := d.send(t, method, of(uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())),
						stranger, row.body)
					equal(t, "detail", a.refused(t, row.other, "not_found").Detail, nobodys.refused(t, row.other, "not_found").Detail)
				}
			})
			for _, kind := range slices.Sorted(maps.Keys(refused)) {
				t.Run(operation.OperationID+" with a token "+kind, func(t *testing.T) {
					target := of(mine.UUID, uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()))
					also := "?"
					if strings.Contains(target, "?") {
						also = "&"
					}
					d.send(t, method, target+also+"access_token="+own, "", row.body, "Authorization", refused[kind]).refused(t,
						http.StatusUnauthorized, "unauthorized")
				})
			}
		}
	}
	for id := range access {
		if !seen[id] {
			t.Errorf("the contract no longer has %s", id)
		}
	}
	if n := count(t, d.client(t, stranger)); n != 1 { // its own, from createCard
		t.Errorf("the other account has %d cards", n)
	}
}

// All refusals are identical: otherwise a client could find out which tokens
// exist.
func TestAuthentication_Refusals_AreIdentical(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	account := d.account(t)
	id, revoked := d.tokenOf(t, account, 0)
	need(t, d.accounts.RevokeToken(t.Context(), id))
	_, expired := d.tokenOf(t, account, time.Nanosecond)
	for name, token := range map[string]string{
		"revoked": revoked, "expired": expired, "unknown": deploy(t, setup{}).token(t), "malformed": "x",
	} {
		a := d.send(t, http.MethodGet, "/api/cards", token, "", "X-Request-Id", "same")
		equal(t, name, a.body, d.send(t, http.MethodGet, "/api/cards", "y", "", "X-Request-Id", "same").body)
	}
}

// A revocation takes effect within five seconds on every replica, even while
// the token is in use.
func TestRevocation_TakesEffectWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		one := deploy(t, setup{database: database, clock: &clock{}})
		two := one.replica(t)
		id, token := one.tokenOf(t, one.account(t), 0)
		use := func(d *deployment) int { return d.send(t, http.MethodGet, "/api/cards", token, "").status }
		equal(t, "before", [2]int{use(one), use(two)}, [2]int{200, 200})
		one.clock.advance(1500 * time.Millisecond)
		equal(t, "before", [2]int{use(one), use(two)}, [2]int{200, 200})

		need(t, one.accounts.RevokeToken(t.Context(), id))
		for range 9 {
			one.clock.advance(500 * time.Millisecond)
			use(one)
			use(two)
		}
		one.clock.advance(500 * time.Millisecond)
		equal(t, "after five seconds", [2]int{use(one), use(two)}, [2]int{401, 401})
	})
}

// A hanging database must not prolong the validity of cached tokens.
func TestRevocation_DatabaseHangs_TakesEffect(t *testing.T) {
	t.Parallel()
	var hang atomic.Bool
	stuck, release := make(chan struct{}), make(chan struct{})
	d := deploy(t, setup{clock: &clock{}, wrap: func(s *store.Store) hooked {
		return hooked{Store: s, beforeToken: func() {
			if hang.CompareAndSwap(true, false) {
				close(stuck)
				<-release
			}
		}}
	}})
	id, token := d.tokenOf(t, d.account(t), 0)
	use := func() int { return d.send(t, http.MethodGet, "/api/currencies", token, "").status }
	equal(t, "before", use(), http.StatusOK)
	need(t, d.accounts.RevokeToken(t.Context(), id))
	d.clock.advance(2 * time.Second)
	hang.Store(true)
	first := make(chan int)
	go func() { first <- use() }()
	<-stuck
	d.clock.advance(3 * time.Second)
	equal(t, "after five seconds", use(), http.StatusUnauthorized)
	close(release)
	equal(t, "the one that was stuck", <-first, http.StatusUnauthorized)
}

func TestExpiry_TakesEffectImmediately(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{clock: &clock{}})
	_, token := d.tokenOf(t, d.account(t), time.Hour)
	d.clock.advance(time.Hour - 20*time.Second)
	d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK)
	d.clock.advance(20 * time.Second)
	d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusUnauthorized)
}

// A stolen database contains no token and no card.
func TestDatabase_ContainsNoSecrets(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	c := d.client(t, token)
	made, err := c.CreateCard(t.Context(), client.CreateCardRequest{USDAmount: number("50"), Currency: "monero"},
		client.WithIdempotencyKey("find-me"))
	need(t, err)
	made, err = c.SimulatePayment(t.Context(), made.UUID, client.SimulatePaymentRequest{})
	need(t, err)
	files, err := filepath.Glob(strings.TrimPrefix(d.database, "sqlite:") + "*")
	need(t, err)
	var all []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		need(t, err)
		all = append(all, text...)
	}
	if !bytes.Contains(all, []byte("find-me")) || !bytes.Contains(all, []byte(made.Payment.Address)) {
		t.Fatalf("%v are not the files of the database", files)
	}
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return string(sum[:])
	}
	for name, secret := range map[string]string{
		"token": token, "random part of the token": token[len("cm_test_") : len(token)-6],
		"hash of the token without a key": hash(token), "the same in hex": hex.EncodeToString([]byte(hash(token))),
		"hash of its random part": hash(token[len("cm_test_"):]),
		"card number":             made.Credentials.CardNumber, "url": made.Credentials.URL,
		"url password":                          made.Credentials.URLPassword,
		"hash of the card number without a key": hash(made.Credentials.CardNumber),
	} {
		if bytes.Contains(all, []byte(secret)) {
			t.Errorf("the database contains the %s", name)
		}
	}
	tokens, err := d.store.Tokens(t.Context())
	need(t, err)
	for _, hash := range []string{hex.EncodeToString(tokens[0].Hash), "cm_test_" + hex.EncodeToString(tokens[0].Hash),
		tokens[0].ID.String()} {
		d.send(t, http.MethodGet, "/api/cards", hash, "").want(t, http.StatusUnauthorized)
	}
}
