package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/store"
)

type transfersListCommand struct {
	output       `embed:""`
	Unattributed bool `xor:"which" help:"Those that nothing was decided about."`
	All          bool `xor:"which" help:"Also those that left the chain, and those that something was decided about, with the decision."`
	Limit        *int `placeholder:"N" help:"At most so many (100; with neither flag 20)."`
}

func (transfersListCommand) Help() string {
	return "Newest first. With neither --unattributed nor --all, the newest of all. The transfers of a card are shown by 'card show'.\n\nExamples:\n  cardmint transfers list --unattributed\n  cardmint transfers --unattributed\n  cardmint transfers --all --limit 1000" + jsonHelp([]arrivalJSON{})
}

// arrivalJSON is a transfer to an address of no card, and the decision about
// it.
type arrivalJSON struct {
	transferJSON
	Decision *decisionJSON    `json:"decision"`
	Deleted  *deletedCardJSON `json:"deleted_card"`
}

func newArrivals(found []operator.Arrival, deleted deletedCards) []arrivalJSON {
	all := []arrivalJSON{}
	for _, t := range found {
		coin, _ := chain.ByCode(t.Currency)
		one := arrivalJSON{transferJSON: newTransferJSON(t.Transfer, coin.Currency),
			Deleted: deleted.json(t.Transfer, coin.Currency)}
		if a := t.Attribution; a != nil {
			one.Decision = &decisionJSON{Decision: string(a.Kind), Amount: coin.Decimal(a.Amount),
				CreatedAt: instant{a.CreatedAt}, Operator: a.Operator, Note: a.Note}
			if a.CardUUID != uuid.Nil {
				one.Decision.Card = &a.CardUUID
			}
		}
		all = append(all, one)
	}
	return all
}

// limit returns the number of transfers to list.
func (c transfersListCommand) limit() int {
	switch {
	case c.Limit != nil:
		return *c.Limit
	case c.Unattributed || c.All:
		return 100
	}
	return maxTransfers
}

// Run lists transfers.
func (c transfersListCommand) Run(ctx context.Context, g *globals) error {
	limit := c.limit()
	if err := atLeastOne(limit); err != nil {
		return err
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		var found []operator.Arrival
		var err error
		if c.Unattributed {
			var unattributed []card.Transfer
			unattributed, err = admin.db.Unattributed(ctx, limit+1)
			for _, t := range unattributed {
				found = append(found, operator.Arrival{Transfer: t})
			}
		} else {
			found, err = admin.db.Strays(ctx, limit+1)
		}
		if err != nil {
			return err
		}
		found = truncate(g, limit, found)
		deleted, err := deletedAt(ctx, admin.db, found)
		if err != nil {
			return err
		}
		if err := c.write(g, newArrivals(found, deleted), func(table io.Writer) {
			c.print(table, found, deleted)
		}); err != nil || !c.Unattributed {
			return err
		}
		printTransferDecisions(g.stderr, found)
		return nil
	})
}

func (c transfersListCommand) print(table io.Writer, found []operator.Arrival, deleted deletedCards) {
	header := []string{"CURRENCY", "AMOUNT", "BLOCK", "FIRST SEEN", "TRANSACTION", "OUTPUT", "ADDRESS"}
	if !c.Unattributed {
		header = append(header, "DECISION", "WHEN", "OPERATOR", "NOTE")
	}
	fmt.Fprintln(table, strings.Join(append(header, ""), "\t"))
	for _, t := range found {
		coin, _ := chain.ByCode(t.Currency)
		row := []string{t.Currency, coin.Decimal(t.Amount).String(), block(t.Transfer), formatTime(&t.FirstSeenAt), t.TxID,
			fmt.Sprint(t.Output), t.Address}
		if !c.Unattributed {
			row = append(row, decision(t.Attribution)...)
		}
		fmt.Fprintln(table,
			strings.Join(append(row, strings.TrimSpace(condition(t.Transfer)+" "+deleted.text(t.Transfer))), "\t"))
	}
}

