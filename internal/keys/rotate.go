package keys

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

const pageSize = 200 // rows in one commit

// ErrOtherPrimary means that the primary key of a key file is not the last
// promoted one.
var ErrOtherPrimary = errors.New(
	"the key file has another primary key than the one that was promoted last: copy the newest key file here")

// Rotator re-encrypts data of older keys with the primary key. Several
// processes may do it at the same time: a row is replaced only if it has not
// changed since it was read.
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

// Tick re-encrypts all remaining data. It does nothing before the first
// promotion of a key. The error is ErrOtherPrimary if the last promoted key is
// not the primary one here: two processes with different primary keys would
// undo each other's work. Rows that can't be decrypted are reported and kept.
// The error is card.ErrMissingKey while a known key that has sealed data is
// missing here.
func (r *Rotator) Tick(ctx context.Context) error {
	known, err := r.store.KnownKeys(ctx)
	if err != nil {
		return err
	}
	last, ring := promoted(known), r.vault.Keys()
	if last == nil {
		return nil
	}
	if last.ID != ring.Primary { // the file may have just changed
		_ = r.vault.Reread()
		ring = r.vault.Keys()
	}
	if last.ID != ring.Primary {
		return fmt.Errorf("%w: its primary key is %s, %s was promoted", ErrOtherPrimary, ring.Primary, last.ID)
	}
	for _, key := range ring.IDs {
		if key == ring.Primary {
			continue
		}
		for _, set := range r.store.SealedSets() {
			n, err := r.rotate(ctx, set, key)
			if n > 0 {
				r.log.InfoContext(ctx, "re-encrypted", "what", set.Name, "rows", n, "old_key", key.String(), "key",
					ring.Primary.String())
			}
			if err != nil {
				return err
			}
		}
	}
	return r.unreadable(ctx, ring, known)
}

// unreadable returns card.ErrMissingKey if a known key that the ring lacks has
// sealed a row, which can't be re-encrypted here. It reads one row per key and
// set, by an index.
func (r *Rotator) unreadable(ctx context.Context, ring Ring, known []KnownKey) error {
	for _, k := range known {
		if ring.Has(k.ID) {
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

// rotate re-encrypts the rows of a set that a key has sealed, and returns the
// number of replaced rows.
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

// countPage is the number of rows that one statement of Users reads.
const countPage = 5000

// Users returns the number of rows with a field that a key has sealed. It reads
// every row.
func Users(ctx context.Context, store Store, key card.KeyID) (int64, error) {
	total := int64(0)
	for _, set := range store.SealedSets() {
		for after := uuid.Nil; ; {
			users, last, scanned, err := store.UsersOf(ctx, set.Name, key, after, countPage)
			if err != nil {
				return 0, fmt.Errorf("count %s: %w", set.Name, err)
			}
			total, after = total+users, last
			if scanned < countPage {
				break
			}
		}
	}
	return total, nil
}
