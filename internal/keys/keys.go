// Package keys looks after what is kept encrypted: it keeps track of who has
// which keys, re-encrypts what older keys sealed, and purges credentials whose
// time is over.
//
// It may import package card only. Everything is done in pages, each of which
// is one commit: after a crash the next Tick finds what is left.
package keys

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Keys are the encryption keys of a key file, without their secrets.
type Keys struct {
	IDs     []card.KeyID
	Primary card.KeyID               // the one that encrypts
	Created map[card.KeyID]time.Time // as far as it is known
}

// Has reports whether a key is one of them.
func (k Keys) Has(id card.KeyID) bool { return slices.Contains(k.IDs, id) }

// KnownKey is a key that a process has, or had.
type KnownKey struct {
	ID         card.KeyID
	Since      time.Time
	PromotedAt *time.Time
	RetiredAt  *time.Time
}

// Holder is a process that has keys, as it said last.
type Holder struct {
	Process    string
	Keys       Keys
	PrimaryFor time.Duration // since it first said that its primary key is that one
	SeenAgo    time.Duration
}

// Set is a kind of encrypted data: fields of a row that are always sealed
// together, with one key.
type Set struct {
	Name   string
	Fields []string // their names in the associated data
}

// Row is what one row of a set has sealed, in the order of the set's fields.
type Row struct {
	ID, AccountID uuid.UUID
	Sealed        [][]byte
}

// Purge is an operator's decision to delete a card's credentials for good.
type Purge struct {
	ID       uuid.UUID
	CardUUID uuid.UUID
	Note     string
	Operator string
}

// ErrNotIssued means that a card has no credentials yet.
var ErrNotIssued = errors.New("the card is not issued, so that it has no credentials yet")

// Store keeps sealed data, and who has which keys. Running any of its methods
// twice is harmless. The error is card.ErrUnavailable if the database can't be
// reached.
type Store interface {
	// SaveHolder stores which keys a process has, makes them known, and forgets
	// processes that were not seen for long.
	SaveHolder(ctx context.Context, h Holder) error
	DeleteHolder(ctx context.Context, process string) error
	// Holders returns the processes that were seen within the last so long, by
	// name.
	Holders(ctx context.Context, within time.Duration) ([]Holder, error)
	// KnownKeys returns every key that was ever made known, the oldest first.
	KnownKeys(ctx context.Context) ([]KnownKey, error)
	// PromoteKey makes a key known, as the one that was promoted last.
	PromoteKey(ctx context.Context, id card.KeyID) error
	// MarkRetired has a key known as one that is not used any more, or takes
	// that back. It waits for transactions that have made sure that the key is
	// not retired.
	MarkRetired(ctx context.Context, id card.KeyID, retired bool) error

	// LongestWrite returns after how long a transaction has ended for certain:
	// committed, or not.
	LongestWrite() time.Duration

	// SealedSets returns everything that is sealed.
	SealedSets() []Set
	// SealedBy returns up to n rows of a set that a key has sealed and whose id
	// is greater than after, by id.
	SealedBy(ctx context.Context, set string, key card.KeyID, after uuid.UUID, n int) ([]Row, error)
	// ReplaceSealed replaces the rows before by the rows after, except those
	// that are no longer as they were before. It returns how many it replaced.
	ReplaceSealed(ctx context.Context, set string, before, after []Row) (int64, error)
	// CountSealed returns how many rows each key has sealed, by the first field
	// of each set.
	CountSealed(ctx context.Context) (map[card.KeyID]int64, error)
	// UsersOf looks at up to n rows of a set whose id is greater than after, at
	// every field. It returns how many of them the key has sealed in part, and
	// the last id; looked is less than n at the end of the set.
	UsersOf(ctx context.Context, set string, key card.KeyID, after uuid.UUID, n int) (users int64, last uuid.UUID,
		looked int, err error)
	// ReportCorrupt has an operator told, once, of a thing that can't be
	// decrypted.
	ReportCorrupt(ctx context.Context, what string, id uuid.UUID, err error)

	// PurgeCredentials deletes the credentials of up to n cards that were
	// issued at least age ago, and returns how many it deleted or looked at.
	// Cards of which it is not known when they were issued have their time
	// filled in first, from their event.
	PurgeCredentials(ctx context.Context, age time.Duration, n int) (purged, dated int64, err error)
	// PurgeCard deletes a card's credentials. It returns false if they were
	// purged already. The error is card.ErrNoRow if there is no such card, and
	// ErrNotIssued if it has no credentials yet.
	PurgeCard(ctx context.Context, p Purge) (bool, error)
}