// printTransferDecisions prints the possible decisions about the first
// transfer.
func printTransferDecisions(out io.Writer, found []operator.Arrival) {
	if len(found) == 0 {
		fmt.Fprintln(out, "no transfer waits for an operator")
		return
	}
	decide := func(how ...string) string {
		args := []string{"transfers", "attribute", found[0].TxID, "--output", fmt.Sprint(found[0].Output)}
		return command(append(append(args, how...), "--note", "...")...)
	}
	fmt.Fprintln(out,
		"\nDecide about the first one, and then about the next. To count it toward a card that was ordered and is not paid:")
	fmt.Fprintln(out, " ", decide("--card", "UUID"))
	fmt.Fprintln(out, "To make the card again that was ordered and forgotten:")
	fmt.Fprintln(out, " ", decide("--new", "--account", "NAME", "--usd", "AMOUNT"))
	fmt.Fprintln(out, "To give the money back:")
	fmt.Fprintln(out, " ", decide("--refunded"))
}

// decision describes the decision about a transfer.
func decision(a *operator.Attribution) []string {
	if a == nil {
		return []string{"-", "-", "-", "-"}
	}
	what := map[operator.AttributionKind]string{operator.ToCard: "card " + a.CardUUID.String(),
		operator.ToNewCard: "new card " + a.CardUUID.String(),
		operator.GiveBack:  "refunded"}[a.Kind]
	return []string{what, formatTime(&a.CreatedAt), oneLine(a.Operator), oneLine(a.Note)}
}

type transfersAttributeCommand struct {
	output   `embed:""`
	TxID     string `arg:"" name:"txid" help:"The transaction, from 'transfers --unattributed'."`
	Output   *int64 `placeholder:"N" help:"Which of its outputs. Needed only if it has several to this wallet."`
	Card     string `required:"" xor:"to" placeholder:"UUID" help:"Count it toward this card, as if it had been sent to the card's address."`
	New      bool   `required:"" xor:"to" help:"Create the lost card again, paid by the transfer; with --account and --usd."`
	Refunded bool   `required:"" xor:"to" help:"Record that it is returned."`
	Account  string `placeholder:"NAME" help:"The account that gets the new card."`
	USD      string `name:"usd" placeholder:"AMOUNT" help:"The balance of the new card, in US dollars."`
	Amount   string `placeholder:"COINS" help:"The amount that the command prints without --yes."`
	Note     string `required:"" placeholder:"TEXT" help:"The reason. It is stored with the transfer."`
	Operator string `placeholder:"NAME" help:"Who decided. Without it, the user of this machine."`
	Yes      bool   `help:"Do it. Without it, the command only prints its plan."`
}

func (transfersAttributeCommand) Help() string {
	return `A restored database lacks the orders since the backup. Their payments arrive at addresses of no card:
  --card      credit the money to a card of the same coin, by the usual
              rules: a partial payment waits for more, and late money must be
              worth the price today
  --new       create the lost card again, at the address that received the
              money. All money at the address is the price
  --refunded  the money is returned. cardmint sends nothing. Record it first:
              the money can't be attributed afterwards. Then send exactly the
              recorded amount

Without --yes the command prints its plan and changes nothing. With --yes, --amount must be the printed amount. The money must be confirmed
and not locked. If it leaves the chain later, the card is assessed without it. Decisions are stored and can't be changed; repeating one
does nothing. Versions of cardmint that do not know decisions refuse to start once there is one: replace every process first.

Examples:
  cardmint transfers attribute 5c1f7a... \
    --card 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 \
    --note "paid to the address of the lost order"
  cardmint transfers attribute 5c1f7a... --new --account shop --usd 150 \
    --note "ticket 4711" --amount 0.983 --yes
  cardmint transfers attribute 5c1f7a... --output 3 --refunded \
    --note "wants it back" --amount 0.983 --yes` + jsonHelp(attributedJSON{})
}

