package supplier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

// StockStore stores cards that were bought in advance, as items. Each of our cards
// gets at most one item of a supplier, permanently.
type StockStore interface {
	// TakeStock returns the item that was issued to a card, or issues an item
	// that expires later than after: the item reserved for the card, or else
	// the first free item of the amount to expire. A held item is returned
	// unchanged. The error is card.ErrOutOfStock if there is no item, and
	// card.ErrStockHeld if the card may have received an item that is now held.
	TakeStock(ctx context.Context, supplier string, id uuid.UUID, usd card.USD, after time.Time) (card.StockItem, error)
	// StockItem returns the item that is reserved for a card, or was issued to
	// it. The error is card.ErrNoRow if there is none.
	StockItem(ctx context.Context, supplier string, id uuid.UUID) (card.StockItem, error)
	// CancelStock releases the item that is reserved for a card, if there is
	// one.
	CancelStock(ctx context.Context, supplier string, id uuid.UUID) error
	// FreeStock returns every amount that was ever in stock, ascending, with the
	// number of free items that expire later than after.
	FreeStock(ctx context.Context, supplier string, after time.Time) ([]card.Offer, error)
	// TidyStock releases items of cards that no longer wait for a payment, and
	// erases the credentials of items whose card is stored.
	TidyStock(ctx context.Context) error
}

// StockVault decrypts items.
type StockVault interface {
	// OpenCredentials returns an error if a field was changed, or belongs to
	// another item or field.
	OpenCredentials(id, account uuid.UUID, sealed card.Sealed) (card.Credentials, error)
}

// StockConfig configures a stock.
type StockConfig struct {
	// MinValidity is the remaining validity that a card must have when it is
	// issued. Defaults to 0.
	MinValidity time.Duration
	// QuoteTTL is how long an order may wait for its payment. The validity of a
	// reserved card must be longer by this time. Defaults to an hour.
	QuoteTTL time.Duration
	// LowStock is the number of items per amount below which Tick logs a
	// warning. Defaults to 0: no warnings.
	LowStock int64
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// Log defaults to none.
	Log *slog.Logger
}

