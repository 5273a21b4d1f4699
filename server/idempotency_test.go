package server_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
)

const key = "Idempotency-Key"

// eachDatabase runs a test on both databases.
func eachDatabase(t *testing.T, test func(t *testing.T, database string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, "") })
	t.Run("postgres", func(t *testing.T) { test(t, databases.Postgres(t)) })
}

// replayed fails the test unless a response repeats the first one.
func replayed(t testing.TB, first, again answer) {
	t.Helper()
	again.want(t, http.StatusCreated)
	equal(t, "body", again.body, first.body)
	equal(t, "Location", again.header.Get("Location"), first.header.Get("Location"))
	equal(t, "Content-Type", again.header.Get("Content-Type"), first.header.Get("Content-Type"))
	equal(t, "Idempotency-Replayed", again.header.Get("Idempotency-Replayed"), "true")
	if again.header.Get("X-Request-Id") == first.header.Get("X-Request-Id") {
		t.Error("two requests have the same id")
	}
}

// Later changes of the card don't affect a replay: it equals the first response
// byte for byte, so it never contains credentials.
func TestIdempotency_ReplayIsByteEqual(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database, clock: &clock{}})
		token := d.token(t)
		again := func() answer { return d.send(t, http.MethodPost, "/api/cards", token, orderBody("150.5"), key, "k") }
		first := again().want(t, http.StatusCreated)
		equal(t, "Idempotency-Replayed of the first", first.header.Get("Idempotency-Replayed"), "")
		pay := func(body string) {
			t.Helper()
			d.send(t, http.MethodPost, strings.Replace(first.header.Get("Location"), "/api", "/api/sandbox", 1)+"/payments",
				token, body).want(t, http.StatusOK)
		}

		replayed(t, first, again())
		replayed(t, first, d.replica(t).send(t, http.MethodPost, "/api/cards", token, orderBody("150.5"), key, "k"))
		d = d.restart(t)
		replayed(t, first, again())
		pay(`{"amount":"0.1","confirmations":0}`)
		replayed(t, first, again())
		pay(`{"confirmations":3}`)
		replayed(t, first, again())
		pay(`{}`)
		if card := d.send(t, http.MethodGet, first.header.Get("Location"), token, "").body; !strings.Contains(card,
			`"status":"generated"`) {
			t.Fatalf("the card is not issued: %s", card)
		}
		replayed(t, first, again())
		d = d.restart(t)
		replayed(t, first, again())

		other := d.send(t, http.MethodPost, "/api/cards", token, orderBody("60"), key, "expires").want(t, http.StatusCreated)
		d.clock.advance(3 * 60 * 60 * 1e9)
		d.work()
		if card := d.send(t, http.MethodGet, other.header.Get("Location"), token, "").body; !strings.Contains(card,
			`"state":"expired"`) {
			t.Fatalf("the card is not expired: %s", card)
		}
		replayed(t, other, d.send(t, http.MethodPost, "/api/cards", token, orderBody("60"), key, "expires"))
		equal(t, "cards", count(t, d.client(t, token)), 2)
	})
}

