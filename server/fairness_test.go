package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cardmint/cardmint/internal/store"
)

// bulkLine is the capacity of the queue of bulk requests.
const bulkLine = 16

// While one account sends many recoveries concurrently, another account cancels
// its cards without delay.
func TestRecoverWebhook_ManyOfOneAccount_DelayNoOtherAccount(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		const recoveries = 64
		recovering := newDam()
		h := deployHooks(t, setup{database: database, wrap: func(s *store.Store) hooked {
			return hooked{Store: s, beforeRecover: recovering.pass}
		}})
		one, _ := h.register(t, hookURL)
		two, _ := h.register(t, hookURL)
		quiet := h.deployment.token(t)
		var cards []string
		for range 25 {
			made := h.send(t, http.MethodPost, "/api/cards", quiet, orderBody("50")).want(t, http.StatusCreated)
			cards = append(cards, made.header.Get("Location"))
		}
		open := recovering.shut(t)
		answers := make(chan answer, recoveries)
		for range recoveries {
			go func() { answers <- h.serve(t, http.MethodPost, one+"/recover?since=2020-01-01T00:00:00Z", h.token, "") }()
		}
		recovering.await(t, 1)
		for range recoveries - bulkLine - 1 {
			a := <-answers
			a.refused(t, http.StatusTooManyRequests, "quota_exceeded")
			equal(t, "policy", firstOf(a.header.Get("RateLimit-Policy")), `"bulk-of-account";q=1`)
		}
		for _, c := range cards {
			h.send(t, http.MethodPost, c+"/cancel", quiet, "").want(t, http.StatusOK)
		}
		h.ask(t, http.StatusOK, http.MethodPatch, two, `{"description":"its own other requests go on"}`)
		equal(t, "recoveries at work", recovering.passed.Load(), 1)
		open()
		equal(t, "the first", served(answers, bulkLine+1) > 0, true)
		h.ask(t, http.StatusAccepted, http.MethodPost, one+"/recover?since=2020-01-01T00:00:00Z", "")
		h.ask(t, http.StatusNoContent, http.MethodDelete, two, "")
	})
}

// served returns how many of the next n responses are 202.
func served(answers <-chan answer, n int) (good int) {
	for range n {
		if a := <-answers; a.status == http.StatusAccepted {
			good++
		}
	}
	return good
}

// While the tokens of one account slowly read as many lists as allowed, the
// list of another account starts immediately.
func TestListCards_SlowReadersOfOneAccount_LeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{pool: 400})
	quiet := d.token(t)
	d.serve(t, http.MethodPost, "/api/cards", quiet, orderBody("50")).want(t, http.StatusCreated)
	refused, reading := slowLists(t, d, 200)
	equal(t, "refused", refused, listsAtOnce-listsPerAccount)
	equal(t, "begun", len(reading), listsPerAccount)
	for range 4 {
		d.send(t, http.MethodGet, "/api/cards", quiet, "").want(t, http.StatusOK)
	}
}

// slowLists creates an account with unpaid cards of 10 KB each. Eight of its
// tokens start four lists each over TCP, and read only the header. It returns
// the number of refused lists, and the open ones.
func slowLists(t testing.TB, d *deployment, cards int) (refused int, reading []reader) {
	t.Helper()
	account := d.account(t)
	_, first := d.tokenOf(t, account, 0)
	value := strings.Repeat("x", 500)
	pairs := make([]string, 20)
	for i := range pairs {
		pairs[i] = fmt.Sprintf(`"key %d":%q`, i, value)
	}
	body := `{"usd_amount":50,"currency":"monero","metadata":{` + strings.Join(pairs, ",") + `}}`
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range cards / 10 {
				d.serve(t, http.MethodPost, "/api/cards", first, body).want(t, http.StatusCreated)
			}
		})
	}
	all.Wait()
	l := listen(t, unbent)
	l.sendBuffer = 16 << 10
	serveOn(t, l, d.handler)
	address := l.Addr().String()
	for range 8 {
		_, token := d.tokenOf(t, account, 0)
		for range listsPerToken {
			r := d.slowly(t, address, token, "")
			if r.answer.StatusCode == http.StatusOK {
				reading = append(reading, r)
			} else {
				refused++
			}
		}
	}
	return refused, reading
}
