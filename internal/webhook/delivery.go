package webhook

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Delivery is an event on its way to one webhook.
type Delivery struct {
	Event    card.Event
	State    DeliveryState
	Tries    int       // attempts since the schedule started; Attempts may contain older ones
	Attempts []Attempt // the last keptAttempts, oldest first
	DueAt    time.Time // time of the next attempt, while pending; Immediately before the first
}

// Immediately returns a due time that is in the past by any clock.
func Immediately() time.Time { return time.UnixMilli(0).UTC() }

// DeliveryState is the state of a delivery.
type DeliveryState string

const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryFailed    DeliveryState = "failed" // all attempts failed
)

// Attempt is one request to a webhook, and its result.
type Attempt struct {
	At         time.Time
	Took       time.Duration
	Status     int           // HTTP status; 0 if there was no response
	Answer     string        // beginning of the response's body
	Error      string        // why there was no response, for the integrator
	RetryAfter time.Duration // requested by the receiver
	// Postponed is how long the next attempt must wait, if nothing was sent
	// because the destination's limit is reached. Otherwise 0.
	Postponed time.Duration
}

// OK reports whether the receiver accepted the event.
func (a Attempt) OK() bool { return a.Status/100 == 2 }

// Unreachable reports whether the receiver is down or overloaded, so that other
// attempts would fail too.
func (a Attempt) Unreachable() bool {
	return a.Status == 0 || a.Status == http.StatusRequestTimeout || a.Status == http.StatusTooManyRequests ||
		a.Status/100 == 5
}

// Rejected reports whether the answer seems to concern the URL, not the event.
// A single one may still concern the event: a receiver may answer 404 for an
// unknown card.
func (a Attempt) Rejected() bool {
	switch a.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return a.Gone() || a.Status/100 == 3
}

// Gone reports whether the receiver wants no more events at all.
func (a Attempt) Gone() bool { return a.Status == http.StatusGone }

const (
	keptAttempts  = 20
	maxRetryAfter = 24 * time.Hour
)

// deliverySchedule returns the waits between attempts, from the Standard
// Webhooks specification: ten attempts over three days.
func deliverySchedule() []time.Duration {
	return []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour,
		20 * time.Hour, 24 * time.Hour}
}

// After returns the delivery after attempt a. A negative Tries counts as 0, and
// one beyond the schedule as its end. chance, in [0, 1), makes the wait for the
// next attempt up to a fifth shorter or longer.
func (d Delivery) After(a Attempt, now time.Time, chance float64) Delivery {
	d.Attempts = append(d.Attempts[max(0, len(d.Attempts)-keptAttempts+1):len(d.Attempts):len(d.Attempts)], a)
	d.DueAt = time.Time{}
	schedule := deliverySchedule()
	d.Tries = min(max(0, d.Tries), len(schedule)) + 1
	switch {
	case a.OK():
		d.State = DeliveryDelivered
	case d.Tries > len(schedule):
		d.State = DeliveryFailed
	default:
		wait := schedule[d.Tries-1]
		wait += time.Duration((chance - 0.5) * 0.4 * float64(wait))
		d.State, d.DueAt = DeliveryPending, now.Add(max(wait, min(a.RetryAfter, maxRetryAfter)))
	}
	return d
}

// DeliveryFilter selects deliveries of a webhook.
type DeliveryFilter struct {
	State  DeliveryState // "" for all
	Before int64         // only events with a lower Seq; 0 for all
	Limit  int
}

// ListDeliveries returns the matching deliveries to a webhook, newest event
// first, and whether there are more than filter.Limit.
func (s *Service) ListDeliveries(ctx context.Context, account, webhook uuid.UUID, filter DeliveryFilter) ([]Delivery,
	bool, error) {
	if _, err := s.GetWebhook(ctx, account, webhook); err != nil {
		return nil, false, err
	}
	limit := filter.Limit
	filter.Limit++
	ds, err := s.store.Deliveries(ctx, webhook, filter)
	if err != nil {
		return nil, false, err
	}
	return ds[:min(limit, len(ds))], len(ds) > limit, nil
}

// Redeliver sends an event to a webhook again, even if it was delivered. The
// error is card.ErrNotFound if there is no such delivery, and
// card.ErrWebhookDisabled if the webhook is disabled.
func (s *Service) Redeliver(ctx context.Context, account, webhook, event uuid.UUID) error {
	err := s.store.WebhookTx(ctx, func(tx Tx) error {
		w, replayed, err := s.lockAndReplay(ctx, tx, account, webhook, &struct{}{})
		switch {
		case err != nil:
			return noWebhook(err)
		case replayed:
			return nil
		case !w.Enabled:
			return card.ErrWebhookDisabled
		}
		err = tx.Redeliver(ctx, account, webhook, event, s.cfg.Now())
		if errors.Is(err, card.ErrNoRow) {
			return card.ErrNotFound.WithMessage(
				"This webhook has no delivery of an event with this id. Perhaps its types do not include the event's, or it is too old.")
		}
		if err != nil {
			return err
		}
		return s.storeReply(ctx, tx, struct{}{})
	})
	if err == nil {
		s.wake()
	}
	return err
}

// RecoverWebhook sends a webhook all events since the given time that it has
// not received: their delivery failed or waits for a retry, or there is none
// because the webhook was disabled or did not exist. Events older than
// Config.Retention are excluded. RecoverWebhook returns the number of events.
// The error is card.ErrWebhookDisabled if the webhook is disabled.
func (s *Service) RecoverWebhook(ctx context.Context, account, webhook uuid.UUID, since time.Time) (int64, error) {
	var count int64
	if replayed, err := s.findReply(ctx, &count); replayed || err != nil {
		return count, err
	}
	count, err := s.recover(ctx, account, webhook, since)
	if err != nil {
		return count, err
	}
	return count, s.storeFirstReply(ctx, &count)
}

func (s *Service) recover(ctx context.Context, account, webhook uuid.UUID, since time.Time) (int64, error) {
	if err := s.enabledWebhook(ctx, account, webhook); err != nil {
		return 0, err
	}
	now := s.cfg.Now()
	if kept := now.Add(-s.cfg.Retention); since.Before(kept) {
		since = kept // older deliveries are deleted, even successful ones
	}
	after, err := s.store.SeqBefore(ctx, account, since.Add(-clockSkew))
	if err != nil {
		return 0, err
	}
	defer s.wake()
	var all int64
	for {
		var n, last int64
		err := s.store.WebhookTx(ctx, func(tx Tx) (err error) {
			n, last, err = tx.RecoverDeliveries(ctx, account, webhook, since, after, maxPerStatement, now)
			return err
		})
		if err != nil || last == after {
			return all, err
		}
		all, after = all+n, last
	}
}

func (s *Service) enabledWebhook(ctx context.Context, account, id uuid.UUID) error {
	w, err := s.GetWebhook(ctx, account, id)
	if err == nil && !w.Enabled {
		return card.ErrWebhookDisabled
	}
	return err
}

// clockSkew is how much earlier an event may seem than its predecessor, if
// their processes' clocks differ.
const clockSkew = time.Minute

// maxPerStatement is the most deliveries that one statement changes, so that it
// does not hold many locks for long.
const maxPerStatement = 1000

// inBatches calls f until it returns less than n. f processes up to n items,
// and returns their number.
func inBatches(f func(n int) (int64, error)) error {
	for {
		n, err := f(maxPerStatement)
		if err != nil || n < maxPerStatement {
			return err
		}
	}
}
