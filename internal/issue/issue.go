// Package issue leads from a paid card to its credentials.
//
// It may import package card only. The intent to issue a card is committed before anybody is asked, with a key that is the card's uuid:
// after a crash the next Tick asks with the same key and gets the same card.
package issue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/cardmint/cardmint/internal/card"
)

const (
	issueAtOnce  = 16               // cards that the issuer is asked for at the same time; the smallest batch
	issueBatch   = 512              // the largest: cards that are claimed at once, and stored together
	issueQuick   = time.Second      // a full batch that took less is followed by a larger one
	issueTimeout = 15 * time.Second // for one answer of the issuer
	issueAsking  = 3 * time.Second  // after this no further card of the batch is asked for
	issueGrace   = 25 * time.Second // for a batch to end, also when the process is asked to
	issueClaim   = 2 * time.Minute  // longer than an attempt can take
	longestWait  = 10 * time.Minute // between two attempts
)

// Store keeps intents. Every method outside Tx is harmless when it runs twice. A store out of reach is card.ErrUnavailable.
type Store interface {
	// IssueTx runs f in a transaction; f may run again if the transaction failed to serialise, so it must do nothing else.
	// A lost reply to COMMIT is an error although the transaction may have happened: what f writes is found by its keys.
	IssueTx(ctx context.Context, f func(Tx) error) error

	// ClaimIntents hands out up to n intents whose card is paid and whose time has come, each for ttl. It gives up with
	// card.ErrUnavailable if it has to wait for more than seconds.
	ClaimIntents(ctx context.Context, n int, ttl time.Duration) ([]Intent, error)
	// CardsByUUID returns cards of whatever account, by uuid.
	CardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error)
	// DeferIntent puts an intent off for a while; card.ErrFenced if the claim was lost.
	DeferIntent(ctx context.Context, i Intent, wait time.Duration, reason string) error
	// ParkIntent leaves an intent to an operator; card.ErrFenced if the claim was lost.
	ParkIntent(ctx context.Context, i Intent, reason string) error
}

// Tx is what happens within one transaction.
type Tx interface {
	// LockCardsByUUID returns those of the cards that exist, locked, by uuid.
	LockCardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error)
	// SaveIssued ends the intents and stores the credentials. It fails with card.ErrFenced if a claim was lost, with card.ErrDuplicate
	// if another card has the same number.
	SaveIssued(ctx context.Context, made []Issued) error
	// InsertEvents gives the events their Seq, and makes a delivery to each enabled webhook that wants them.
	InsertEvents(ctx context.Context, es []card.Event) error
}

// Vault encrypts what must not be read from a database.
type Vault interface {
	// SealCredentials encrypts each field on its own, tied to the card.
	SealCredentials(id, account uuid.UUID, c card.Credentials) (card.Sealed, error)
	// Digest returns a keyed hash; label keeps hashes for different purposes apart.
	Digest(label string, data []byte) ([]byte, error)
}

// Supplier makes cards. The same key always yields the same card, however often it is asked.
type Supplier interface {
	// Issue returns card.ErrDeclined if no card was made and none will be. After any other error the card may have been made:
	// it is asked for again with the same key.
	Issue(ctx context.Context, key string, usd card.USD) (card.Credentials, error)
}

// Issuer has paid cards made. It is safe for concurrent use, also by several processes.
type Issuer struct {
	store    Store
	vault    Vault
	supplier Supplier
	wake     func()
	log      *slog.Logger
	now      func() time.Time
	batch    atomic.Int32 // cards of the next batch
}

// New returns an issuer. wake is called when there are events to send.
func New(store Store, vault Vault, supplier Supplier, wake func(), log *slog.Logger, now func() time.Time) *Issuer {
	return &Issuer{store: store, vault: vault, supplier: supplier, wake: wake, log: log, now: now}
}

var errUnpaidAgain = errors.New("payment left the chain while the card was made")

// Tick issues every card that is due.
func (s *Issuer) Tick(ctx context.Context) error {
	for {
		if n, err := s.IssueDue(ctx); n == 0 || err != nil {
			return err
		}
	}
}

// IssueDue makes cards whose payment is confirmed, up to a batch, and returns how many it worked on. Several processes may
// call it at once: each intent is claimed by one, and a claim that was lost can't write any more.
//
// The intent was committed before the issuer is asked, with a key that is the card's uuid; credentials, status and event are
// one commit, of as many cards as were made together. Whatever goes wrong in between, the next attempt asks with the same key and
// gets the same card.
//
// Cards of a batch wait for each other, so a batch is small, unless there is much to do and the issuer is quick.
func (s *Issuer) IssueDue(ctx context.Context) (int, error) {
	batch, started := int(max(issueAtOnce, s.batch.Load())), time.Now()
	intents, err := s.store.ClaimIntents(ctx, batch, issueClaim)
	if err != nil || len(intents) == 0 {
		return 0, err
	}
	defer func() {
		next := issueAtOnce
		if len(intents) == batch && time.Since(started) < issueQuick {
			next = min(2*batch, issueBatch)
		}
		s.batch.Store(int32(next))
	}()
	// What was claimed is finished, so that it need not wait for the claim to run out.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), issueGrace)
	defer cancel()
	ids := make([]uuid.UUID, len(intents))
	for i, intent := range intents {
		ids[i] = intent.CardUUID
	}
	cards, err := s.store.CardsByUUID(ctx, ids)
	if err != nil {
		return len(intents), fmt.Errorf("issue: %w", err)
	}
	made, failed := s.askIssuer(ctx, intents, cards)
	return len(intents), errors.Join(failed, s.storeIssued(ctx, made))
}

