package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/operator"
)

type cardResolveCommand struct {
	output   `embed:""`
	UUID     string `arg:"" help:"The card's uuid."`
	Decision string `arg:"" enum:"accept,refund,write-off,retry" help:"accept, refund, write-off or retry."`
	Amount   string `placeholder:"COINS" help:"The amount that the command prints without --yes."`
	TxID     string `name:"txid" placeholder:"TXID" help:"With refund: the transaction by which you gave the money back. It can be named once you have sent it."`
	Note     string `required:"" placeholder:"TEXT" help:"The reason. It is stored with the card."`
	Operator string `placeholder:"NAME" help:"Who decided. Without it, the user of this machine."`
	Yes      bool   `help:"Do it. Without it, the command only prints its plan."`
}

func (cardResolveCommand) Help() string {
	return `What can be decided:
  accept     the received money is enough: the card is issued once it is
             confirmed. Money that its sender has locked is left out: it may
             stay locked forever
  refund     return the money, or the surplus of an issued card. Only
             confirmed, unlocked money is refunded: the rest may never be
             yours. cardmint sends nothing. First record the refund: from
             then on the money buys no card. Then send exactly the recorded
             amount to the address in 'cardmint card show --refund-address',
             and run the command again with --txid, so that the customer
             sees the transaction
  write-off  money left the chain after the card was issued or refunded, and
             will not return
  retry      ask the supplier again, with the same key, for a card with
             unusable credentials; or all suppliers, if all declined

Without --yes the command prints its plan and the money that it leaves out, and changes nothing. With --yes, --amount must be the printed
amount: if money arrived or left since, nothing is done. If there is nothing left to decide, nothing is done either. Decisions are stored
with the card. The possible decisions and their cost are shown by: cardmint card show

Examples:
  cardmint card resolve 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 accept \
    --note "paid an hour late, price hardly moved"
  cardmint card resolve 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 refund \
    --note "wants it back" --amount 0.983 --yes
  cardmint card resolve 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 refund \
    --note sent --txid 6a1d6b...` + jsonHelp(resolvedJSON{})
}

// Run records a decision. Without --yes it only prints its plan.
func (c cardResolveCommand) Run(ctx context.Context, g *globals) error {
	id, err := cardID(c.UUID)
	if err != nil {
		return err
	}
	who, err := operatorName(c.Note, c.Operator)
	if err != nil {
		return err
	}
	kind := operator.ResolutionKind(strings.ReplaceAll(c.Decision, "-", "_"))
	if c.Yes && c.Amount == "" && kind != operator.Retry {
		return app.WithHint(errors.New("--yes needs --amount"), "run the command without --yes first: it prints the amount")
	}
	if c.TxID != "" && kind != operator.Refund {
		return app.WithHint(errors.New("--txid is only for refund"), "it names the transaction by which you gave money back")
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		r, err := admin.db.CardDetail(ctx, id)
		if err != nil {
			return noCard(err, id)
		}
		decision := operator.Decision{CardUUID: id, Kind: kind, Note: c.Note, Operator: who, DryRun: !c.Yes}
		if decision.Amount, err = c.amount(r.Card.Coin); err != nil {
			return err
		}
		if decision.TxID, err = c.transaction(r.Card.Coin); err != nil {
			return err
		}
		done, err := admin.operator.ResolveCard(ctx, decision)
		if err != nil {
			return cantResolve(err, id)
		}
		if !done.Unchanged && c.Yes {
			g.audited(ctx, "card_resolved", who, about("card", id), slog.String("decision", string(kind)),
				slog.String("before", string(done.Card.State)),
				slog.String("after", string(done.After)))
		}
		if r, err = admin.db.CardDetail(ctx, id); err != nil {
			return err
		}
		x, err := admin.explained(ctx, r)
		if err != nil {
			return err
		}
		if c.JSON {
			return writeJSON(g, c.outcome(done, r.Card, x))
		}
		c.printResult(g, done, r, x)
		return nil
	})
}

