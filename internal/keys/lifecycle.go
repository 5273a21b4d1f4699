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

// Errors of Promote and Retire.
var (
	ErrNotEverywhere = errors.New("not every process has the key")
	ErrStillPrimary  = errors.New("a process still encrypts with the key")
	ErrTooSoon       = errors.New("a process may still store what it has encrypted with the key")
	ErrStillUsed     = errors.New("the key is still needed to decrypt")
)

// KeyReport is the state of one key.
type KeyReport struct {
	ID        card.KeyID
	Created   *time.Time // nil if unknown
	Here      bool       // in the key file
	Primary   bool       // primary key of the key file
	Promoted  bool       // last promoted key; the primary one if none was
	RetiredAt *time.Time
	Rows      int64 // sealed with it
	Holders   int   // live processes with it
}

// Report returns the state of every key, oldest first, and the live processes.
func Report(ctx context.Context, store Store, here Ring) ([]KeyReport, []Holder, error) {
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

// Promote records that a key is the one to encrypt with. The error is
// ErrNotEverywhere if a live process does not have it, unless force is set. The
// caller must change the key file next.
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

// settleMargin is the longest time from a process's report of a new primary key
// to the begin of its last transaction with data sealed with the old one. The
// process uses old keys until it reads the file again, within seconds, and it
// seals a supplier's answer before the transaction waits for a connection.
const settleMargin = time.Minute

// SettleTime returns the longest time that a process may take to store data it
// has sealed. The longest write includes a commit that waits for a standby.
func SettleTime(store Store) time.Duration { return store.LongestWrite() + settleMargin }

// Retire records that a key is no longer used, after checking it. The error is
// ErrStillPrimary if a live process encrypts with it, ErrTooSoon if one did
// until recently or has just started, and ErrStillUsed if sealed data needs it.
// After a crash a key may be marked as retired although it is still used: run
// Retire again. The caller must change the key file next.
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
	// Rows committed before the mark are counted. A long transaction that
	// commits later, such as an import, sees the mark and fails.
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
