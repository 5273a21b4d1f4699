package server

import (
	"context"
	"log/slog"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
)

// disclosure counts the cards of a response whose credentials are disclosed:
// shown unmasked. The zero value discloses none.
type disclosure struct {
	reveals        bool // the token may disclose credentials
	newest, oldest uuid.UUID
	cards          int
}

// newDisclosure returns the disclosure of the response to a request.
func newDisclosure(gc context.Context) disclosure {
	who, _ := identity(gc)
	return disclosure{reveals: who.Scopes.Has(account.CredentialsReveal)}
}

// show masks the credentials of a card unless the token may disclose them, and
// reports whether they are disclosed. Call it for each card of the response
// before it is converted.
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

// auditStarted logs a line before the first credentials of a list are sent.
// audit logs another one at the end of the list.
func (a *api) auditStarted(gc context.Context, operation string, d disclosure) {
	a.audited(gc, "credentials_shown", operation, slog.String("list", "begun"), slog.String("newest", d.newest.String()))
}

// audit logs one line if credentials were disclosed, regardless of the number
// of cards: who read them and when, but not the credentials.
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

// audited logs an action of a client for the audit log. docs/operate/logs.md
// lists the actions.
func (a *api) audited(gc context.Context, action, operation string, attrs ...slog.Attr) {
	who, _ := identity(gc)
	id, _ := gc.Value(requestIDKey).(string)
	ctx := gc
	if c, ours := gc.(*gin.Context); ours {
		ctx = c.Request.Context() // has the trace
	}
	a.auditLog.LogAttrs(ctx, slog.LevelInfo, "audit",
		append([]slog.Attr{slog.String("action", action), slog.String("actor", "token:"+who.TokenID.String()),
			slog.String("account", who.AccountID.String()), slog.String("operation", operation), slog.String("request_id", id)},
			attrs...)...)
}

// auditedCard converts a card that is the whole response, and logs the
// disclosure.
func (a *api) auditedCard(gc context.Context, operation string, c *card.Card) Card {
	d := newDisclosure(gc)
	d.show(c)
	a.audit(gc, operation, d)
	return wireCard(c)
}
