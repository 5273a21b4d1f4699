package webhook

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Delivery is an event and what became of sending it to one webhook.
type Delivery struct {
	Event    card.Event
	State    DeliveryState
	Tries    int       // attempts since the schedule was last started; Attempts may also have older ones
	Attempts []Attempt // the last keptAttempts, oldest first
	DueAt    time.Time // time of the next attempt, while pending; Immediately before the first
}

// Immediately returns the time of a delivery that is due whatever the clock shows.
func Immediately() time.Time { return time.UnixMilli(0).UTC() }

// DeliveryState is the state of a delivery.
type DeliveryState string

const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryFailed    DeliveryState = "failed" // not attempted any more
)

// Attempt is one request to a webhook, and its result.
type Attempt struct {
	At         time.Time
	Took       time.Duration
	Status     int           // HTTP status; 0 if there was no response
	Answer     string        // the beginning of the response's body
	Error      string        // why there was no response, for the integrator
	RetryAfter time.Duration // the pause that the receiver asks for
	// if positive, nothing was sent, and the next try must wait: the
	// destination's limit is reached
	Postponed time.Duration
}

// OK reports whether the receiver accepted the event.
func (a Attempt) OK() bool { return a.Status/100 == 2 }

// Unreachable reports whether the receiver is down or overloaded, so that other
// attempts would fail too. Any other failure concerns only this event.
func (a Attempt) Unreachable() bool {
	return a.Status == 0 || a.Status == http.StatusRequestTimeout || a.Status == http.StatusTooManyRequests ||
		a.Status/100 == 5
}

// Rejected reports whether the answer is about the URL rather than the event:
// nothing there takes events. A single one may still be about the event, as a
// receiver may answer 404 for a card that it does not know.
func (a Attempt) Rejected() bool {
	switch a.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return a.Gone() || a.Status/100 == 3
}

// Gone reports whether the receiver wants no more events.
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

// After returns the delivery after attempt a. Impossible Tries count as none or
// all. chance, from 0 to below 1, makes the wait for the next attempt up to a
// fifth shorter or longer.
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

// ListDeliveries returns the deliveries to a webhook that match, newest event
// first, at most filter.Limit, and whether there are more.
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

// Redeliver has an event sent to a webhook again, whatever became of its
// delivery. The error is card.ErrNotFound if there is no such delivery, and
// card.ErrWebhookDisabled if the webhook is disabled.
func (s *Service) Redeliver(ctx context.Context, account, webhook, event uuid.UUID) error {
	err := s.store.WebhookTx(ctx, func(tx Tx) error {
		w, replayed, err := s.lockOnce(ctx, tx, account, webhook, &struct{}{})
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
		return s.keep(ctx, tx, struct{}{})
	})
	if err == nil {
		s.wake()
	}
	return err
}

// RecoverWebhook has all events since the given time sent to a webhook that it
// has not received: their delivery failed or waits for its next attempt, or
// there is none because the webhook was disabled or did not exist yet. It goes
// back as far as deliveries are kept. It returns the number of events. The
// error is card.ErrWebhookDisabled if the webhook is disabled.
func (s *Service) RecoverWebhook(ctx context.Context, account, webhook uuid.UUID, since time.Time) (int64, error) {
	var count int64
	if replayed, err := s.earlier(ctx, &count); replayed || err != nil {
		return count, err
	}
	count, err := s.recover(ctx, account, webhook, since)
	if err != nil {
		return count, err
	}
	return count, s.keepFirst(ctx, &count)
}

func (s *Service) recover(ctx context.Context, account, webhook uuid.UUID, since time.Time) (int64, error) {
	if err := s.enabledWebhook(ctx, account, webhook); err != nil {
		return 0, err
	}
	now := s.cfg.Now()
	if kept := now.Add(-s.cfg.Retention); since.Before(kept) {
		since = kept // nobody knows whether older events were delivered
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

// clockSkew is how much earlier the time of an event may be than that of its
// predecessor, if another process's clock made that.
const clockSkew = time.Minute

// maxPerStatement is the most deliveries that one statement deletes or has sent
// again, so that it does not hold many locks for long.
const maxPerStatement = 1000

// inBatches calls f until it returns less than n. f must process up to n items,
// and return how many it did.
func inBatches(f func(n int) (int64, error)) error {
	for {
		n, err := f(maxPerStatement)
		if err != nil || n < maxPerStatement {
			return err
		}
	}
}
