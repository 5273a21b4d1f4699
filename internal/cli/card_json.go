package cli

import (
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// cardJSON is a card in JSON, with the field names of the API.
type cardJSON struct {
	UUID                uuid.UUID   `json:"uuid"`
	Account             string      `json:"account"`
	CreatedAt           instant     `json:"created_at"`
	Status              card.Status `json:"status"`
	USDAmount           card.USD    `json:"usd_amount"`
	Payment             paymentJSON `json:"payment"`
	CredentialsPurgedAt instant     `json:"credentials_purged_at"`
}

// listedJSON is a card in a list.
type listedJSON struct {
	cardJSON
	*attention // only with --attention
}

// attention is why a card waits for an operator.
type attention struct {
	Why      optional `json:"why"`
	Since    instant  `json:"since"`
	WorthUSD optional `json:"worth_usd"`
}

type paymentJSON struct {
	Currency              string            `json:"currency"`
	Amount                card.Decimal      `json:"amount"`
	Address               string            `json:"address"`
	State                 card.PaymentState `json:"state"`
	ExpiresAt             instant           `json:"expires_at"`
	AmountReceived        card.Decimal      `json:"amount_received"`
	AmountDue             card.Decimal      `json:"amount_due"`
	Confirmations         int64             `json:"confirmations"`
	ConfirmationsRequired int               `json:"confirmations_required"`
}

func newCardJSON(c *card.Card, account string) cardJSON {
	return cardJSON{UUID: c.UUID, Account: account, CreatedAt: instant{c.CreatedAt}, Status: c.Status, USDAmount: c.USD,
		CredentialsPurgedAt: newInstant(c.CredentialsPurgedAt),
		Payment: paymentJSON{Currency: c.Coin.Code, Amount: c.Coin.Decimal(c.Amount), Address: c.Address, State: c.State,
			ExpiresAt:      instant{c.ExpiresAt},
			AmountReceived: c.Coin.Decimal(c.Received), AmountDue: c.Coin.Decimal(c.Credit.Due),
			Confirmations: c.Confirmations(), ConfirmationsRequired: c.ConfirmationsRequired}}
}

// recordJSON is everything stored about a card except its credentials.
type recordJSON struct {
	cardJSON
	Waits         operator.Wait  `json:"waits_for"`
	Explanation   []string       `json:"explanation"`
	Choices       []choiceJSON   `json:"choices"`
	Rate          rateJSON       `json:"rate"`
	Surplus       card.Decimal   `json:"surplus"`
	Lost          card.Decimal   `json:"lost"`
	Accepted      card.Decimal   `json:"accepted"`
	Refunded      card.Decimal   `json:"refunded"`
	RefundedAt    instant        `json:"refunded_at"`
	RefundTxID    optional       `json:"refund_txid"`
	RefundAddress optional       `json:"refund_address"`
	WrittenOff    card.Decimal   `json:"written_off"`
	Issuing       *issuingJSON   `json:"issuing"`
	Credentials   bool           `json:"has_credentials"`
	Transfers     []transferJSON `json:"transfers"`
	Decisions     []decisionJSON `json:"decisions"`
	Events        []eventJSON    `json:"events"`
}

type rateJSON struct {
	USD    card.Decimal `json:"usd"`
	At     instant      `json:"at"`
	Source string       `json:"source"`
}

type choiceJSON struct {
	Decision operator.ResolutionKind `json:"decision"`
	Amount   card.Decimal            `json:"amount"`
	CostUSD  card.USD                `json:"cost_usd"`
}

type issuingJSON struct {
	State        string        `json:"state"`
	Supplier     optional      `json:"supplier"`
	Reference    optional      `json:"reference"`
	FirstAskedAt instant       `json:"first_asked_at"`
	Answer       optional      `json:"answer"`
	Attempts     int           `json:"attempts"`
	DueAt        instant       `json:"due_at"`
	Reason       optional      `json:"reason"`
	Refusals     []refusalJSON `json:"refusals"`
}

type refusalJSON struct {
	Supplier  string `json:"supplier"`
	Reason    string `json:"reason"`
	Temporary bool   `json:"temporary"`
}

// transferJSON is a transfer. Its height is null in the mempool.
type transferJSON struct {
	Currency      string       `json:"currency"`
	TxID          string       `json:"txid"`
	Output        int64        `json:"output"`
	Address       string       `json:"address"`
	Amount        card.Decimal `json:"amount"`
	Height        *int64       `json:"height"`
	Confirmations *int64       `json:"confirmations,omitempty"`
	Locked        bool         `json:"locked"`
	Counted       bool         `json:"counted"`
	FirstSeenAt   instant      `json:"first_seen_at"`
}

func newTransferJSON(t card.Transfer, coin card.Currency) transferJSON {
	j := transferJSON{Currency: t.Currency, TxID: t.TxID, Output: t.Output, Address: t.Address,
		Amount: coin.Decimal(t.Amount), Locked: t.Locked, Counted: t.Counted,
		FirstSeenAt: instant{t.FirstSeenAt}}
	if t.Height > 0 {
		j.Height = &t.Height
	}
	return j
}

type decisionJSON struct {
	Decision  string       `json:"decision"`
	Card      *uuid.UUID   `json:"card,omitempty"`
	Amount    card.Decimal `json:"amount"`
	TxID      string       `json:"txid,omitempty"`
	CreatedAt instant      `json:"created_at"`
	Operator  string       `json:"operator"`
	Note      string       `json:"note"`
}

func newRecordJSON(r operator.CardDetail, x operator.Explanation, now time.Time) (recordJSON, error) {
	c := r.Card
	j := recordJSON{cardJSON: newCardJSON(c, r.Account), Waits: x.Wait, Explanation: waitReasons(r, x, now),
		Choices: []choiceJSON{},
		Rate:    rateJSON{c.Rate.USD, instant{c.Rate.At}, c.Rate.Source}, Surplus: c.Coin.Decimal(c.Credit.Surplus),
		Lost:     c.Coin.Decimal(x.Lost),
		Accepted: c.Coin.Decimal(c.Accepted), Refunded: c.Coin.Decimal(c.Refunded), RefundedAt: instant{c.RefundedAt},
		RefundTxID:    optional(c.RefundTxID),
		RefundAddress: optional(card.Mask(c.RefundAddress)), WrittenOff: c.Coin.Decimal(c.WrittenOff),
		Credentials: r.Credentials,
		Transfers:   []transferJSON{}, Decisions: []decisionJSON{}, Events: []eventJSON{}}
	for _, choice := range x.Choices {
		j.Choices = append(j.Choices, choiceJSON{choice.Kind, c.Coin.Decimal(choice.Amount), choice.Cost})
	}
	if i := r.Intent; i != nil {
		j.Issuing = &issuingJSON{State: i.State, Supplier: optional(i.Supplier), Reference: optional(i.Reference),
			FirstAskedAt: newInstant(i.FirstAskedAt), Answer: optional(i.Answer), Attempts: i.Attempts,
			DueAt: instant{i.DueAt}, Reason: optional(i.Reason), Refusals: []refusalJSON{}}
		for _, f := range i.Refusals {
			j.Issuing.Refusals = append(j.Issuing.Refusals, refusalJSON(f))
		}
	}
	for _, t := range r.Transfers {
		one, confirmations := newTransferJSON(t, c.Coin), t.Confirmations(c.TipHeight)
		one.Confirmations = &confirmations
		j.Transfers = append(j.Transfers, one)
	}
	for _, d := range r.Resolutions {
		j.Decisions = append(j.Decisions,
			decisionJSON{Decision: string(d.Kind), Amount: c.Coin.Decimal(d.Amount), TxID: d.TxID,
				CreatedAt: instant{d.CreatedAt},
				Operator:  d.Operator, Note: d.Note})
	}
	for _, e := range r.Events {
		one, err := newEventJSON(e)
		if err != nil {
			return j, err
		}
		j.Events = append(j.Events, one)
	}
	return j, nil
}
