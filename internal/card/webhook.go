package card

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Webhook is an address of an account's that its events are sent to.
type Webhook struct {
	ID             uuid.UUID
	AccountID      uuid.UUID
	URL            string
	Description    string
	Types          []EventType // that are sent; empty for all
	Enabled        bool
	DisabledReason DisabledReason // "" while it is enabled
	DisabledAt     *time.Time
	FailingSince   *time.Time // the first of the attempts that have all failed since
	CreatedAt      time.Time

	Version   int64      // grows with every change that a sender has to know of; what one notes by an older one is refused
	Sealed    []byte     // the secret, encrypted
	SealedOld []byte     // the one before it, if there was one
	OldUntil  *time.Time // until when that one signs too
}

// DisabledReason says why nothing is sent to a webhook.
type DisabledReason string

const (
	DisabledByRequest DisabledReason = "request"
	DisabledGone      DisabledReason = "gone"    // the receiver answered 410
	DisabledFailing   DisabledReason = "failing" // no attempt went well for failingAtMost
)

// WebhookRequest is what a client asks for. What is nil stays as it is, or is empty in a new webhook.
type WebhookRequest struct {
	URL         *string
	Description *string
	Types       *[]EventType
	Enabled     *bool
}

// Poster sends to webhooks.
type Poster interface {
	// CheckURL returns what is wrong with an address, as a text that goes on after its name.
	CheckURL(url string) error
	// Post sends an event once, signed with each of the secrets.
	Post(ctx context.Context, url string, secrets []Secret, e Event) Attempt
}

const (
	maxWebhooks    = 16             // of an account
	secretOverlap  = 24 * time.Hour // for which the secret before the present one signs too
	examplesAtOnce = 2              // that TestWebhook sends for an account
	secretBytes    = 32
	secretPrefix   = "whsec_" // by the Standard Webhooks specification
	secretField    = "webhook_secret"
)

var errNoPoster = errors.New("this process sends to no webhooks")

// CheckWebhook returns everything that is wrong with the address of a webhook.
func (s *Service) CheckWebhook(url string) []FieldError {
	if s.cfg.Poster == nil {
		return nil
	}
	if err := s.cfg.Poster.CheckURL(url); err != nil {
		return []FieldError{{"/url", err.Error()}}
	}
	return nil
}

// CreateWebhook registers a webhook, and returns it with its secret, which is not shown again.
func (s *Service) CreateWebhook(ctx context.Context, account uuid.UUID, r WebhookRequest) (*Webhook, Secret, error) {
	if s.cfg.Poster == nil {
		return nil, "", ErrUnavailable.Because(errNoPoster)
	}
	id, at := newID()
	w := &Webhook{ID: id, AccountID: account, Enabled: true, CreatedAt: at}
	if err := s.change(w, r); err != nil {
		return nil, "", err
	}
	secret, err := s.newSecret(w)
	if err != nil {
		return nil, "", err
	}
	err = s.store.InTx(ctx, func(tx Tx) error {
		if err := tx.LockAccount(ctx, account); err != nil {
			return err
		}
		n, err := tx.CountWebhooks(ctx, account)
		if err == nil && n >= maxWebhooks {
			return ErrTooManyWebhooks
		}
		return errors.Join(err, tx.InsertWebhook(ctx, w))
	})
	if err != nil {
		return nil, "", err
	}
	return w, secret, nil
}

// newSecret gives a webhook a new secret.
func (s *Service) newSecret(w *Webhook) (Secret, error) {
	raw := make([]byte, secretBytes)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	secret := Secret(secretPrefix + base64.StdEncoding.EncodeToString(raw))
	sealed, err := s.vault.Seal(w.ID, w.AccountID, secretField, secret)
	if err != nil {
		return "", fmt.Errorf("seal secret of webhook: %w", err)
	}
	w.Sealed = sealed
	w.Version++
	return secret, nil
}

// change applies what is asked for.
func (s *Service) change(w *Webhook, r WebhookRequest) error {
	if r.URL != nil {
		if wrong := s.CheckWebhook(*r.URL); len(wrong) > 0 {
			return ErrInvalidRequest.WithFields(wrong...)
		}
		if w.URL != *r.URL {
			w.URL, w.FailingSince = *r.URL, nil
			w.Version++
		}
	}
	if r.Description != nil {
		w.Description = *r.Description
	}
	if r.Types != nil {
		w.Types = *r.Types
	}
	if r.Enabled == nil || *r.Enabled == w.Enabled {
		return nil
	}
	w.Enabled, w.DisabledReason, w.DisabledAt = *r.Enabled, "", nil
	w.Version++
	if w.Enabled {
		w.FailingSince = nil
		return nil
	}
	now := s.cfg.Now()
	w.DisabledReason, w.DisabledAt = DisabledByRequest, &now
	return nil
}

