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
	disableAfter = 5 * 24 * time.Hour
	pauseAfter   = 3           // consecutive rounds with the receiver down or rejecting, until the webhook is paused
	maxPause     = time.Minute // of a webhook whose receiver is down or rejects everything
)

// Claim is the right to send to a webhook. One process has it at a time.
type Claim struct {
	Webhook *Webhook
	Secrets []card.Secret // the newest first
	// consecutive rounds of attempts that found the receiver down or rejecting,
	// and none that was accepted
	Failures int
	Fence    int64 // of the claim; the store refuses writes with an older one
	Ended    bool  // the turn is over: the webhook was disabled or paused
}

// State is what a sender stores about a webhook.
type State struct {
	Failures       int
	FailingSince   *time.Time
	PausedUntil    time.Time      // nothing is sent before; Immediately for no pause
	DisabledReason DisabledReason // "" if the webhook stays enabled
}

// after returns the state of the webhook after a round. round has the
// deliveries in the order in which their last attempts ended.
func (c Claim) after(round []Delivery, now time.Time) State {
	s := State{FailingSince: c.Webhook.FailingSince, PausedUntil: Immediately()}
	down, well, rejected, usedUp := false, false, len(round) > 0, false
	for _, d := range round {
		a := d.Attempts[len(d.Attempts)-1]
		down = down || a.Unreachable()
		rejected = rejected && a.Rejected()
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
	if (down || rejected) && !well {
		s.Failures = c.Failures + 1
	}
	if s.Failures >= pauseAfter {
		s.PausedUntil = now.Add(min(time.Second<<min(s.Failures-pauseAfter, 10), maxPause))
	}
	// Only once an event has used up its attempts: after a long time without
	// events, one failure says little.
	if usedUp && s.FailingSince != nil && now.Sub(*s.FailingSince) > disableAfter && s.DisabledReason == "" {
		s.DisabledReason = DisabledFailing
	}
	return s
}

// attempted is a delivery with the attempt that was just made.
type attempted struct {
	Delivery Delivery
	Attempt  Attempt
}

// claimWebhooks claims up to n webhooks that have due deliveries, those with
// the fewest failures first.
func (s *Sender) claimWebhooks(ctx context.Context, n int) ([]*Claim, error) {
	claims, err := s.store.ClaimWebhooks(ctx, s.cfg.Now(), n, s.ttl())
	if err != nil {
		return nil, err
	}
	good := claims[:0]
	var failed []error
	for _, c := range claims {
		if c.Secrets, err = secrets(s.vault, c.Webhook, s.cfg.Now()); err != nil {
			failed = append(failed, err) // it is attempted again when the claim expires
			if errors.Is(err, card.ErrUnavailable) {
				// its key may be there at any moment, here or in another
				// process
				failed = append(failed, s.store.ReleaseWebhook(ctx, c))
			}
			continue
		}
		good = append(good, c)
	}
	return good, errors.Join(failed...)
}

// dueDeliveries returns up to n deliveries to attempt now, the longest due
// first. If the receiver is down, every other round retries the oldest event
// that is due for a retry. Otherwise new events would take all attempts, no
// event would ever use up its ten, and the webhook would never be disabled.
func (s *Sender) dueDeliveries(ctx context.Context, c *Claim, n int) ([]Delivery, error) {
	if c.Failures%2 == 1 {
		if due, err := s.store.DueRetries(ctx, c.Webhook.ID, s.cfg.Now(), n); err != nil || len(due) > 0 {
			return due, err
		}
	}
	return s.store.DueDeliveries(ctx, c.Webhook.ID, s.cfg.Now(), n)
}

// saveAttempts stores a round of attempts, given in the order in which they
// ended, with the webhook's new state, and prolongs the claim. A delivery that
// a client asked to repeat meanwhile stays due.
//
// The error is card.ErrFenced if the claim was lost, or the webhook changed or
// was deleted. The attempts are then made again, to the webhook as it is now.
// But if it only changed, successful attempts are stored and not repeated.
// After card.ErrUnavailable the caller may call saveAttempts again: nothing is
// counted twice, and no event is inserted twice.
func (s *Sender) saveAttempts(ctx context.Context, c *Claim, attempted []attempted) error {
	now := s.cfg.Now()
	before, after := make([]Delivery, len(attempted)), make([]Delivery, len(attempted))
	for i, t := range attempted {
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
		return tx.InsertEvents(ctx,
			[]card.Event{
				{ID: id, AccountID: c.Webhook.AccountID, Type: card.EventWebhookDisabled, WebhookID: c.Webhook.ID,
					CreatedAt: card.TimeOf(id)}})
	})
	if errors.Is(err, card.ErrFenced) {
		err = s.saveDelivered(ctx, c, before, after)
	}
	if err != nil {
		return fmt.Errorf("save attempts: %w", err)
	}
	c.Failures, c.Webhook.FailingSince = state.Failures, state.FailingSince
	c.Ended = state.DisabledReason != "" || state.PausedUntil.After(now)
	if state.DisabledReason != "" {
		s.log.WarnContext(ctx, "webhook is disabled", "webhook", c.Webhook.ID, "account", c.Webhook.AccountID, "reason",
			state.DisabledReason)
		s.wake()
	}
	return nil
}

// saveDelivered stores the successful deliveries after the webhook changed,
// unless the claim was lost too. On success it returns card.ErrFenced, for the
// caller to pass on.
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

// Prune deletes deliveries that are not pending and older than
// Config.Retention, and replies that are older than repliesLast. It is the Tick
// of its own loop.
func (s *Sender) Prune(ctx context.Context) error {
	now := s.cfg.Now()
	return errors.Join(
		inBatches(func(n int) (int64, error) { return s.store.PruneDeliveries(ctx, now.Add(-s.cfg.Retention), n) }),
		inBatches(func(n int) (int64, error) { return s.store.PruneReplies(ctx, now.Add(-repliesLast), n) }))
}