// amount returns the value of --amount, or nil.
func (c cardResolveCommand) amount(coin card.Currency) (*card.Amount, error) {
	if c.Amount == "" {
		return nil, nil
	}
	amount, err := card.ParseDecimal(c.Amount, coin.Decimals)
	if err != nil {
		return nil, app.WithHint(fmt.Errorf("--amount: %q %w", c.Amount, err),
			"it takes whole coins, as printed without --yes")
	}
	units := card.Amount(amount.Units)
	return &units, nil
}

// transaction returns the value of --txid, in the form of the chain.
func (c cardResolveCommand) transaction(of card.Currency) (string, error) {
	coin, known := chain.ByCode(of.Code)
	txid := strings.ToLower(strings.TrimSpace(c.TxID))
	if txid == "" || !known {
		return "", nil
	}
	if err := coin.CheckTxID(txid); err != nil {
		return "", app.WithHint(fmt.Errorf("--txid %w", err), "your wallet shows it once it has sent the money")
	}
	return txid, nil
}

// printResult prints the decision or the plan, what the card waits for, and the
// next steps.
func (c cardResolveCommand) printResult(g *globals, done operator.Resolved, r operator.CardDetail,
	x operator.Explanation) {
	now, kind, amount := r.Card, done.Resolution.Kind, done.Resolution.Amount
	what := map[operator.ResolutionKind]string{
		operator.Accept:   fmt.Sprintf("accept %s as enough for a card of %s USD", coins(now, amount), now.USD),
		operator.Refund:   "give back " + coins(now, amount),
		operator.WriteOff: fmt.Sprintf("write %s off as lost", coins(now, amount)),
		operator.Retry:    "ask the supplier again",
	}[kind]
	if done.ExistingRefund != nil {
		what = fmt.Sprintf("note that transaction %s gave back the %s of %s", done.Resolution.TxID,
			coins(now, done.ExistingRefund.Amount), formatTime(&done.ExistingRefund.CreatedAt))
	}
	switch {
	case done.Unchanged && done.ExistingRefund != nil:
		fmt.Fprintf(g.stdout, "nothing left to do: the refund of card %s has this transaction already\n", now.UUID)
	case done.Unchanged:
		fmt.Fprintf(g.stdout, "nothing left to do: card %s is %s, payment %s\n", now.UUID, done.Card.Status, done.Card.State)
	case c.Yes:
		fmt.Fprintf(g.stdout, "recorded: %s%s; payment was %s, is %s\n", what, describeLeftOut(now, kind, done.LeftOut),
			done.Card.State, done.After)
	default:
		fmt.Fprintf(g.stdout, "would %s%s; payment is %s. Nothing was changed.\n", what,
			describeLeftOut(now, kind, done.LeftOut),
			now.State)
	}
	fmt.Fprintf(g.stdout, "it waits for %s\n", strings.Join(waitReasons(r, x, time.Now()), "; "))
	if x.Worth != nil {
		fmt.Fprintf(g.stdout, "what was received is worth %s\n", formatWorth(now, x.Worth))
	}
	for _, choice := range x.Choices {
		if cost := acceptCost(choice, x.Worth); !c.Yes && kind == operator.Accept && choice.Kind == kind && cost != "" {
			fmt.Fprintf(g.stdout, "to accept it is to issue the card for %s%s\n", coins(now, choice.Amount), cost)
		}
	}
	switch {
	case done.Unchanged:
		fmt.Fprintf(g.stdout, "\nSee it with:\n  %s\n", command("card", "show", now.UUID.String()))
	case c.Yes:
		fmt.Fprintf(g.stdout, "\n%s\n", nextSteps(now, done))
		fmt.Fprintf(g.stdout, "See whether anything else waits for you:\n  %s\n", command("card", "list", "--attention"))
	default:
		fmt.Fprintf(g.stdout, "\nTo do it:\n  %s\n", c.repeatCommand(now, done))
	}
}

