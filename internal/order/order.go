// Package order is what a client does with cards: it asks for one, at a quote, and reads what became of it.
//
// It may import package card only. What it keeps in memory, addresses and what accounts owe, is lost with the process and costs
// nothing but addresses.
package order

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Filter selects cards of an account.
type Filter struct {
	AccountID uuid.UUID
	Status    card.Status // "" for all
	Before    uuid.UUID   // only cards older than this one; zero for all
	Limit     int         // at most so many; for a whole list, 0 is all
}

// Standing is what an account owes, as far as new cards depend on it.
type Standing struct {
	OpenUSD  card.USD // of its cards that are not paid in full: quotes it may still choose to pay
	Reversed bool     // a card that was made lost its money, and no operator has settled that
}

// Store keeps cards and addresses. Its methods are harmless when they run twice. A row that is not there is card.ErrNotFound, a store
// out of reach card.ErrUnavailable.
type Store interface {
	// InsertCard reports false if the card's uuid, address or idempotency key is taken, or money came to the address before.
	InsertCard(ctx context.Context, c *card.Card) (bool, error)
	CardByUUID(ctx context.Context, account, id uuid.UUID) (*card.Card, error)
	CardByIdempotencyKey(ctx context.Context, account uuid.UUID, key string) (*card.Card, error)
	// Cards returns the cards that match, newest first, at most filter.Limit.
	Cards(ctx context.Context, filter Filter) ([]*card.Card, error)
	// Standing says what an account owes; without open, OpenUSD is 0 and costs nothing.
	Standing(ctx context.Context, account uuid.UUID, open bool) (Standing, error)

	// TakeAddresses returns up to n addresses of a currency that were never returned before, and never will be again. It returns none
	// unless the wallet was seen to agree within the last minute (settle.Tx).
	TakeAddresses(ctx context.Context, currency string, n int) ([]string, error)
	// PoolAge returns for how long the wallet was not seen to agree with the pool; ErrNotFound if it never was.
	PoolAge(ctx context.Context, currency string) (time.Duration, error)
}

// Vault decrypts credentials.
type Vault interface {
	// OpenCredentials fails if a field was changed, or belongs to another card or field.
	OpenCredentials(id, account uuid.UUID, sealed card.Sealed) (card.Credentials, error)
}

// Rates knows today's rates without asking anybody: it answers from memory.
type Rates interface {
	// Rate returns card.ErrNoRate if there is no fresh one.
	Rate(currency string) (card.Rate, error)
}

// Sandbox pays without money, on the simulated chain of one currency.
type Sandbox interface {
	// Pay sends amount, if it is not 0, and lets the chain grow until what address received has the confirmations.
	// It returns the tip that shows it.
	Pay(ctx context.Context, address string, amount card.Amount, confirmations int) (card.Tip, error)
}

// Service is what a client does with cards. It is safe for concurrent use, and any number of replicas may work on the same store.
type Service struct {
	store     Store
	vault     Vault
	rates     Rates
	sandbox   map[string]Sandbox
	wake      func()
	cfg       Config
	pools     map[string]*addressPool
	standings standings
}

// Config is what an operator decides.
type Config struct {
	Currencies []card.Currency // That cards can be paid with, each with the confirmations it needs.
	QuoteTTL   time.Duration   // How long amount and rate are locked. Defaults to 60 minutes.
	// MaxOpenUSD is how much an account may have open in cards that nothing was received for yet, approximately: each of those is an
	// option to pay at an old rate. Defaults to no limit.
	MaxOpenUSD card.USD
	// FreezeReversed refuses new cards to an account while one of its issued cards is reversed. Defaults to false.
	FreezeReversed bool
	// MaxBlind is how long cards are accepted while the watcher of their chain is not well. Defaults to 15 minutes.
	MaxBlind time.Duration
	Now      func() time.Time // Defaults to time.Now.
}

// Validate reports what is wrong, and fills in the defaults.
func (c *Config) Validate() error {
	if len(c.Currencies) == 0 {
		return errors.New("no currency is enabled")
	}
	for _, coin := range c.Currencies {
		if coin.Confirmations < 1 || coin.Confirmations > coin.MaxConfirmations() {
			return fmt.Errorf("%s: confirmations must be between 1 and %d", coin.Code, coin.MaxConfirmations())
		}
	}
	if c.QuoteTTL == 0 {
		c.QuoteTTL = time.Hour
	}
	if c.QuoteTTL < time.Minute {
		return errors.New("quotes must last at least a minute")
	}
	if c.MaxOpenUSD < 0 {
		return errors.New("the limit of open cards must not be negative")
	}
	if c.MaxBlind == 0 {
		c.MaxBlind = 15 * time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return nil
}

// New returns a service. sandbox has the simulated chains, by currency; nil where all are real. wake is called when there is work for the
// watchers: the addresses run out, or a payment was simulated.
func New(store Store, vault Vault, rates Rates, sandbox map[string]Sandbox, wake func(), cfg Config) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Service{store: store, vault: vault, rates: rates, sandbox: sandbox, wake: wake, cfg: cfg, pools: map[string]*addressPool{}}
	for _, coin := range cfg.Currencies {
		s.pools[coin.Code] = &addressPool{filling: make(chan struct{}, 1)}
	}
	return s, nil
}
