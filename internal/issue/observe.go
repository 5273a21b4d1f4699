package issue

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Observe is told what happens, for monitoring. Its functions must be safe for
// concurrent use, and quick. A nil one is not called.
type Observe struct {
	// Call is told of each call of a supplier: "submit" or "lookup", and what
	// the supplier answered: an Outcome, "busy" if it took no request, or
	// "error" if there was no clear answer.
	Call func(supplier, call, outcome string, took time.Duration)
	// Issued is told of each card that was issued how long that took since its
	// payment was found to be confirmed.
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

// observed returns a call of the supplier that is observed.
func (s *Issuer) observed(name string, call func(context.Context, Request) (Answer, error)) func(context.Context,
	Request) (Answer, error) {
	return func(ctx context.Context, r Request) (Answer, error) {
		started := s.now()
		ctx, span := s.cfg.Tracer.Call(ctx, "supplier "+name)
		span.Text("cardmint.supplier", s.supplier.Name())
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

// observePace takes note of how a request ended, and tells when the supplier is
// left alone, and when it no longer is.
func (s *Issuer) observePace(ctx context.Context, err error) {
	pauses, resumes := s.throttle.record(err, s.now())
	if pauses {
		s.log.WarnContext(ctx, "supplier is left alone: it is busy or does not answer", "supplier", s.supplier.Name(),
			"wait", s.throttle.remaining(s.now()),
			"error", clean(err.Error()))
	}
	if resumes {
		s.log.InfoContext(ctx, "supplier is asked again", "supplier", s.supplier.Name())
	}
}

// observeIssued tells of cards that were issued. Of one that was decided on by
// a version which did not note the time, nothing is known.
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
		a.span.Text("cardmint.outcome", "issued")
		a.span.End()
	}
}