// Run records a decision. Without --yes it only prints its plan.
func (c transfersAttributeCommand) Run(ctx context.Context, g *globals) error {
	d, err := c.decision()
	if err != nil {
		return err
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		if err := c.lookUp(ctx, admin, &d); err != nil {
			return err
		}
		done, err := admin.operator.AttributeTransfer(ctx, d)
		if err != nil {
			return c.cantAttribute(err, d)
		}
		if !done.Unchanged && c.Yes {
			g.audited(ctx, "transfer_attributed", d.Operator, attributed(d, done)...)
		}
		if c.JSON {
			return writeJSON(g, c.outcome(d, done))
		}
		c.printResult(g, d, done)
		return nil
	})
}

// attributed returns the objects of a decision, for the audit log.
func attributed(d operator.AttributionDecision, done operator.Attributed) []slog.Attr {
	attrs := []slog.Attr{slog.String("transaction", d.TxID), slog.Int64("output", d.Output),
		slog.String("decision", string(d.Kind))}
	if done.Card != nil {
		attrs = append(attrs, about("card", done.Card.UUID))
	}
	return attrs
}

// decision returns the decision in the flags.
func (c transfersAttributeCommand) decision() (d operator.AttributionDecision, err error) {
	d = operator.AttributionDecision{TxID: c.TxID, Kind: operator.GiveBack, Note: c.Note, DryRun: !c.Yes}
	if d.Operator, err = operatorName(c.Note, c.Operator); err != nil {
		return d, err
	}
	switch {
	case c.Card != "":
		d.Kind = operator.ToCard
		if d.CardUUID, err = cardID(c.Card); err != nil {
			return d, err
		}
	case c.New:
		d.Kind = operator.ToNewCard
		if c.Account == "" || c.USD == "" {
			return d, app.WithHint(errors.New("--new needs --account and --usd"),
				"name the account and the amount of the card, for example: --account shop --usd 150")
		}
		if d.USD, err = card.ParseUSD(c.USD); err != nil || d.USD < card.MinUSD || d.USD > card.MaxUSD {
			return d, app.WithHint(fmt.Errorf("--usd: %q is not the balance of a card", c.USD),
				"it takes from %s to %s US dollars, such as 150 or 150.50", card.MinUSD, card.MaxUSD)
		}
	}
	if !c.New && (c.Account != "" || c.USD != "") {
		return d, app.WithHint(errors.New("--account and --usd are for a new card"), "leave them out, or use --new")
	}
	if c.Yes && c.Amount == "" {
		return d, app.WithHint(errors.New("--yes needs --amount"),
			"run the command without --yes first: it prints the amount")
	}
	return d, nil
}

// lookUp completes a decision from the database.
func (c transfersAttributeCommand) lookUp(ctx context.Context, admin adminContext,
	d *operator.AttributionDecision) error {
	found, err := admin.db.ArrivalsIn(ctx, c.TxID)
	if err != nil {
		return err
	}
	var outputs []string
	for _, a := range found {
		outputs = append(outputs, fmt.Sprint(a.Output))
	}
	if c.Output != nil {
		found = slices.DeleteFunc(found, func(a operator.Arrival) bool { return a.Output != *c.Output })
	}
	switch {
	case len(outputs) > 0 && len(found) == 0:
		return app.WithHint(fmt.Errorf("the transaction has no output %d to this wallet", *c.Output),
			"say which with --output, of: %s", strings.Join(outputs, ", "))
	case len(found) == 0:
		return c.cantAttribute(operator.ErrNoTransfer, *d)
	case len(found) > 1:
		return app.WithHint(errors.New("the transaction has several outputs to this wallet"),
			"say which with --output, of: %s",
			strings.Join(outputs, ", "))
	}
	if of := found[0].CardUUID; of != uuid.Nil && found[0].Attribution == nil {
		return app.WithHint(fmt.Errorf("%w: %s", operator.ErrCardAddress, of),
			"it counts already, and nothing is to be decided about it. What its card waits for is shown by: %s",
			command("card", "show", of.String()))
	}
	d.Output = found[0].Output
	coin, _ := chain.ByCode(found[0].Currency)
	d.Coin = coin.Currency
	if d.Coin.Confirmations, err = admin.db.Confirmations(ctx, d.Coin); err != nil {
		return err
	}
	if c.Amount != "" {
		amount, err := card.ParseDecimal(c.Amount, d.Coin.Decimals)
		if err != nil {
			return app.WithHint(fmt.Errorf("--amount: %q %w", c.Amount, err),
				"it takes whole coins, as printed without --yes")
		}
		units := card.Amount(amount.Units)
		d.Amount = &units
	}
	if d.Kind != operator.ToNewCard {
		return nil
	}
	accounts, err := admin.db.Accounts(ctx)
	for _, a := range accounts {
		if a.Name == c.Account {
			d.AccountID = a.ID
		}
	}
	if err == nil && d.AccountID == uuid.Nil {
		return app.WithHint(fmt.Errorf("there is no account %q", c.Account), "make it with: cardmint account create %q",
			c.Account)
	}
	return err
}

