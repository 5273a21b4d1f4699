// Package keys manages encryption keys: which process has which keys, the
// re-encryption of data with the primary key, and the deletion of old
// credentials.
//
// It may import package card only. All work is done in pages, each in one
// commit: after a crash the next Tick continues.
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

// Ring is the set of encryption keys in a key file, without their secrets.
type Ring struct {
	IDs     []card.KeyID
	Primary card.KeyID               // encrypts new data
	Created map[card.KeyID]time.Time // lacks keys of old versions
}

// Has reports whether the ring contains a key.
func (k Ring) Has(id card.KeyID) bool { return slices.Contains(k.IDs, id) }

// KnownKey is a key that some process has or had.
type KnownKey struct {
	ID         card.KeyID
	Since      time.Time
	PromotedAt *time.Time
	RetiredAt  *time.Time
}

// Holder is a process with keys, according to its last report.
type Holder struct {
	Process    string
	Keys       Ring
	PrimaryFor time.Duration // since its first report of the current primary key
	SeenAgo    time.Duration // since its last report
}

// Set is a kind of encrypted data: fields of a row that are always sealed
// together, with the same key.
type Set struct {
	Name   string
	Fields []string // their names in the associated data
}

// Row is the ciphertexts of one row of a set, in the order of the set's fields.
type Row struct {
	ID, AccountID uuid.UUID
	Sealed        [][]byte
}

// Purge is an operator's decision to delete a card's credentials permanently.
type Purge struct {
	ID       uuid.UUID
	CardUUID uuid.UUID
	Note     string
	Operator string
}

// ErrNotIssued means that a card has no credentials yet.
var ErrNotIssued = errors.New("the card is not issued and has no credentials yet")

// Store stores sealed data, and the keys of each process. Every method is
// harmless when it runs twice. The error is card.ErrUnavailable if the database
// can't be reached.
type Store interface {
	// SaveHolder stores the keys of a process, adds them to the known keys, and
	// deletes processes that were not seen for long.
	SaveHolder(ctx context.Context, h Holder) error
	DeleteHolder(ctx context.Context, process string) error
	// Holders returns the processes that were seen within a duration, by name.
	Holders(ctx context.Context, within time.Duration) ([]Holder, error)
	// KnownKeys returns all keys that were ever reported, oldest first.
	KnownKeys(ctx context.Context) ([]KnownKey, error)
	// PromoteKey adds a key to the known keys, as the last promoted one.
	PromoteKey(ctx context.Context, id card.KeyID) error
	// MarkRetired sets or clears the retirement of a key. It waits for
	// transactions that have checked that the key is not retired.
	MarkRetired(ctx context.Context, id card.KeyID, retired bool) error

	// LongestWrite returns the longest time until a transaction has committed
	// or rolled back.
	LongestWrite() time.Duration

	// SealedSets returns all sets.
	SealedSets() []Set
	// SealedBy returns up to n rows of a set that were sealed with a key and
	// whose id is greater than after, by id.
	SealedBy(ctx context.Context, set string, key card.KeyID, after uuid.UUID, n int) ([]Row, error)
	// ReplaceSealed replaces the rows before by the rows after, unless they
	// have changed since they were read. It returns the number of replaced
	// rows.
	ReplaceSealed(ctx context.Context, set string, before, after []Row) (int64, error)
	// CountSealed returns the number of rows that each key has sealed, by the
	// first field of each set.
	CountSealed(ctx context.Context) (map[card.KeyID]int64, error)
	// UsersOf reads every field of up to n rows of a set whose id is greater
	// than after. It returns the number of rows with a field that the key has
	// sealed, and the last id. scanned is less than n at the end of the set.
	UsersOf(ctx context.Context, set string, key card.KeyID, after uuid.UUID, n int) (users int64, last uuid.UUID,
		scanned int, err error)
	// ReportCorrupt reports a row that can't be decrypted to an operator, once.
	ReportCorrupt(ctx context.Context, kind string, id uuid.UUID, err error)

	// PurgeCredentials deletes the credentials of up to n cards that were
	// issued at least age ago. Before that it sets missing times of issue, from
	// the cards' events. It returns the numbers of both.
	PurgeCredentials(ctx context.Context, age time.Duration, n int) (purged, dated int64, err error)
	// PurgeCard deletes a card's credentials. It returns false if they were
	// purged before. The error is card.ErrNoRow if the card does not exist, and
	// ErrNotIssued if it has no credentials yet.
	PurgeCard(ctx context.Context, p Purge) (bool, error)
}

