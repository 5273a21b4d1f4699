package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/cardmint/cardmint/client"
	"github.com/google/uuid"
)

// The secret that CreateWebhook returned. Store it with your passwords.
const webhookSecret client.Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwmfKQ9r8GKYo="

func exampleEvent(seq int, kind, status string) string {
	return fmt.Sprintf(
		`{"id":"019aa1ca-7a3e-7b04-8a0b-%012d","type":%q,"timestamp":"2026-11-20T15:06:00.120Z","seq":%d,"card_uuid":%q,"status":%q}`,
		seq, kind, seq, exampleID, status)
}

// deliver sends an event to a receiver, as the service does.
func deliver(url, id, payload string) *http.Response {
	header, err := client.SignWebhook([]byte(payload), uuid.MustParse(id), time.Now(), webhookSecret)
	if err != nil {
		log.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(payload))
	if err != nil {
		log.Fatal(err)
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	_ = res.Body.Close()
	return res
}

// Receive events. A repeated event is handled once.
func ExampleNewWebhookHandler() {
	c, err := client.New(service.URL, "cm_test_token")
	if err != nil {
		log.Fatal(err)
	}
	receiver, err := client.NewWebhookHandler(webhookSecret, func(ctx context.Context, e *client.Event) error {
		if e.Type != client.EventTypeCardGenerated || e.Seq == 0 { // another type, or a test event
			return nil
		}
		card, err := c.GetCard(ctx, e.CardUUID)
		if err != nil {
			return err // the service will send the event again
		}
		fmt.Println("card", card.UUID, "of", card.USDAmount, "dollars is made")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/hooks/cardmint", receiver)
	shop := httptest.NewServer(mux)
	defer shop.Close()

	payload := exampleEvent(43, "card.generated", "generated")
	for range 2 {
		fmt.Println(deliver(shop.URL+"/hooks/cardmint", "019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11", payload).Status)
	}
	// Output:
	// card 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 of 150 dollars is made
	// 204 No Content
	// 204 No Content
}

// Test a receiver.
func ExampleSignWebhook() {
	receiver, err := client.NewWebhookHandler(webhookSecret, func(_ context.Context, e *client.Event) error {
		fmt.Println(e.Type)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	payload := []byte(
		`{"type":"payment.late","timestamp":"2026-11-20T15:06:00.120Z","seq":7,"card_uuid":"019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"}`)
	r := httptest.NewRequest(http.MethodPost, "/hooks/cardmint", bytes.NewReader(payload))
	if r.Header, err = client.SignWebhook(payload, uuid.New(), time.Now(), webhookSecret); err != nil {
		log.Fatal(err)
	}
	w := httptest.NewRecorder()
	receiver.ServeHTTP(w, r)
	fmt.Println(w.Code)
	// Output:
	// payment.late
	// 204
}

// Receive events without the handler, here during a rotation of the secret.
func ExampleParseWebhook() {
	const newSecret client.Secret = "whsec_bmV3IHNlY3JldCBvZiB0aGlydHktdHdvIGJ5dGVzISE="
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payload, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		e, err := client.ParseWebhook(payload, r.Header, newSecret, webhookSecret)
		switch {
		case errors.Is(err, client.ErrWebhookSignature):
			w.WriteHeader(http.StatusUnauthorized)
			return
		case err != nil:
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		// Store the event by its ID, then respond.
		fmt.Println(e.Seq, e.Type, e.CardUUID)
	}))
	defer shop.Close()

	deliver(shop.URL, "019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11", exampleEvent(42, "payment.detected", "awaiting_payment"))
	// Output: 42 payment.detected 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88
}
