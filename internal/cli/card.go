package cli

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/operator"
)

type cardListCommand struct {
	Account   string            `placeholder:"NAME" help:"Only cards of this account."`
	State     card.PaymentState `placeholder:"STATE" enum:",unpaid,detected,underpaid,confirming,paid,late,expired,reversed" default:"" help:"Only cards whose payment is in this state: unpaid, detected, underpaid, confirming, paid, late, expired or reversed."`
	Attention bool              `help:"Only cards that wait for an operator: late or lost payments, and cards that the supplier declined or got wrong."`
	Limit     int               `default:"100" placeholder:"N" help:"At most so many (${default})."`
}

func (cardListCommand) Help() string {
	return "Newest first, of all accounts; with --attention oldest first. No credentials are shown.\n\nExamples:\n  cardmint card list --attention\n  cardmint card list --account shop --state late"
}

// Run lists cards.
func (c cardListCommand) Run(ctx context.Context, g *globals) error {
	if err := atLeastOne(c.Limit); err != nil {
		return err
	}
	return g.office(ctx, func(o office) error {
		accounts, err := o.db.Accounts(ctx)
		if err != nil {
			return err
		}
		search := operator.Search{State: c.State, NeedsOperator: c.Attention, Limit: c.Limit + 1}
		names := make(map[uuid.UUID]string, len(accounts))
		for _, a := range accounts {
			names[a.ID] = a.Name
			if a.Name == c.Account {
				search.AccountID = a.ID
			}
		}
		if c.Account != "" && search.AccountID == uuid.Nil {
			return hint(fmt.Errorf("there is no account %q", c.Account), "leave --account out to see the cards of all accounts")
		}
		cards, err := o.db.FindCards(ctx, search)
		if err != nil {
			return err
		}
		cards = upTo(g, c.Limit, cards)
		table := tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, strings.Join([]string{"UUID", "ACCOUNT", "CREATED", "USD", "CURRENCY", "AMOUNT", "RECEIVED", "STATUS", "STATE"}, "\t"))
		for _, c := range cards {
			fmt.Fprintln(table, strings.Join([]string{c.UUID.String(), names[c.AccountID], day(&c.CreatedAt), c.USD.String(), c.Coin.Code,
				c.Coin.Decimal(c.Amount).String(), c.Coin.Decimal(c.Received).String(), string(c.Status), string(c.State)}, "\t"))
		}
		return table.Flush()
	})
}

func atLeastOne(limit int) error {
	if limit < 1 {
		return hint(fmt.Errorf("--limit %d shows nothing", limit), "it takes 1 or more")
	}
	return nil
}

// upTo returns the first of all, and says if there are more.
func upTo[T any](g *globals, limit int, all []T) []T {
	if len(all) <= limit {
		return all
	}
	fmt.Fprintf(g.stderr, "there are more than these %d; see them with --limit\n", limit)
	return all[:limit]
}

type cardShowCommand struct {
	UUID string `arg:"" help:"The card's uuid."`
}

func (cardShowCommand) Help() string {
	return "Everything that is kept of a card but its credentials: the quote, every transfer, how far its issuing is, what operators decided, what the account was told.\n\nExample:\n  cardmint card show 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
}

// Run shows a card.
func (c cardShowCommand) Run(ctx context.Context, g *globals) error {
	id, err := cardID(c.UUID)
	if err != nil {
		return err
	}
	return g.office(ctx, func(o office) error {
		r, err := o.db.Record(ctx, id)
		if err != nil {
			return noCard(err, id)
		}
		table := tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)
		showCard(table, r)
		showHistory(table, r)
		return table.Flush()
	})
}

