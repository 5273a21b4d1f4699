// Package order serves clients: they order a card at a quote, and read what
// became of the order.
//
// It may import package card only. It keeps in memory addresses and the
// standing of accounts. After a crash these addresses are lost, and nothing
// else.
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
	Limit  int       // the most cards to return; for ListCards, 0 for all
	Tagged bool      // also set Card.Tag
}

// Exposure is what decides whether an account may order another card.
type Exposure struct {
	OpenUSD  card.USD // the total of orders that are not paid in full: quotes that the account may still choose to pay
	Reversed bool     // an issued card is reversed, and no operator has settled that
}

// PoolState is what decides whether addresses may be handed out. Each look at
// it may change what this process knows of the epoch.
type PoolState struct {
	Epoch      int64         // the newest that this process has seen
	Moving     bool          // somebody attests to it
	WentBack   bool          // the database was seen older than it had been
	Conflict   bool          // another database uses the wallet
	CheckedAgo time.Duration // since the chain was last watched
	MarkedAgo  time.Duration // since somebody last attested
}

// Store keeps cards and addresses. Running any of its methods twice is
// harmless. The error is card.ErrNoRow if a row does not exist, and
// card.ErrUnavailable if the database can't be reached, or does not answer in
// time: then a row may have been stored nevertheless.
type Store interface {
	// InsertCard stores a card. It returns false, and stores nothing, if the
	// card's uuid, address or idempotency key is taken, if the address has
	// already received money, or if the account's orders that are not paid in
	// full would then add up to more than limit, unless that is 0. It counts
	// those that are committed.
	InsertCard(ctx context.Context, c *card.Card, limit card.USD) (bool, error)
	// InsertCardReserving is like InsertCard, and also reserves for the card
	// the item of a supplier's stock that is of its amount, expires first, and
	// can be used for at least life. Both are stored, or neither. The error is
	// card.ErrOutOfStock if there is no such item, which is also possible if
	// this very call has stored the card. Both methods store nothing if the
	// card's refund address is one of the service's own; the error is
	// card.ErrOwnAddress then.
	InsertCardReserving(ctx context.Context, c *card.Card, limit card.USD, supplier string, life time.Duration) (bool,
		error)
	// CancelCard cancels the card that an event is about, stores the event, and
	// frees what is reserved for the card: all of it, or nothing. It returns
	// false, and stores nothing, unless the account has the card, and nothing
	// was received for it and is still there, and its quote has not ended.
	CancelCard(ctx context.Context, e card.Event) (bool, error)
	// Offers returns what can be had of each supplier, in the order in which
	// they are asked. It is empty if that was never stored.
	Offers(ctx context.Context) ([]card.SupplierOffers, error)
	// CardByUUID and CardByIdempotencyKey return one card. The error is
	// card.ErrCorrupt if it can't be decoded.
	CardByUUID(ctx context.Context, account, id uuid.UUID) (*card.Card, error)
	// AwaitReplication returns once everything that the store has shown before
	// is as durable as what InsertCard acknowledges. A row whose insertion was
	// unclear may be there, and yet get lost by a failover.
	AwaitReplication(ctx context.Context) error
	CardByIdempotencyKey(ctx context.Context, account uuid.UUID, key string) (*card.Card, error)
	// KeyUsed reports whether a request that was no order had an idempotency
	// key. InsertCard then stores nothing.
	KeyUsed(ctx context.Context, account uuid.UUID, key string) (bool, error)
	// Cards returns the cards that match and can be decoded, newest first, at
	// most filter.Limit. If it returns fewer, there are no more.
	Cards(ctx context.Context, filter Filter) ([]*card.Card, error)
	Tags
	// ReportCorrupt has an operator told, once, of a thing that can't be decoded
	// or decrypted, and is left out of lists.
	ReportCorrupt(ctx context.Context, what string, id uuid.UUID, err error)
	// Exposure returns an account's exposure. Without open it does not compute
	// OpenUSD, which is then 0.
	Exposure(ctx context.Context, account uuid.UUID, open bool) (Exposure, error)

	// TakeAddresses takes up to n addresses from a currency's address pool. No
	// address is ever taken twice, whatever happened to the database. It
	// returns none unless the wallet was compared with the pool within the last
	// minute, and this process has seen that somebody attests to the epoch.
	TakeAddresses(ctx context.Context, currency string, n int) ([]string, error)
	// PoolState returns the state of a currency's address pool. The error is
	// card.ErrNoRow if there is none yet.
	PoolState(ctx context.Context, currency string) (PoolState, error)
}

