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
		if err := table.Flush(); err != nil || !c.Attention {
			return err
		}
		return next(ctx, g, o, cards)
	})
}

// next prints what an operator does after the list of what waits for one. The list itself is on standard output.
func next(ctx context.Context, g *globals, o office, waiting []*card.Card) error {
	if len(waiting) == 0 {
		fmt.Fprintln(g.stderr, "no card waits for an operator")
	} else {
		fmt.Fprintf(g.stderr, "\nSee what the first one waits for, and what you can decide:\n  %s\n", command("card", "show", waiting[0].UUID.String()))
	}
	strays, err := o.db.Unattributed(ctx, 1)
	if len(strays) > 0 {
		fmt.Fprintf(g.stderr, "\nMoney came to addresses of no card. See it with:\n  %s\n", command("transfers", "--unattributed"))
	}
	return err
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
	fmt.Fprintf(g.stderr, "there are more than these %d; see more of them with: --limit %d\n", limit, 10*limit)
	return all[:limit]
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
			row := func(indent, name string, a card.Total, what string) {
				fmt.Fprintf(table, "%s%s\t%s\t%s\n", indent, name, coin.Coins(a), what)
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
			row("  ", "lost", b.Lost, "made or given back for what is gone from the chain; written off: "+coin.Coins(b.WrittenOff))
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
