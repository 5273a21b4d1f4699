package cli

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/store"
)

// demo makes cards for a demonstration, by the API wherever the API can.
type demo struct {
	api    *client.Client
	db     *store.Store
	coin   card.Currency
	unpaid uuid.UUID // the card that old ones are copied from
}

const (
	demoPatience = 15 * time.Second // for a card to get where it is to be
	demoAge      = 2 * time.Hour    // of a card whose quote has ended
)

// seedDemo makes a card in every state, unless there are cards.
func (c devCommand) seedDemo(ctx context.Context, g *globals, r app.Running, token card.Secret, coin card.Currency) error {
	cards, err := r.Store.FindCards(ctx, operator.Search{Limit: 1})
	if err != nil {
		return err
	}
	if len(cards) > 0 {
		fmt.Fprintln(g.stderr, "the database has cards already: none was made for the demonstration")
		return nil
	}
	api, err := client.New(r.URL, token.Reveal())
	if err != nil {
		return err
	}
	d := &demo{api: api, db: r.Store, coin: coin}
	required := coin.Confirmations
	text := "cards of the demonstration:\n"
	// Each payment extends the chain: those that are to have few confirmations
	// come last, and the block that is to leave it first.
	for _, step := range []struct {
		to   card.PaymentState
		make func() (uuid.UUID, error)
	}{
		{card.Unpaid, func() (uuid.UUID, error) { return d.unpaid, d.order(ctx, &d.unpaid) }},
		{card.Reversed, func() (uuid.UUID, error) { return d.reversed(ctx) }},
		{card.Paid, func() (uuid.UUID, error) { return d.paying(ctx, "1", required) }},
		{card.Expired, func() (uuid.UUID, error) { return d.old(ctx) }},
		{card.Late, func() (uuid.UUID, error) { return d.late(ctx) }},
		{card.Underpaid, func() (uuid.UUID, error) { return d.paying(ctx, "0.5", required) }},
		{card.Confirming, func() (uuid.UUID, error) { return d.paying(ctx, "1", 1) }},
		{card.Detected, func() (uuid.UUID, error) { return d.paying(ctx, "1", 0) }},
	} {
		id, err := step.make()
		if err != nil {
			return fmt.Errorf("%s: %w", step.to, err)
		}
		made, err := d.await(ctx, id, step.to)
		if err != nil {
			return err
		}
		text += fmt.Sprintf("  %s  %-10s  %s\n", id, made.State, made.Status)
	}
	_, err = fmt.Fprintln(g.stdout, text)
	return err
}

func (d *demo) order(ctx context.Context, id *uuid.UUID) error {
	c, err := d.api.CreateCard(ctx, client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: d.coin.Code})
	if err == nil {
		*id = c.UUID
	}
	return err
}

// paying orders a card and pays a part of its price.
func (d *demo) paying(ctx context.Context, share string, confirmations int) (id uuid.UUID, err error) {
	if err := d.order(ctx, &id); err != nil {
		return id, err
	}
	return id, d.pay(ctx, id, share, confirmations)
}

func (d *demo) pay(ctx context.Context, id uuid.UUID, share string, confirmations int) error {
	c, err := d.api.GetCard(ctx, id)
	if err != nil {
		return err
	}
	amount := c.Payment.Amount.Mul(decimal.RequireFromString(share)).Truncate(int32(d.coin.Decimals))
	confirmed := int32(confirmations)
	_, err = d.api.SimulatePayment(ctx, id, client.SimulatePaymentRequest{Amount: &amount, Confirmations: &confirmed})
	return err
}

// await waits until a card is in a state, and issued if it is paid.
func (d *demo) await(ctx context.Context, id uuid.UUID, want card.PaymentState) (*card.Card, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, demoPatience, fmt.Errorf("card %s did not become %s in time", id, want))
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		r, err := d.db.CardDetail(ctx, id) // the log would name every request to the API
		if err == nil && r.Card.State == want && (want != card.Paid || r.Card.Status == card.Generated) {
			return r.Card, nil
		}
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// reversed issues a card, and has its payment leave the chain.
func (d *demo) reversed(ctx context.Context) (uuid.UUID, error) {
	id, err := d.paying(ctx, "1", d.coin.Confirmations)
	if err != nil {
		return id, err
	}
	if _, err := d.await(ctx, id, card.Paid); err != nil {
		return id, err
	}
	return id, d.db.SimulatedReorg(ctx, d.coin.Code, d.coin.Confirmations, true)
}

// late pays half of the price after the quote has ended: all of it would still
// buy the card.
func (d *demo) late(ctx context.Context) (uuid.UUID, error) {
	id, err := d.old(ctx)
	if err != nil {
		return id, err
	}
	return id, d.pay(ctx, id, "0.5", d.coin.Confirmations)
}

// old stores a copy of the unpaid card that was ordered long ago, which the API
// can't do.
func (d *demo) old(ctx context.Context) (id uuid.UUID, err error) {
	r, err := d.db.CardDetail(ctx, d.unpaid)
	if err != nil {
		return id, err
	}
	addresses, err := d.db.TakeAddresses(ctx, d.coin.Code, 1)
	if err != nil {
		return id, err
	}
	if len(addresses) == 0 {
		return id, errors.New("no address is free")
	}
	c := r.Card
	id = aged(demoAge)
	c.UUID, c.CreatedAt, c.IdempotencyKey, c.RequestHash = id, card.TimeOf(id), "", nil
	c.ExpiresAt, c.Rate.At, c.Address = c.ExpiresAt.Add(-demoAge), c.Rate.At.Add(-demoAge), addresses[0]
	stored, err := d.db.InsertCard(ctx, c, 0)
	if err == nil && !stored {
		err = errors.New("the address is taken")
	}
	return id, err
}

// aged returns a UUID version 7 as it was made some time ago.
func aged(by time.Duration) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(time.Now().Add(-by).UnixMilli()))
	copy(id[:6], millis[2:])
	return id
}
