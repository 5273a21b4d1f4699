// Package order serves clients: they order cards at a quote, and read and cancel
// them.
//
// It may import package card only. It keeps payment addresses and the exposure
// of accounts in memory. A crash loses these addresses, nothing else.
package order

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Filter selects cards of an account.
type Filter struct {
	AccountID uuid.UUID
	Status    card.Status       // "" for all
	State     card.PaymentState // "" for all
	Currency  string            // a code; "" for all
	Reference card.Secret       // "" for all

	CreatedAfter  time.Time // only cards created then or later; zero for all
	CreatedBefore time.Time // only cards created earlier; zero for all

	Before uuid.UUID // only cards older than this one; zero for all
	Limit  int       // maximum number of cards; for ListCards, 0 for all
	Tagged bool      // also set Card.Tag
}

// Exposure is an account's open risk. It decides whether the account may order
// another card.
type Exposure struct {
	OpenUSD  card.USD // total of orders that are not paid in full, which the account may still pay at their quote
	Reversed bool     // the payment of an issued card is reversed, and no operator has settled it
}

// PoolState is the state of an address pool. It decides whether addresses may be
// handed out.
type PoolState struct {
	Epoch      int64         // newest epoch that this process has seen
	Moving     bool          // a worker attests to the epoch
	WentBack   bool          // the database went back in time
	Conflict   bool          // another database uses the wallet
	CheckedAgo time.Duration // since the last pass over the chain
	MarkedAgo  time.Duration // since the last attestation
}

// Store keeps cards and addresses. Running any of its methods twice is
// harmless. The error is card.ErrNoRow if a row does not exist, and
// card.ErrUnavailable if the database can't be reached or times out: a row may
// have been stored even so.
type Store interface {
	// InsertCard stores a card. It returns false, and stores nothing, if the
	// card's uuid, address or idempotency key is taken, if the address has
	// already received money, or if the account's committed orders that are
	// not paid in full would exceed limit. A limit of 0 is none.
	InsertCard(ctx context.Context, c *card.Card, limit card.USD) (bool, error)
	// InsertCardReserving is like InsertCard. In the same transaction it
	// reserves an item of a supplier's stock: of the items of the card's amount
	// that are usable for at least life, the first to expire. The error is
	// card.ErrOutOfStock if there is none; if the driver repeated the
	// statement, the card may be stored even so. Both methods store nothing and
	// return card.ErrOwnAddress if the refund address belongs to the service.
	InsertCardReserving(ctx context.Context, c *card.Card, limit card.USD, supplier string, life time.Duration) (bool,
		error)
	// CancelCard cancels the card of an event, stores the event, and frees the
	// card's reservation, in one transaction. It returns false, and stores
	// nothing, if the account has no such card, the card holds a payment, or
	// its quote has ended.
	CancelCard(ctx context.Context, e card.Event) (bool, error)
	// Offers returns the offers of each supplier, in the order of routing. It
	// is empty if no worker has stored any.
	Offers(ctx context.Context) ([]card.SupplierOffers, error)
	// CardByUUID returns one card. The error is card.ErrCorrupt if it can't be
	// decoded.
	CardByUUID(ctx context.Context, account, id uuid.UUID) (*card.Card, error)
	// AwaitReplication returns once all rows that the store has returned are as
	// durable as an acknowledged insert. If the result of an insert
	// was unknown, a failover could still lose the row.
	AwaitReplication(ctx context.Context) error
	// CardOfKey returns the card that was ordered with an idempotency key;
	// uuid.Nil if a request of another operation had the key, so that InsertCard
	// stores nothing. The error is card.ErrNoRow if the key is free.
	CardOfKey(ctx context.Context, account uuid.UUID, key string) (uuid.UUID, error)
	// Cards returns up to filter.Limit cards that match and can be decoded,
	// newest first. If it returns fewer, there are no more.
	Cards(ctx context.Context, filter Filter) ([]*card.Card, error)
	Tags
	// ReportCorrupt reports to the operator, once, an item that can't be decoded
	// or decrypted and is omitted from lists.
	ReportCorrupt(ctx context.Context, kind string, id uuid.UUID, err error)
	// Exposure returns an account's exposure. Without open it does not compute
	// OpenUSD, which is then 0.
	Exposure(ctx context.Context, account uuid.UUID, open bool) (Exposure, error)

	// TakeAddresses takes up to n addresses from a currency's address pool. No
	// address is ever taken twice, even if the database goes back in time. It
	// returns none unless the wallet was compared with the pool within the last
	// minute, and this process has seen an attestation to the epoch.
	TakeAddresses(ctx context.Context, currency string, n int) ([]string, error)
	// PoolState returns the state of a currency's address pool. The error is
	// card.ErrNoRow if there is none yet.
	PoolState(ctx context.Context, currency string) (PoolState, error)
}

// Tags returns the tags of cards. It costs less than reading the cards.
type Tags interface {
	// CardTag returns the Tag of CardByUUID.
	CardTag(ctx context.Context, account, id uuid.UUID) (string, error)
	// PageTags returns the Tag of each card that matches, including cards that
	// can't be decoded.
	PageTags(ctx context.Context, filter Filter) ([]string, error)
}

