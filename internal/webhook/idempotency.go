package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// repliesLast is how long a reply is kept, and its idempotency key recognized.
const repliesLast = 48 * time.Hour

// replyField is the name of the field for encryption.
const replyField = "reply"

// KeyedRequest is a request with an idempotency key.
type KeyedRequest struct {
	AccountID uuid.UUID
	Key       string
	Request   []string // the operation and its parameters
	Replayed  bool     // set if the reply to the same request was repeated, and nothing was done
}

// hash returns a hash that is equal only for equal requests.
func (o *KeyedRequest) hash() []byte {
	sum := sha256.Sum256([]byte(strings.Join(o.Request, "\x00")))
	return sum[:]
}

// Reply is the stored reply to a keyed request.
type Reply struct {
	ID          uuid.UUID
	AccountID   uuid.UUID
	Key         string
	RequestHash []byte
	Sealed      []byte // encrypted, because it may contain a secret
	CreatedAt   time.Time
}

// Keyed returns the service for one keyed request. CreateWebhook,
// RotateWebhookSecret and Redeliver store the key in their own transaction.
// TestWebhook and RecoverWebhook store it afterwards: if the process dies in
// between, a repeated request is executed again. The error is card.ErrKeyReused
// if the account has used the key for another request.
func (s *Service) Keyed(r *KeyedRequest) *Service {
	keyed := *s
	keyed.keyed = r
	return &keyed
}

// replay reads the reply to the same request into reply, and reports whether
// there is one. The caller must have locked the account, so that concurrent
// requests with the key wait. Orders do not lock it: one may take the key
// before storeReply.
func (s *Service) replay(ctx context.Context, tx Tx, reply any) (bool, error) {
	earlier, err := tx.Reply(ctx, s.keyed.AccountID, s.keyed.Key)
	if errors.Is(err, card.ErrNoRow) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !bytes.Equal(earlier.RequestHash, s.keyed.hash()) {
		return false, card.ErrKeyReused
	}
	text, err := s.vault.Open(earlier.ID, earlier.AccountID, replyField, earlier.Sealed)
	if err == nil {
		err = json.Unmarshal([]byte(text.Reveal()), reply)
	}
	if err != nil {
		return false, fmt.Errorf("open reply %s: %w", earlier.ID, err)
	}
	s.keyed.Replayed = true
	return true, nil
}

// storeReply stores the reply if the request has a key.
func (s *Service) storeReply(ctx context.Context, tx Tx, reply any) error {
	if s.keyed == nil {
		return nil
	}
	text, err := json.Marshal(reply)
	if err != nil {
		return err
	}
	r := Reply{ID: uuid.Must(uuid.NewV7()), AccountID: s.keyed.AccountID, Key: s.keyed.Key, RequestHash: s.keyed.hash(),
		CreatedAt: s.cfg.Now()}
	if r.Sealed, err = s.vault.Seal(r.ID, r.AccountID, replyField, card.Secret(text)); err != nil {
		return fmt.Errorf("seal reply: %w", err)
	}
	err = tx.InsertReply(ctx, r)
	if errors.Is(err, card.ErrDuplicate) { // an order, which does not lock the account, took the key after replay
		return card.ErrKeyReused
	}
	return err
}

// lockAndReplay locks a webhook and, if the request has a key, its account. It
// reports whether the request was answered before: then reply is set, and w is
// nil.
func (s *Service) lockAndReplay(ctx context.Context, tx Tx, account, id uuid.UUID, reply any) (w *Webhook,
	replayed bool, err error) {
	w, err = tx.LockWebhook(ctx, account, id)
	if s.keyed == nil || err != nil && !errors.Is(err, card.ErrNoRow) {
		return w, false, err
	}
	if err := tx.LockAccount(ctx, account); err != nil {
		return nil, false, err
	}
	if replayed, errReplay := s.replay(ctx, tx, reply); replayed || errReplay != nil {
		return nil, replayed, errReplay
	}
	return w, false, err
}

// findReply is replay in its own transaction. It returns false if the request
// has no key.
func (s *Service) findReply(ctx context.Context, reply any) (replayed bool, err error) {
	if s.keyed == nil {
		return false, nil
	}
	err = s.store.WebhookTx(ctx, func(tx Tx) (err error) {
		if err := tx.LockAccount(ctx, s.keyed.AccountID); err != nil {
			return err
		}
		replayed, err = s.replay(ctx, tx, reply)
		return err
	})
	return replayed, err
}

// storeFirstReply stores the reply to an executed request if the request has a
// key. If a concurrent request was answered first, it reads that reply into
// reply instead.
func (s *Service) storeFirstReply(ctx context.Context, reply any) error {
	if s.keyed == nil {
		return nil
	}
	return s.store.WebhookTx(ctx, func(tx Tx) error {
		if err := tx.LockAccount(ctx, s.keyed.AccountID); err != nil {
			return err
		}
		if replayed, err := s.replay(ctx, tx, reply); replayed || err != nil {
			return err
		}
		return s.storeReply(ctx, tx, reply)
	})
}

// withSecret is the reply to a request that creates a secret.
type withSecret struct {
	Webhook Webhook
	Secret  string
}

func replyOf(w *Webhook, secret card.Secret) withSecret {
	shown := *w
	shown.Sealed, shown.SealedOld = nil, nil
	return withSecret{shown, secret.Reveal()}
}