func showCard(table *tabwriter.Writer, r operator.Record) {
	c := r.Card
	amount := func(a card.Amount) string { return c.Coin.Decimal(a).String() }
	row := func(name, format string, args ...any) { fmt.Fprintf(table, name+"\t"+format+"\n", args...) }
	row("card", "%s of account %s", c.UUID, r.Account)
	row("status", "%s, payment %s", c.Status, c.State)
	row("ordered", "%s USD at %s", c.USD, day(&c.CreatedAt))
	row("price", "%s %s until %s", amount(c.Amount), c.Coin.Code, day(&c.ExpiresAt))
	row("rate", "%s USD of %s: %s", c.Rate.USD, day(&c.Rate.At), c.Rate.Source)
	row("address", "%s", c.Address)
	row("received", "%s, due %s, surplus %s", amount(c.Received), amount(c.Credit.Due), amount(c.Credit.Surplus))
	row("confirmations", "%d of %d", c.Confirmations(), c.ConfirmationsRequired)
	if c.Accepted > 0 {
		row("accepted", "%s are enough", amount(c.Accepted))
	}
	if c.Refunded > 0 {
		row("refunded", "%s", amount(c.Refunded))
	}
	if c.WrittenOff > 0 {
		row("written off", "%s", amount(c.WrittenOff))
	}
	if i := r.Intent; i != nil {
		row("issuing", "%s, attempts %d, %s", i.State, i.Attempts, orDash(i.Reason))
		if i.Supplier != "" {
			row("supplier", "%s, asked since %s, last answer %s, reference %s", i.Supplier, day(i.FirstAskedAt), orDash(i.Answer), orDash(i.Reference))
		}
	}
	if c.Status == card.Generated && !r.Credentials {
		row("credentials", "none are kept")
	}
}

