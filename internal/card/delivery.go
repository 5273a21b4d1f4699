package card

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// Delivery is an event on its way to a webhook.
type Delivery struct {
	Event    Event
	State    DeliveryState
	Tries    int       // of the schedule; Attempts may hold older ones
	Attempts []Attempt // the last keptAttempts, oldest first
	DueAt    time.Time // of the next attempt, while it is pending; AtOnce before the first
}

// AtOnce is due whatever a clock shows.
func AtOnce() time.Time { return time.UnixMilli(0).UTC() }

// DeliveryState is how far a delivery is.
type DeliveryState string

const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryFailed    DeliveryState = "failed" // not attempted any more
)

// Attempt is one request to a webhook, and what came of it.
type Attempt struct {
	At         time.Time
	Took       time.Duration
	Status     int           // HTTP's; 0 if there was no answer
	Answer     string        // the beginning of the answer
	Error      string        // why there was no answer, for the integrator
	RetryAfter time.Duration // that the receiver asks for
}

// OK reports whether the receiver has taken the event.
func (a Attempt) OK() bool { return a.Status/100 == 2 }

// Down reports whether it says that the receiver is away or overloaded, so that others at it would fail too. Any other failure is a verdict on
// this one event.
func (a Attempt) Down() bool {
	return a.Status == 0 || a.Status == http.StatusRequestTimeout || a.Status == http.StatusTooManyRequests || a.Status/100 == 5
}

// Gone reports whether the receiver wants no events any more.
func (a Attempt) Gone() bool { return a.Status == http.StatusGone }

// WebhookClaim is the right to send to a webhook, which one process has at a time.
type WebhookClaim struct {
	Webhook  *Webhook
	Secrets  []Secret // the newest first
	Failures int      // rounds of attempts in a row that found the receiver down
	Fence    int64    // of the claim; a write with an older one is refused
	Over     bool     // nothing is to be sent for now: the webhook was disabled, or has to be left in peace for a while
}

// WebhookState is what a process that sends to a webhook notes of it.
type WebhookState struct {
	Failures       int
	FailingSince   *time.Time
	PausedUntil    time.Time      // nothing is sent before; AtOnce for no pause
	DisabledReason DisabledReason // "" if it is not to be disabled
}

const (
	keptAttempts  = 20
	failingAtMost = 5 * 24 * time.Hour
	maxRetryAfter = 24 * time.Hour
	patience      = 3           // rounds in a row that find a receiver down before it is left in peace for a while
	longestPause  = time.Minute // of that
)

// deliverySchedule is how long after a failed attempt the next one is made, by the Standard Webhooks specification: ten attempts in all
// over three days.
func deliverySchedule() []time.Duration {
	return []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
		20 * time.Hour, 24 * time.Hour}
}

