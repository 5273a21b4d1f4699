package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

type cardShowCommand struct {
	output `embed:""`

	UUID string `arg:"" help:"The card's uuid."`
	All  bool   `help:"Show every transfer, not just the 20 largest."`
	To   bool   `name:"refund-address" help:"Show only the refund address, in full. The audit log records who read it."`
}

func (cardShowCommand) Help() string {
	return "Shows everything stored about a card except its credentials: what it waits for, the quote, transfers, the progress of issuing, decisions of operators, events, and the possible decisions.\n\nExamples:\n  cardmint card show 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88\n  cardmint card show --refund-address 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88" + jsonHelp(recordJSON{}) + " With --refund-address, the object has only that, in full."
}

// Run shows a card.
func (c cardShowCommand) Run(ctx context.Context, g *globals) error {
	id, err := cardID(c.UUID)
	if err != nil {
		return err
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		r, err := admin.db.CardDetail(ctx, id)
		if err != nil {
			return noCard(err, id)
		}
		refundTo, err := admin.refundAddress(r.Card)
		if err != nil && (c.To || errors.Is(err, card.ErrUnavailable)) {
			return err
		}
		if c.To {
			return c.showRefundAddress(ctx, g, r.Card, refundTo)
		}
		x, err := admin.explained(ctx, r)
		if err != nil {
			return err
		}
		r.Card.RefundAddress = refundTo
		data, err := newRecordJSON(r, x, time.Now())
		if err != nil {
			return err
		}
		err = c.write(g, data, func(table io.Writer) {
			showCard(table, r, x)
			c.showTransfers(table, r)
			showHistory(table, r)
		})
		if err == nil && !c.JSON {
			printDecisions(g.stdout, r.Card, x)
		}
		return err
	})
}

// refundAddress returns the customer's refund address, or "".
func (admin adminContext) refundAddress(c *card.Card) (card.Secret, error) {
	if c.SealedRefundAddress == nil {
		return "", nil
	}
	address, err := admin.vault.Open(c.UUID, c.AccountID, card.RefundAddressField, c.SealedRefundAddress)
	return address, app.WithHint(err, "the key file is not the one that the service uses, or the row was changed")
}

// showRefundAddress logs the operator, and prints the whole address.
func (c cardShowCommand) showRefundAddress(ctx context.Context, g *globals, of *card.Card, address card.Secret) error {
	if address == "" {
		return app.WithHint(fmt.Errorf("the order of card %s named no refund address", of.UUID),
			"ask the customer for a refund address")
	}
	who, err := operatorName("reads", "")
	if err != nil {
		return err
	}
	g.audited(ctx, "refund_address_shown", who, about("card", of.UUID))
	return c.write(g, map[string]string{"refund_address": address.Reveal()}, func(w io.Writer) {
		fmt.Fprintln(w, address.Reveal())
	})
}

func showCard(table io.Writer, r operator.CardDetail, x operator.Explanation) {
	c := r.Card
	amount := func(a card.Amount) string { return c.Coin.Decimal(a).String() }
	row := func(name, format string, args ...any) { fmt.Fprintf(table, name+"\t"+format+"\n", args...) }
	row("card", "%s of account %s", c.UUID, oneLine(r.Account))
	row("status", "%s, payment %s", c.Status, c.State)
	for i, line := range waitReasons(r, x, time.Now()) {
		row([]string{"waits for", ""}[min(i, 1)], "%s", line)
	}
	if x.Worth != nil {
		row("worth", "%s", formatWorth(c, x.Worth))
	}
	row("ordered", "%s USD at %s", c.USD, formatTime(&c.CreatedAt))
	row("price", "%s %s until %s", amount(c.Amount), c.Coin.Code, formatTime(&c.ExpiresAt))
	if !c.CanceledAt.IsZero() {
		row("canceled", "by its client at %s", formatTime(&c.CanceledAt))
	}
	row("rate", "%s USD of %s: %s", c.Rate.USD, formatTime(&c.Rate.At), c.Rate.Source)
	row("address", "%s", c.Address)
	row("received", "%s, due %s, surplus %s", amount(c.Received), amount(c.Credit.Due), amount(c.Credit.Surplus))
	row("confirmations", "%d of %d", c.Confirmations(), c.ConfirmationsRequired)
	if c.Accepted > 0 {
		row("accepted", "%s are enough", amount(c.Accepted))
	}
	if c.Refunded > 0 {
		row("refunded", "%s, last at %s, transaction %s", amount(c.Refunded), formatTime(&c.RefundedAt), orDash(c.RefundTxID))
	}
	if masked := card.Mask(c.RefundAddress); masked != "" {
		row("refund to", "%s", masked)
	} else if c.SealedRefundAddress != nil {
		row("refund to", "an address that can't be decrypted: ask the customer")
	}
	if c.WrittenOff > 0 {
		row("written off", "%s", amount(c.WrittenOff))
	}
	if i := r.Intent; i != nil {
		row("issuing", "%s, attempts %d, %s", i.State, i.Attempts, orDash(oneLine(i.Reason)))
		if (i.State == "open" || i.State == "pending") && i.DueAt.After(time.Now()) {
			row("", "next attempt at %s", formatTime(&i.DueAt))
		}
		if i.Supplier != "" {
			row("supplier", "%s, asked since %s, last answer %s, reference %s", i.Supplier, formatTime(i.FirstAskedAt),
				orDash(i.Answer), orDash(i.Reference))
		}
	}
	showRefusals(row, r.Intent)
	switch {
	case c.CredentialsPurgedAt != nil:
		row("credentials", "purged at %s", formatTime(c.CredentialsPurgedAt))
	case c.Status == card.Generated && !r.Credentials:
		row("credentials", "none are kept")
	}
}