func showHistory(table *tabwriter.Writer, r operator.Record) {
	c := r.Card
	if len(r.Transfers) > 0 {
		fmt.Fprintln(table, "\nTRANSFER\tAMOUNT\tBLOCK\tFIRST SEEN\t")
	}
	for _, t := range r.Transfers {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", t.TxID, c.Coin.Decimal(t.Amount), block(t), day(&t.FirstSeenAt), condition(t))
	}
	if len(r.Resolutions) > 0 {
		fmt.Fprintln(table, "\nDECISION\tAMOUNT\tWHEN\tOPERATOR\tNOTE")
	}
	for _, d := range r.Resolutions {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", d.Kind, c.Coin.Decimal(d.Amount), day(&d.CreatedAt), oneLine(d.Operator), oneLine(d.Note))
	}
	if len(r.Events) > 0 {
		fmt.Fprintln(table, "\nEVENT\tSEQ\tWHEN\tSTATUS\tSTATE")
	}
	for _, e := range r.Events {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", e.Type, e.Seq, day(&e.CreatedAt), e.Status, e.State)
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

// oneLine keeps what an operator once typed from looking like something else in a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

type cardResolveCommand struct {
	UUID     string `arg:"" help:"The card's uuid."`
	Decision string `arg:"" enum:"accept,refund,write-off,retry" help:"accept, refund, write-off or retry."`
	Amount   string `placeholder:"COINS" help:"What it is about, as the command without --yes says it."`
	Note     string `required:"" placeholder:"TEXT" help:"Why, for those who ask later. It is kept with the card."`
	Operator string `placeholder:"NAME" help:"Who decided. Without it, the user of this machine."`
	Yes      bool   `help:"Do it. Without it, the command only says what it would do."`
}

func (cardResolveCommand) Help() string {
	return `What can be decided:
  accept     what was received is enough: the card is made once it is confirmed
  refund     give the money back; of a card that is made, the surplus. This sends nothing. Record it first, for from then on the money
             makes no card; then send exactly the amount that was recorded
  write-off  money left the chain after the card was made, or after it was given back, and will not come back
  retry      ask the supplier again, with the same key, for a card that it declined or got wrong

Without --yes the command says what it would do and changes nothing. With it, --amount must be what it said: if something arrived or
left meanwhile, nothing is done. Where nothing is left to decide, nothing is done either. Every decision is kept with the card.

Examples:
  cardmint card resolve 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 accept --note "paid an hour late, price hardly moved"
  cardmint card resolve 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 refund --note "wants it back" --amount 0.983 --yes`
}

// Run decides, or says what it would do.
func (c cardResolveCommand) Run(ctx context.Context, g *globals) error {
	id, err := cardID(c.UUID)
	if err != nil {
		return err
	}
	if c.Operator, err = decider(c.Note, c.Operator); err != nil {
		return err
	}
	kind := operator.ResolutionKind(strings.ReplaceAll(c.Decision, "-", "_"))
	if c.Yes && c.Amount == "" && kind != operator.Retry {
		return hint(errors.New("--yes needs --amount"), "run the command without --yes first: it says the amount")
	}
	return g.office(ctx, func(o office) error {
		decision := operator.Decision{CardUUID: id, Kind: kind, Note: c.Note, Operator: c.Operator, DryRun: !c.Yes}
		if c.Amount != "" {
			r, err := o.db.Record(ctx, id)
			if err != nil {
				return noCard(err, id)
			}
			amount, err := card.ParseDecimal(c.Amount, r.Card.Coin.Decimals)
			if err != nil {
				return hint(fmt.Errorf("--amount: %q %w", c.Amount, err), "it takes whole coins, as the command without --yes says them")
			}
			units := card.Amount(amount.Units)
			decision.Amount = &units
		}
		done, err := o.operator.ResolveCard(ctx, decision)
		if err != nil {
			return cantResolve(err, id)
		}
		amount := done.Card.Coin.Decimal(done.Resolution.Amount)
		what := map[operator.ResolutionKind]string{
			operator.Accept:   fmt.Sprintf("accept %s %s as enough for a card of %s USD", amount, done.Card.Coin.Code, done.Card.USD),
			operator.Refund:   fmt.Sprintf("give back %s %s", amount, done.Card.Coin.Code),
			operator.WriteOff: fmt.Sprintf("write %s %s off as lost", amount, done.Card.Coin.Code),
			operator.Retry:    "ask the supplier again",
		}[kind]
		switch {
		case done.Nothing:
			fmt.Fprintf(g.stdout, "nothing left to do: card %s is %s, payment %s\n", id, done.Card.Status, done.Card.State)
		case !c.Yes && kind == operator.Retry:
			fmt.Fprintf(g.stdout, "would %s; nothing was changed. To do it, add: --yes\n", what)
		case !c.Yes:
			fmt.Fprintf(g.stdout, "would %s; payment is %s. Nothing was changed. To do it, add: --amount %s --yes\n", what, done.Card.State, amount)
		default:
			fmt.Fprintf(g.stdout, "recorded: %s; payment was %s, is %s\n", what, done.Card.State, done.After)
		}
		return nil
	})
}

// decider returns who decides: the operator, or the user of this machine. It returns an error if the note does not say why.
func decider(note, operator string) (string, error) {
	if strings.TrimSpace(note) == "" {
		return "", hint(errors.New("the note is empty"), `say why: --note "..."`)
	}
	if operator != "" {
		return operator, nil
	}
	me, err := user.Current()
	if err != nil {
		return "", hint(errors.New("the user of this machine has no name"), "say who decides with --operator")
	}
	return me.Username, nil
}

func cardID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil, hint(fmt.Errorf("%q is not the uuid of a card", text), "see the uuids with: cardmint card list")
	}
	return id, nil
}

func noCard(err error, id uuid.UUID) error {
	if errors.Is(err, card.ErrNoRow) {
		return hint(fmt.Errorf("there is no card %s", id), "see the uuids with: cardmint card list")
	}
	return err
}

