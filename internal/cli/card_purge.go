package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
)

type cardPurgeCommand struct {
	output   `embed:""`
	UUID     string `arg:"" help:"The card's uuid."`
	Note     string `required:"" placeholder:"TEXT" help:"The reason. It is stored with the card."`
	Operator string `placeholder:"NAME" help:"Who decided. Without it, the user of this machine."`
	Yes      bool   `help:"Do it. Without it, the command only prints its plan."`
}

func (cardPurgeCommand) Help() string {
	return `Deletes the credentials of an issued card. Nobody can read them afterwards, not even the customer. The card stays generated, and the API shows
the time of the purge. The keyed hash of the card number stays, so that no other order can get the same card. Older backups still have the
credentials. To purge credentials by age, see --credentials-retention in: cardmint serve --help

Examples:
  cardmint card purge 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 \
    --note "the customer asked for it"
  cardmint card purge 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 \
    --note "the customer asked for it" --yes` + jsonHelp(purgedJSON{})
}

// Run purges a card's credentials. Without --yes it only prints its plan.
func (c cardPurgeCommand) Run(ctx context.Context, g *globals) error {
	id, err := cardID(c.UUID)
	if err != nil {
		return err
	}
	who, err := operatorName(c.Note, c.Operator)
	if err != nil {
		return err
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		r, err := admin.db.CardDetail(ctx, id)
		if err != nil {
			return noCard(err, id)
		}
		say := func(recorded, nothing bool, text string) error {
			return c.write(g, purgedJSON{outcomeJSON{recorded, nothing}, id}, func(w io.Writer) { fmt.Fprint(w, text) })
		}
		switch {
		case r.Card.CredentialsPurgedAt != nil && !r.Credentials:
			return say(false, true,
				fmt.Sprintf("nothing to do: the credentials of card %s were purged at %s\n", id,
					formatTime(r.Card.CredentialsPurgedAt)))
		case r.Card.Status != card.Generated:
			return app.WithHint(keys.ErrNotIssued, "what the card waits for is shown by: %s",
				command("card", "show", id.String()))
		case !r.Credentials:
			return say(false, true,
				fmt.Sprintf("nothing to do: card %s has no credentials, although they were never purged\n", id))
		case !c.Yes:
			return say(false, false,
				fmt.Sprintf(
					"would permanently delete the credentials of card %s of account %s, %s USD. Nothing was changed.\nto do it: %s\n",
					id, oneLine(r.Account), r.Card.USD,
					command("card", "purge", id.String(), "--note", c.Note, "--operator", who, "--yes")))
		}
		purged, err := admin.db.PurgeCard(ctx,
			keys.Purge{ID: uuid.Must(uuid.NewV7()), CardUUID: id, Note: c.Note, Operator: who})
		switch {
		case err != nil:
			return err
		case !purged:
			return say(false, true, fmt.Sprintf("nothing to do: card %s has no credentials\n", id))
		}
		g.audited(ctx, "credentials_purged", who, about("card", id))
		return say(true, false, fmt.Sprintf("purged: card %s has no credentials any more\n", id))
	})
}
