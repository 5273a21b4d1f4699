// Package webhook delivers events about cards to clients, by webhooks and as a
// feed.
//
// It may import packages card, limit, outbound, failpoint and trace. Each
// delivery is a row that is committed together with its event. If a process
// crashes during an attempt, another one repeats the attempt when the claim
// expires. So every event arrives at least once, and may arrive repeatedly.
package webhook

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/limit"
	"github.com/cardmint/cardmint/internal/trace"
)

// Webhook is a URL that receives an account's events.
type Webhook struct {
	ID             uuid.UUID
	AccountID      uuid.UUID
	URL            string
	Description    string
	Types          []card.EventType // empty for all types
	Enabled        bool
	DisabledReason DisabledReason // "" while it is enabled
	DisabledAt     *time.Time
	FailingSince   *time.Time // first failed attempt since the last success; nil if there is none
	CreatedAt      time.Time

	// Version increases with every change that affects senders. The store
	// rejects a sender's state of an older version.
	Version   int64
	Sealed    []byte     // the secret, encrypted
	SealedOld []byte     // the previous secret, encrypted, if there was one
	OldUntil  *time.Time // when the previous secret stops signing
}

// DisabledReason is why nothing is sent to a webhook.
type DisabledReason string

const (
	DisabledByRequest DisabledReason = "request"
	DisabledGone      DisabledReason = "gone"    // the receiver responded with status 410
	DisabledFailing   DisabledReason = "failing" // no attempt succeeded for disableAfter
)

// Request contains a client's settings of a webhook. A nil field keeps its
// value, or is empty in a new webhook.
type Request struct {
	URL         *string
	Description *string
	Types       *[]card.EventType
	Enabled     *bool
}

const (
	maxWebhooks           = 16  // per account
	maxExamples           = 128 // that TestWebhook sends concurrently
	maxExamplesPerAccount = 2
	defaultRate           = 200
)

// Config configures webhooks and their sender.
type Config struct {
	// Retention is how long deliveries are kept. Defaults to 30 days; at least
	// 7 days.
	Retention time.Duration
	// Rate is the most attempts per second at one webhook, so that a receiver
	// is not overrun after an outage. It also limits the attempts of an account
	// at one network address. Defaults to 200.
	Rate float64
	// Concurrency is the most webhooks that a sender serves concurrently.
	// Defaults to 512.
	Concurrency int
	// Observe is called with each attempt. It must be safe for concurrent use,
	// and quick. Defaults to a no-op.
	Observe func(Attempt)
	// Tracer starts a span for each attempt. Defaults to none.
	Tracer *trace.Tracer
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Validate fills in the defaults, and returns an error if a field is not valid.
func (c *Config) Validate() error {
	if c.Retention == 0 {
		c.Retention = 30 * 24 * time.Hour
	}
	if c.Rate == 0 {
		c.Rate = defaultRate
	}
	if c.Concurrency == 0 {
		c.Concurrency = 512
	}
	if c.Observe == nil {
		c.Observe = func(Attempt) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case c.Retention < 7*24*time.Hour:
		return errors.New("deliveries must be kept for 7 days at least")
	case c.Rate < 0 || c.Concurrency < 0:
		return errors.New("the rate and the number of webhooks at once must be positive")
	}
	return nil
}

// Service manages the webhooks of accounts, and lists their events. It is safe
// for concurrent use.
type Service struct {
	store   Store
	vault   Vault
	poster  Poster
	wake    func()
	cfg     Config
	testing *limit.Shares
	waiting *waiters
	keyed   *KeyedRequest // nil unless the request has an idempotency key
}

// New returns a service. poster may be nil; then no webhook can be registered.
// wake is called when there are events to send. New returns an error if cfg is
// not valid.
func New(store Store, vault Vault, poster Poster, wake func(), cfg Config) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Service{store: store, vault: vault, poster: poster, wake: wake, cfg: cfg,
		testing: limit.NewShares(maxExamples, maxExamplesPerAccount), waiting: &waiters{}}, nil
}

var errNoPoster = errors.New("this process sends to no webhooks")