// After returns the delivery after an attempt. chance, from 0 to less than 1, makes the wait up to a fifth shorter or longer.
func (d Delivery) After(a Attempt, now time.Time, chance float64) Delivery {
	d.Attempts = append(d.Attempts[max(0, len(d.Attempts)-keptAttempts+1):len(d.Attempts):len(d.Attempts)], a)
	d.Tries++
	d.DueAt = time.Time{}
	schedule := deliverySchedule()
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

// after returns what is to be noted of a webhook after a round of attempts, in the order in which they ended: the last of each delivery.
func (c WebhookClaim) after(round []Delivery, now time.Time) WebhookState {
	s := WebhookState{FailingSince: c.Webhook.FailingSince, PausedUntil: AtOnce()}
	down, well, usedUp := false, false, false
	for _, d := range round {
		a := d.Attempts[len(d.Attempts)-1]
		down = down || a.Down()
		usedUp = usedUp || d.State == DeliveryFailed
		if a.OK() {
			well, s.FailingSince = true, nil
			continue
		}
		if s.FailingSince == nil {
			s.FailingSince = &a.At
		}
		if a.Gone() {
			s.DisabledReason = DisabledGone
		}
	}
	if down && !well {
		s.Failures = c.Failures + 1
	}
	if s.Failures >= patience {
		s.PausedUntil = now.Add(min(time.Second<<min(s.Failures-patience, 10), longestPause))
	}
	// Only when an event has had all its attempts: after a long silence one failure says little.
	if usedUp && s.FailingSince != nil && now.Sub(*s.FailingSince) > failingAtMost && s.DisabledReason == "" {
		s.DisabledReason = DisabledFailing
	}
	return s
}

// ClaimWebhooks returns up to n webhooks that something is to be sent to now, each for ttl; those that were well first.
func (s *Service) ClaimWebhooks(ctx context.Context, n int, ttl time.Duration) ([]*WebhookClaim, error) {
	claims, err := s.store.ClaimWebhooks(ctx, s.cfg.Now(), n, ttl)
	if err != nil {
		return nil, err
	}
	good := claims[:0]
	var failed []error
	for _, c := range claims {
		if c.Secrets, err = s.secrets(c.Webhook); err != nil {
			failed = append(failed, err) // and is tried again when the claim ends
			continue
		}
		good = append(good, c)
	}
	return good, errors.Join(failed...)
}

// DueDeliveries returns up to n deliveries that are to be attempted now, the longest due first. To a webhook that fails, every other probe is a
// retry of the oldest event that is due for one: new events would else take all of them, none would ever have its ten attempts, and the
// webhook would never be disabled.
func (s *Service) DueDeliveries(ctx context.Context, c *WebhookClaim, n int) ([]Delivery, error) {
	if c.Failures%2 == 1 {
		if due, err := s.store.DueRetries(ctx, c.Webhook.ID, s.cfg.Now(), n); err != nil || len(due) > 0 {
			return due, err
		}
	}
	return s.store.DueDeliveries(ctx, c.Webhook.ID, s.cfg.Now(), n)
}

// Tried is a delivery and the attempt that was just made at it.
type Tried struct {
	Delivery Delivery
	Attempt  Attempt
}

// SaveAttempts stores a round of attempts, in the order in which they ended, and what follows from them, and prolongs the claim by ttl. What was
// asked to be sent again meanwhile stays so. It fails with ErrFenced if the claim was lost, or the webhook changed or was deleted: the
// attempts are then made again, as the webhook is now. If it only changed, those that went well are stored, and are not made again.
// It may be repeated if it was out of reach: nothing is counted or told twice.
func (s *Service) SaveAttempts(ctx context.Context, c *WebhookClaim, tried []Tried, ttl time.Duration) error {
	now := s.cfg.Now()
	before, after := make([]Delivery, len(tried)), make([]Delivery, len(tried))
	for i, t := range tried {
		before[i], after[i] = t.Delivery, t.Delivery.After(t.Attempt, now, rand.Float64())
	}
	state := c.after(after, now)
	err := s.store.InTx(ctx, func(tx Tx) error {
		if err := tx.SaveWebhookState(ctx, c, state, now, ttl); err != nil {
			return err
		}
		if err := tx.SaveDeliveries(ctx, c.Webhook.ID, before, after); err != nil || state.DisabledReason == "" {
			return err
		}
		id, at := newID()
		return tx.InsertEvents(ctx, []Event{{ID: id, AccountID: c.Webhook.AccountID, Type: EventWebhookDisabled, WebhookID: c.Webhook.ID, CreatedAt: at}})
	})
	if errors.Is(err, ErrFenced) {
		err = s.saveDelivered(ctx, c, before, after)
	}
	if err != nil {
		return fmt.Errorf("save attempts: %w", err)
	}
	c.Failures, c.Webhook.FailingSince = state.Failures, state.FailingSince
	c.Over = state.DisabledReason != "" || state.PausedUntil.After(now)
	if state.DisabledReason != "" {
		slog.WarnContext(ctx, "webhook is disabled", "webhook", c.Webhook.ID, "account", c.Webhook.AccountID, "reason", state.DisabledReason)
		s.cfg.WakeSender()
	}
	return nil
}

// saveDelivered stores those that went well after the webhook changed, unless the claim was lost too, and fails with ErrFenced in any case.
func (s *Service) saveDelivered(ctx context.Context, c *WebhookClaim, before, after []Delivery) error {
	var was, is []Delivery
	for i, d := range after {
		if d.State == DeliveryDelivered {
			was, is = append(was, before[i]), append(is, d)
		}
	}
	err := s.store.InTx(ctx, func(tx Tx) error {
		if err := tx.CheckClaim(ctx, c); err != nil {
			return err
		}
		return tx.SaveDeliveries(ctx, c.Webhook.ID, was, is)
	})
	if err == nil {
		err = ErrFenced
	}
	return err
}

// ReleaseWebhook ends a claim.
func (s *Service) ReleaseWebhook(ctx context.Context, c *WebhookClaim) error {
	return s.store.ReleaseWebhook(ctx, c)
}

// DeliveryFilter selects deliveries of a webhook.
type DeliveryFilter struct {
	State  DeliveryState // "" for all
	Before int64         // only of events with a lower Seq; 0 for all
	Limit  int
}

// ListDeliveries returns the deliveries to a webhook that match, newest event first, and whether there are more.
func (s *Service) ListDeliveries(ctx context.Context, account, webhook uuid.UUID, filter DeliveryFilter) ([]Delivery, bool, error) {
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

// Redeliver has an event sent again, whatever came of it before.
func (s *Service) Redeliver(ctx context.Context, account, webhook, event uuid.UUID) error {
	if err := s.enabledWebhook(ctx, account, webhook); err != nil {
		return err
	}
	err := s.store.Redeliver(ctx, account, webhook, event, s.cfg.Now())
	if errors.Is(err, ErrNotFound) {
		return ErrNotFound.Saying("This webhook has no delivery of an event with this id. Perhaps its types do not include the event's, or it is too old.")
	}
	s.cfg.WakeSender()
	return err
}

// RecoverWebhook has every event sent now that happened since and that failed to be delivered, waits for its next attempt, or was never to be
// delivered, because the webhook was disabled or not there yet. It goes back as far as deliveries are kept, and returns how many events that are.
func (s *Service) RecoverWebhook(ctx context.Context, account, webhook uuid.UUID, since time.Time) (int64, error) {
	if err := s.enabledWebhook(ctx, account, webhook); err != nil {
		return 0, err
	}
	now := s.cfg.Now()
	if kept := now.Add(-s.cfg.DeliveryRetention); since.Before(kept) {
		since = kept // of what is older nobody knows whether it was delivered
	}
	after, err := s.store.SeqBefore(ctx, account, since.Add(-clockSkew))
	if err != nil {
		return 0, err
	}
	defer s.cfg.WakeSender()
	var all int64
	for {
		var n, last int64
		err := s.store.InTx(ctx, func(tx Tx) (err error) {
			n, last, err = tx.RecoverDeliveries(ctx, account, webhook, since, after, perStatement, now)
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
		return ErrWebhookDisabled
	}
	return err
}

// clockSkew is by how much an event may seem older than one of another process that it follows.
const clockSkew = time.Minute

// perStatement is how many deliveries one statement deletes or has sent again, so that it never holds much for long.
const perStatement = 1000

// PruneDeliveries deletes deliveries that are older than they are kept for, and not pending.
func (s *Service) PruneDeliveries(ctx context.Context) error {
	before := s.cfg.Now().Add(-s.cfg.DeliveryRetention)
	return inParts(func(n int) (int64, error) { return s.store.PruneDeliveries(ctx, before, n) })
}

// inParts calls f, which does up to n of something and returns how many it did, until it finds no more.
func inParts(f func(n int) (int64, error)) error {
	for {
		n, err := f(perStatement)
		if err != nil || n < perStatement {
			return err
		}
	}
}
