package order

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// GetCard returns a card of the account, with its credentials once it is
// issued, masked if the operator wants that. It costs one round trip to the
// store, and two for the first time that something has happened to the card.
// The error is card.ErrNotFound if the account has no such card.
func (s *Service) GetCard(ctx context.Context, account, id uuid.UUID) (*card.Card, error) {
	return s.getCard(ctx, account, id, reading)
}

// RevealCard is like GetCard, but never masks credentials.
func (s *Service) RevealCard(ctx context.Context, account, id uuid.UUID) (*card.Card, error) {
	return s.getCard(ctx, account, id, revealing)
}

var errNoCard = card.ErrNotFound.WithMessage("Your account has no card with this uuid.")

func (s *Service) getCard(ctx context.Context, account, id uuid.UUID, why purpose) (*card.Card, error) {
	c, err := s.store.CardByUUID(ctx, account, id)
	if errors.Is(err, card.ErrNoRow) {
		return nil, errNoCard
	}
	if err != nil {
		return nil, err
	}
	if err := s.open(ctx, c, why); err != nil {
		return nil, err
	}
	return c, nil
}

// purpose is why credentials are read.
type purpose int

const (
	reading   purpose = iota // a card as it is
	revealing                // a card for its credentials
)

// masks decides whether credentials are masked. It is the only place that does.
func (s *Service) masks(why purpose) bool { return s.cfg.MaskCredentials && why != revealing }

// open decrypts the refund address of a card, and the credentials of an issued
// one as far as they are shown, unless they are no longer kept.
func (s *Service) open(ctx context.Context, c *card.Card, why purpose) error {
	s.readMetadata(ctx, c)
	if err := s.openRefundAddress(ctx, c); err != nil {
		return err
	}
	if c.Status != card.Generated || c.Sealed == nil {
		return nil
	}
	decrypt := s.vault.OpenCredentials
	if s.masks(why) {
		decrypt = s.vault.MaskCredentials
	}
	credentials, err := decrypt(c.UUID, c.AccountID, *c.Sealed)
	if err != nil {
		return err
	}
	c.Credentials = &credentials
	return nil
}

// openRefundAddress decrypts the refund address of a card. One that is damaged
// is reported and left out: it must not hide the card, which its customer has
// paid for.
func (s *Service) openRefundAddress(ctx context.Context, c *card.Card) error {
	if c.SealedRefundAddress == nil {
		return nil
	}
	address, err := s.vault.Open(c.UUID, c.AccountID, card.RefundAddressField, c.SealedRefundAddress)
	if err != nil && !errors.Is(err, card.ErrUnavailable) {
		s.store.ReportCorrupt(ctx, card.RefundAddressField, c.UUID, err)
		return nil
	}
	c.RefundAddress = address
	return err
}

// ListCards has at most two pages of cards in memory, and fewer cards if their
// metadata is long.
const (
	firstPage       = 100
	listPage        = 250
	maxPageMetadata = 2 << 20 // bytes
)

// pageAfter returns how many cards to read after some others, which tell how
// long the metadata of this account is.
func pageAfter(page []*card.Card) int {
	bytes := 1
	for _, c := range page {
		bytes += len(c.Metadata)
	}
	return max(1, min(listPage, maxPageMetadata*len(page)/bytes))
}

// ListCards calls f with each card that matches, newest first, until f returns
// an error. It reads pages, so that a slow f does not hold a connection of the
// store, and memory does not grow with the number of cards. It leaves out cards
// that can't be decoded or decrypted: an issued card must not look as if it
// were not issued.
func (s *Service) ListCards(ctx context.Context, filter Filter, f func(*card.Card) error) error {
	if filter.Limit == 0 {
		return s.listAll(ctx, filter, f)
	}
	for left, size := filter.Limit, firstPage; ; {
		filter.Limit = min(left, size)
		page, err := s.store.Cards(ctx, filter)
		if err != nil {
			return err
		}
		shown, err := s.show(ctx, page, f)
		if err != nil {
			return err
		}
		left -= shown
		if len(page) < filter.Limit || left == 0 {
			return nil
		}
		filter.Before, size = page[len(page)-1].UUID, pageAfter(page)
	}
}

// listAll is ListCards without a limit. It reads a page while it shows the one
// before.
func (s *Service) listAll(ctx context.Context, filter Filter, f func(*card.Card) error) error {
	ctx, cancel := context.WithCancel(ctx)
	filter.Limit = firstPage
	next := s.readAhead(ctx, filter)
	defer func() {
		cancel()
		_, _ = next()
	}()
	for {
		page, err := next()
		if err != nil {
			return err
		}
		last := len(page) < filter.Limit
		if !last {
			filter.Before, filter.Limit = page[len(page)-1].UUID, pageAfter(page)
			next = s.readAhead(ctx, filter)
		}
		if _, err := s.show(ctx, page, f); err != nil || last {
			return err
		}
	}
}

// readAhead begins to read a page, and returns a function that waits for it. If
// the store panics, so does that function.
func (s *Service) readAhead(ctx context.Context, filter Filter) (wait func() ([]*card.Card, error)) {
	var page []*card.Card
	var err error
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		page, err = s.store.Cards(ctx, filter)
	}()
	return func() ([]*card.Card, error) {
		<-done
		if panicked != nil {
			panic(panicked)
		}
		return page, err
	}
}

// show calls f with the cards of a page that can be decrypted, and returns how
// many these are.
func (s *Service) show(ctx context.Context, page []*card.Card, f func(*card.Card) error) (shown int, err error) {
	for _, c := range page {
		err := s.open(ctx, c, reading)
		if errors.Is(err, card.ErrUnavailable) { // the card is not damaged, so that a list without it would be wrong
			return shown, err
		}
		if err != nil {
			s.store.ReportCorrupt(ctx, "card", c.UUID, err)
			continue
		}
		if err := f(c); err != nil {
			return shown, err
		}
		shown++
	}
	return shown, nil
}

// CurrencyRate is a currency and its rate.
type CurrencyRate struct {
	card.Currency
	Rate *card.Rate // nil if there is no fresh one
}

// ListCurrencies returns the enabled currencies, ordered by code.
func (s *Service) ListCurrencies() ([]CurrencyRate, error) {
	var all []CurrencyRate
	for _, coin := range s.cfg.Currencies {
		rate, err := s.rates.Rate(coin.Code)
		switch {
		case err == nil:
			all = append(all, CurrencyRate{coin, &rate})
		case errors.Is(err, card.ErrNoRate):
			all = append(all, CurrencyRate{coin, nil})
		default:
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b CurrencyRate) int { return strings.Compare(a.Code, b.Code) })
	return all, nil
}
