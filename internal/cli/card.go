package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

type cardListCommand struct {
	output    `embed:""`
	Account   string            `placeholder:"NAME" help:"Only cards of this account."`
	State     card.PaymentState `placeholder:"STATE" enum:",unpaid,detected,underpaid,confirming,paid,late,expired,canceled,reversed" default:"" help:"Only cards whose payment is in this state: unpaid, detected, underpaid, confirming, paid, late, expired, canceled or reversed."`
	Attention bool              `help:"Only cards that wait for an operator: late or lost payments, and cards that the supplier declined or got wrong."`
	Limit     int               `default:"100" placeholder:"N" help:"At most so many (${default})."`
}

func (cardListCommand) Help() string {
	return `Newest first, of all accounts; with --attention oldest first. No credentials are shown.

With --attention, WHY is the reason, SINCE when it began, and WORTH the value of the card's money in US dollars, at the rate accepted last; for a card whose money left the chain, the card's face value.

Examples:
  cardmint card list --attention
  cardmint card list --account shop --state late` + jsonHelp([]listedJSON{})
}

// Run lists cards.
func (c cardListCommand) Run(ctx context.Context, g *globals) error {
	if err := atLeastOne(c.Limit); err != nil {
		return err
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		accounts, err := admin.db.Accounts(ctx)
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
			return app.WithHint(fmt.Errorf("there is no account %q", c.Account),
				"leave --account out to see the cards of all accounts")
		}
		cards, err := admin.db.FindCards(ctx, search)
		if err != nil {
			return err
		}
		cards = truncate(g, c.Limit, cards)
		all := []listedJSON{}
		for _, one := range cards {
			j := listedJSON{cardJSON: newCardJSON(one, names[one.AccountID])}
			if c.Attention {
				if j.attention, err = admin.attention(ctx, one); errors.Is(err, card.ErrNoRow) {
					continue // deleted since it was listed
				} else if err != nil {
					return err
				}
			}
			all = append(all, j)
		}
		if !c.Attention {
			return c.write(g, all, func(table io.Writer) { printCards(g, table, cards, names) })
		}
		if err := c.write(g, all, func(table io.Writer) { printAttention(g, table, all) }); err != nil {
			return err
		}
		return printNextSteps(ctx, g, admin, cards)
	})
}

// attention returns why and since when a card waits for an operator, and the
// value of its money.
func (admin adminContext) attention(ctx context.Context, c *card.Card) (*attention, error) {
	r, err := admin.db.CardDetail(ctx, c.UUID)
	if err != nil {
		return nil, err
	}
	x, err := admin.explained(ctx, r)
	if err != nil {
		return nil, err
	}
	a := &attention{Why: optional(attentionReason(r, x)), Since: instant{x.Since}}
	switch {
	case x.Lost > 0:
		a.WorthUSD = optional(c.USD.String())
	case x.Worth != nil:
		a.WorthUSD = optional(x.Worth.USD.String())
	}
	return a, nil
}

func printAttention(g *globals, table io.Writer, all []listedJSON) {
	fmt.Fprintln(table,
		strings.Join([]string{"UUID", "ACCOUNT", "USD", "CURRENCY", "AMOUNT", "RECEIVED", "SINCE", "WORTH", "STATE", "WHY"},
			"\t"))
	for _, c := range all {
		since := "-"
		if !c.attention.Since.IsZero() {
			since = formatTime(&c.attention.Since.Time)
		}
		p := c.Payment
		fmt.Fprintln(table,
			strings.Join(
				[]string{c.UUID.String(), c.Account, c.USDAmount.String(), p.Currency, p.Amount.String(),
					p.AmountReceived.String(), since,
					orDash(string(c.attention.WorthUSD)), g.paint(g.stdout, stateColor(p.State), string(p.State)),
					string(c.attention.Why)}, "\t"))
	}
}

func printCards(g *globals, table io.Writer, cards []*card.Card, names map[uuid.UUID]string) {
	fmt.Fprintln(table,
		strings.Join([]string{"UUID", "ACCOUNT", "CREATED", "USD", "CURRENCY", "AMOUNT", "RECEIVED", "STATUS", "STATE"},
			"\t"))
	for _, c := range cards {
		fmt.Fprintln(table,
			strings.Join(
				[]string{c.UUID.String(), oneLine(names[c.AccountID]), formatTime(&c.CreatedAt), c.USD.String(), c.Coin.Code,
					c.Coin.Decimal(c.Amount).String(), c.Coin.Decimal(c.Received).String(), string(c.Status),
					g.paint(g.stdout, stateColor(c.State), string(c.State))}, "\t"))
	}
}

// printNextSteps prints to standard error how to decide about the listed cards.
func printNextSteps(ctx context.Context, g *globals, admin adminContext, waiting []*card.Card) error {
	if len(waiting) == 0 {
		fmt.Fprintln(g.stderr, "no card waits for an operator")
	} else {
		fmt.Fprintf(g.stderr, "\nSee what the first one waits for, and what you can decide:\n  %s\n",
			command("card", "show", waiting[0].UUID.String()))
	}
	strays, err := admin.db.Unattributed(ctx, 1)
	if len(strays) > 0 {
		fmt.Fprintf(g.stderr, "\nMoney came to addresses of no card. See it with:\n  %s\n",
			command("transfers", "--unattributed"))
	}
	return err
}

func atLeastOne(limit int) error {
	if limit < 1 {
		return app.WithHint(fmt.Errorf("--limit %d shows nothing", limit), "it takes 1 or more")
	}
	return nil
}

// truncate returns the first elements up to limit, and notes if there are more.
func truncate[T any](g *globals, limit int, all []T) []T {
	if len(all) <= limit {
		return all
	}
	fmt.Fprintf(g.stderr, "there are more than these %d; see more of them with: --limit %d\n", limit, 10*limit)
	return all[:limit]
}

// oneLine escapes control characters, so that stored text can't imitate other
// output of a terminal.
func oneLine(s string) string {
	var line strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			line.WriteRune(r)
		} else {
			line.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return line.String()
}

// operatorName returns the name of the operator, which defaults to the user of
// this machine. It returns an error if the note is empty.
func operatorName(note, operator string) (string, error) {
	if strings.TrimSpace(note) == "" {
		return "", app.WithHint(errors.New("the note is empty"), `give a reason: --note "..."`)
	}
	if operator != "" {
		return operator, nil
	}
	me, err := user.Current()
	if err != nil {
		return "", app.WithHint(errors.New("the user of this machine has no name"), "name the operator with --operator")
	}
	return me.Username, nil
}

func cardID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil, app.WithHint(fmt.Errorf("%q is not the uuid of a card", text),
			"see the uuids with: cardmint card list")
	}
	return id, nil
}

func noCard(err error, id uuid.UUID) error {
	if errors.Is(err, card.ErrNoRow) {
		return app.WithHint(fmt.Errorf("there is no card %s", id), "see the uuids with: cardmint card list")
	}
	return err
}