// printResult prints the decision or the plan.
func (c transfersAttributeCommand) printResult(g *globals, d operator.AttributionDecision, done operator.Attributed) {
	amount := d.Coin.Decimal(done.Amount)
	what := fmt.Sprintf("give back %s %s", amount, d.Coin.Code)
	switch d.Kind {
	case operator.ToCard:
		what = fmt.Sprintf("count %s %s toward card %s of %s USD", amount, d.Coin.Code, done.Card.UUID, done.Card.USD)
	case operator.ToNewCard:
		what = fmt.Sprintf("make a card of %s USD for %s %s, at %s USD each", d.USD, amount, d.Coin.Code, done.Card.Rate.USD)
	}
	switch {
	case done.Unchanged && done.Card != nil:
		fmt.Fprintf(g.stdout, "nothing left to do: the transfer counts toward card %s, which is %s, payment %s\n",
			done.Card.UUID, done.Card.Status, done.Card.State)
	case done.Unchanged:
		fmt.Fprintln(g.stdout, "nothing left to do: the transfer is recorded as given back")
	case !c.Yes:
		if d.Kind == operator.ToCard {
			what += fmt.Sprintf("; payment is %s, would be %s", done.Card.State, done.After)
		}
		fmt.Fprintf(g.stdout, "would %s. Nothing was changed.\n\nTo do it:\n  %s\n", what, c.repeatCommand(d, amount))
		return
	case d.Kind == operator.ToCard:
		fmt.Fprintf(g.stdout, "recorded: %s; payment was %s, is %s\n", what, done.Card.State, done.After)
	case d.Kind == operator.ToNewCard:
		fmt.Fprintf(g.stdout, "recorded: %s; card %s, payment is %s\n", what, done.Card.UUID, done.After)
	default:
		fmt.Fprintf(g.stdout,
			"recorded: %s\n\nNow send exactly %s %s to an address of the customer's yourself: cardmint sends no coins.\n", what,
			amount, d.Coin.Code)
	}
	if done.Card != nil {
		then := "See what it waits for with:"
		if done.After == card.Paid {
			then = "The card is issued within seconds, if a worker runs, and the account is told with card.generated. See it with:"
		}
		fmt.Fprintf(g.stdout, "\n%s\n  %s\n", then, command("card", "show", done.Card.UUID.String()))
	}
	fmt.Fprintf(g.stdout, "See whether anything else waits for you:\n  %s\n", command("transfers", "--unattributed"))
}

