package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

type tokenSealCommand struct {
	output `embed:""`
}

func (tokenSealCommand) Help() string {
	return `A token's row is sealed with the keys: a row that somebody changes in the database is refused. Earlier versions stored tokens without seals. This command seals those, once, and prints them. It vouches for the rows as they are: look at 'cardmint token list' before.

Replace every process of earlier versions first. They refuse the database afterwards. A new database needs no such command.

Example:
  cardmint token seal` + jsonHelp([]tokenJSON{})
}

// Run seals the tokens of earlier versions.
func (c tokenSealCommand) Run(ctx context.Context, g *globals) error {
	return g.office(ctx, func(o office) error {
		uses, err := o.db.TokenUses(ctx)
		if err != nil {
			return err
		}
		sealed, err := o.accounts.SealTokens(ctx)
		if errors.Is(err, account.ErrSealed) {
			return hint(err,
				"there is nothing to do; a token without a seal was changed in the database: revoke it, and make a new one")
		}
		if err != nil {
			return err
		}
		g.audited(ctx, "tokens_sealed", "", slog.Int("tokens", len(sealed)))
		all := []tokenJSON{}
		for _, t := range sealed {
			all = append(all, newTokenJSON(t, uses))
		}
		return c.write(g, all, func(table io.Writer) {
			fmt.Fprintln(table, strings.Join([]string{"SEALED", "ACCOUNT", "NAME", "SCOPES", "EXPIRES", "REVOKED"}, "\t"))
			for _, t := range sealed {
				fmt.Fprintln(table,
					strings.Join(
						[]string{t.ID.String(), t.Account, orDash(t.Name), t.Scopes.String(), day(t.ExpiresAt), day(t.RevokedAt)}, "\t"))
			}
		})
	})
}

// someChanged limits how many changed tokens are listed.
const someChanged = 20

// withTokens adds a doubt for each token whose row was changed without the
// keys.
func withTokens(ctx context.Context, accounts *account.Service, books operator.Books, err error) (operator.Books,
	error) {
	if err != nil {
		return books, err
	}
	changed, err := accounts.ChangedTokens(ctx)
	if err != nil {
		return books, err
	}
	for _, t := range changed[:min(len(changed), someChanged)] {
		text := "the token's row was changed without the keys, and it is refused: revoke it"
		if errors.Is(t.Err, card.ErrUnavailable) {
			text = "the token's seal can't be checked: the key file does not have the key"
		}
		books.Discrepancies = append(books.Discrepancies, operator.Discrepancy{ID: t.ID, Text: text})
	}
	return books, nil
}
