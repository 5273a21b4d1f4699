package issue

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Observe reports events to metrics. Its functions must be fast and safe for
// concurrent use. A nil function is not called.
type Observe struct {
	// Call reports a request to a supplier: "submit" or "lookup". Its outcome
	// is an Outcome, "busy" for a BusyError, or "error" if the answer was
	// unclear.
	Call func(supplier, call, outcome string, took time.Duration)
	// Issued reports an issued card, and the time since its payment was
	// confirmed.
	Issued func(took time.Duration)
}

func (o *Observe) fill() {
	if o.Call == nil {
		o.Call = func(string, string, string, time.Duration) {}
	}
	if o.Issued == nil {
		o.Issued = func(time.Duration) {}
	}
}

// observed returns call with a span and a report to Observe.Call.
func (s *Issuer) observed(name string, call func(context.Context, Request) (Answer, error)) func(context.Context,
	Request) (Answer, error) {
	return func(ctx context.Context, r Request) (Answer, error) {
		started := s.now()
		ctx, span := s.cfg.Tracer.StartClient(ctx, "supplier "+name)
		span.SetText("cardmint.supplier", s.supplier.Name())
		answer, err := call(ctx, r)
		outcome := "error"
		if _, busy := errors.AsType[*BusyError](err); busy {
			outcome = "busy"
		} else if err == nil {
			switch answer.Outcome {
			case Unknown, Issued, Pending, Declined:
				outcome = answer.Outcome.String()
			}
		}
		s.cfg.Observe.Call(s.supplier.Name(), name, outcome, s.now().Sub(started))
		endCall(span, outcome)
		return answer, err
	}
}

// recordResult updates the throttle with the result of a request, and logs the
// beginning and the end of a pause.
func (s *Issuer) recordResult(ctx context.Context, err error) {
	pauses, resumes := s.throttle.record(err, s.now())
	if pauses {
		s.log.WarnContext(ctx, "requests to supplier paused: it is busy or does not answer", "supplier", s.supplier.Name(),
			"wait", s.throttle.remaining(s.now()),
			"error", clean(err.Error()))
	}
	if resumes {
		s.log.InfoContext(ctx, "requests to supplier resumed", "supplier", s.supplier.Name())
	}
}

// observeIssued logs and reports issued cards, and ends their spans. DecidedAt
// is zero in intents that an old version created.
func (s *Issuer) observeIssued(ctx context.Context, cards []attempt) {
	now := s.now()
	for _, a := range cards {
		line := []slog.Attr{slog.String("card", a.card.UUID.String()), slog.String("supplier", a.intent.Supplier),
			slog.Int("attempts", a.intent.Attempts)}
		if !a.intent.DecidedAt.IsZero() {
			took := max(0, now.Sub(a.intent.DecidedAt))
			s.cfg.Observe.Issued(took)
			line = append(line, slog.Duration("since_paid", took))
		}
		s.log.LogAttrs(a.span.In(ctx), slog.LevelInfo, "card issued", line...)
		a.span.SetText("cardmint.outcome", "issued")
		a.span.End()
	}
}
