package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// adminContext contains the services of commands that work on the database. It
// has no rates; decisions that depend on one wait for a worker.
type adminContext struct {
	vault    *vault.Vault
	db       *store.Store
	accounts *account.Service
	operator *operator.Service
}

// withAdmin calls f with an adminContext, which it closes afterwards.
func (g *globals) withAdmin(ctx context.Context, f func(adminContext) error) error {
	return g.withAdminTolerating(ctx, nil, f)
}

// withAdminTolerating is withAdmin, but calls f even if checking the keys
// returns the tolerated error.
func (g *globals) withAdminTolerating(ctx context.Context, tolerated error, f func(adminContext) error) error {
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
	return f(adminContext{v, db, accounts, operator.New(db, rates, g.Log)})
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
	return g.withAdmin(ctx, func(admin adminContext) error {
		a, err := admin.accounts.CreateAccount(ctx, c.Name)
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
