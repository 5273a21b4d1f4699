package card

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
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

// IssueDue makes cards whose payment is confirmed, up to a batch, and returns how many it worked on. Several processes may
// call it at once: each intent is claimed by one, and a claim that was lost can't write any more.
//
// The intent was committed before the issuer is asked, with a key that is the card's uuid; credentials, status and event are
// one commit, of as many cards as were made together. Whatever goes wrong in between, the next attempt asks with the same key and
// gets the same card.
//
// Cards of a batch wait for each other, so a batch is small, unless there is much to do and the issuer is quick.
func (s *Service) IssueDue(ctx context.Context) (int, error) {
	batch, started := int(max(issueAtOnce, s.issueBatch.Load())), time.Now()
	intents, err := s.store.ClaimIntents(ctx, batch, issueClaim)
	if err != nil || len(intents) == 0 {
		return 0, err
	}
	defer func() {
		next := issueAtOnce
		if len(intents) == batch && time.Since(started) < issueQuick {
			next = min(2*batch, issueBatch)
		}
		s.issueBatch.Store(int32(next))
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
func (s *Service) askIssuer(ctx context.Context, intents []Intent, cards []*Card) ([]madeCard, error) {
	byID := make(map[uuid.UUID]*Card, len(cards))
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
	card   *Card
	issued Issued
}

// ask has one card made. It returns nil if it was not.
func (s *Service) ask(ctx context.Context, intent Intent, c *Card) (*madeCard, error) {
	if c == nil || c.State != Paid {
		return nil, s.postpone(ctx, intent, unpaidAgain)
	}
	asking, cancel := context.WithTimeout(ctx, issueTimeout)
	defer cancel()
	credentials, err := s.issuer.Issue(asking, c.UUID.String(), c.USD)
	switch {
	case errors.Is(err, ErrDeclined):
		return nil, s.park(ctx, intent, "declined by the issuer")
	case err != nil:
		// Unknown: the card may have been made. The same key is asked again.
		slog.WarnContext(ctx, "issuer gave no card", "card", c.UUID, "attempt", intent.Attempts, "error", err)
		return nil, s.postpone(ctx, intent, "the issuer gave no clear answer")
	}
	if reason := doubt(credentials, s.cfg.Now()); reason != "" {
		return nil, s.park(ctx, intent, reason)
	}
	sealed, err := s.seal(c.UUID, c.AccountID, credentials)
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
func (s *Service) storeIssued(ctx context.Context, made []madeCard) error {
	if len(made) == 0 {
		return nil
	}
	err := s.commitIssued(ctx, made)
	if err == nil {
		s.cfg.WakeSender()
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
	case errors.Is(err, ErrDuplicate):
		return s.park(ctx, intent, "the issuer gave a card that another order has already")
	case errors.Is(err, ErrFenced):
		slog.InfoContext(ctx, "the making of a card was ended already, or taken over by another process", "card", intent.CardUUID)
		return nil
	}
	return fmt.Errorf("issue %s: %w", intent.CardUUID, err)
}

func (s *Service) commitIssued(ctx context.Context, made []madeCard) error {
	ids, issued, events := make([]uuid.UUID, len(made)), make([]Issued, len(made)), make([]Event, len(made))
	for i, m := range made {
		ids[i], issued[i] = m.card.UUID, m.issued
	}
	return s.store.InTx(ctx, func(tx Tx) error {
		now, err := tx.LockCardsByUUID(ctx, ids)
		if err != nil {
			return err
		}
		for _, c := range now {
			if c.State != Paid {
				return errUnpaidAgain
			}
		}
		if err := tx.SaveIssued(ctx, issued); err != nil {
			return err
		}
		for i, m := range made {
			events[i] = NewEvent(uuid.Must(uuid.NewV7()), m.card, EventGenerated, Generated, Paid)
		}
		return tx.InsertEvents(ctx, events)
	})
}

const unpaidAgain = "the payment is no longer confirmed"

// postpone puts an attempt off.
func (s *Service) postpone(ctx context.Context, intent Intent, reason string) error {
	return s.store.DeferIntent(ctx, intent, backoff(intent.Attempts), reason)
}

// park leaves a card to an operator: it stays paid, and no further attempt is made.
func (s *Service) park(ctx context.Context, intent Intent, reason string) error {
	slog.ErrorContext(ctx, "card needs an operator", "card", intent.CardUUID, "reason", reason)
	return s.store.ParkIntent(ctx, intent, reason)
}

// backoff returns how long to wait after the n-th attempt: it doubles from a second, with full jitter in its upper half.
func backoff(n int) time.Duration {
	wait := min(time.Second<<min(n-1, 20), longestWait)
	return wait/2 + rand.N(wait/2+1)
}

// doubt returns why a card that an issuer made must not be given out, or "".
func doubt(c Credentials, now time.Time) string {
	number := c.CardNumber.Reveal()
	if len(number) < 12 || len(number) > 19 || strings.Trim(number, "0123456789") != "" ||
		LuhnDigit(number[:len(number)-1]) != number[len(number)-1:] {
		return "the issuer gave a card number that is not well formed"
	}
	month, err := time.Parse("01/06", c.ExpirationDate.Reveal())
	if err != nil || !now.Before(month.AddDate(0, 1, 0)) {
		return "the issuer gave a card that is expired, or whose expiration date can't be read"
	}
	if code := c.SecurityCode.Reveal(); len(code) < 3 || len(code) > 4 || strings.Trim(code, "0123456789") != "" {
		return "the issuer gave a security code that is not well formed"
	}
	if page, err := url.Parse(c.URL.Reveal()); err != nil || page.Scheme != "https" || page.Host == "" {
		return "the issuer gave a web address that is not https"
	}
	if c.URLPassword == "" {
		return "the issuer gave no password for the web address"
	}
	return ""
}

// LuhnDigit returns the check digit that completes a card number (ISO/IEC 7812-1, annex B). digits must be decimal digits.
func LuhnDigit(digits string) string {
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return string(rune('0' + (10-sum%10)%10))
}

// credentialFields pairs each field with its name, which is part of what its ciphertext is tied to.
func credentialFields(c *Credentials, sealed *Sealed) []struct {
	name  string
	plain *Secret
	text  *[]byte
} {
	return []struct {
		name  string
		plain *Secret
		text  *[]byte
	}{
		{"card_number", &c.CardNumber, &sealed.CardNumber},
		{"expiration_date", &c.ExpirationDate, &sealed.ExpirationDate},
		{"security_code", &c.SecurityCode, &sealed.SecurityCode},
		{"url", &c.URL, &sealed.URL},
		{"url_password", &c.URLPassword, &sealed.URLPassword},
	}
}

func (s *Service) seal(id, account uuid.UUID, c Credentials) (Sealed, error) {
	var sealed Sealed
	for _, f := range credentialFields(&c, &sealed) {
		ciphertext, err := s.vault.Seal(id, account, f.name, *f.plain)
		if err != nil {
			return Sealed{}, err
		}
		*f.text = ciphertext
	}
	return sealed, nil
}

// open fills in the credentials of a generated card.
func (s *Service) open(c *Card) error {
	if c.Status != Generated {
		return nil
	}
	if c.Sealed == nil {
		return fmt.Errorf("card %s is generated but has no credentials", c.UUID)
	}
	c.Credentials = &Credentials{}
	for _, f := range credentialFields(c.Credentials, c.Sealed) {
		plain, err := s.vault.Open(c.UUID, c.AccountID, f.name, *f.text)
		if err != nil {
			return err
		}
		*f.plain = plain
	}
	return nil
}
