package settle

import (
	"context"
	"log/slog"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// logTransitions logs each payment's transition, and adds a span to the trace
// of each card that was paid. A pass without changes has no span: one per
// second would bury all other spans.
func (w *Watcher) logTransitions(ctx context.Context, done applied) {
	if done.transfers == 0 && len(done.transitions) == 0 {
		return
	}
	pass := w.cfg.Tracer.StartRoot(ctx, "pass "+w.currency, w.began)
	pass.SetNumber("cardmint.transfers", int64(done.transfers))
	pass.SetNumber("cardmint.cards", int64(done.cards))
	defer pass.End()
	var paid []uuid.UUID
	for _, v := range done.transitions {
		if v.Assessment.State == card.Paid {
			paid = append(paid, v.Card.UUID)
		}
	}
	parents := w.cfg.Tracer.Parents(ctx, paid)
	for _, v := range done.transitions {
		in := ctx
		if v.Assessment.State == card.Paid {
			within, span := w.cfg.Tracer.StartWork(ctx, parents, v.Card.UUID, "payment confirmed", pass)
			in = within
			span.End()
		}
		if level, news := transitionText(v); news != "" {
			w.log.LogAttrs(in, level, news, slog.String("card", v.Card.UUID.String()), slog.String("currency", w.currency),
				slog.String("state", string(v.Assessment.State)), slog.String("before", string(v.Card.State)))
		}
	}
}

// transitionText returns the log text for a payment's transition; "" if it is
// not logged.
func transitionText(v card.Verdict) (slog.Level, string) {
	switch {
	case v.Alarm():
		return slog.LevelError, "payment needs an operator"
	case v.Card.State == card.Reversed:
		return slog.LevelWarn, "payment restored"
	case v.Assessment.State == card.Paid:
		return slog.LevelInfo, "payment confirmed"
	case v.Event == nil:
		return slog.LevelInfo, ""
	}
	switch v.Event.Type {
	case card.EventDetected, card.EventUnderpaid:
		return slog.LevelInfo, "payment seen"
	case card.EventExpired:
		return slog.LevelInfo, "card expired"
	case card.EventCanceled:
		return slog.LevelInfo, "card canceled"
	}
	return slog.LevelInfo, ""
}
