package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/vault"
)

// office serves the commands that work on the database alone. It knows no
// rates; what depends on one waits for a worker.
type office struct {
	vault    *vault.Vault
	db       *store.Store
	accounts *account.Service
	operator *operator.Service
}

// office opens an office for f.
func (g *globals) office(ctx context.Context, f func(office) error) error {
	return g.officeDespite(ctx, nil, f)
}

// officeDespite opens an office for f although the check of its keys may have
// an error.
func (g *globals) officeDespite(ctx context.Context, tolerated error, f func(office) error) error {
	v, err := g.OpenVault(ctx)
	if err != nil {
		return err
	}
	db, err := g.OpenStore(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	accounts, err := account.New(db, v, account.Config{Mode: g.Mode})
	if err != nil {
		return err
	}
	if err := accounts.CheckKeys(ctx); err != nil {
		return err
	}
	if err := keys.CheckKeys(ctx, db, v); err != nil && !errors.Is(err, tolerated) {
		return err
	}
	rates, err := rate.NewFixed(nil, time.Now)
	if err != nil {
		return err
	}
	return f(office{v, db, accounts, operator.New(db, rates, g.Log)})
}

type accountCreateCommand struct {
	output `embed:""`
	Name   string `arg:"" help:"Name of the account. Must be unique."`
}

func (accountCreateCommand) Help() string {
	return "Example:\n  cardmint account create shop" + jsonHelp(accountJSON{})
}

// Run creates an account.
func (c accountCreateCommand) Run(ctx context.Context, g *globals) error {
	return g.office(ctx, func(o office) error {
		a, err := o.accounts.CreateAccount(ctx, c.Name)
		if errors.Is(err, card.ErrDuplicate) {
			return app.WithHint(fmt.Errorf("there is an account %q already", c.Name),
				"make a token for it with: cardmint token create %q", c.Name)
		}
		if err != nil {
			return err
		}
		g.audited(ctx, "account_created", "", about("account", a.ID))
		return c.write(g, accountJSON{a.ID, a.Name, instant{a.CreatedAt}}, func(w io.Writer) {
			fmt.Fprintf(w, "account %s %s\n", a.Name, a.ID)
		})
	})
}

type tokenCreateCommand struct {
	output    `embed:""`
	Account   string    `arg:"" help:"The account's name."`
	Name      string    `default:"" help:"What the token is for; shown in the list."`
	Scopes    scopes    `default:"all" placeholder:"SCOPES" help:"What it may do, with commas between: cards:read, cards:create, credentials:reveal, webhooks:manage, events:read, or all, also what later versions add (${default})."`
	ExpiresIn *lifespan `aliases:"ttl" xor:"expiry" placeholder:"DURATION" help:"How long it is valid, for example 90d or 720h. Without it, it is valid until it is revoked."`
	ExpiresAt *deadline `xor:"expiry" placeholder:"TIME" help:"When it expires instead, for example 2027-01-31 (at its beginning, UTC) or 2027-01-31T18:00:00Z."`
}

func (tokenCreateCommand) Help() string {
	return "The token alone is printed on standard output. It is stored only as a keyed hash and can't be shown again.\n\nA token without credentials:reveal sees credentials masked wherever cards are shown. Replace every process of versions that know no scopes before you create a token with less than all: they would let it do everything, and no longer start once there is one.\n\nExamples:\n  cardmint token create shop\n  cardmint token create shop --name checkout --scopes cards:create --expires-in 90d\n  cardmint token create shop --name books --scopes cards:read,events:read --expires-at 2027-01-31" + jsonHelp(createdTokenJSON{})
}

// Run creates a token and prints it.
func (c tokenCreateCommand) Run(ctx context.Context, g *globals) error {
	r := account.TokenRequest{Name: c.Name, Scopes: account.Scopes(c.Scopes), ExpiresAt: (*time.Time)(c.ExpiresAt)}
	if c.ExpiresIn != nil {
		if r.TTL = time.Duration(*c.ExpiresIn); r.TTL == 0 { // which stands for ever
			return app.WithHint(errors.New("the token would have expired already"),
				"leave out --expires-in for a token that is valid until it is revoked")
		}
	}
	return g.office(ctx, func(o office) error {
		made, text, err := o.accounts.CreateToken(ctx, c.Account, r)
		if errors.Is(err, card.ErrNoRow) {
			return app.WithHint(fmt.Errorf("there is no account %q", c.Account), "make it with: cardmint account create %q", c.Account)
		}
		if err != nil {
			return err
		}
		g.audited(ctx, "token_created", "", about("token", made.ID), about("account", made.AccountID),
			about("scopes", made.Scopes))
		return c.write(g, createdTokenJSON{newTokenJSON(made, nil), text.Reveal()}, func(w io.Writer) {
			fmt.Fprintln(w, text.Reveal())
		})
	})
}

type tokenListCommand struct {
	output `embed:""`
}

func (tokenListCommand) Help() string {
	return "USED is when a token was used last, by any process, to within about a minute.\n\nExample:\n  cardmint token list" + jsonHelp([]tokenJSON{})
}

// Run lists the tokens.
func (c tokenListCommand) Run(ctx context.Context, g *globals) error {
	return g.office(ctx, func(o office) error {
		tokens, err := o.db.Tokens(ctx)
		if err != nil {
			return err
		}
		uses, err := o.db.TokenUses(ctx)
		if err != nil {
			return err
		}
		all := []tokenJSON{}
		for _, t := range tokens {
			all = append(all, newTokenJSON(t, uses))
		}
		return c.write(g, all, func(table io.Writer) {
			fmt.Fprintln(table,
				strings.Join([]string{"ID", "ACCOUNT", "NAME", "SCOPES", "CREATED", "USED", "EXPIRES", "REVOKED"}, "\t"))
			for _, t := range tokens {
				used := "never"
				if at, known := uses[t.ID]; known {
					used = day(&at)
				}
				fmt.Fprintln(table,
					strings.Join(
						[]string{t.ID.String(), oneLine(t.Account), orDash(oneLine(t.Name)), t.Scopes.String(), day(&t.CreatedAt), used,
							day(t.ExpiresAt), day(t.RevokedAt)}, "\t"))
			}
		})
	})
}

func day(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

type tokenRevokeCommand struct {
	ID string `arg:"" help:"The token's id, from 'token list'."`
}

func (tokenRevokeCommand) Help() string {
	return "Within five seconds the token is refused everywhere. Revoking it again changes nothing.\n\nExample:\n  cardmint token revoke 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
}

// Run revokes a token.
func (c tokenRevokeCommand) Run(ctx context.Context, g *globals) error {
	id, err := tokenID(c.ID)
	if err != nil {
		return err
	}
	return g.office(ctx, func(o office) error {
		err := o.accounts.RevokeToken(ctx, id)
		if errors.Is(err, card.ErrNoRow) {
			return app.WithHint(fmt.Errorf("there is no token %s", id), "see the ids with: cardmint token list")
		}
		if err != nil {
			return err
		}
		g.audited(ctx, "token_revoked", "", about("token", id))
		fmt.Fprintf(g.stdout, "revoked %s; refused everywhere within 5 seconds\n", id)
		return nil
	})
}