// repeatCommand returns the command that carries out the printed plan.
func (c transfersAttributeCommand) repeatCommand(d operator.AttributionDecision, amount card.Decimal) string {
	args := []string{"transfers", "attribute", c.TxID, "--output", fmt.Sprint(d.Output)}
	switch d.Kind {
	case operator.ToCard:
		args = append(args, "--card", c.Card)
	case operator.ToNewCard:
		args = append(args, "--new", "--account", c.Account, "--usd", c.USD)
	default:
		args = append(args, "--refunded")
	}
	args = append(args, "--note", c.Note)
	if c.Operator != "" {
		args = append(args, "--operator", c.Operator)
	}
	return command(append(args, "--amount", amount.String(), "--yes")...)
}

func (c transfersAttributeCommand) cantAttribute(err error, d operator.AttributionDecision) error {
	switch {
	case errors.Is(err, operator.ErrNoTransfer):
		return app.WithHint(fmt.Errorf("this wallet received no transaction %q", c.TxID),
			"copy the transaction from the list: cardmint transfers --all")
	case errors.Is(err, operator.ErrAnotherAmount):
		return app.WithHint(err,
			"something arrived since, or it is another transfer: run the command without --amount and --yes, which prints the amount")
	case errors.Is(err, operator.ErrNotConfirmed):
		return app.WithHint(err,
			"wait until everything at the address has its confirmations (%d) and is not locked, then run this again. In which blocks it is, and "+
				"what is locked, is shown by: cardmint transfers --unattributed. The end of a lock of more than a week is noticed only by: cardmint wallet rescan", d.Coin.Confirmations)
	case errors.Is(err, operator.ErrAttributed):
		return app.WithHint(err,
			"it was decided for good, and nothing is left to decide about it. Who decided, when and why is shown by: cardmint transfers --all")
	case errors.Is(err, operator.ErrLeftChain):
		return app.WithHint(err,
			"nothing is to be decided about it, unless it comes back: then it is listed by: cardmint transfers --unattributed")
	case errors.Is(err, operator.ErrIssued), errors.Is(err, operator.ErrPaid):
		return app.WithHint(err, "make another card of it with --new, or give it back and record that with --refunded")
	case errors.Is(err, operator.ErrAnotherCoin), errors.Is(err, operator.ErrNoPrice),
		errors.Is(err, operator.ErrTooManyCoins):
		return app.WithHint(err,
			"name another card, make one with --new, or give the money back and record that with --refunded")
	}
	return noCard(err, d.CardUUID)
}

// deletedCards are the deleted unpaid cards, by currency and address.
type deletedCards map[[2]string]operator.RetiredCard

// deletedAt returns the deleted cards whose addresses received transfers.
func deletedAt(ctx context.Context, db *store.Store, found []operator.Arrival) (deletedCards, error) {
	transfers := make([]card.Transfer, len(found))
	for i, a := range found {
		transfers[i] = a.Transfer
	}
	return db.RetiredCards(ctx, transfers)
}

// deletedCardJSON is a deleted card.
type deletedCardJSON struct {
	UUID      uuid.UUID    `json:"uuid"`
	Account   string       `json:"account"`
	USDAmount card.USD     `json:"usd_amount"`
	Amount    card.Decimal `json:"amount"`
	ExpiredAt instant      `json:"expired_at"`
	DeletedAt instant      `json:"deleted_at"`
}

func (all deletedCards) json(t card.Transfer, coin card.Currency) *deletedCardJSON {
	c, known := all[[2]string{t.Currency, t.Address}]
	if !known {
		return nil
	}
	return &deletedCardJSON{UUID: c.UUID, Account: c.Account, USDAmount: c.USD, Amount: coin.Decimal(c.Amount),
		ExpiredAt: instant{c.ExpiredAt}, DeletedAt: instant{c.DeletedAt}}
}

// text describes the deleted card whose address received a transfer, or returns
// "".
func (all deletedCards) text(t card.Transfer) string {
	c, known := all[[2]string{t.Currency, t.Address}]
	if !known {
		return ""
	}
	return fmt.Sprintf("for card %s of %s, %s USD, which expired %s and was deleted", c.UUID, oneLine(c.Account), c.USD,
		formatTime(&c.ExpiredAt))
}
