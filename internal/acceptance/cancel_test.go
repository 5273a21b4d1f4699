package acceptance_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
)

// cancel cancels a card with its client's token.
func (s *server) cancel(t *testing.T, token string, c *client.Card) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/api/cards/"+c.UUID.String()+"/cancel", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
}

func TestCardShow_CanceledByClient_NamesCancellation(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	c := newClient(t, s.url, token)
	card, err := c.CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"})
	if err != nil {
		t.Fatal(err)
	}
	s.cancel(t, token, card)
	show := []string{"card", "show", card.UUID.String()}
	wantOutput(t, p.must(t, show...), "payment canceled", "nothing: its client canceled it before anything was paid",
		"canceled       by its client at 20", "payment.canceled")
	wantOutput(t, p.must(t, "card", "list", "--state", "canceled"), card.UUID.String())
	if list := p.must(t, "card", "list", "--state", "expired"); strings.Contains(list, card.UUID.String()) {
		t.Errorf("listed as expired:\n%s", list)
	}
	wantOutput(t, p.must(t, "reconcile"), "everything agrees")

	half := decimal.RequireFromString("0.5")
	if _, err := c.SimulatePayment(t.Context(), card.UUID, client.SimulatePaymentRequest{Amount: &half}); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, p.must(t, "card", "list", "--attention"), card.UUID.String(), "late")
	wantOutput(t, p.must(t, show...), "payment late", "the money came after the card's client had canceled it",
		"To give back 0.5 monero")
	wantOutput(t, p.must(t, "reconcile"), "everything agrees")
	p.must(t, "card", "resolve", card.UUID.String(), "refund", "--amount", "0.5", "--note", "x", "--operator", "alice",
		"--yes")
	wantOutput(t, p.must(t, show...), "payment canceled", "nothing: its money was given back")
	wantOutput(t, p.must(t, "reconcile"), "everything agrees")
}
