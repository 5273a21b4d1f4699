package server

import (
	"context"
	"log/slog"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
)

// disclosure counts the cards of one response whose credentials it shows in the
// clear. The zero value shows none in the clear.
type disclosure struct {
	reveals        bool // the token may see credentials
	newest, oldest uuid.UUID
	cards          int
}

// newDisclosure returns the disclosure of a response to a request.
func newDisclosure(gc context.Context) disclosure {
	who, _ := identity(gc)
	return disclosure{reveals: who.Scopes.Has(account.CredentialsReveal)}
}

// show is called with every card of the response, before it is converted. It
// masks what the token may not see, and reports whether the response shows the
// credentials in the clear.
func (d *disclosure) show(c *card.Card) bool {
	if c.Credentials == nil {
		return false
	}
	if !d.reveals {
		masked := c.Credentials.Mask()
		c.Credentials = &masked
	}
	if c.Credentials.Masked {
		return false
	}
	if d.cards == 0 {
		d.newest = c.UUID
	}
	d.oldest = c.UUID
	d.cards++
	return true
}

// auditStarted leaves a line before the first credentials of a list are sent. The
// line of audit follows when the list has ended.
func (a *api) auditStarted(gc context.Context, operation string, d disclosure) {
	a.audited(gc, "credentials_shown", operation, slog.String("list", "begun"), slog.String("newest", d.newest.String()))
}

// audit leaves one line in the log if credentials are shown in the clear,
// whatever the number of cards: who saw them and when, never what.
func (a *api) audit(gc context.Context, operation string, d disclosure) {
	switch d.cards {
	case 0:
	case 1:
		a.audited(gc, "credentials_shown", operation, slog.String("card", d.newest.String()))
	default:
		a.audited(gc, "credentials_shown", operation, slog.Int("cards", d.cards), slog.String("newest", d.newest.String()),
			slog.String("oldest", d.oldest.String()))
	}
}

// audited leaves one line of what a client did with a token.
// docs/operate/logs.md lists the actions.
func (a *api) audited(gc context.Context, action, operation string, attrs ...slog.Attr) {
	who, _ := identity(gc)
	id, _ := gc.Value(requestIDKey).(string)
	ctx := gc
	if c, ours := gc.(*gin.Context); ours {
		ctx = c.Request.Context() // which has the trace
	}
	a.auditLog.LogAttrs(ctx, slog.LevelInfo, "audit",
		append([]slog.Attr{slog.String("action", action), slog.String("actor", "token:"+who.TokenID.String()),
			slog.String("account", who.AccountID.String()), slog.String("operation", operation), slog.String("request_id", id)},
			attrs...)...)
}

// auditedCard converts a card that is the whole response, and audits that.
func (a *api) auditedCard(gc context.Context, operation string, c *card.Card) Card {
	d := newDisclosure(gc)
	d.show(c)
	a.audit(gc, operation, d)
	return wireCard(c)
}
