package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
)

// TestE2E_LiveStock_IsSoldOnce sells ten cards from a stock. They are imported
// from a file, ordered through the Go client, and paid from a wallet on a real
// monerod. Each order gets a different card, and an eleventh order is refused.
func TestE2E_LiveStock_IsSoldOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: needs Monero")
	}
	t.Parallel()
	net := rig.Monero(t)
	p := newProgram(t, "")
	p.env = append(p.env, "CARDMINT_MODE=live")
	token := p.account(t)
	file, stock := writeStock(t, 10)
	suppliers := filepath.Join(filepath.Dir(file), "suppliers.toml")
	if err := os.WriteFile(suppliers, []byte("[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\nlow_stock = 2\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	importing := []string{"stock", "import", file, "--supplier", "shelf", "--suppliers", suppliers}
	p.must(t, importing...)
	p.must(t, append(importing, "--yes")...)

	var usd atomic.Value
	usd.Store("152.52")
	s := p.serve(t, append([]string{"serve", "--suppliers", suppliers, "--address-pool", "30", "--address-rate", "1",
		"--monero-daemon-url", net.DaemonURL, "--monero-wallet-url", net.WalletURL}, rateFlags(t, &usd)...)...)
	wantOutput(t, s.Output(), "LIVE: real cards are sold for real coins", "monero after 10 confirmations",
		"shelf (stock, 50 to 750 US dollars)")
	shop := newClient(t, s.url, token)
	// Other tests may have used the wallet. In that case, it is ahead of the
	// database, and the stock is held when the epoch begins.
	s.awaitOutput(t, 2*time.Minute, "epoch began")
	p.must(t, "stock", "release", "--supplier", "shelf", "--suppliers", suppliers, "--yes")
	awaitOffer(t, shop, len(stock))
	orders := orderAll(t, shop, len(stock))
	sent := ""
	for _, c := range orders {
		sent = net.Pay(t, c.Payment.Address, c.Payment.Amount.Mul(piconero).IntPart())
	}
	net.Confirm(t, sent, 11)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range orders {
		got, err := shop.WaitForCard(ctx, c.UUID)
		if err != nil {
			t.Fatal(err)
		}
		want := stock[got.Credentials.CardNumber]
		if want == "" ||
			want != strings.Join(
				[]string{got.Credentials.ExpirationDate, got.Credentials.SecurityCode, got.Credentials.URL,
					got.Credentials.URLPassword}, ",") {
			t.Errorf("card %s is not in the stock, or was sold twice", c.UUID)
		}
		delete(stock, got.Credentials.CardNumber)
		if strings.Contains(s.Output(), got.Credentials.CardNumber) {
			t.Error("a card's number is in the log")
		}
	}
	if len(stock) > 0 {
		t.Errorf("%d cards of the stock were not sold", len(stock))
	}
	s.stop(t)
	wantOutput(t, p.reconcile(t), fmt.Sprintf("%d issued, %d paid", len(orders), len(orders)))
}

// awaitOffer waits until exactly n cards are offered, all of 100 dollars.
func awaitOffer(t *testing.T, shop *client.Client, n int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		offers, err := shop.ListOffers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(offers) == 1 && offers[0].MinUSD.IntPart() == 100 && offers[0].MaxUSD.IntPart() == 100 &&
			offers[0].Left != nil && int(*offers[0].Left) == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("offers: %+v", offers)
		}
	}
}

// writeStock writes a file of n cards of 100 dollars. It returns the file's
// path, and the other credentials of each card by its number.
func writeStock(t *testing.T, n int) (file string, stock map[string]string) {
	t.Helper()
	file, stock = filepath.Join(t.TempDir(), "cards.csv"), map[string]string{}
	lines := []string{"usd_amount,card_number,expiration_date,security_code,url,url_password"}
	for i := range n {
		body := fmt.Sprintf("99%013d", 7_000_000+i)
		number := body + card.LuhnDigit(body)
		stock[number] = fmt.Sprintf("%s,%03d,https://cards.example/%d,password%d",
			time.Now().AddDate(2, i, 0).Format("01/06"), 100+i, i, i)
		lines = append(lines, "100,"+number+","+stock[number])
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, stock
}

// orderAll orders n cards of 100 dollars. Orders of more cards, or of another
// amount, must be refused.
func orderAll(t *testing.T, shop *client.Client, n int) []*client.Card {
	t.Helper()
	order := func(usd int64) (*client.Card, error) {
		return shop.CreateCard(t.Context(), client.CreateCardRequest{USDAmount: decimal.NewFromInt(usd), Currency: "monero"})
	}
	var refused *client.Error
	if _, err := order(150); !errors.As(err, &refused) || refused.Code != "amount_unavailable" {
		t.Errorf("an amount that is not in stock: %v", err)
	}
	var orders []*client.Card
	for range n {
		c, err := order(100)
		if err != nil {
			t.Fatal(err)
		}
		orders = append(orders, c)
	}
	if _, err := order(100); !errors.As(err, &refused) || refused.Code != "amount_unavailable" {
		t.Errorf("an order beyond the stock: %v", err)
	}
	return orders
}