// Tags returns the tags that cards have when they are read, for less than
// reading them.
type Tags interface {
	// CardTag returns the Tag of CardByUUID.
	CardTag(ctx context.Context, account, id uuid.UUID) (string, error)
	// PageTags returns the Tag of each of the Cards that match, also of those
	// that can't be decoded.
	PageTags(ctx context.Context, filter Filter) ([]string, error)
}

// Vault encrypts and decrypts what must not be read from a database, and hashes
// what must not be guessed from one. What decrypts returns an error if a field
// was changed, or belongs to another card or field, and card.ErrUnavailable if
// its key is not there.
type Vault interface {
	// Seal encrypts a field of a card.
	Seal(id, account uuid.UUID, field string, plaintext card.Secret) ([]byte, error)
	// Open decrypts what Seal returned.
	Open(id, account uuid.UUID, field string, ciphertext []byte) (card.Secret, error)
	// Digest returns a keyed hash; label keeps hashes for different purposes
	// apart.
	Digest(label string, data []byte) ([]byte, error)
	OpenCredentials(id, account uuid.UUID, sealed card.Sealed) (card.Credentials, error)
	// MaskCredentials returns the credentials masked (card.MaskCredentials),
	// and decrypts no more than that shows.
	MaskCredentials(id, account uuid.UUID, sealed card.Sealed) (card.Credentials, error)
}

// Rates has today's rates in memory.
type Rates interface {
	// Rate returns the currency's rate. The error is card.ErrNoRate if there is
	// no fresh one.
	Rate(currency string) (card.Rate, error)
}

// Sandbox makes payments with simulated money, on the simulated chain of one
// currency.
type Sandbox interface {
	// PayAs sends amount, unless it is 0 or the transaction exists, and extends
	// the chain until everything that address received has the confirmations.
	// It returns the new tip. The error is a *card.TooMuchError if address
	// would then hold more coins than there are.
	PayAs(ctx context.Context, txid, address string, amount card.Amount, confirmations int) (card.Tip, error)
	// Sent returns what a transaction sent to which address. The error is
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
	offers    atomic.Pointer[offers] // nil while none are known
}

// Config has an operator's settings.
type Config struct {
	// Currencies are those that cards can be paid with, each with the
	// confirmations that it needs. At least one is required.
	Currencies []card.Currency
	// Known are the currencies that cards may have, also those that they can no
	// longer be paid with. Defaults to Currencies.
	Known []card.Currency
	// CheckAddress has for each currency the function that returns an error
	// unless its coin can be sent to an address, on the network that ours is
	// for: an address of the wallet, or "" if none is known. The error
	// continues a sentence that begins with the name of the field. Orders in a
	// currency without one name no refund address.
	CheckAddress map[string]func(address, ours string) error
	// QuoteTTL is how long amount and rate are locked. Defaults to 60 minutes.
	QuoteTTL time.Duration
	// MaxOpenUSD limits the total of an account's orders that are not paid in
	// full: each is an option to pay at an old rate. Several replicas that
	// accept orders at the same time may exceed it by one order each. Defaults
	// to no limit.
	MaxOpenUSD card.USD
	// FreezeReversed refuses new cards to an account while one of its issued
	// cards is reversed. Defaults to false.
	FreezeReversed bool
	// NeedOffers refuses orders until a worker has stored what can be had of
	// suppliers. Otherwise everything is sold until then: the worker may be
	// older than offers. Defaults to false.
	NeedOffers bool
	// MaxBlind is how long orders are still accepted after passes over their
	// chain began to fail. Defaults to 15 minutes.
	MaxBlind time.Duration
	// MaskCredentials has cards read with masked credentials; only RevealCard
	// shows them. Defaults to false.
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

// New returns a service. sandbox has the simulated chains by currency; nil if
// all chains are real. wake is called when there is work for the watchers:
// addresses run out, or a payment was simulated. New returns an error if cfg is
// not valid.
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
