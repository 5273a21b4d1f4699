package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cardmint/cardmint/client"
	"github.com/shopspring/decimal"
)

// The service of the examples is scripted. It has one webhook, and one card,
// which is generated after the simulated payment.
var (
	paid      atomic.Bool
	service   = httptest.NewServer(http.HandlerFunc(serve))
	exampleID = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
)

func init() {
	_ = os.Setenv("CARDMINT_URL", service.URL)
	_ = os.Setenv("CARDMINT_TOKEN", "cm_test_token")
}

func serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	body, _ := io.ReadAll(r.Body)
	switch r.Method + " " + r.URL.Path {
	case "GET /api/cards":
		fmt.Fprintf(w, "[%s]", exampleCard())
	case "POST /api/cards":
		var in client.CreateCardRequest
		if err := json.Unmarshal(body, &in); err != nil || in.USDAmount.GreaterThan(decimal.NewFromInt(750)) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"title":"Invalid request","code":"invalid_request","detail":"1 thing is wrong with the request. See \"errors\".",
				"request_id":"019aa1c9","errors":[{"pointer":"/usd_amount","detail":"must be between 50 and 750"}]}`)
			return
		}
		paid.Store(false)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, exampleCard())
	case "POST /api/sandbox/cards/" + exampleID + "/payments":
		paid.Store(true)
		fmt.Fprint(w, exampleCard())
	case "GET /api/cards/" + exampleID, "POST /api/cards/" + exampleID + "/reveal":
		fmt.Fprint(w, exampleCard())
	case "GET /api/events":
		if r.URL.Query().Has("wait") { // the payment arrives while the client waits
			paid.Store(true)
		}
		fmt.Fprintf(w, `[%s,%s]`, exampleEvent(42, "payment.detected", "awaiting_payment"),
			exampleEvent(43, "card.generated", "generated"))
	case "POST /api/cards/" + exampleID + "/cancel":
		fmt.Fprint(w, strings.Replace(exampleCard(), `"unpaid"`, `"canceled"`, 1))
	case "GET /api/currencies":
		fmt.Fprint(w, `[{"code":"monero","name":"Monero","decimals":12,"confirmations_required":10,"rate":"152.52","rate_at":"2026-11-20T14:45:55.000Z"}]`)
	case "GET /api/offers":
		fmt.Fprint(w, `[{"min_usd":"50","max_usd":"50","left":3},{"min_usd":"100","max_usd":"750","left":null}]`)
	default:
		serveWebhooks(w, r)
	}
}

func exampleCard() string {
	card := `{"uuid":"` + exampleID + `","created_at":"2026-11-20T14:46:00.120Z","status":"awaiting_payment","usd_amount":"150",
		"payment":{"currency":"monero","amount":"0.983456789012","address":"8BnERTpvL5MbCLtj5n9No7J5oE5hHiB3","state":"unpaid",
		"expires_at":"2026-11-20T15:46:00.120Z","uri":"monero:8BnERTpvL5MbCLtj5n9No7J5oE5hHiB3?tx_amount=0.983456789012",
		"amount_received":"0","amount_due":"0.983456789012","confirmations":0,"confirmations_required":10,"rate":"152.52"},
		"credentials":{"card_number":null,"expiration_date":null,"security_code":null,"url":null,"url_password":null}}`
	if !paid.Load() {
		return card
	}
	return strings.NewReplacer(`"awaiting_payment"`, `"generated"`, `"unpaid"`, `"paid"`, `"card_number":null`,
		`"card_number":"9912345678901232"`,
		`"expiration_date":null`, `"expiration_date":"11/29"`, `"security_code":null`, `"security_code":"123"`).Replace(card)
}

// buyCard is the example of the README.
func buyCard(ctx context.Context) error {
	c, err := client.NewFromEnv() // CARDMINT_URL and CARDMINT_TOKEN
	if err != nil {
		return err
	}
	order := client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"}
	card, err := c.CreateCard(ctx, order, client.WithIdempotencyKey("order-4711"))
	if err != nil {
		return err
	}
	fmt.Println("send", card.Payment.Amount, card.Payment.Currency, "to", card.Payment.Address)
	card, err = c.WaitForCard(ctx, card.UUID) // until it is paid, or ctx ends
	if err != nil {
		return err
	}
	fmt.Println("card", card.Credentials.CardNumber, "valid until", card.Credentials.ExpirationDate)
	return nil
}

// Buy a card, with the service and the token from the environment.
func ExampleNewFromEnv() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := buyCard(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// send 0.983456789012 monero to 8BnERTpvL5MbCLtj5n9No7J5oE5hHiB3
	// card 9912345678901232 valid until 11/29
}

// Buy a card: create it, pay, wait for it, use its credentials.
func Example() {
	c, err := client.New(service.URL, "cm_test_token", client.WithPollInterval(time.Millisecond, time.Second))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()

	card, err := c.CreateCard(ctx, client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("send", card.Payment.Amount, card.Payment.Currency, "to", card.Payment.Address)

	// In a sandbox. Elsewhere a wallet pays.
	if _, err := c.SimulatePayment(ctx, card.UUID, client.SimulatePaymentRequest{}); err != nil {
		log.Fatal(err)
	}

	card, err = c.WaitForCard(ctx, card.UUID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("card", card.Credentials.CardNumber, "valid until", card.Credentials.ExpirationDate)
	fmt.Println("in a log:", card.Credentials)
	// Output:
	// send 0.983456789012 monero to 8BnERTpvL5MbCLtj5n9No7J5oE5hHiB3
	// card 9912345678901232 valid until 11/29
	// in a log: [hidden]
}

func ExampleError() {
	c, err := client.New(service.URL, "cm_test_token")
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.CreateCard(context.Background(),
		client.CreateCardRequest{USDAmount: decimal.NewFromInt(1000), Currency: "monero"})
	var refused *client.Error
	switch {
	case err == nil:
	case errors.As(err, &refused) && refused.Code == client.ProblemCodeInvalidRequest:
		for _, f := range refused.Fields {
			fmt.Println(f.Pointer, f.Detail)
		}
	default:
		log.Fatal(err)
	}
	// Output: /usd_amount must be between 50 and 750
}

// Read a response with fields that this version of the package does not know.
func ExampleClient_Do() {
	c, err := client.New(service.URL, "cm_test_token")
	if err != nil {
		log.Fatal(err)
	}
	var raw json.RawMessage
	if err := c.Do(context.Background(), http.MethodGet, "/api/cards/"+exampleID, nil, &raw); err != nil {
		log.Fatal(err)
	}
	var known client.Card
	var further map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(raw, &known), json.Unmarshal(raw, &further)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(known.USDAmount, string(further["usd_amount"]))
	// Output: 150 "150"
}