// Vault encrypts the secrets of cards, and hashes values that could be guessed
// from a plain hash. Decryption fails if a field was changed, or belongs to
// another card or field. The error is card.ErrUnavailable if the key is missing.
type Vault interface {
	// Seal encrypts a field of a card.
	Seal(id, account uuid.UUID, field string, plaintext card.Secret) ([]byte, error)
	// Open decrypts what Seal returned.
	Open(id, account uuid.UUID, field string, ciphertext []byte) (card.Secret, error)
	// Digest returns a keyed hash. Different labels give different hashes.
	Digest(label string, data []byte) ([]byte, error)
	OpenCredentials(id, account uuid.UUID, sealed card.Sealed) (card.Credentials, error)
	// MaskCredentials returns masked credentials (card.MaskCredentials). It
	// decrypts only the parts that they show.
	MaskCredentials(id, account uuid.UUID, sealed card.Sealed) (card.Credentials, error)
}

// Rates returns current rates from memory.
type Rates interface {
	// Rate returns the currency's rate. The error is card.ErrNoRate if there is
	// no fresh one.
	Rate(currency string) (card.Rate, error)
}

// Sandbox makes payments on the simulated chain of one currency.
type Sandbox interface {
	// PayAs sends amount, unless it is 0 or the transaction exists, and extends
	// the chain until all payments to the address have the confirmations.
	// It returns the new tip. The error is a *card.TooMuchError if address
	// would then hold more coins than there are.
	PayAs(ctx context.Context, txid, address string, amount card.Amount, confirmations int) (card.Tip, error)
	// Sent returns the address and the amount of a transaction. The error is
	// card.ErrNoRow if there is no such transaction.
	Sent(ctx context.Context, txid string) (address string, amount card.Amount, err error)
}

// Service takes and reads orders. It is safe for concurrent use, and any number
// of replicas may share a store.
type Service struct {
	store     Store
	vault     Vault
	rates     Rates
	sandbox   map[string]Sandbox
	wake      func()
	cfg       Config
	pools     map[string]*addressPool
	exposures exposures
	sales     sales
	offers    atomic.Pointer[offers] // nil if no worker has stored any
}

// Config has an operator's settings.
type Config struct {
	// Currencies are the currencies that clients can pay with, with their
	// required confirmations. At least one is required.
	Currencies []card.Currency
	// Known are all currencies that stored cards may have, including disabled
	// ones. Defaults to Currencies.
	Known []card.Currency
	// CheckAddress contains a function by currency, which returns an error if
	// address is invalid on our network. ours is an address of the wallet, or
	// "" if none is known. The error continues a sentence that begins with the
	// name of the field. In a currency without a function, orders can't have a
	// refund address.
	CheckAddress map[string]func(address, ours string) error
	// QuoteTTL is how long amount and rate are locked. Defaults to 60 minutes.
	QuoteTTL time.Duration
	// MaxOpenUSD limits the total of an account's orders that are not paid in
	// full: each is an option to pay at an old rate. Several replicas that
	// accept orders at the same time may exceed it by one order each. Defaults
	// to no limit.
	MaxOpenUSD card.USD
	// FreezeReversed refuses new cards to an account while the payment of an
	// issued card is reversed. Defaults to false.
	FreezeReversed bool
	// NeedOffers refuses orders until a worker has stored offers of suppliers.
	// Otherwise any amount is sold until then, because workers of older
	// versions store none. Defaults to false.
	NeedOffers bool
	// MaxBlind is how long orders are still accepted after passes over their
	// chain began to fail. Defaults to 15 minutes.
	MaxBlind time.Duration
	// MaskCredentials masks credentials, except in RevealCard. Defaults to
	// false.
	MaskCredentials bool
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// Log defaults to none.
	Log *slog.Logger
}

// Validate fills in the defaults, and returns an error if a field is not valid.
func (c *Config) Validate() error {
	if len(c.Currencies) == 0 {
		return errors.New("no currency is enabled")
	}
	for _, coin := range c.Currencies {
		if coin.Confirmations < 1 || coin.Confirmations > coin.MaxConfirmations() {
			return fmt.Errorf("%s: confirmations must be between 1 and %d", coin.Code, coin.MaxConfirmations())
		}
	}
	if c.Known == nil {
		c.Known = c.Currencies
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
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// New returns a service. sandbox contains the simulated chains by currency; nil
// if all chains are real. wake wakes the watchers when addresses run out or a
// payment was simulated. New returns an error if cfg is not valid.
func New(store Store, vault Vault, rates Rates, sandbox map[string]Sandbox, wake func(), cfg Config) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Service{store: store, vault: vault, rates: rates, sandbox: sandbox, wake: wake, cfg: cfg,
		pools: map[string]*addressPool{}}
	for _, coin := range cfg.Currencies {
		s.pools[coin.Code] = &addressPool{filling: make(chan struct{}, 1)}
	}
	return s, nil
}