// showRefusals prints which suppliers decline the card, and why.
func showRefusals(row func(name, format string, args ...any), i *operator.IntentRecord) {
	if i == nil {
		return
	}
	for _, f := range i.Refusals {
		lasts := "for good"
		if f.Temporary {
			lasts = "for now"
		}
		row("refused by", "%s, %s: %s", oneLine(f.Supplier), lasts, orDash(oneLine(f.Reason)))
	}
}

// maxTransfers limits the transfers shown without --all.
const maxTransfers = 20

// showTransfers shows the largest transfers, first seen first.
func (c cardShowCommand) showTransfers(table io.Writer, r operator.CardDetail) {
	shown := r.Transfers
	if len(shown) == 0 {
		return
	}
	if len(shown) > maxTransfers && !c.All {
		byAmount := slices.Clone(shown)
		slices.SortStableFunc(byAmount, func(a, b card.Transfer) int { return cmp.Compare(b.Amount, a.Amount) })
		shown = byAmount[:maxTransfers]
		slices.SortStableFunc(shown, func(a, b card.Transfer) int { return a.FirstSeenAt.Compare(b.FirstSeenAt) })
	}
	fmt.Fprintln(table, "\nTRANSFER\tAMOUNT\tBLOCK\tCONFIRMATIONS\tFIRST SEEN\t")
	for _, t := range shown {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", t.TxID, r.Card.Coin.Decimal(t.Amount), block(t),
			t.Confirmations(r.Card.TipHeight), formatTime(&t.FirstSeenAt), condition(t))
	}
	if more := len(r.Transfers) - len(shown); more > 0 {
		fmt.Fprintf(table, "and %d smaller ones; see all with: %s\n", more,
			command("card", "show", r.Card.UUID.String(), "--all"))
	}
}

func showHistory(table io.Writer, r operator.CardDetail) {
	c := r.Card
	if len(r.Resolutions) > 0 {
		fmt.Fprintln(table, "\nDECISION\tAMOUNT\tWHEN\tOPERATOR\tTRANSACTION\tNOTE")
	}
	for _, d := range r.Resolutions {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Kind, c.Coin.Decimal(d.Amount), formatTime(&d.CreatedAt),
			oneLine(d.Operator), orDash(d.TxID), oneLine(d.Note))
	}
	if len(r.Events) > 0 {
		fmt.Fprintln(table, "\nEVENT\tSEQ\tWHEN\tSTATUS\tSTATE")
	}
	for _, e := range r.Events {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", e.Type, e.Seq, formatTime(&e.CreatedAt), e.Status, e.State)
	}
}

func block(t card.Transfer) string {
	if t.Height == 0 {
		return "mempool"
	}
	return fmt.Sprint(t.Height)
}

func condition(t card.Transfer) string {
	switch {
	case !t.Counted:
		return "left the chain"
	case t.Locked:
		return "locked"
	}
	return ""
}