// Vault encrypts and decrypts with the keys of a key file.
type Vault interface {
	// Keys returns the keys in use.
	Keys() Ring
	// Reread reads the key file again. After an error the current keys stay in
	// use.
	Reread() error
	// Reseal re-encrypts ciphertexts with the primary key. It returns an error
	// if one was changed or belongs elsewhere, and card.ErrUnavailable if its
	// key is not in use here.
	Reseal(id, account uuid.UUID, fields []string, ciphertexts [][]byte) ([][]byte, error)
	// UnknownKeys returns keys that ciphertexts name and that are not in use
	// here, except those passed to MarkNonexistent.
	UnknownKeys() []card.KeyID
	// MarkNonexistent declares that no process has these keys: ciphertexts that
	// name them are corrupt.
	MarkNonexistent(all []card.KeyID)
	// SetRetired sets the retired keys. While the primary key is one of them,
	// encrypting fails with card.ErrUnavailable.
	SetRetired(all []card.KeyID)
}

const (
	reportEvery = 10 * time.Second
	liveFor     = 30 * time.Second // after a report, a process counts as live
)

// Reporter follows the key file, and reports the keys of this process.
type Reporter struct {
	store   Store
	vault   Vault
	process string
	log     *slog.Logger
	now     func() time.Time

	reported   Ring
	reportedAt time.Time
	unfit      error // why the reported keys are not fit for use
}

// NewReporter returns a reporter for a process. now is the clock; nil for
// time.Now.
func NewReporter(store Store, vault Vault, process string, log *slog.Logger, now func() time.Time) *Reporter {
	if now == nil {
		now = time.Now
	}
	return &Reporter{store: store, vault: vault, process: process, log: log, now: now}
}

// Tick reads the key file, and reports its keys after a change, or if the last
// report is old. It also determines which of the unknown keys exist nowhere.
// The error is card.ErrMissingKey while the last promoted key is missing, and
// card.ErrRetiredKey while the primary key is retired.
func (r *Reporter) Tick(ctx context.Context) error {
	before := r.vault.Keys()
	unread := r.vault.Reread()
	ring, unknown := r.vault.Keys(), r.vault.UnknownKeys()
	same := func(other Ring) bool { return other.Primary == ring.Primary && slices.Equal(other.IDs, ring.IDs) }
	if !same(before) {
		r.log.InfoContext(ctx, "key file changed", "keys", fmt.Sprint(ring.IDs), "primary", ring.Primary.String())
	}
	if same(r.reported) && r.now().Sub(r.reportedAt) < reportEvery && len(unknown) == 0 {
		return errors.Join(unread, r.unfit)
	}
	if err := r.store.SaveHolder(ctx, Holder{Process: r.process, Keys: ring}); err != nil {
		return errors.Join(unread, err)
	}
	known, err := r.store.KnownKeys(ctx)
	if err != nil {
		return errors.Join(unread, err)
	}
	r.reported, r.reportedAt, r.unfit = ring, r.now(), unfit(ring, known)
	r.vault.SetRetired(retired(known))
	r.vault.MarkNonexistent(slices.DeleteFunc(unknown, func(id card.KeyID) bool {
		return slices.ContainsFunc(known, func(k KnownKey) bool { return k.ID == id && k.RetiredAt == nil })
	}))
	return errors.Join(unread, r.unfit)
}

// Close deletes the report of the process.
func (r *Reporter) Close(ctx context.Context) error { return r.store.DeleteHolder(ctx, r.process) }

// unfit returns card.ErrRetiredKey if the primary key is retired, and
// card.ErrMissingKey if the ring lacks the last promoted key.
func unfit(ring Ring, known []KnownKey) error {
	if slices.Contains(retired(known), ring.Primary) {
		return fmt.Errorf("%w: %s", card.ErrRetiredKey, ring.Primary)
	}
	if k := promoted(known); k != nil && !ring.Has(k.ID) {
		return fmt.Errorf("%w: %s", card.ErrMissingKey, k.ID)
	}
	return nil
}

// retired returns the retired keys.
func retired(known []KnownKey) (ids []card.KeyID) {
	for _, k := range known {
		if k.RetiredAt != nil {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// promoted returns the last promoted key; nil if there is none.
func promoted(known []KnownKey) (last *KnownKey) {
	for i, k := range known {
		if k.PromotedAt != nil && k.RetiredAt == nil && (last == nil || k.PromotedAt.After(*last.PromotedAt)) {
			last = &known[i]
		}
	}
	return last
}

// CheckKeys returns card.ErrMissingKey if the vault lacks the last promoted
// key, and card.ErrRetiredKey if its primary key is retired. It passes the
// retired keys to the vault.
func CheckKeys(ctx context.Context, store Store, vault Vault) error {
	known, err := store.KnownKeys(ctx)
	if err != nil {
		return fmt.Errorf("check keys: %w", err)
	}
	vault.SetRetired(retired(known))
	return unfit(vault.Keys(), known)
}
