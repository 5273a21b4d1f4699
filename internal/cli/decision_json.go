package cli

import (
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// outcomeJSON is the effect of a decision: recorded is false without --yes, and
// nothing_left is true if it had been made before.
type outcomeJSON struct {
	Recorded    bool `json:"recorded"`
	NothingLeft bool `json:"nothing_left"`
}

// resolvedJSON is a decision about a card. Amount has the format of --amount.
type resolvedJSON struct {
	outcomeJSON
	Card        uuid.UUID               `json:"card"`
	Decision    operator.ResolutionKind `json:"decision"`
	Currency    string                  `json:"currency"`
	Amount      card.Decimal            `json:"amount"`
	Locked      card.Decimal            `json:"left_out_locked_amount"`
	Unconfirmed card.Decimal            `json:"left_out_unconfirmed_amount"`
	TxID        string                  `json:"txid,omitempty"`
	Before      card.PaymentState       `json:"payment_state_before"`
	After       card.PaymentState       `json:"payment_state"`
	Waits       operator.Wait           `json:"waits_for"`
}

func (c cardResolveCommand) outcome(done operator.Resolved, now *card.Card, x operator.Explanation) resolvedJSON {
	amount := done.Resolution.Amount
	if done.ExistingRefund != nil {
		amount = done.ExistingRefund.Amount
	}
	return resolvedJSON{outcomeJSON: outcomeJSON{c.Yes && !done.Unchanged, done.Unchanged}, Card: now.UUID,
		Decision: done.Resolution.Kind, Currency: now.Coin.Code,
		Amount: now.Coin.Decimal(amount), Locked: now.Coin.Decimal(done.Locked),
		Unconfirmed: now.Coin.Decimal(done.Unconfirmed), TxID: done.Resolution.TxID,
		Before: done.Card.State, After: done.After, Waits: x.Wait}
}

// attributedJSON is a decision about a transfer. Card is null if the money is
// returned, or if the plan is a new card.
type attributedJSON struct {
	outcomeJSON
	TxID     string                   `json:"txid"`
	Output   int64                    `json:"output"`
	Decision operator.AttributionKind `json:"decision"`
	Currency string                   `json:"currency"`
	Amount   card.Decimal             `json:"amount"`
	Card     *uuid.UUID               `json:"card"`
	After    card.PaymentState        `json:"payment_state,omitempty"`
}

func (c transfersAttributeCommand) outcome(d operator.AttributionDecision, done operator.Attributed) attributedJSON {
	j := attributedJSON{outcomeJSON: outcomeJSON{c.Yes && !done.Unchanged, done.Unchanged}, TxID: d.TxID, Output: d.Output,
		Decision: d.Kind, Currency: d.Coin.Code,
		Amount: d.Coin.Decimal(done.Amount), After: done.After}
	if done.Card != nil && (d.Kind != operator.ToNewCard || c.Yes || done.Unchanged) {
		j.Card = &done.Card.UUID
	}
	return j
}

// purgedJSON is the result of 'card purge'.
type purgedJSON struct {
	outcomeJSON
	Card uuid.UUID `json:"card"`
}

// canceledJSON is the result of canceling a request to a supplier. Declined
// means that no card will be made, or that the card is closed.
type canceledJSON struct {
	Card     uuid.UUID `json:"card"`
	Supplier string    `json:"supplier"`
	Asked    bool      `json:"asked"`
	Outcome  string    `json:"outcome,omitempty"`
}
