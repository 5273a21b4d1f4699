package main

import (
	"context"
	"fmt"
	"log"

	"github.com/cardmint/cardmint/client"
	"github.com/shopspring/decimal"
)

func main() {
	ctx := context.Background()
	shop, err := client.NewFromEnv() // CARDMINT_URL and CARDMINT_TOKEN
	if err != nil {
		log.Fatal(err)
	}
	order := client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"}
	card, err := shop.CreateCard(ctx, order)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("pay", card.Payment.Amount, card.Payment.Currency, "to", card.Payment.Address)
	// In a sandbox, the program pays. Elsewhere, a wallet does.
	if _, err = shop.SimulatePayment(ctx, card.UUID, client.SimulatePaymentRequest{}); err != nil {
		log.Fatal(err)
	}
	if card, err = shop.WaitForCard(ctx, card.UUID); err != nil {
		log.Fatal(err)
	}
	fmt.Println("card", card.Credentials.CardNumber, "valid until", card.Credentials.ExpirationDate)
}
