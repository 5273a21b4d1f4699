package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/cardmint/cardmint/client"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

// The examples of this file, one for each operation, are also the Go samples of
// the published contract.

const (
	hookPath    = "/api/webhooks/019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17"
	exampleHook = `{"id":"019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17","url":"https://shop.example.com/hooks/cardmint",
		"description":"order service","types":["card.generated"],"enabled":true,"disabled_reason":null,"disabled_at":null,
		"failing_since":null,"created_at":"2026-11-20T14:47:00.120Z"}`
	exampleAttempt = `{"at":"2026-11-20T15:06:00.131Z","duration_ms":84,"status":204,"answer":"","error":null}`
)

// serveWebhooks is the part of the examples' service with one webhook.
func serveWebhooks(w http.ResponseWriter, r *http.Request) {
	withSecret := fmt.Sprintf(`{"webhook":%s,"secret":%q}`, exampleHook, string(webhookSecret))
	switch r.Method + " " + r.URL.Path {
	case "POST /api/webhooks":
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, withSecret)
	case "GET /api/webhooks":
		fmt.Fprintf(w, "[%s]", exampleHook)
	case "GET " + hookPath:
		fmt.Fprint(w, exampleHook)
	case "PATCH " + hookPath:
		fmt.Fprint(w, strings.Replace(exampleHook, `"enabled":true`, `"enabled":false`, 1))
	case "DELETE " + hookPath:
		w.WriteHeader(http.StatusNoContent)
	case "POST " + hookPath + "/rotate-secret":
		fmt.Fprint(w, withSecret)
	case "POST " + hookPath + "/test":
		fmt.Fprint(w, exampleAttempt)
	case "GET " + hookPath + "/deliveries":
		fmt.Fprintf(w, `[{"event":%s,"state":"failed","attempts":[%s],"next_attempt_at":null}]`,
			exampleEvent(43, "card.generated", "generated"), strings.Replace(exampleAttempt, "204", "503", 1))
	case "POST " + hookPath + "/deliveries/019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11/redeliver":
		w.WriteHeader(http.StatusAccepted)
	case "POST " + hookPath + "/recover":
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"count":12}`)
	default:
		http.NotFound(w, r)
	}
}

// With an idempotency key, here an order number, the card is created once,
// however often the program runs.
func ExampleClient_CreateCard() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	order := client.CreateCardRequest{USDAmount: decimal.RequireFromString("150.50"), Currency: "monero"}
	card, err := c.CreateCard(context.Background(), order, client.WithIdempotencyKey("order-4711"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(card.Status)
	fmt.Println("send", card.Payment.Amount, card.Payment.Currency, "to", card.Payment.Address)
	// Output:
	// awaiting_payment
	// send 0.983456789012 monero to 8BnERTpvL5MbCLtj5n9No7J5oE5hHiB3
}

func ExampleClient_GetCard() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	id := uuid.MustParse("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88")
	card, err := c.GetCard(context.Background(), id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(card.Status, card.Payment.State)
	// Output: awaiting_payment unpaid
}

func ExampleClient_CancelCard() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	id := uuid.MustParse("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88")
	card, err := c.CancelCard(context.Background(), id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(card.Payment.State)
	// Output: canceled
}

// The zero request pays the amount due and confirms it.
func ExampleClient_SimulatePayment() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	id := uuid.MustParse("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88")
	card, err := c.SimulatePayment(context.Background(), id, client.SimulatePaymentRequest{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(card.Status, card.Payment.State)
	// Output: generated paid
}

// Credentials print as [hidden], but their fields are plain strings.
func ExampleClient_RevealCard() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	id := uuid.MustParse("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88")
	card, err := c.RevealCard(context.Background(), id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(card.Credentials.CardNumber, card.Credentials.ExpirationDate, card.Credentials.SecurityCode)
	// Output: 9912345678901232 11/29 123
}

func ExampleClient_ListCards() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	generated := client.ListCardsOptions{Status: client.CardStatusGenerated}
	for card, err := range c.ListCards(context.Background(), generated) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(card.UUID, card.USDAmount)
	}
	// Output: 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 150
}

func ExampleClient_ListCurrencies() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	currencies, err := c.ListCurrencies(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, currency := range currencies {
		if currency.Rate != nil { // nil while the service has no fresh rate
			fmt.Println(currency.Code, *currency.Rate, "US dollars")
		}
	}
	// Output: monero 152.52 US dollars
}

func ExampleClient_ListOffers() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	offers, err := c.ListOffers(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, offer := range offers {
		fmt.Println("from", offer.MinUSD, "to", offer.MaxUSD, "US dollars")
	}
	// Output:
	// from 50 to 50 US dollars
	// from 100 to 750 US dollars
}

// Catch up with the events after the last one handled.
func ExampleClient_Events() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	last := int64(41) // stored in a file or a database
	for e, err := range c.Events(context.Background(), last) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Seq, e.Type, e.CardUUID)
		last = e.Seq
	}
	fmt.Println("next time after", last)
	// Output:
	// 42 payment.detected 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88
	// 43 card.generated 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88
	// next time after 43
}

func ExampleClient_CreateWebhook() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	created, err := c.CreateWebhook(context.Background(), client.CreateWebhookRequest{
		URL:   "https://shop.example.com/hooks/cardmint",
		Types: []client.EventType{client.EventTypeCardGenerated},
	})
	if err != nil {
		log.Fatal(err)
	}
	secret := created.Secret.Reveal() // shown only once: store it
	fmt.Println(created.Webhook.ID, len(secret))
	// Output: 019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17 50
}

func ExampleClient_ListWebhooks() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	hooks, err := c.ListWebhooks(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, hook := range hooks {
		fmt.Println(hook.URL, hook.Types, hook.Enabled)
	}
	// Output: https://shop.example.com/hooks/cardmint [card.generated] true
}

func ExampleClient_GetWebhook() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	id := uuid.MustParse("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17")
	hook, err := c.GetWebhook(context.Background(), id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hook.URL, hook.Types, hook.Enabled)
	// Output: https://shop.example.com/hooks/cardmint [card.generated] true
}

func ExampleClient_UpdateWebhook() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	id := uuid.MustParse("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17")
	enabled := false // fields that stay nil are not changed
	hook, err := c.UpdateWebhook(context.Background(), id, client.UpdateWebhookRequest{Enabled: &enabled})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hook.URL, hook.Enabled)
	// Output: https://shop.example.com/hooks/cardmint false
}

func ExampleClient_DeleteWebhook() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	id := uuid.MustParse("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17")
	if err := c.DeleteWebhook(context.Background(), id); err != nil {
		log.Fatal(err)
	}
	// Output:
}

// For 24 hours the service signs with both secrets.
func ExampleClient_RotateWebhookSecret() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	id := uuid.MustParse("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17")
	rotated, err := c.RotateWebhookSecret(context.Background(), id)
	if err != nil {
		log.Fatal(err)
	}
	secret := rotated.Secret.Reveal() // shown only once: give it to the receiver
	fmt.Println(rotated.Webhook.ID, len(secret))
	// Output: 019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17 50
}

func ExampleClient_TestWebhook() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	id := uuid.MustParse("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17")
	attempt, err := c.TestWebhook(context.Background(), id, client.TestWebhookRequest{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(attempt.Status, attempt.Error)
	// Output: 204
}

// List the deliveries whose attempts are used up.
func ExampleClient_ListDeliveries() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	id := uuid.MustParse("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17")
	failed := client.ListDeliveriesOptions{State: client.DeliveryStateFailed}
	for delivery, err := range c.ListDeliveries(context.Background(), id, failed) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(delivery.Event.Seq, delivery.Event.Type, len(delivery.Attempts))
	}
	// Output: 43 card.generated 1
}

func ExampleClient_Redeliver() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	id := uuid.MustParse("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17")
	event := uuid.MustParse("019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11")
	if err := c.Redeliver(context.Background(), id, event); err != nil {
		log.Fatal(err)
	}
	// Output:
}

// Send all events that a receiver missed during an outage.
func ExampleClient_RecoverWebhook() {
	c, err := client.NewFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	id := uuid.MustParse("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17")
	since := time.Date(2026, time.November, 19, 0, 0, 0, 0, time.UTC)
	recovery, err := c.RecoverWebhook(context.Background(), id, since)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(recovery.Count, "events will be sent")
	// Output: 12 events will be sent
}