// Vault has the keys.
type Vault interface {
	// Keys returns the keys that are in use.
	Keys() Keys
	// Reread reads the key file again. After an error the keys of before stay
	// in use.
	Reread() error
	// Reseal encrypts with the primary key what any key has encrypted. It
	// returns an error if that was changed or belongs elsewhere, and
	// card.ErrUnavailable if its key is not in use here.
	Reseal(id, account uuid.UUID, fields []string, ciphertexts [][]byte) ([][]byte, error)
	// Strangers returns the keys that ciphertexts named, that are not in use
	// here, and of which NoSuchKeys has not said that there are none.
	Strangers() []card.KeyID
	// NoSuchKeys says that ciphertexts which name these keys are damaged.
	NoSuchKeys(all []card.KeyID)
	// Retired says which keys were retired. As long as the primary key is one
	// of them, nothing can be encrypted: that is card.ErrUnavailable.
	Retired(all []card.KeyID)
}

const (
	reportEvery = 10 * time.Second
	liveFor     = 30 * time.Second // since a process said what keys it has
)

// Reporter follows the key file, and tells the others which keys this process
// has.
type Reporter struct {
	store   Store
	vault   Vault
	process string
	log     *slog.Logger
	now     func() time.Time

	told  Keys
	at    time.Time
	lacks error // why it should have other keys
}

// NewReporter returns a reporter for a process. now is the clock; nil for
// time.Now.
func NewReporter(store Store, vault Vault, process string, log *slog.Logger, now func() time.Time) *Reporter {
	if now == nil {
		now = time.Now
	}
	return &Reporter{store: store, vault: vault, process: process, log: log, now: now}
}

// Tick reads the key file, and says which keys there are if that has changed or
// was not said for a while. It also finds out which of the keys that
// ciphertexts named do not exist. The error is card.ErrMissingKey as long as
// the key that was promoted last is not there, and card.ErrRetiredKey as long
// as the primary key is one that was retired.
func (r *Reporter) Tick(ctx context.Context) error {
	before := r.vault.Keys()
	unread := r.vault.Reread()
	keys, strangers := r.vault.Keys(), r.vault.Strangers()
	same := func(k Keys) bool { return k.Primary == keys.Primary && slices.Equal(k.IDs, keys.IDs) }
	if !same(before) {
		r.log.InfoContext(ctx, "the key file has changed", "keys", fmt.Sprint(keys.IDs), "primary", keys.Primary.String())
	}
	if same(r.told) && r.now().Sub(r.at) < reportEvery && len(strangers) == 0 {
		return errors.Join(unread, r.lacks)
	}
	if err := r.store.SaveHolder(ctx, Holder{Process: r.process, Keys: keys}); err != nil {
		return errors.Join(unread, err)
	}
	known, err := r.store.KnownKeys(ctx)
	if err != nil {
		return errors.Join(unread, err)
	}
	r.told, r.at, r.lacks = keys, r.now(), unfit(keys, known)
	r.vault.Retired(retired(known))
	r.vault.NoSuchKeys(slices.DeleteFunc(strangers, func(id card.KeyID) bool {
		return slices.ContainsFunc(known, func(k KnownKey) bool { return k.ID == id && k.RetiredAt == nil })
	}))
	return errors.Join(unread, r.lacks)
}

// Close says that the process has ended.
func (r *Reporter) Close(ctx context.Context) error { return r.store.DeleteHolder(ctx, r.process) }

// unfit returns card.ErrRetiredKey if the primary key was retired, and
// card.ErrMissingKey if the key that was promoted last is not one of keys.
func unfit(keys Keys, known []KnownKey) error {
	if slices.Contains(retired(known), keys.Primary) {
		return fmt.Errorf("%w: %s", card.ErrRetiredKey, keys.Primary)
	}
	if k := promoted(known); k != nil && !keys.Has(k.ID) {
		return fmt.Errorf("%w: %s", card.ErrMissingKey, k.ID)
	}
	return nil
}

// retired returns the keys that were retired.
func retired(known []KnownKey) (ids []card.KeyID) {
	for _, k := range known {
		if k.RetiredAt != nil {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// promoted returns the key that was promoted last; nil if none ever was.
func promoted(known []KnownKey) (last *KnownKey) {
	for i, k := range known {
		if k.PromotedAt != nil && k.RetiredAt == nil && (last == nil || k.PromotedAt.After(*last.PromotedAt)) {
			last = &known[i]
		}
	}
	return last
}

// CheckKeys returns card.ErrMissingKey if the vault lacks the key that was
// promoted last, and card.ErrRetiredKey if it encrypts with one that was
// retired. It tells the vault which keys were.
func CheckKeys(ctx context.Context, store Store, vault Vault) error {
	known, err := store.KnownKeys(ctx)
	if err != nil {
		return fmt.Errorf("check keys: %w", err)
	}
	vault.Retired(retired(known))
	return unfit(vault.Keys(), known)
}