// CheckWebhook returns what is wrong with the URL of a webhook; nil if it is
// valid, or if there is no poster to ask.
func (s *Service) CheckWebhook(url string) []card.FieldError {
	if s.poster == nil {
		return nil
	}
	if err := s.poster.CheckURL(url); err != nil {
		return []card.FieldError{{Pointer: "/url", Detail: err.Error()}}
	}
	return nil
}

// CreateWebhook registers a webhook, and returns it with its secret, which
// can't be read again. The error is card.ErrTooManyWebhooks if the account has
// maxWebhooks, and card.ErrInvalidRequest if the URL is not allowed.
func (s *Service) CreateWebhook(ctx context.Context, account uuid.UUID, r Request) (*Webhook, card.Secret, error) {
	if s.poster == nil {
		return nil, "", card.ErrUnavailable.WithCause(errNoPoster)
	}
	id := uuid.Must(uuid.NewV7())
	w := &Webhook{ID: id, AccountID: account, Enabled: true, CreatedAt: card.TimeOf(id)}
	if err := s.validate(r); err != nil {
		return nil, "", err
	}
	s.change(w, r)
	secret, err := s.newSecret(w)
	if err != nil {
		return nil, "", err
	}
	err = s.store.WebhookTx(ctx, func(tx Tx) error {
		if err := tx.LockAccount(ctx, account); err != nil {
			return err
		}
		if s.keyed != nil {
			var reply withSecret
			if replayed, err := s.replay(ctx, tx, &reply); replayed || err != nil {
				w, secret = &reply.Webhook, card.Secret(reply.Secret)
				return err
			}
		}
		n, err := tx.CountWebhooks(ctx, account)
		if err == nil && n >= maxWebhooks {
			return card.ErrTooManyWebhooks
		}
		if err := errors.Join(err, tx.InsertWebhook(ctx, w)); err != nil {
			return err
		}
		return s.storeReply(ctx, tx, replyOf(w, secret))
	})
	if err != nil {
		return nil, "", err
	}
	return w, secret, nil
}

// validate returns card.ErrInvalidRequest if the URL is not allowed.
func (s *Service) validate(r Request) error {
	if r.URL == nil {
		return nil
	}
	if errs := s.CheckWebhook(*r.URL); len(errs) > 0 {
		return card.ErrInvalidRequest.WithFields(errs...)
	}
	return nil
}

// change applies r, which is valid, to w.
func (s *Service) change(w *Webhook, r Request) {
	if r.URL != nil && w.URL != *r.URL {
		w.URL, w.FailingSince = *r.URL, nil
		w.Version++
	}
	if r.Description != nil {
		w.Description = *r.Description
	}
	if r.Types != nil {
		w.Types = *r.Types
	}
	if r.Enabled == nil || *r.Enabled == w.Enabled {
		return
	}
	w.Enabled, w.DisabledReason, w.DisabledAt = *r.Enabled, "", nil
	w.Version++
	if w.Enabled {
		w.FailingSince = nil
		return
	}
	now := s.cfg.Now()
	w.DisabledReason, w.DisabledAt = DisabledByRequest, &now
}

// noWebhook turns card.ErrNoRow into card.ErrNotFound, with a message for the
// client. Other errors stay as they are.
func noWebhook(err error) error {
	if errors.Is(err, card.ErrNoRow) {
		return card.ErrNotFound.WithMessage("Your account has no webhook with this id.")
	}
	return err
}

// GetWebhook returns a webhook of the account. The error is card.ErrNotFound if
// the account has no such webhook.
func (s *Service) GetWebhook(ctx context.Context, account, id uuid.UUID) (*Webhook, error) {
	w, err := s.store.WebhookByID(ctx, account, id)
	return w, noWebhook(err)
}

// ListWebhooks returns the account's webhooks, oldest first.
func (s *Service) ListWebhooks(ctx context.Context, account uuid.UUID) ([]*Webhook, error) {
	return s.store.Webhooks(ctx, account)
}