// noWebhook says whose webhook is not there.
func noWebhook(err error) error {
	if errors.Is(err, ErrNotFound) {
		return ErrNotFound.Saying("Your account has no webhook with this id.")
	}
	return err
}

// GetWebhook returns a webhook of the account.
func (s *Service) GetWebhook(ctx context.Context, account, id uuid.UUID) (*Webhook, error) {
	w, err := s.store.WebhookByID(ctx, account, id)
	return w, noWebhook(err)
}

// ListWebhooks returns the account's webhooks, oldest first.
func (s *Service) ListWebhooks(ctx context.Context, account uuid.UUID) ([]*Webhook, error) {
	return s.store.Webhooks(ctx, account)
}

// UpdateWebhook changes a webhook. What waits to be sent to one that is disabled waits until it is enabled.
func (s *Service) UpdateWebhook(ctx context.Context, account, id uuid.UUID, r WebhookRequest) (*Webhook, error) {
	var w *Webhook
	err := s.store.InTx(ctx, func(tx Tx) (err error) {
		if w, err = tx.LockWebhook(ctx, account, id); err != nil {
			return err
		}
		if err := s.change(w, r); err != nil {
			return err
		}
		if err := tx.LockAccount(ctx, account); err != nil {
			return err
		}
		return tx.SaveWebhook(ctx, w)
	})
	if err != nil {
		return nil, noWebhook(err)
	}
	s.cfg.WakeSender()
	return w, nil
}

// DeleteWebhook removes a webhook and what is kept of its deliveries.
func (s *Service) DeleteWebhook(ctx context.Context, account, id uuid.UUID) error {
	off := false
	if _, err := s.UpdateWebhook(ctx, account, id, WebhookRequest{Enabled: &off}); err != nil {
		return err // from here on nothing is sent, and no delivery is added
	}
	if err := inParts(func(n int) (int64, error) { return s.store.DeleteDeliveries(ctx, id, n) }); err != nil {
		return err
	}
	return s.store.DeleteWebhook(ctx, account, id)
}

// RotateWebhookSecret gives a webhook a new secret, which is not shown again. The one before it signs too for secretOverlap.
func (s *Service) RotateWebhookSecret(ctx context.Context, account, id uuid.UUID) (*Webhook, Secret, error) {
	var w *Webhook
	var secret Secret
	err := s.store.InTx(ctx, func(tx Tx) (err error) {
		if w, err = tx.LockWebhook(ctx, account, id); err != nil {
			return err
		}
		until := s.cfg.Now().Add(secretOverlap)
		w.SealedOld, w.OldUntil = w.Sealed, &until
		if secret, err = s.newSecret(w); err != nil {
			return err
		}
		return tx.SaveWebhook(ctx, w)
	})
	if err != nil {
		return nil, "", noWebhook(err)
	}
	return w, secret, nil
}

// secrets returns what requests to a webhook are signed with, the newest first.
func (s *Service) secrets(w *Webhook) ([]Secret, error) {
	sealed := [][]byte{w.Sealed}
	if w.OldUntil != nil && s.cfg.Now().Before(*w.OldUntil) {
		sealed = append(sealed, w.SealedOld)
	}
	all := make([]Secret, len(sealed))
	for i, text := range sealed {
		var err error
		if all[i], err = s.vault.Open(w.ID, w.AccountID, secretField, text); err != nil {
			return nil, fmt.Errorf("open secret of webhook %s: %w", w.ID, err)
		}
	}
	return all, nil
}

// TestWebhook sends an example to a webhook, and returns what came of it.
func (s *Service) TestWebhook(ctx context.Context, account, id uuid.UUID, kind EventType) (Attempt, error) {
	if s.cfg.Poster == nil {
		return Attempt{}, ErrUnavailable.Because(errNoPoster)
	}
	w, err := s.GetWebhook(ctx, account, id)
	if err != nil {
		return Attempt{}, err
	}
	secrets, err := s.secrets(w)
	if err != nil {
		return Attempt{}, err
	}
	if !s.testing.begin(account) {
		return Attempt{}, ErrUnavailable.Saying("Other examples of your account are being sent. Try again when they have been answered.")
	}
	defer s.testing.end(account)
	return s.cfg.Poster.Post(ctx, w.URL, secrets, ExampleEvent(account, kind)), nil
}

// examples counts those that are being sent, by account.
type examples struct {
	mu      sync.Mutex
	sending map[uuid.UUID]int
}

func (e *examples) begin(account uuid.UUID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sending[account] == examplesAtOnce {
		return false
	}
	if e.sending == nil {
		e.sending = map[uuid.UUID]int{}
	}
	e.sending[account]++
	return true
}

func (e *examples) end(account uuid.UUID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sending[account]--; e.sending[account] == 0 {
		delete(e.sending, account)
	}
}
