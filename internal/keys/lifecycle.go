package keys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Errors of decisions about keys.
var (
	ErrNotEverywhere = errors.New("not every process has the key")
	ErrStillPrimary  = errors.New("a process still encrypts with the key")
	ErrTooSoon       = errors.New("a process may still store what it has encrypted with the key")
	ErrStillUsed     = errors.New("the key is still needed to decrypt")
)

// KeyReport is what is known of one key.
type KeyReport struct {
	ID        card.KeyID
	Created   *time.Time // nil if it is not known
	Here      bool       // the key file has it
	Primary   bool       // the key file encrypts with it
	Promoted  bool       // it was promoted last, or never another
	RetiredAt *time.Time
	Rows      int64 // that it has sealed
	Holders   int   // live processes that have it
}

// Report returns what is known of every key, oldest first, and the processes
// that live.
func Report(ctx context.Context, store Store, here Keys) ([]KeyReport, []Holder, error) {
	known, err := store.KnownKeys(ctx)
	if err != nil {
		return nil, nil, err
	}
	holders, err := store.Holders(ctx, liveFor)
	if err != nil {
		return nil, nil, err
	}
	rows, err := store.CountSealed(ctx)
	if err != nil {
		return nil, nil, err
	}
	var all []KeyReport
	add := func(id card.KeyID) *KeyReport {
		if i := slices.IndexFunc(all, func(r KeyReport) bool { return r.ID == id }); i >= 0 {
			return &all[i]
		}
		all = append(all, KeyReport{ID: id, Rows: rows[id], Here: here.Has(id), Primary: here.Primary == id})
		r := &all[len(all)-1]
		if at, known := here.Created[id]; known {
			r.Created = &at
		}
		for _, h := range holders {
			if h.Keys.Has(id) {
				r.Holders++
			}
		}
		return r
	}
	for _, k := range known {
		r := add(k.ID)
		r.RetiredAt = k.RetiredAt
		if r.Created == nil {
			r.Created = &k.Since
		}
	}
	for _, id := range here.IDs {
		add(id)
	}
	for id := range rows {
		add(id)
	}
	if last := promoted(known); last != nil {
		add(last.ID).Promoted = true
	} else {
		add(here.Primary).Promoted = true
	}
	return all, holders, nil
}

// Promote records that a key is to encrypt from now on. The error is
// ErrNotEverywhere if a live process does not have it, unless force is true.
// The caller must change the key file next.
func Promote(ctx context.Context, store Store, id card.KeyID, force bool) error {
	holders, err := store.Holders(ctx, liveFor)
	if err != nil {
		return err
	}
	if without := names(holders, func(h Holder) bool { return !h.Keys.Has(id) }); without != "" && !force {
		return fmt.Errorf("%w: %s", ErrNotEverywhere, without)
	}
	return store.PromoteKey(ctx, id)
}

// settleMargin is what may pass between the moment when a process says that its
// primary key is another one and the last transaction that stores something
// sealed with the one before: it uses keys until it reads the file again, which
// takes seconds, and an answer of a supplier is sealed before its transaction
// begins, which may wait for a connection.
const settleMargin = time.Minute

// SettleTime is for how long a process may take to store what it has encrypted.
// A commit that waits for a standby is part of the longest write.
func SettleTime(store Store) time.Duration { return store.LongestWrite() + settleMargin }

// Retire records that a key is not used any more, if that is so. The error is
// ErrStillPrimary if a live process encrypts with it, ErrTooSoon if one did
// until lately or has just started, and ErrStillUsed if it has sealed anything.
// A crash may leave a key retired that has: run it again. The caller must
// change the key file next.
func Retire(ctx context.Context, store Store, id card.KeyID) error {
	known, err := store.KnownKeys(ctx)
	if err != nil {
		return err
	}
	if last := promoted(known); last != nil && last.ID == id {
		return fmt.Errorf("%w: it was promoted last", ErrStillPrimary)
	}
	holders, err := store.Holders(ctx, liveFor)
	if err != nil {
		return err
	}
	if with := names(holders, func(h Holder) bool { return h.Keys.Primary == id }); with != "" {
		return fmt.Errorf("%w: %s", ErrStillPrimary, with)
	}
	settle := SettleTime(store)
	if late := names(holders, func(h Holder) bool { return h.PrimaryFor < settle }); late != "" {
		return fmt.Errorf("%w: %s has had its primary key for less than %d minutes", ErrTooSoon, late, settle/time.Minute)
	}
	// What is committed before the mark is counted. A long transaction that
	// comes later, an import, sees the mark and fails.
	if err := store.MarkRetired(ctx, id, true); err != nil {
		return err
	}
	users, err := Users(ctx, store, id)
	if err == nil && users > 0 {
		err = fmt.Errorf("%w %d rows", ErrStillUsed, users)
	}
	if err != nil {
		return errors.Join(err, store.MarkRetired(context.WithoutCancel(ctx), id, false))
	}
	return nil
}

// names returns the names of the processes that match.
func names(holders []Holder, match func(Holder) bool) string {
	var all []string
	for _, h := range holders {
		if match(h) {
			all = append(all, h.Process)
		}
	}
	return strings.Join(all, ", ")
}
