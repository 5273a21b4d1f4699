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

// repliesLast is how long a reply is kept, and so how long its idempotency key
// is recognised.
const repliesLast = 48 * time.Hour

// replyField names a reply where it is encrypted.
const replyField = "reply"

// Once is a request with an idempotency key.
type Once struct {
	AccountID uuid.UUID
	Key       string
	Request   []string // the operation and everything that it was asked for
	Replayed  bool     // set if the same request was answered before: its reply is repeated, and nothing else happens
}

// hash returns the same hash for the same request.
func (o *Once) hash() []byte {
	sum := sha256.Sum256([]byte(strings.Join(o.Request, "\x00")))
	return sum[:]
}

// Reply is what was replied to a request with an idempotency key.
type Reply struct {
	ID          uuid.UUID
	AccountID   uuid.UUID
	Key         string
	RequestHash []byte
	Sealed      []byte // encrypted, because it may have a secret
	CreatedAt   time.Time
}

// Once returns the service for one request with an idempotency key. Of its
// methods, CreateWebhook, RotateWebhookSecret and Redeliver store the key in
// the transaction that does what was asked. TestWebhook and RecoverWebhook
// store it afterwards: if the process dies in between, they do it again when
// they are asked again. The error is card.ErrKeyReused if the account has used
// the key for another request.
func (s *Service) Once(o *Once) *Service {
	keyed := *s
	keyed.once = o
	return &keyed
}

// replay reads the reply to the same request into reply, and reports whether
// there is one. The caller must have locked the account, so that the same
// request does not happen twice at the same time. Orders do not lock it: they
// may still take the key before keep.
func (s *Service) replay(ctx context.Context, tx Tx, reply any) (bool, error) {
	earlier, err := tx.Reply(ctx, s.once.AccountID, s.once.Key)
	if errors.Is(err, card.ErrNoRow) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !bytes.Equal(earlier.RequestHash, s.once.hash()) {
		return false, card.ErrKeyReused
	}
	text, err := s.vault.Open(earlier.ID, earlier.AccountID, replyField, earlier.Sealed)
	if err == nil {
		err = json.Unmarshal([]byte(text.Reveal()), reply)
	}
	if err != nil {
		return false, fmt.Errorf("open reply %s: %w", earlier.ID, err)
	}
	s.once.Replayed = true
	return true, nil
}

// keep stores the reply to a request, if it has a key.
func (s *Service) keep(ctx context.Context, tx Tx, reply any) error {
	if s.once == nil {
		return nil
	}
	text, err := json.Marshal(reply)
	if err != nil {
		return err
	}
	r := Reply{ID: uuid.Must(uuid.NewV7()), AccountID: s.once.AccountID, Key: s.once.Key, RequestHash: s.once.hash(),
		CreatedAt: s.cfg.Now()}
	if r.Sealed, err = s.vault.Seal(r.ID, r.AccountID, replyField, card.Secret(text)); err != nil {
		return fmt.Errorf("seal reply: %w", err)
	}
	err = tx.InsertReply(ctx, r)
	if errors.Is(err, card.ErrDuplicate) { // an order took the key after replay, which does not wait for accounts
		return card.ErrKeyReused
	}
	return err
}

// lockOnce locks a webhook and, if the request has a key, its account. It
// reports whether the same request was answered before; then reply is set, and
// the webhook may be gone.
func (s *Service) lockOnce(ctx context.Context, tx Tx, account, id uuid.UUID, reply any) (w *Webhook, replayed bool,
	err error) {
	w, err = tx.LockWebhook(ctx, account, id)
	if s.once == nil || err != nil && !errors.Is(err, card.ErrNoRow) {
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

// earlier is replay in a transaction of its own. It returns false if the
// request has no key.
func (s *Service) earlier(ctx context.Context, reply any) (replayed bool, err error) {
	if s.once == nil {
		return false, nil
	}
	err = s.store.WebhookTx(ctx, func(tx Tx) (err error) {
		if err := tx.LockAccount(ctx, s.once.AccountID); err != nil {
			return err
		}
		replayed, err = s.replay(ctx, tx, reply)
		return err
	})
	return replayed, err
}

// keepFirst stores the reply to a request that was done, if it has a key. If
// the same request was answered at the same time, it reads that reply into
// reply instead.
func (s *Service) keepFirst(ctx context.Context, reply any) error {
	if s.once == nil {
		return nil
	}
	return s.store.WebhookTx(ctx, func(tx Tx) error {
		if err := tx.LockAccount(ctx, s.once.AccountID); err != nil {
			return err
		}
		if replayed, err := s.replay(ctx, tx, reply); replayed || err != nil {
			return err
		}
		return s.keep(ctx, tx, reply)
	})
}

// withSecret is the reply to a request that makes a secret.
type withSecret struct {
	Webhook Webhook
	Secret  string
}

func replyOf(w *Webhook, secret card.Secret) withSecret {
	shown := *w
	shown.Sealed, shown.SealedOld = nil, nil
	return withSecret{shown, secret.Reveal()}
}
