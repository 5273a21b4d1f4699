package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
)

// scopes is a flag that names scopes.
type scopes account.Scopes

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *scopes) UnmarshalText(text []byte) error {
	parsed, err := account.ParseScopes(string(text))
	*s = scopes(parsed)
	return err
}

// lifespan is a flag that takes a duration, also in days: 90d.
type lifespan time.Duration

// mostDays is the longest lifespan in days: about 270 years.
const mostDays = 100_000

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *lifespan) UnmarshalText(text []byte) error {
	if days, is := strings.CutSuffix(string(text), "d"); is {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > mostDays {
			return fmt.Errorf("%q is no number of days from 0 to %d", days, mostDays)
		}
		*l = lifespan(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err == nil && d < 0 {
		err = fmt.Errorf("%s is negative", text)
	}
	*l = lifespan(d)
	return err
}

// deadline is a flag that takes a date or a time.
type deadline time.Time

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *deadline) UnmarshalText(text []byte) error {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, string(text)); err == nil {
			*d = deadline(at.UTC())
			return nil
		}
	}
	return fmt.Errorf("%q is neither a date such as 2027-01-31 nor a time such as 2027-01-31T18:00:00Z", text)
}

type tokenRotateCommand struct {
	output  `embed:""`
	ID      string   `arg:"" help:"The token's id, from 'token list'."`
	Overlap lifespan `default:"24h" placeholder:"DURATION" help:"How long the old token stays valid, for example 2h or 7d, unless it expires earlier (${default})."`
}

func (tokenRotateCommand) Help() string {
	return `The new token has the account, name, scopes and mode of the old one, and is valid for as long as that one was when it was created. It alone is printed on standard output. It is stored only as a keyed hash and can't be shown again.

A token is rotated once. If the new one was lost, rotate that; its id is in 'token list'.

Examples:
  cardmint token rotate 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88
  cardmint token rotate 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 --overlap 7d --json` + jsonHelp(rotatedTokenJSON{})
}

// Run rotates a token and prints the new one.
func (c tokenRotateCommand) Run(ctx context.Context, g *globals) error {
	id, err := tokenID(c.ID)
	if err != nil {
		return err
	}
	return g.office(ctx, func(o office) error {
		r, err := o.accounts.RotateToken(ctx, id, time.Duration(c.Overlap))
		if err != nil {
			return explainRotation(id, err)
		}
		g.audited(ctx, "token_rotated", "", about("token", r.New.ID), about("replaced", r.Old.ID),
			about("account", r.New.AccountID))
		fmt.Fprintf(g.stderr, "%s replaces %s, which expires at %s\n", r.New.ID, r.Old.ID, day(r.Old.ExpiresAt))
		made := rotatedTokenJSON{createdTokenJSON{newTokenJSON(r.New, nil), r.Text.Reveal()},
			replacedTokenJSON{r.Old.ID, maybe(r.Old.ExpiresAt)}}
		return c.write(g, made, func(w io.Writer) { fmt.Fprintln(w, r.Text.Reveal()) })
	})
}

// explainRotation says why a token can't be rotated.
func explainRotation(id uuid.UUID, err error) error {
	var rotated *account.RotatedError
	switch {
	case errors.Is(err, card.ErrNoRow):
		return app.WithHint(fmt.Errorf("there is no token %s", id), "see the ids with: cardmint token list")
	case errors.Is(err, account.ErrTokenChanged):
		return app.WithHint(fmt.Errorf("the row of token %s was changed without the keys, so that it is refused", id),
			"revoke it, and make a new one with: cardmint token create")
	case errors.Is(err, account.ErrTokenEnded):
		return app.WithHint(fmt.Errorf("token %s is revoked or has expired", id), "make a new one with: cardmint token create")
	case errors.As(err, &rotated):
		return app.WithHint(fmt.Errorf("token %s was rotated before", id),
			"rotate the token that replaces it: cardmint token rotate %s", rotated.To)
	}
	return err
}

// tokenID reads the id of a token.
func tokenID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil, app.WithHint(fmt.Errorf("%q is not the id of a token", text), "see the ids with: cardmint token list")
	}
	return id, nil
}