func TestIdempotency_EqualOrder_IsReplayed(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	send := func(t *testing.T, body, k string) answer {
		return d.send(t, http.MethodPost, "/api/cards", token, body, key, k)
	}
	first := send(t, orderBody("50"), "order-1").want(t, http.StatusCreated)
	for name, body := range map[string]string{
		"the same":        orderBody("50"),
		"with decimals":   orderBody("50.00"),
		"one decimal":     orderBody("50.0"),
		"as a string":     orderBody(`"50"`),
		"string decimals": orderBody(`"50.00"`),
		"with zeros":      orderBody(`"0050"`),
		"other order":     `{"currency":"monero","usd_amount":50}`,
		"blanks":          "\n{ \"usd_amount\" : 50 ,\t\"currency\" : \"monero\" }\n",
		"escapes":         `{"\u0075sd_amount":50,"currency":"\u006donero"}`,
	} {
		t.Run(name, func(t *testing.T) {
			replayed(t, first, send(t, body, "order-1"))
			replayed(t, first, send(t, body, `"order-1"`))
		})
	}
	quoted := send(t, orderBody("60"), `"order-2"`).want(t, http.StatusCreated)
	replayed(t, quoted, send(t, orderBody("60"), "order-2"))

	for _, usd := range []string{"50.01", "51", "500", `"60"`} {
		send(t, orderBody(usd), "order-1").refused(t, http.StatusUnprocessableEntity, "idempotency_key_reused")
	}
	replayed(t, first, send(t, orderBody("50"), "order-1"))
	for _, k := range []string{"Order-1", "order-1,", "order-11", `'order-1'`, `"order-1`, `W/"order-1"`} { // other keys
		a := send(t, orderBody("50"), k).want(t, http.StatusCreated)
		equal(t, "Idempotency-Replayed of "+k, a.header.Get("Idempotency-Replayed"), "")
	}
	equal(t, "cards", count(t, d.client(t, token)), 8)
}

func TestIdempotency_KeysAreScopedToAccount(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	account := d.account(t)
	_, one := d.tokenOf(t, account, 0)
	_, two := d.tokenOf(t, account, 0)
	stranger := d.token(t)
	send := func(token, usd string) answer {
		return d.send(t, http.MethodPost, "/api/cards", token, orderBody(usd), key, "shared")
	}
	first := send(one, "50").want(t, http.StatusCreated)
	replayed(t, first, send(two, "50"))
	theirs := send(stranger, "700").want(t, http.StatusCreated)
	if theirs.header.Get("Location") == first.header.Get("Location") {
		t.Error("two accounts share a card")
	}
	replayed(t, theirs, send(stranger, "700"))
	replayed(t, first, send(one, "50"))
}

// A failed request can be repeated with the same key, corrected or not.
func TestIdempotency_Failure_KeepsKeyUnused(t *testing.T) {
	t.Parallel()
	rates := &switchedRates{}
	d := deploy(t, setup{rates: rates})
	token := d.token(t)
	send := func(body string) answer {
		return d.send(t, http.MethodPost, "/api/cards", token, body, key, "k")
	}
	send(orderBody("49")).invalid(t, "/usd_amount")
	send(`{`).refused(t, http.StatusBadRequest, "malformed_json")
	send(orderBody("50")).refused(t, http.StatusServiceUnavailable, "rate_unavailable")
	rates.on.Store(true)
	first := send(orderBody("70")).want(t, http.StatusCreated)
	equal(t, "Idempotency-Replayed", first.header.Get("Idempotency-Replayed"), "")
	rates.on.Store(false)
	replayed(t, first, send(orderBody("70"))) // needs no rate
	send(orderBody("50")).refused(t, http.StatusUnprocessableEntity, "idempotency_key_reused")
	equal(t, "cards", count(t, d.client(t, token)), 1)
}

// switchedRates are rates that can be switched off.
type switchedRates struct{ on atomic.Bool }

func (r *switchedRates) Rate(string) (card.Rate, error) {
	if !r.on.Load() {
		return card.Rate{}, card.ErrNoRate
	}
	usd, err := card.ParseDecimal(testRate, card.RateScale)
	return card.Rate{USD: usd, Source: "test"}, err
}

