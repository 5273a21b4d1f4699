package acceptance_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// piconero is the number of piconero in a monero.
var piconero = decimal.New(1, 12)

// TestE2E sells cards with the real binary, database, monerod (regtest) and
// view-only wallet, through the Go client, to payments from another wallet.
// Each payment must result in exactly one card.
func TestE2E(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{
		"sqlite":   func(testing.TB) string { return "" },
		"postgres": func(tb testing.TB) string { return rig.Postgres(tb) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			net := rig.Monero(t)
			p := newProgram(t, url(t))
			token := p.account(t)
			s := p.serve(t, "serve", "--rate", "monero=152.52", "--address-pool", "20", "--address-rate", "1",
				"--webhook-insecure",
				"--monero-daemon-url", net.DaemonURL, "--monero-wallet-url", net.WalletURL)
			shop := &e2e{net: net, client: newClient(t, s.url, token)}
			shop.addWebhook(t)
			t.Run("exact payment", shop.exact)
			t.Run("split payment", shop.split)
			t.Run("underpayment with a top-up", shop.topUp)
			t.Run("mempool first", shop.mempoolFirst)
			t.Run("every card once", shop.everyCardOnce)
			t.Run("every event once", shop.everyEventOnce)
			wantOutput(t, p.must(t, "wallet", "rescan"), "done; applied up to block")
			s.stop(t)
			wantOutput(t, p.reconcile(t), "4 issued, 4 paid")
		})
	}
}

type e2e struct {
	net    *rig.MoneroNet
	client *client.Client
	issued []uuid.UUID

	mu        sync.Mutex
	delivered map[int64]*client.Event // by the webhook, by Seq
}

// addWebhook registers a webhook.
func (e *e2e) addWebhook(t *testing.T) {
	t.Helper()
	e.delivered = map[int64]*client.Event{}
	ready := make(chan http.Handler, 1) // the secret is known only after registration
	handler := sync.OnceValue(func() http.Handler { return <-ready })
	receiver := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler().ServeHTTP(w, r) }))
	t.Cleanup(receiver.Close)
	made, err := e.client.CreateWebhook(t.Context(), client.CreateWebhookRequest{URL: receiver.URL})
	if err != nil {
		t.Fatal(err)
	}
	h, err := client.NewWebhookHandler(made.Secret, func(_ context.Context, event *client.Event) error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.delivered[event.Seq] != nil {
			t.Errorf("event %d was delivered twice", event.Seq)
		}
		e.delivered[event.Seq] = event
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ready <- h
}

// everyEventOnce compares the events of the webhook with the feed.
func (e *e2e) everyEventOnce(t *testing.T) {
	var feed []*client.Event
	for event, err := range e.client.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		feed = append(feed, event)
	}
	await(t, waitLimit, fmt.Sprintf("all %d events", len(feed)), func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.delivered) == len(feed)
	})
	got := map[client.EventType]int{}
	for i, event := range feed {
		got[event.Type]++
		if diff := cmp.Diff(event, e.delivered[int64(i)+1]); diff != "" {
			t.Errorf("event %d differs between feed and webhook: %s", i+1, diff)
		}
	}
	// The number of underpaid events depends on the timing of passes.
	if got[client.EventTypePaymentDetected] != 4 || got[client.EventTypeCardGenerated] != 4 ||
		got[client.EventTypePaymentUnderpaid] < 1 {
		t.Errorf("events: %v", got)
	}
}

func (e *e2e) exact(t *testing.T) {
	c := e.create(t)
	e.net.Confirm(t, e.pay(t, c, c.Payment.Amount), 9)
	e.awaitPayment(t, c, client.PaymentStateConfirming, 9)
	e.net.Mine(t, 1)
	e.awaitIssued(t, c, c.Payment.Amount)
}