// repeatCommand returns the command that carries out the printed plan.
func (c cardResolveCommand) repeatCommand(now *card.Card, done operator.Resolved) string {
	args := []string{"card", "resolve", now.UUID.String(), c.Decision, "--note", c.Note}
	if c.Operator != "" {
		args = append(args, "--operator", c.Operator)
	}
	if c.TxID != "" {
		args = append(args, "--txid", done.Resolution.TxID)
	}
	switch {
	case done.ExistingRefund != nil:
		args = append(args, "--amount", now.Coin.Decimal(done.ExistingRefund.Amount).String())
	case done.Resolution.Kind != operator.Retry:
		args = append(args, "--amount", now.Coin.Decimal(done.Resolution.Amount).String())
	}
	return command(append(args, "--yes")...)
}

// nextSteps describes what the operator does after a decision, and what happens
// automatically and when.
func nextSteps(now *card.Card, done operator.Resolved) string {
	switch done.Resolution.Kind {
	case operator.Accept:
		if done.After == card.Paid {
			return "The card is issued within seconds, if a worker runs, and the account is told with card.generated."
		}
		return "The card is issued within seconds of that, if a worker runs, and the account is told with card.generated."
	case operator.Refund:
		if done.Resolution.TxID != "" {
			return "The customer sees the transaction as refund.txid of the card."
		}
		text := fmt.Sprintf("Now send exactly %s to an address of the customer's yourself: cardmint sends no coins. ",
			coins(now, done.Resolution.Amount))
		if now.SealedRefundAddress != nil {
			text += "It is shown by:\n  " + command("card", "show", "--refund-address", now.UUID.String())
		} else {
			text += "The order named none: ask the customer."
		}
		text += "\nThen name the transaction, for the customer to see:\n  " +
			command("card", "resolve", now.UUID.String(), "refund", "--note", "...", "--txid", "...")
		if now.Status != card.Generated {
			text += "\nTell the customer not to pay to the card's address any more."
		}
		return text
	case operator.WriteOff:
		if now.Status == card.Generated {
			return "The card stays issued, and the account can order again within seconds. Should the money come back, it counts."
		}
		return "The card stays as it is. Should the money come back, it counts."
	}
	return "The suppliers are asked again within seconds, if a worker runs. If they decline again, the card is back in the list below."
}

func cantResolve(err error, id uuid.UUID) error {
	show := command("card", "show", id.String())
	switch {
	case errors.Is(err, operator.ErrAnotherAmount):
		return app.WithHint(err, "something arrived or left since: see what with '%s', which says what can be decided now",
			show)
	case errors.Is(err, operator.ErrNotConfirmed):
		return app.WithHint(err,
			"what is not confirmed, or is locked, may never be yours to give back. How many confirmations are missing, or which transfer "+
				"is locked, is shown by: %s. Run this command again when they are there", show)
	case errors.Is(err, operator.ErrLocked):
		return app.WithHint(err,
			"only its sender knows until when; ask the customer to pay with money that is not locked. The end of a lock of more than a "+
				"week is noticed only by: cardmint wallet rescan")
	case errors.Is(err, operator.ErrBeingIssued):
		return app.WithHint(err,
			"the supplier may issue it at any moment: when it is asked again is shown by: %s. Once it is issued, a surplus can be given "+
				"back; if the supplier declines it, all of its money", show)
	case errors.Is(err, operator.ErrIssued):
		return app.WithHint(err,
			"nothing is left to accept: of a card that is issued, 'refund' gives back the surplus and 'write-off' bears a loss")
	case errors.Is(err, operator.ErrNothingLost):
		return app.WithHint(err, "nothing is to be written off; what can be decided of the card is shown by: %s", show)
	case errors.Is(err, operator.ErrNotParked):
		return app.WithHint(err,
			"nothing is to be retried: only a card that the supplier declined or got wrong is; what this one waits for is shown by: %s", show)
	case errors.Is(err, operator.ErrRefunded):
		return app.WithHint(err,
			"the card can't be issued for that money any more. See the refund with: %s. Once you have sent it, name its transaction: %s", show,
			command("card", "resolve", id.String(), "refund", "--note", "...", "--txid", "..."))
	case errors.Is(err, operator.ErrNothingReceived):
		return app.WithHint(err,
			"nothing is to be decided before something arrives. If the customer says that it was paid, look for it with: cardmint transfers --unattributed")
	}
	return noCard(err, id)
}