func TestIdempotency_InvalidKey_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	visible := ""
	for c := byte('!'); c <= '~'; c++ {
		visible += string(c)
	}
	for name, k := range map[string]string{
		"one character": "k", "one quote": `"`, "255 characters": strings.Repeat("k", 255),
		"255 in quotes": `"` + strings.Repeat("k", 254) + `j"`, "all that is visible": visible,
		"a comma": "a,b", "what would be an escape": "%41", "SQL": "';DROP/**/TABLE/**/cards;--",
	} {
		t.Run(name, func(t *testing.T) {
			first := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"), key, k).want(t, http.StatusCreated)
			equal(t, "Idempotency-Replayed", first.header.Get("Idempotency-Replayed"), "")
			replayed(t, first, d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"), key, k))
		})
	}
	before := count(t, d.client(t, token))
	for name, k := range map[string]string{
		"empty": "", "nothing in quotes": `""`, "256 characters": strings.Repeat("k", 256),
		"257 characters": strings.Repeat("k", 257),
		"256 in quotes":  `"` + strings.Repeat("k", 256) + `"`, "10 000 characters": strings.Repeat("k", 10_000),
		"a blank": "a b", "a blank in quotes": `"a b"`, "a tab": "a\tb", "other letters": "schlüssel", "an emoji": "🎉",
		"not UTF-8": "\xff", "a high byte": "\x80",
		"twice": "a" + again + "b", "twice the same": "a" + again + "a", "once empty": "a" + again,
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			p := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"), key, k).refused(t,
				http.StatusUnprocessableEntity, "invalid_request")
			for _, e := range p.Errors {
				equal(t, "pointer", e.Pointer, "header/Idempotency-Key")
			}
		})
	}
	equal(t, "cards after the refusals", count(t, d.client(t, token)), before)
}

// Fifty equal requests to three processes create one card, and use one address.
func TestIdempotency_ConcurrentRequests_CreateOneCard(t *testing.T) {
	t.Parallel()
	database := databases.Postgres(t)
	one := deploy(t, setup{database: database, pool: 500})
	all := []*deployment{one, one.replica(t), one.replica(t)}
	token := one.token(t)
	answers := make([]answer, 50)
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range answers {
		group.Go(func() {
			<-start
			k := "k"
			if i%2 == 1 {
				k = `"k"`
			}
			answers[i] = all[i%3].send(t, http.MethodPost, "/api/cards", token, orderBody([]string{"50", `"50.00"`}[i/2%2]),
				key, k)
		})
	}
	close(start)
	group.Wait()
	firsts := 0
	for _, a := range answers {
		equal(t, "status", a.status, http.StatusCreated)
		equal(t, "body", a.body, answers[0].body)
		if a.header.Get("Idempotency-Replayed") == "" {
			firsts++
		}
	}
	equal(t, "answers that are not a replay", firsts, 1)

	db, err := sql.Open("postgres", database)
	need(t, err)
	defer func() { _ = db.Close() }()
	var cards int
	need(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM cards").Scan(&cards))
	equal(t, "cards", cards, 1)

	// The losers' addresses may be used again, the winner's never.
	addresses := map[string]bool{addressOf(t, answers[0]): true}
	for i := range 45 {
		address := addressOf(t, all[i%3].send(t, http.MethodPost, "/api/cards", token, orderBody("50")))
		if addresses[address] {
			t.Errorf("address %s was handed out twice", address)
		}
		addresses[address] = true
	}
}

func addressOf(t testing.TB, made answer) string {
	t.Helper()
	var c struct{ Payment struct{ Address string } }
	need(t, json.Unmarshal([]byte(made.want(t, http.StatusCreated).body), &c))
	return c.Payment.Address
}

// Of different concurrent requests with one key, one succeeds and the rest are
// refused.
func TestIdempotency_ConcurrentDifferentRequests_CreateOneCard(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	statuses := make([]int, 20)
	var group sync.WaitGroup
	for i := range statuses {
		group.Go(func() {
			statuses[i] = d.send(t, http.MethodPost, "/api/cards", token, orderBody(fmt.Sprint(50+i)), key, "k").status
		})
	}
	group.Wait()
	tally := map[int]int{}
	for _, s := range statuses {
		tally[s]++
	}
	equal(t, "statuses", tally, map[int]int{http.StatusCreated: 1, http.StatusUnprocessableEntity: 19})
	equal(t, "cards", count(t, d.client(t, token)), 1)
}