func (e *e2e) split(t *testing.T) {
	c := e.create(t)
	first := c.Payment.Amount.Div(decimal.NewFromInt(3)).Truncate(12)
	var last string
	for _, part := range []decimal.Decimal{first, first, c.Payment.Amount.Sub(first).Sub(first)} {
		last = e.pay(t, c, part)
		e.net.Confirm(t, last, 1)
	}
	e.net.Confirm(t, last, 9)
	e.awaitPayment(t, c, client.PaymentStateConfirming, 9) // of the last part, which is the youngest
	e.net.Mine(t, 1)
	e.awaitIssued(t, c, c.Payment.Amount)
}

func (e *e2e) topUp(t *testing.T) {
	c := e.create(t)
	short := c.Payment.Amount.Sub(decimal.New(1, -12))
	e.net.Confirm(t, e.pay(t, c, short), 12)
	c = e.awaitPayment(t, c, client.PaymentStateUnderpaid, 12)
	if !c.Payment.AmountDue.Equal(decimal.New(1, -12)) {
		t.Errorf("amount due is %s", c.Payment.AmountDue)
	}
	e.net.Confirm(t, e.pay(t, c, c.Payment.AmountDue), 10)
	e.awaitIssued(t, c, c.Payment.Amount)
}

func (e *e2e) mempoolFirst(t *testing.T) {
	c := e.create(t)
	sent := e.pay(t, c, c.Payment.Amount)
	c = e.awaitPayment(t, c, client.PaymentStateDetected, 0)
	if !c.Payment.AmountReceived.Equal(c.Payment.Amount) || !c.Payment.AmountDue.IsZero() {
		t.Errorf("received %s, due %s", c.Payment.AmountReceived, c.Payment.AmountDue)
	}
	e.net.Confirm(t, sent, 10)
	e.awaitIssued(t, c, c.Payment.Amount)
}

func (e *e2e) everyCardOnce(t *testing.T) {
	numbers := map[string]bool{}
	listed := 0
	for c, err := range e.client.ListCards(t.Context(), client.ListCardsOptions{Status: client.CardStatusGenerated}) {
		if err != nil {
			t.Fatal(err)
		}
		listed++
		numbers[c.Credentials.CardNumber] = true
	}
	if listed != len(e.issued) || len(numbers) != len(e.issued) {
		t.Errorf("%d cards are paid; %d are listed, with %d numbers", len(e.issued), listed, len(numbers))
	}
}

func (e *e2e) create(t *testing.T) *client.Card {
	t.Helper()
	c, err := e.client.CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: decimal.RequireFromString("50.50"), Currency: "monero"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (e *e2e) pay(t *testing.T, c *client.Card, amount decimal.Decimal) (txID string) {
	t.Helper()
	return e.net.Pay(t, c.Payment.Address, amount.Mul(piconero).IntPart())
}

// awaitPayment waits until the payment has the state and the confirmations.
func (e *e2e) awaitPayment(t *testing.T, c *client.Card, state client.PaymentState, confirmations int64) *client.Card {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		got, err := e.client.GetCard(t.Context(), c.UUID)
		if err != nil {
			t.Fatal(err)
		}
		if got.Payment.State == state && got.Payment.Confirmations == confirmations {
			if got.Status != client.CardStatusAwaitingPayment || got.Credentials.CardNumber != "" {
				t.Errorf("card is %s with credentials %v", got.Status, got.Credentials)
			}
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("payment is %s with %d confirmations, want %s with %d", got.Payment.State, got.Payment.Confirmations,
				state, confirmations)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (e *e2e) awaitIssued(t *testing.T, c *client.Card, received decimal.Decimal) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := e.client.WaitForCard(ctx, c.UUID)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Payment.AmountReceived.Equal(received) || got.Payment.State != client.PaymentStatePaid {
		t.Errorf("payment is %s, received %s", got.Payment.State, got.Payment.AmountReceived)
	}
	for name, value := range map[string]string{
		"number": got.Credentials.CardNumber, "date": got.Credentials.ExpirationDate, "code": got.Credentials.SecurityCode,
		"url": got.Credentials.URL, "password": got.Credentials.URLPassword,
	} {
		if value == "" {
			t.Errorf("no %s", name)
		}
	}
	e.issued = append(e.issued, c.UUID)
	fmt.Printf("    %s: paid %s, %s\n", t.Name(), received, got.Status)
}