// askIssuer has the cards made, and deals with the intents of those that were not.
func (s *Issuer) askIssuer(ctx context.Context, intents []Intent, cards []*card.Card) ([]madeCard, error) {
	byID := make(map[uuid.UUID]*card.Card, len(cards))
	for _, c := range cards {
		byID[c.UUID] = c
	}
	made := make([]*madeCard, len(intents))
	var group errgroup.Group
	group.SetLimit(issueAtOnce)
	started := time.Now()
	for i, intent := range intents {
		group.Go(func() (err error) {
			if time.Since(started) > issueAsking {
				return s.store.DeferIntent(ctx, intent, 0, "the issuer is slow")
			}
			made[i], err = s.ask(ctx, intent, byID[intent.CardUUID])
			return err
		})
	}
	err := group.Wait()
	var all []madeCard
	for _, m := range made {
		if m != nil {
			all = append(all, *m)
		}
	}
	return all, err
}

// madeCard is a card that the issuer made and that is not stored yet.
type madeCard struct {
	card   *card.Card
	issued Issued
}

// ask has one card made. It returns nil if it was not.
func (s *Issuer) ask(ctx context.Context, intent Intent, c *card.Card) (*madeCard, error) {
	if c == nil || c.State != card.Paid {
		return nil, s.postpone(ctx, intent, unpaidAgain)
	}
	asking, cancel := context.WithTimeout(ctx, issueTimeout)
	defer cancel()
	credentials, err := s.supplier.Issue(asking, c.UUID.String(), c.USD)
	switch {
	case errors.Is(err, card.ErrDeclined):
		return nil, s.park(ctx, intent, "declined by the issuer")
	case err != nil:
		// Unknown: the card may have been made. The same key is asked again.
		s.log.WarnContext(ctx, "issuer gave no card", "card", c.UUID, "attempt", intent.Attempts, "error", err)
		return nil, s.postpone(ctx, intent, "the issuer gave no clear answer")
	}
	if reason := credentials.Flaw(s.now()); reason != "" {
		return nil, s.park(ctx, intent, reason)
	}
	sealed, err := s.vault.SealCredentials(c.UUID, c.AccountID, credentials)
	if err != nil {
		return nil, fmt.Errorf("issue %s: %w", c.UUID, err)
	}
	number, err := s.vault.Digest("card number", []byte(credentials.CardNumber.Reveal()))
	if err != nil {
		return nil, fmt.Errorf("issue %s: %w", c.UUID, err)
	}
	return &madeCard{c, Issued{Intent: intent, Sealed: sealed, NumberHash: number}}, nil
}

// storeIssued stores cards together, or each alone if that fails, so that one can't keep the others back.
func (s *Issuer) storeIssued(ctx context.Context, made []madeCard) error {
	if len(made) == 0 {
		return nil
	}
	err := s.commitIssued(ctx, made)
	if err == nil {
		s.wake()
		return nil
	}
	if len(made) > 1 {
		var failed []error
		for i := range made {
			failed = append(failed, s.storeIssued(ctx, made[i:i+1]))
		}
		return errors.Join(failed...)
	}
	intent := made[0].issued.Intent
	switch {
	case errors.Is(err, errUnpaidAgain):
		return s.postpone(ctx, intent, unpaidAgain) // the same key will yield the same card once the money is back
	case errors.Is(err, card.ErrDuplicate):
		return s.park(ctx, intent, "the issuer gave a card that another order has already")
	case errors.Is(err, card.ErrFenced):
		s.log.InfoContext(ctx, "the making of a card was ended already, or taken over by another process", "card", intent.CardUUID)
		return nil
	}
	return fmt.Errorf("issue %s: %w", intent.CardUUID, err)
}

func (s *Issuer) commitIssued(ctx context.Context, made []madeCard) error {
	ids, issued, events := make([]uuid.UUID, len(made)), make([]Issued, len(made)), make([]card.Event, len(made))
	for i, m := range made {
		ids[i], issued[i] = m.card.UUID, m.issued
	}
	return s.store.IssueTx(ctx, func(tx Tx) error {
		now, err := tx.LockCardsByUUID(ctx, ids)
		if err != nil {
			return err
		}
		for _, c := range now {
			if c.State != card.Paid {
				return errUnpaidAgain
			}
		}
		if err := tx.SaveIssued(ctx, issued); err != nil {
			return err
		}
		for i, m := range made {
			events[i] = card.NewEvent(uuid.Must(uuid.NewV7()), m.card, card.EventGenerated, card.Generated, card.Paid)
		}
		return tx.InsertEvents(ctx, events)
	})
}

const unpaidAgain = "the payment is no longer confirmed"

// postpone puts an attempt off.
func (s *Issuer) postpone(ctx context.Context, intent Intent, reason string) error {
	return s.store.DeferIntent(ctx, intent, backoff(intent.Attempts), reason)
}

// park leaves a card to an operator: it stays paid, and no further attempt is made.
func (s *Issuer) park(ctx context.Context, intent Intent, reason string) error {
	s.log.ErrorContext(ctx, "card needs an operator", "card", intent.CardUUID, "reason", reason)
	return s.store.ParkIntent(ctx, intent, reason)
}

// backoff returns how long to wait after the n-th attempt: it doubles from a second, with full jitter in its upper half.
func backoff(n int) time.Duration {
	wait := min(time.Second<<min(n-1, 20), longestWait)
	return wait/2 + rand.N(wait/2+1)
}
