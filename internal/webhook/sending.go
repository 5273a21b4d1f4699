package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

const (
	failingAtMost = 5 * 24 * time.Hour
	patience      = 3           // rounds in a row that find a receiver down before nothing is sent to it for a while
	longestPause  = time.Minute // of that
)

// Claim is the right to send to a webhook, which one process has at a time.
type Claim struct {
	Webhook  *Webhook
	Secrets  []card.Secret // the newest first
	Failures int           // rounds of attempts in a row that found the receiver down
	Fence    int64         // of the claim; a write with an older one is refused
	Over     bool          // nothing is to be sent for now: the webhook was disabled, or has to be left in peace for a while
}

// State is what a process that sends to a webhook notes of it.
type State struct {
	Failures       int
	FailingSince   *time.Time
	PausedUntil    time.Time      // nothing is sent before; AtOnce for no pause
	DisabledReason DisabledReason // "" if it is not to be disabled
}

// after returns what is to be noted of a webhook after a round of attempts, in the order in which they ended: the last of each delivery.
func (c Claim) after(round []Delivery, now time.Time) State {
	s := State{FailingSince: c.Webhook.FailingSince, PausedUntil: AtOnce()}
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

// tried is a delivery and the attempt that was just made at it.
type tried struct {
	Delivery Delivery
	Attempt  Attempt
}

// claimWebhooks returns up to n webhooks that have something due, those that were well first.
func (s *Sender) claimWebhooks(ctx context.Context, n int) ([]*Claim, error) {
	claims, err := s.store.ClaimWebhooks(ctx, s.cfg.Now(), n, s.ttl())
	if err != nil {
		return nil, err
	}
	good := claims[:0]
	var failed []error
	for _, c := range claims {
		if c.Secrets, err = secrets(s.vault, c.Webhook, s.cfg.Now()); err != nil {
			failed = append(failed, err) // and is tried again when the claim ends
			continue
		}
		good = append(good, c)
	}
	return good, errors.Join(failed...)
}

// dueDeliveries returns up to n deliveries that are to be attempted now, the longest due first. To a webhook that fails, every other probe is a
// retry of the oldest event that is due for one: new events would else take all of them, none would ever have its ten attempts, and the
// webhook would never be disabled.
func (s *Sender) dueDeliveries(ctx context.Context, c *Claim, n int) ([]Delivery, error) {
	if c.Failures%2 == 1 {
		if due, err := s.store.DueRetries(ctx, c.Webhook.ID, s.cfg.Now(), n); err != nil || len(due) > 0 {
			return due, err
		}
	}
	return s.store.DueDeliveries(ctx, c.Webhook.ID, s.cfg.Now(), n)
}

// saveAttempts stores a round of attempts, in the order in which they ended, and what follows from them, and prolongs the claim. What was
// asked to be sent again meanwhile stays so. It fails with ErrFenced if the claim was lost, or the webhook changed or was deleted: the
// attempts are then made again, as the webhook is now. If it only changed, those that went well are stored, and are not made again.
// It may be repeated if it was out of reach: nothing is counted or told twice.
func (s *Sender) saveAttempts(ctx context.Context, c *Claim, tried []tried) error {
	now := s.cfg.Now()
	before, after := make([]Delivery, len(tried)), make([]Delivery, len(tried))
	for i, t := range tried {
		before[i], after[i] = t.Delivery, t.Delivery.After(t.Attempt, now, rand.Float64())
	}
	state := c.after(after, now)
	err := s.store.WebhookTx(ctx, func(tx Tx) error {
		if err := tx.SaveWebhookState(ctx, c, state, now, s.ttl()); err != nil {
			return err
		}
		if err := tx.SaveDeliveries(ctx, c.Webhook.ID, before, after); err != nil || state.DisabledReason == "" {
			return err
		}
		id := uuid.Must(uuid.NewV7())
		return tx.InsertEvents(ctx, []card.Event{{ID: id, AccountID: c.Webhook.AccountID, Type: card.EventWebhookDisabled, WebhookID: c.Webhook.ID, CreatedAt: card.TimeOf(id)}})
	})
	if errors.Is(err, card.ErrFenced) {
		err = s.saveDelivered(ctx, c, before, after)
	}
	if err != nil {
		return fmt.Errorf("save attempts: %w", err)
	}
	c.Failures, c.Webhook.FailingSince = state.Failures, state.FailingSince
	c.Over = state.DisabledReason != "" || state.PausedUntil.After(now)
	if state.DisabledReason != "" {
		s.log.WarnContext(ctx, "webhook is disabled", "webhook", c.Webhook.ID, "account", c.Webhook.AccountID, "reason", state.DisabledReason)
		s.wake()
	}
	return nil
}

// saveDelivered stores those that went well after the webhook changed, unless the claim was lost too, and fails with ErrFenced in any case.
func (s *Sender) saveDelivered(ctx context.Context, c *Claim, before, after []Delivery) error {
	var was, is []Delivery
	for i, d := range after {
		if d.State == DeliveryDelivered {
			was, is = append(was, before[i]), append(is, d)
		}
	}
	err := s.store.WebhookTx(ctx, func(tx Tx) error {
		if err := tx.CheckClaim(ctx, c); err != nil {
			return err
		}
		return tx.SaveDeliveries(ctx, c.Webhook.ID, was, is)
	})
	if err == nil {
		err = card.ErrFenced
	}
	return err
}

// Prune deletes deliveries that are older than they are kept for, and not pending. It is a loop's tick.
func (s *Sender) Prune(ctx context.Context) error {
	before := s.cfg.Now().Add(-s.cfg.Retention)
	return inParts(func(n int) (int64, error) { return s.store.PruneDeliveries(ctx, before, n) })
}
