package order

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// GetCard returns a card of the account, with its credentials once it is issued,
// masked if Config.MaskCredentials is set. It takes one round trip to the store,
// and two after the card has changed. The error is card.ErrNotFound if the
// account has no such card.
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

// purpose is why a card is read.
type purpose int

const (
	reading   purpose = iota // for its state
	revealing                // for its credentials
)

// masks decides whether credentials are masked. No other code does.
func (s *Service) masks(why purpose) bool { return s.cfg.MaskCredentials && why != revealing }

// open decrypts the refund address of a card, and the credentials of an issued
// card unless they were purged. It decrypts no more than is shown.
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

// openRefundAddress decrypts the refund address of a card. A corrupt address is
// reported and omitted: the card, which may be paid for, must stay readable.
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

// ListCards has at most two pages of cards in memory. Pages are smaller if
// metadata is long.
const (
	firstPage       = 100
	listPage        = 250
	maxPageMetadata = 2 << 20 // bytes
)

// pageAfter returns the size of the next page, from the average length of the
// metadata in the previous one.
func pageAfter(page []*card.Card) int {
	bytes := 1
	for _, c := range page {
		bytes += len(c.Metadata)
	}
	return max(1, min(listPage, maxPageMetadata*len(page)/bytes))
}

// ListCards calls f with each card that matches, newest first, until f returns
// an error. It reads pages, so that a slow f holds no connection of the store,
// and memory does not grow with the number of cards. It omits cards that can't
// be decoded or decrypted: an issued card must not look as if it were not.
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

// listAll is ListCards without a limit. It reads a page while f receives the
// previous one.
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

// readAhead starts to read a page, and returns a function that waits for it. If
// the store panics, that function panics.
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

// show calls f with the cards of a page that can be decrypted, and returns their
// number.
func (s *Service) show(ctx context.Context, page []*card.Card, f func(*card.Card) error) (shown int, err error) {
	for _, c := range page {
		err := s.open(ctx, c, reading)
		if errors.Is(err, card.ErrUnavailable) { // the card is intact, so it must not be omitted
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
	Rate *card.Rate // nil if there is no fresh rate
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
