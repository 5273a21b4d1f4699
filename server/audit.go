package server

import (
	"context"
	"log/slog"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// disclosure counts the cards of one response whose credentials it shows in the clear.
type disclosure struct {
	newest, oldest uuid.UUID
	cards          int
}

// note is called with every card of the response.
func (d *disclosure) note(c *card.Card) {
	if c.Credentials == nil || c.Credentials.Masked {
		return
	}
	if d.cards == 0 {
		d.newest = c.UUID
	}
	d.oldest = c.UUID
	d.cards++
}

// audit leaves one line in the log if credentials are shown in the clear, whatever the number of cards: who saw them and when, never what.
func (a *api) audit(gc context.Context, operation string, d disclosure) {
	if d.cards == 0 {
		return
	}
	who, _ := identity(gc)
	id, _ := gc.Value(requestIDKey).(string)
	attrs := []slog.Attr{slog.String("operation", operation), slog.String("request_id", id), slog.String("account", who.AccountID.String()),
		slog.String("token", who.TokenID.String())}
	if d.cards == 1 {
		attrs = append(attrs, slog.String("card", d.newest.String()))
	} else {
		attrs = append(attrs, slog.Int("cards", d.cards), slog.String("newest", d.newest.String()), slog.String("oldest", d.oldest.String()))
	}
	a.auditLog.LogAttrs(gc, slog.LevelInfo, "credentials shown", attrs...)
}

// auditedCard converts a card that is the whole response, and audits that.
func (a *api) auditedCard(gc context.Context, operation string, c *card.Card) Card {
	var d disclosure
	d.note(c)
	a.audit(gc, operation, d)
	return wireCard(c)
}
