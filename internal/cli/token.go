package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

// maxDays is the longest lifespan in days: about 270 years.
const maxDays = 100_000

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *lifespan) UnmarshalText(text []byte) error {
	if days, is := strings.CutSuffix(string(text), "d"); is {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > maxDays {
			return fmt.Errorf("%q is no number of days from 0 to %d", days, maxDays)
		}
		*l = lifespan(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	d, err := time.ParseDuration(string(text))
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a duration such as 90d or 2h", text)
	case d < 0:
		return fmt.Errorf("%s is negative", text)
	}
	*l = lifespan(d)
	return nil
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
  cardmint token rotate 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 --overlap 7d` + jsonHelp(rotatedTokenJSON{})
}

// Run rotates a token and prints the new one.
func (c tokenRotateCommand) Run(ctx context.Context, g *globals) error {
	id, err := tokenID(c.ID)
	if err != nil {
		return err
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		r, err := admin.accounts.RotateToken(ctx, id, time.Duration(c.Overlap))
		if err != nil {
			return explainRotation(id, err)
		}
		g.audited(ctx, "token_rotated", "", about("token", r.New.ID), about("replaced", r.Old.ID),
			about("account", r.New.AccountID))
		fmt.Fprintf(g.stderr, "%s replaces %s, which expires at %s\n", r.New.ID, r.Old.ID, formatTime(r.Old.ExpiresAt))
		made := rotatedTokenJSON{createdTokenJSON{newTokenJSON(r.New, nil), r.Text.Reveal()},
			replacedTokenJSON{r.Old.ID, newInstant(r.Old.ExpiresAt)}}
		return c.write(g, made, func(w io.Writer) { fmt.Fprintln(w, r.Text.Reveal()) })
	})
}

// explainRotation adds a hint to an error of rotating a token.
func explainRotation(id uuid.UUID, err error) error {
	var rotated *account.RotatedError
	switch {
	case errors.Is(err, card.ErrNoRow):
		return app.WithHint(fmt.Errorf("there is no token %s", id), "see the ids with: cardmint token list")
	case errors.Is(err, account.ErrTokenChanged):
		return app.WithHint(fmt.Errorf("the row of token %s was changed without the keys, so that it is refused", id),
			"revoke it, and make a new one with: cardmint token create")
	case errors.Is(err, account.ErrTokenEnded):
		return app.WithHint(fmt.Errorf("token %s is revoked or has expired", id),
			"make a new one with: cardmint token create")
	case errors.As(err, &rotated):
		return app.WithHint(fmt.Errorf("token %s was rotated before", id),
			"rotate the token that replaces it: cardmint token rotate %s", rotated.To)
	}
	return err
}

// tokenID parses the id of a token.
func tokenID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil, app.WithHint(fmt.Errorf("%q is not the id of a token", text),
			"see the ids with: cardmint token list")
	}
	return id, nil
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
	return `The token alone is printed on standard output. It is stored only as a keyed hash and can't be shown again.

A token without credentials:reveal sees credentials masked wherever cards are shown. Replace every process of versions that know no scopes before you create a token with less than all: they would let it do everything, and no longer start once there is one.

Examples:
  cardmint token create shop
  cardmint token create shop --name checkout --expires-in 90d
  cardmint token create shop --name books --scopes cards:read,events:read \
    --expires-at 2027-01-31` + jsonHelp(createdTokenJSON{})
}

// Run creates a token and prints it.
func (c tokenCreateCommand) Run(ctx context.Context, g *globals) error {
	r := account.TokenRequest{Name: c.Name, Scopes: account.Scopes(c.Scopes), ExpiresAt: (*time.Time)(c.ExpiresAt)}
	if c.ExpiresIn != nil {
		if r.TTL = time.Duration(*c.ExpiresIn); r.TTL == 0 { // no expiry
			return app.WithHint(errors.New("the token would have expired already"),
				"leave out --expires-in for a token that is valid until it is revoked")
		}
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		made, text, err := admin.accounts.CreateToken(ctx, c.Account, r)
		if errors.Is(err, card.ErrNoRow) {
			return app.WithHint(fmt.Errorf("there is no account %q", c.Account), "make it with: cardmint account create %q",
				c.Account)
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
	return g.withAdmin(ctx, func(admin adminContext) error {
		tokens, err := admin.db.Tokens(ctx)
		if err != nil {
			return err
		}
		uses, err := admin.db.TokenUses(ctx)
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
					used = formatTime(&at)
				}
				fmt.Fprintln(table,
					strings.Join(
						[]string{t.ID.String(), oneLine(t.Account), orDash(oneLine(t.Name)), t.Scopes.String(), formatTime(&t.CreatedAt),
							used,
							formatTime(t.ExpiresAt), formatTime(t.RevokedAt)}, "\t"))
			}
		})
	})
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
	return g.withAdmin(ctx, func(admin adminContext) error {
		err := admin.accounts.RevokeToken(ctx, id)
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

type accountJSON struct {
	ID        uuid.UUID `json:"id"`
	Name      string    `json:"name"`
	CreatedAt instant   `json:"created_at"`
}

// tokenJSON is a token without its text.
type tokenJSON struct {
	ID        uuid.UUID `json:"id"`
	Account   string    `json:"account"`
	Name      string    `json:"name"`
	Scopes    []string  `json:"scopes"`
	CreatedAt instant   `json:"created_at"`
	UsedAt    instant   `json:"used_at"` // null if never used
	ExpiresAt instant   `json:"expires_at"`
	RevokedAt instant   `json:"revoked_at"`
}

// createdTokenJSON is a token with its text, which is shown once.
type createdTokenJSON struct {
	tokenJSON
	Token string `json:"token"`
}

// rotatedTokenJSON is a token that replaces another one.
type rotatedTokenJSON struct {
	createdTokenJSON
	Replaces replacedTokenJSON `json:"replaces"`
}

type replacedTokenJSON struct {
	ID        uuid.UUID `json:"id"`
	ExpiresAt instant   `json:"expires_at"`
}

func newTokenJSON(t account.Token, uses map[uuid.UUID]time.Time) tokenJSON {
	return tokenJSON{t.ID, t.Account, t.Name, t.Scopes.Names(), instant{t.CreatedAt}, instant{uses[t.ID]},
		newInstant(t.ExpiresAt), newInstant(t.RevokedAt)}
}

type tokenSealCommand struct {
	output `embed:""`
}

func (tokenSealCommand) Help() string {
	return `The row of a token is sealed with the keys: a row that was changed in the database is refused. Earlier versions stored tokens without seals. This command seals those rows as they are, and prints them: check 'cardmint token list' first.

Replace every process of earlier versions first: they refuse the database afterwards. A new database does not need this command.

Example:
  cardmint token seal` + jsonHelp([]tokenJSON{})
}

// Run seals the tokens of earlier versions.
func (c tokenSealCommand) Run(ctx context.Context, g *globals) error {
	return g.withAdmin(ctx, func(admin adminContext) error {
		uses, err := admin.db.TokenUses(ctx)
		if err != nil {
			return err
		}
		sealed, err := admin.accounts.SealTokens(ctx)
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
						[]string{t.ID.String(), t.Account, orDash(t.Name), t.Scopes.String(), formatTime(t.ExpiresAt),
							formatTime(t.RevokedAt)}, "\t"))
			}
		})
	})
}
