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
	issueBatch   = 8                // cards that are made at once
	issueTimeout = 15 * time.Second // for one answer of the issuer
	issueGrace   = 25 * time.Second // for a batch to end, also when the process is asked to
	issueClaim   = 2 * time.Minute  // longer than an attempt can take
	longestWait  = 10 * time.Minute // between two attempts
)

// IssueDue makes cards whose payment is confirmed, up to a batch, and returns how many it worked on. Several processes may
// call it at once: each intent is claimed by one, and a claim that was lost can't write any more.
//
// The intent was committed before the issuer is asked, with a key that is the card's uuid; credentials, status and event are
// one commit. Whatever goes wrong in between, the next attempt asks with the same key and gets the same card.
func (s *Service) IssueDue(ctx context.Context) (int, error) {
	intents, err := s.store.ClaimIntents(ctx, issueBatch, issueClaim)
	if err != nil {
		return 0, err
	}
	// What was claimed is finished, so that it need not wait for the claim to run out.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), issueGrace)
	defer cancel()
	var group errgroup.Group
	for _, intent := range intents {
		group.Go(func() error { return s.issue(ctx, intent) })
	}
	return len(intents), group.Wait()
}

func (s *Service) issue(ctx context.Context, intent Intent) error {
	c, err := s.store.CardToIssue(ctx, intent.CardUUID)
	if err != nil {
		return fmt.Errorf("issue %s: %w", intent.CardUUID, err)
	}
	if c.State != Paid {
		return s.postpone(ctx, intent, unpaidAgain)
	}
	asking, cancel := context.WithTimeout(ctx, issueTimeout)
	defer cancel()
	made, err := s.issuer.Issue(asking, c.UUID.String(), c.USD)
	switch {
	case errors.Is(err, ErrDeclined):
		return s.park(ctx, intent, "declined by the issuer")
	case err != nil:
		// Unknown: the card may have been made. The same key is asked again.
		slog.WarnContext(ctx, "issuer gave no card", "card", c.UUID, "attempt", intent.Attempts, "error", err)
		return s.postpone(ctx, intent, "the issuer gave no clear answer")
	}
	if reason := doubt(made, s.cfg.Now()); reason != "" {
		return s.park(ctx, intent, reason)
	}
	err = s.commitIssued(ctx, intent, c, made)
	switch {
	case errors.Is(err, errUnpaidAgain):
		return s.postpone(ctx, intent, unpaidAgain) // the same key will yield the same card once the money is back
	case errors.Is(err, errSameNumber):
		return s.park(ctx, intent, "the issuer gave a card that another order has already")
	case errors.Is(err, ErrFenced):
		slog.WarnContext(ctx, "another process took over the issuing", "card", c.UUID)
		return nil
	case err != nil:
		return fmt.Errorf("issue %s: %w", c.UUID, err)
	}
	return nil
}

func (s *Service) commitIssued(ctx context.Context, intent Intent, c *Card, made Credentials) error {
	sealed, err := s.seal(c.UUID, c.AccountID, made)
	if err != nil {
		return err
	}
	number, err := s.vault.Digest("card number", []byte(made.CardNumber.Reveal()))
	if err != nil {
		return err
	}
	return s.store.InTx(ctx, func(tx Tx) error {
		now, err := tx.LockCard(ctx, c.UUID)
		if err != nil {
			return err
		}
		if now.State != Paid {
			return errUnpaidAgain
		}
		switch err := tx.FinishIntent(ctx, intent, number); {
		case errors.Is(err, ErrDuplicate):
			return errSameNumber
		case err != nil:
			return err
		}
		if err := tx.SaveGenerated(ctx, c.UUID, sealed); err != nil {
			return err
		}
		return tx.InsertEvents(ctx, []Event{s.event(c, EventGenerated, Generated, now.State)})
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
