package order

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// SimulatedPayment describes the payment that SimulatePayment makes.
type SimulatedPayment struct {
	Amount        *card.Decimal // in whole coins; nil for the amount due
	Confirmations *int          // nil for the required number
	Key           string        // idempotency key; "" for none
}

// SimulatePayment pays for a card on the simulated chain. It returns the card
// once the watcher has seen the payment and, if the card is paid, it is issued;
// after five seconds it returns the card as it is. The error is card.ErrNotFound
// if the card's chain is real.
//
// The idempotency key determines the transaction's id. If the transaction
// exists, only missing confirmations are added. The error is card.ErrKeyReused
// if it paid for another card, or another amount.
func (s *Service) SimulatePayment(ctx context.Context, account, id uuid.UUID, p SimulatedPayment) (*card.Card, error) {
	if len(s.sandbox) == 0 {
		return nil, card.ErrNotFound.WithMessage("This service runs no simulated chain: pay with real coins.")
	}
	c, err := s.GetCard(ctx, account, id)
	if err != nil {
		return nil, err
	}
	sandbox, simulated := s.sandbox[c.Coin.Code]
	if !simulated {
		return nil, card.ErrNotFound.WithMessage("This card's currency has no simulated chain: pay with real coins.")
	}
	amount, confirmations := c.Credit.Due, c.ConfirmationsRequired
	if p.Amount != nil {
		exact, err := p.Amount.Rescale(c.Coin.Decimals)
		if err == nil && exact.Units == 0 {
			err = errors.New("must be more than 0")
		}
		if err != nil {
			return nil, card.ErrInvalidRequest.WithFields(card.FieldError{Pointer: "/amount", Detail: err.Error()})
		}
		amount = card.Amount(exact.Units)
	}
	if p.Confirmations != nil {
		confirmations = *p.Confirmations
	}
	txid, sent, err := sentBefore(ctx, sandbox, c, p, amount)
	if err != nil {
		return nil, err
	}
	if sent {
		amount = 0
	}
	tip, err := sandbox.PayAs(ctx, txid, c.Address, amount, confirmations)
	if tooMuch := (*card.TooMuchError)(nil); errors.As(err, &tooMuch) {
		detail := "must be at most " + c.Coin.Decimal(tooMuch.Most).String() +
			": more coins than there are can't come to one address"
		return nil, card.ErrInvalidRequest.WithFields(card.FieldError{Pointer: "/amount", Detail: detail}).WithCause(err)
	}
	if err != nil {
		return nil, err
	}
	return s.awaitSeen(ctx, c, amount, tip)
}

// sentBefore returns the id of a payment's transaction, and whether it exists.
func sentBefore(ctx context.Context, sandbox Sandbox, c *card.Card, p SimulatedPayment,
	amount card.Amount) (txid string, sent bool, err error) {
	if p.Key == "" {
		random := make([]byte, sha256.Size)
		_, _ = rand.Read(random) // never fails (crypto/rand)
		return hex.EncodeToString(random), false, nil
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "simulatePayment/1\x00%s\x00%s", c.AccountID, p.Key))
	txid = hex.EncodeToString(sum[:])
	address, before, err := sandbox.Sent(ctx, txid)
	switch {
	case errors.Is(err, card.ErrNoRow):
		return txid, false, nil
	case err != nil:
		return "", false, err
	case address != c.Address || p.Amount != nil && before != amount:
		return "", false, card.ErrKeyReused
	}
	return txid, true, nil
}

// awaitSeen polls the card until it shows the payment and, if it is paid, until
// it is issued or all suppliers have refused it. After five seconds it returns
// the card as it is.
func (s *Service) awaitSeen(ctx context.Context, before *card.Card, sent card.Amount, tip card.Tip) (*card.Card,
	error) {
	s.wake()
	timeout := time.NewTimer(5 * time.Second)
	defer timeout.Stop()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		c, err := s.GetCard(ctx, before.AccountID, before.UUID)
		if err != nil {
			return nil, err
		}
		seen := c.Received >= before.Received+sent && c.TipHeight >= tip.Height
		if beingIssued := c.State == card.Paid && c.Status != card.Generated && !c.Refused; seen && !beingIssued {
			return c, nil
		}
		select {
		case <-poll.C:
		case <-timeout.C:
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