// UpdateWebhook changes a webhook, and returns it. While a webhook is disabled
// its pending deliveries wait. The error is card.ErrInvalidRequest if the URL
// is not allowed.
func (s *Service) UpdateWebhook(ctx context.Context, account, id uuid.UUID, r Request) (*Webhook, error) {
	if err := s.validate(r); err != nil {
		return nil, err
	}
	var w *Webhook
	err := s.store.WebhookTx(ctx, func(tx Tx) (err error) {
		if w, err = tx.LockWebhook(ctx, account, id); err != nil {
			return err
		}
		s.change(w, r)
		if err := tx.LockAccount(ctx, account); err != nil {
			return err
		}
		return tx.SaveWebhook(ctx, w)
	})
	if err != nil {
		return nil, noWebhook(err)
	}
	s.wake()
	return w, nil
}

// DeleteWebhook deletes a webhook and its deliveries.
func (s *Service) DeleteWebhook(ctx context.Context, account, id uuid.UUID) error {
	off := false
	if _, err := s.UpdateWebhook(ctx, account, id, Request{Enabled: &off}); err != nil {
		return err // once disabled, the webhook gets no more requests and no more deliveries
	}
	if err := inBatches(func(n int) (int64, error) { return s.store.DeleteDeliveries(ctx, id, n) }); err != nil {
		return err
	}
	return s.store.DeleteWebhook(ctx, account, id)
}

// RotateWebhookSecret gives a webhook a new secret, and returns it; it can't be
// read again. The previous secret signs too for secretOverlap.
func (s *Service) RotateWebhookSecret(ctx context.Context, account, id uuid.UUID) (*Webhook, card.Secret, error) {
	var w *Webhook
	var secret card.Secret
	err := s.store.WebhookTx(ctx, func(tx Tx) (err error) {
		var reply withSecret
		var replayed bool
		if w, replayed, err = s.lockAndReplay(ctx, tx, account, id, &reply); err != nil {
			return err
		}
		if replayed {
			w, secret = &reply.Webhook, card.Secret(reply.Secret)
			return nil
		}
		until := s.cfg.Now().Add(secretOverlap)
		w.SealedOld, w.OldUntil = w.Sealed, &until
		if secret, err = s.newSecret(w); err != nil {
			return err
		}
		if err := tx.SaveWebhook(ctx, w); err != nil {
			return err
		}
		return s.storeReply(ctx, tx, replyOf(w, secret))
	})
	if err != nil {
		return nil, "", noWebhook(err)
	}
	return w, secret, nil
}

// postponed returns the error for an example that exceeds the limit of its
// address.
func postponed(a Attempt) error {
	err := card.ErrUnavailable.WithMessage(
		"Too many requests have been sent to the address of this webhook. Try again in a few seconds.")
	err.RetryAfter = max(a.Postponed, time.Second)
	return err
}

// TestWebhook sends an example event to a webhook, and returns the attempt. The
// error is card.ErrUnavailable while too many examples are being sent.
func (s *Service) TestWebhook(ctx context.Context, account, id uuid.UUID, kind card.EventType) (Attempt, error) {
	if s.poster == nil {
		return Attempt{}, card.ErrUnavailable.WithCause(errNoPoster)
	}
	var reply Attempt
	if replayed, err := s.findReply(ctx, &reply); replayed || err != nil {
		return reply, err
	}
	w, err := s.GetWebhook(ctx, account, id)
	if err != nil {
		return Attempt{}, err
	}
	secrets, err := secrets(s.vault, w, s.cfg.Now())
	if err != nil {
		return Attempt{}, err
	}
	if !s.testing.Acquire(account) {
		return Attempt{},
			card.ErrUnavailable.WithMessage("Other examples are being sent. Try again when they have been answered.")
	}
	defer s.testing.Release(account)
	reply = s.poster.Post(ctx, w.URL, secrets,
		card.ExampleEvent(uuid.Must(uuid.NewV7()), account, uuid.Must(uuid.NewV7()), kind))
	if reply.Postponed > 0 {
		return Attempt{}, postponed(reply)
	}
	return reply, s.storeFirstReply(ctx, &reply)
}
