package keys

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

const pageSize = 200 // rows that are replaced in one commit

// ErrOtherPrimary means that a key file has another primary key than the one
// that was promoted last.
var ErrOtherPrimary = errors.New(
	"the key file has another primary key than the one that was promoted last: copy the newest key file here")

// Rotator re-encrypts with the primary key what older keys have sealed. Any
// number of processes may do it at once: a row is replaced only while it is
// what was read, so that it is replaced once.
type Rotator struct {
	store Store
	vault Vault
	log   *slog.Logger
	page  int
}

// NewRotator returns a rotator.
func NewRotator(store Store, vault Vault, log *slog.Logger) *Rotator {
	return &Rotator{store: store, vault: vault, log: log, page: pageSize}
}

// Tick re-encrypts everything that is left. It does nothing unless a key was
// promoted, and that is the primary one here too: two processes with different
// primary keys would undo each other's work. What can't be decrypted is
// reported and left as it is; the error is card.ErrMissingKey as long as a key
// is not here that somebody had and that has sealed something.
func (r *Rotator) Tick(ctx context.Context) error {
	known, err := r.store.KnownKeys(ctx)
	if err != nil {
		return err
	}
	last, keys := promoted(known), r.vault.Keys()
	if last == nil {
		return nil
	}
	if last.ID != keys.Primary { // the file may have changed just now
		_ = r.vault.Reread()
		keys = r.vault.Keys()
	}
	if last.ID != keys.Primary {
		return fmt.Errorf("%w: its primary key is %s, %s was promoted", ErrOtherPrimary, keys.Primary, last.ID)
	}
	for _, key := range keys.IDs {
		if key == keys.Primary {
			continue
		}
		for _, set := range r.store.SealedSets() {
			n, err := r.rotate(ctx, set, key)
			if n > 0 {
				r.log.InfoContext(ctx, "re-encrypted", "what", set.Name, "rows", n, "old_key", key.String(), "key",
					keys.Primary.String())
			}
			if err != nil {
				return err
			}
		}
	}
	return r.unreadable(ctx, keys, known)
}

// unreadable returns card.ErrMissingKey if a known key that is not in the file
// has sealed a row: nobody re-encrypts that one here. It asks for one row of
// each, by the index, and so costs little.
func (r *Rotator) unreadable(ctx context.Context, keys Keys, known []KnownKey) error {
	for _, k := range known {
		if keys.Has(k.ID) {
			continue
		}
		for _, set := range r.store.SealedSets() {
			rows, err := r.store.SealedBy(ctx, set.Name, k.ID, uuid.Nil, 1)
			if err != nil {
				return err
			}
			if len(rows) > 0 {
				return fmt.Errorf("%w: %s, which has sealed %s %s and perhaps more", card.ErrMissingKey, k.ID, set.Name, rows[0].ID)
			}
		}
	}
	return nil
}

// rotate re-encrypts what a key has sealed in a set, and returns how many rows
// it replaced.
func (r *Rotator) rotate(ctx context.Context, set Set, key card.KeyID) (replaced int64, err error) {
	for after := uuid.Nil; ctx.Err() == nil; {
		rows, err := r.store.SealedBy(ctx, set.Name, key, after, r.page)
		if err != nil {
			return replaced, err
		}
		var before, now []Row
		for _, row := range rows {
			after = row.ID
			sealed, err := r.vault.Reseal(row.ID, row.AccountID, set.Fields, row.Sealed)
			switch {
			case errors.Is(err, card.ErrUnavailable):
				return replaced, err
			case err != nil:
				r.store.ReportCorrupt(ctx, set.Name, row.ID, err)
				continue
			}
			before, now = append(before, row), append(now, Row{row.ID, row.AccountID, sealed})
		}
		if len(now) > 0 {
			n, err := r.store.ReplaceSealed(ctx, set.Name, before, now)
			replaced += n
			if err != nil {
				return replaced, err
			}
		}
		if len(rows) < r.page {
			return replaced, nil
		}
	}
	return replaced, ctx.Err()
}

// countPage is how many rows are looked at by one statement before a key is
// retired.
const countPage = 5000

// Users returns how many rows a key has sealed, at least in part. It looks at
// every row.
func Users(ctx context.Context, store Store, key card.KeyID) (int64, error) {
	total := int64(0)
	for _, set := range store.SealedSets() {
		for after := uuid.Nil; ; {
			users, last, looked, err := store.UsersOf(ctx, set.Name, key, after, countPage)
			if err != nil {
				return 0, fmt.Errorf("count %s: %w", set.Name, err)
			}
			total, after = total+users, last
			if looked < countPage {
				break
			}
		}
	}
	return total, nil
}
