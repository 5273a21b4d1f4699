package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/app"
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
			return app.WithHint(err,
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