// Validate fills in the defaults, and returns an error if a field is not valid.
func (c *StockConfig) Validate() error {
	if c.MinValidity < 0 || c.QuoteTTL < 0 || c.LowStock < 0 {
		return errors.New("a stock's durations and limits must not be negative")
	}
	if c.QuoteTTL == 0 {
		c.QuoteTTL = time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Stock issues cards that were bought in advance, and are encrypted in our own
// database. It is safe for concurrent use, also by several processes.
type Stock struct {
	name  string
	store StockStore
	vault StockVault
	cfg   StockConfig
	low   map[card.USD]bool // amounts that were logged as low; used only by Tick
}

var _ issue.Supplier = (*Stock)(nil)

// NewStock returns a supplier of cards in stock. It returns an error if cfg is
// not valid.
func NewStock(name string, store StockStore, vault StockVault, cfg StockConfig) (*Stock, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Stock{name: name, store: store, vault: vault, cfg: cfg, low: map[card.USD]bool{}}, nil
}

// Name implements issue.Supplier.
func (s *Stock) Name() string { return s.name }

// KeyRetention implements issue.Supplier: the item of a card stays known forever.
func (s *Stock) KeyRetention() time.Duration { return 0 }

// Submit implements issue.Supplier. The key is the uuid of the card.
func (s *Stock) Submit(ctx context.Context, r issue.Request) (issue.Answer, error) {
	id, err := uuid.Parse(r.Key)
	if err != nil {
		return issue.Answer{}, errors.New("the key is not the uuid of a card")
	}
	item, err := s.store.TakeStock(ctx, s.name, id, r.USD, s.cfg.Now().Add(s.cfg.MinValidity))
	if errors.Is(err, card.ErrOutOfStock) {
		return issue.Answer{Outcome: issue.Declined, Reason: "out of stock", Temporary: true}, nil
	}
	if err != nil {
		return issue.Answer{}, fmt.Errorf("take stock: %w", err)
	}
	return s.answer(item)
}

// Lookup implements issue.Supplier.
func (s *Stock) Lookup(ctx context.Context, r issue.Request) (issue.Answer, error) {
	item, err := s.find(ctx, r)
	if errors.Is(err, card.ErrNoRow) || err == nil && item.State != card.StockIssued {
		return issue.Answer{}, nil
	}
	if err != nil {
		return issue.Answer{}, err
	}
	return s.answer(item)
}

// Cancel releases the item that is reserved for a request. If an item was issued,
// Cancel returns it.
func (s *Stock) Cancel(ctx context.Context, r issue.Request) (issue.Answer, error) {
	item, err := s.find(ctx, r)
	switch {
	case errors.Is(err, card.ErrNoRow):
		return issue.Answer{Outcome: issue.Declined, Reason: "canceled"}, nil
	case err != nil:
		return issue.Answer{}, err
	case item.State == card.StockIssued:
		return s.answer(item)
	}
	id, _ := uuid.Parse(r.Key) // as find did
	if err := s.store.CancelStock(ctx, s.name, id); err != nil {
		return issue.Answer{}, fmt.Errorf("cancel: %w", err)
	}
	return issue.Answer{Outcome: issue.Declined, Reason: "canceled"}, nil
}

func (s *Stock) find(ctx context.Context, r issue.Request) (card.StockItem, error) {
	id, err := uuid.Parse(r.Key)
	if err != nil {
		return card.StockItem{}, card.ErrNoRow
	}
	return s.store.StockItem(ctx, s.name, id)
}

// answer converts an item to an answer.
func (s *Stock) answer(item card.StockItem) (issue.Answer, error) {
	switch {
	case item.State == card.StockHeld:
		return issue.Answer{Outcome: issue.Issued, USD: item.USD,
			Flaw: "the item of this card may have been given out before the database went back in time: find out, then retry or refund"}, nil
	case item.Sealed == nil:
		return issue.Answer{Outcome: issue.Issued, USD: item.USD,
			Flaw: "the item of this card was given out before, and its credentials are no longer in stock"}, nil
	}
	credentials, err := s.vault.OpenCredentials(item.ID, uuid.Nil, *item.Sealed)
	if err != nil {
		return issue.Answer{}, fmt.Errorf("open stock: %w", err)
	}
	return issue.Answer{Outcome: issue.Issued, Reference: item.ID.String(), Credentials: credentials, USD: item.USD}, nil
}

// Offers returns each amount that was ever in stock, with the number of items
// that outlast a quote, which may be 0.
func (s *Stock) Offers(ctx context.Context) ([]card.Offer, error) {
	life := s.cfg.MinValidity + s.cfg.QuoteTTL
	offers, err := s.store.FreeStock(ctx, s.name, s.cfg.Now().Add(life))
	for i := range offers {
		offers[i].Life = life
	}
	return offers, err
}

// Tick releases and erases items that are no longer needed, and logs once when an
// amount becomes low, and once when it is no longer. Call it every few seconds,
// but not concurrently.
func (s *Stock) Tick(ctx context.Context) error {
	if err := s.store.TidyStock(ctx); err != nil {
		return err
	}
	if s.cfg.LowStock == 0 {
		return nil
	}
	all, err := s.store.FreeStock(ctx, s.name, s.cfg.Now().Add(s.cfg.MinValidity+s.cfg.QuoteTTL))
	if err != nil {
		return err
	}
	for _, o := range all {
		switch low := o.Left < s.cfg.LowStock; {
		case low && !s.low[o.Min]:
			s.cfg.Log.WarnContext(ctx, "stock is low: import cards", "supplier", s.name, "usd", o.Min, "left", o.Left, "limit",
				s.cfg.LowStock)
		case !low && s.low[o.Min]:
			s.cfg.Log.InfoContext(ctx, "stock is no longer low", "supplier", s.name, "usd", o.Min, "left", o.Left)
		}
		s.low[o.Min] = o.Left < s.cfg.LowStock
	}
	return nil
}