func cantResolve(err error, id uuid.UUID) error {
	switch {
	case errors.Is(err, operator.ErrAnotherAmount):
		return hint(err, "something arrived or left since: look at the card, then run the command without --yes again")
	case errors.Is(err, operator.ErrNotConfirmed):
		return hint(err, "wait until it has its confirmations and is not locked: what is not may never be yours to give back. "+
			"That a lock of more than a week has ended is noticed only by: cardmint wallet rescan")
	case errors.Is(err, operator.ErrLocked):
		return hint(err, "only its sender knew why; wait until it can be spent, and see how it stands with: cardmint card show %s", id)
	case errors.Is(err, operator.ErrBeingMade):
		return hint(err, "wait until the card is made; only if the supplier declines it can its money be given back")
	case errors.Is(err, operator.ErrMade):
		return hint(err, "of a card that is made, 'refund' gives back the surplus and 'write-off' bears a loss")
	case errors.Is(err, operator.ErrNothingLost), errors.Is(err, operator.ErrNotParked), errors.Is(err, operator.ErrNothingReceived):
		return hint(err, "see what the card waits for with: cardmint card show %s", id)
	}
	return noCard(err, id)
}

type reconcileCommand struct{}

func (reconcileCommand) Help() string {
	return `Adds up everything that was received and issued, as of one moment. For each currency, what was counted on the chain must be what was credited to cards, is surplus, came to no card or was given back of that; and the cards that were made must be those that were paid. Every row must be one that can be decoded, and all credentials ones that can be decrypted. Anything else is printed, and the exit code is 1.

Example:
  cardmint reconcile`
}

// Run adds up.
func (reconcileCommand) Run(ctx context.Context, g *globals) error {
	return g.office(ctx, func(o office) error {
		fmt.Fprintln(g.stderr, "adding up ...")
		started := time.Now()
		books, err := o.operator.Reconcile(ctx)
		if err != nil {
			return err
		}
		damaged, err := o.operator.CheckCredentials(ctx, o.vault)
		if err != nil {
			return err
		}
		books.Doubts = append(books.Doubts, damaged...)
		table := tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)
		for _, b := range books.Coins {
			coin, _ := chain.ByCode(b.Currency)
			row := func(indent, name string, a card.Amount, what string) {
				fmt.Fprintf(table, "%s%s\t%s\t%s\n", indent, name, coin.Decimal(a), what)
			}
			fmt.Fprintf(table, "%s\n", b.Currency)
			row("  ", "counted", b.Counted, "on the chain and in the mempool")
			row("  ", "= credited", b.Credited(), "to cards")
			row("      ", "made", b.Made, fmt.Sprintf("%d issued, %d paid", b.Issued, b.Paid))
			row("      ", "open", b.Open, "waiting for more money, confirmations or the supplier")
			row("      ", "held", b.Held, fmt.Sprintf("late or too little: %d cards wait for an operator", b.Late))
			row("      ", "refunded", b.Refunded, "given back by operators")
			row("  ", "+ surplus", b.Surplus, "beyond what a card was asked for")
			row("  ", "+ unattributed", b.Unattributed, "to addresses of no card")
			row("  ", "+ returned", b.Returned, "to addresses of no card, and given back by operators")
			row("  ", "lost", b.Lost, "made or given back for what is gone from the chain; written off: "+coin.Decimal(b.WrittenOff).String())
		}
		if err := table.Flush(); err != nil {
			return err
		}
		for _, d := range books.Doubts {
			who := ""
			if d.ID != uuid.Nil {
				who = d.ID.String() + ": "
			}
			fmt.Fprintf(g.stdout, "doubt: %s%s\n", who, d.Text)
		}
		if n := len(books.Doubts); n > 0 {
			return hint(fmt.Errorf("%d doubts, or more: 20 of a kind are shown", n), "look at each card with 'cardmint card show UUID', and settle it with 'cardmint card resolve'")
		}
		fmt.Fprintf(g.stdout, "everything agrees (%s)\n", time.Since(started).Round(time.Millisecond))
		return nil
	})
}
