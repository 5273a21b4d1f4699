package clienttest_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/client/clienttest"
)

// order creates a card.
func order(t *testing.T, c *client.Client) *client.Card {
	t.Helper()
	card, err := c.CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"})
	if err != nil {
		t.Fatal(err)
	}
	return card
}

func TestService_SellsACard(t *testing.T) {
	service := clienttest.Start(t)
	c := service.Client()
	card := order(t, c)
	if !card.Payment.AmountDue.Equal(decimal.NewFromInt(1)) {
		t.Errorf("%s are due", card.Payment.AmountDue)
	}
	service.Pay(card.UUID)
	card, err := c.WaitForCard(t.Context(), card.UUID)
	if err != nil || card.Credentials.CardNumber == "" {
		t.Errorf("%+v, %v", card, err)
	}
}

func TestService_APaymentThatNeverComesExpires(t *testing.T) {
	service := clienttest.Start(t)
	c := service.Client()
	card := order(t, c)
	service.Advance(2 * time.Hour)
	_, err := c.WaitForCard(t.Context(), card.UUID)
	var payment *client.PaymentError
	if !errors.As(err, &payment) || payment.State != client.PaymentStateExpired {
		t.Error(err)
	}
}

func TestService_ACardThatIsCanceledEndsTheWait(t *testing.T) {
	service := clienttest.Start(t)
	c := service.Client()
	card := order(t, c)
	if _, err := c.CancelCard(t.Context(), card.UUID); err != nil {
		t.Fatal(err)
	}
	_, err := c.WaitForCard(t.Context(), card.UUID)
	var payment *client.PaymentError
	if !errors.As(err, &payment) || payment.State != client.PaymentStateCanceled {
		t.Error(err)
	}
}

// The service stores and filters by client data, as sent through the client.
func TestService_KeepsTheClientsData(t *testing.T) {
	c := clienttest.Start(t).Client()
	in := client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero", Reference: "order-4711",
		Metadata: map[string]string{"customer": "c-1208"}}
	card, err := c.CreateCard(t.Context(), in)
	if err != nil || card.Reference != "order-4711" || card.Metadata["customer"] != "c-1208" {
		t.Fatalf("%+v, %v", card, err)
	}
	order(t, c) // a second card
	n := 0
	for found, err := range c.ListCards(t.Context(),
		client.ListCardsOptions{Reference: "order-4711", PaymentState: client.PaymentStateUnpaid, Currency: "monero",
			Status: client.CardStatusAwaitingPayment, CreatedAfter: card.CreatedAt,
			CreatedBefore: card.CreatedAt.Add(time.Second)}) {
		if n++; err != nil || found.UUID != card.UUID {
			t.Errorf("%+v, %v", found, err)
		}
	}
	if n != 1 {
		t.Errorf("%d cards found", n)
	}
}

// The clock advances while a call waits.
func TestService_AWaitEndsWhenTheQuoteExpires(t *testing.T) {
	service := clienttest.Start(t)
	c := service.Client()
	card := order(t, c)
	ended := make(chan error)
	go func() {
		_, err := c.WaitForCard(t.Context(), card.UUID)
		ended <- err
	}()
	service.Advance(2 * time.Hour)
	var payment *client.PaymentError
	if err := <-ended; !errors.As(err, &payment) {
		t.Error(err)
	}
}

func TestService_TooLittleIsLateWhenTheQuoteExpires(t *testing.T) {
	service := clienttest.Start(t)
	c := service.Client()
	card := order(t, c)
	half := decimal.RequireFromString("0.5")
	if _, err := c.SimulatePayment(t.Context(), card.UUID, client.SimulatePaymentRequest{Amount: &half}); err != nil {
		t.Fatal(err)
	}
	service.Advance(2 * time.Hour)
	_, err := c.WaitForCard(t.Context(), card.UUID)
	var payment *client.PaymentError
	if !errors.As(err, &payment) || payment.State != client.PaymentStateLate {
		t.Error(err)
	}
}

// A payment after the quote has expired buys the card if it is enough at the
// current rate.
func TestService_LatePayment(t *testing.T) {
	service := clienttest.Start(t)
	c := service.Client()
	card := order(t, c)
	service.Advance(2 * time.Hour)
	half := decimal.RequireFromString("0.5")
	card, err := c.SimulatePayment(t.Context(), card.UUID, client.SimulatePaymentRequest{Amount: &half})
	if err != nil || card.Payment.State != client.PaymentStateLate {
		t.Errorf("%+v, %v", card, err)
	}
	card, err = c.SimulatePayment(t.Context(), card.UUID, client.SimulatePaymentRequest{Amount: &half})
	if err != nil || card.Status != client.CardStatusGenerated {
		t.Errorf("%+v, %v", card, err)
	}
}

func TestService_SendsToWebhooks(t *testing.T) {
	service := clienttest.Start(t)
	c := service.Client()
	got := make(chan *client.Event, 10)
	shop := httptest.NewUnstartedServer(nil)
	hook, err := c.CreateWebhook(t.Context(), client.CreateWebhookRequest{URL: "http://" + shop.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	shop.Config.Handler, err = client.NewWebhookHandler(hook.Secret, func(_ context.Context, e *client.Event) error {
		got <- e
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	shop.Start()
	defer shop.Close()
	card := order(t, c)
	service.Pay(card.UUID)
	for e := range got {
		if e.CardUUID != card.UUID {
			t.Errorf("%+v", e)
		}
		if e.Type == client.EventTypeCardGenerated {
			return
		}
	}
}

func TestService_ListsOffersAndOutlivesManyDays(t *testing.T) {
	service := clienttest.Start(t)
	c := service.Client()
	for range 3 {
		service.Advance(30 * 24 * time.Hour)
		offers, err := c.ListOffers(t.Context())
		if err != nil || len(offers) == 0 {
			t.Errorf("%v, %v", offers, err)
		}
		if card := service.Pay(order(t, c).UUID); card.Status != client.CardStatusGenerated {
			t.Errorf("%+v", card)
		}
	}
}

// Sells more cards than there are free addresses.
func TestService_SellsManyCards(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	service := clienttest.Start(t)
	c := service.Client()
	for range 300 {
		order(t, c)
	}
}
