package card

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Applied says what a view changed.
type Applied struct {
	Transfers    int // new, changed or gone
	Unattributed int // of these, to addresses of no card
	Cards        int // assessed
	Paid         int // cards whose making was decided
	Alarms       []Alarm
}

// Alarm is a card that an operator must look at.
type Alarm struct {
	CardUUID uuid.UUID
	State    PaymentState // Late or Reversed
}

type transferKey struct {
	txid   string
	output int64
}

// ApplyView makes the stored facts equal to what the chain shows, and assesses the cards that this concerns, in one
// transaction together with the cursor. The work is by what changed, not by how many cards wait.
//
// It fails with ErrWrongChain if the view is of another network or wallet, with ErrChainNotReady if the chain is shorter
// than what was applied, with ErrWalletLost if a transfer is missing although the chain did not change, and with ErrFenced if the lease
// was lost; then nothing is changed.
//
// After a rescan of the wallet (cursor.Rescan) the view must be of the whole chain.
func (s *Service) ApplyView(ctx context.Context, l Lease, currency string, cursor Cursor, v View) (Applied, error) {
	if cursor.Fingerprint != "" && cursor.Fingerprint != v.Fingerprint {
		return Applied{}, fmt.Errorf("%w: %q, not %q", ErrWrongChain, v.Fingerprint, cursor.Fingerprint)
	}
	if v.Tip.Height < cursor.Tip.Height {
		return Applied{}, fmt.Errorf("%w: its height is %d, but %d was applied", ErrChainNotReady, v.Tip.Height, cursor.Tip.Height)
	}
	if now := s.cfg.Now(); v.Tip.Time.After(now) {
		v.Tip.Time = now // a miner's clock may be ahead; no card expires by it
	}
	var done Applied
	err := s.store.InTx(ctx, func(tx Tx) error {
		done = Applied{}
		if err := tx.CheckLease(ctx, l); err != nil {
			return err
		}
		changed, err := applyTransfers(ctx, tx, currency, v, cursor.Believe)
		if err != nil {
			return err
		}
		done.Transfers = len(changed)
		// Its time too: that of a block from the future grows with the clock, and what is judged between passes goes by it.
		if v.Tip.Hash != cursor.Tip.Hash || v.Tip.Time.UnixMilli() != cursor.Tip.Time.UnixMilli() || cursor.Fingerprint == "" {
			deep := v.Deep
			if deep.Hash == "" {
				deep = cursor.Deep
			}
			if err := tx.SaveCursor(ctx, currency, Cursor{Fingerprint: v.Fingerprint, Tip: v.Tip, Deep: deep}); err != nil {
				return err
			}
		}
		if cursor.Rescan != "" && v.Since == 0 {
			if err := tx.EndRescan(ctx, currency); err != nil {
				return err
			}
		}
		return s.assess(ctx, tx, currency, v.Tip, changed, &done)
	})
	if err != nil {
		return Applied{}, fmt.Errorf("apply view of %s: %w", currency, err)
	}
	if done.Cards > 0 {
		s.cfg.WakeSender()
	}
	return done, nil
}

// applyTransfers stores what is new or different, un-counts what is gone, and returns both.
func applyTransfers(ctx context.Context, tx Tx, currency string, v View, believe bool) ([]Transfer, error) {
	stored, err := tx.TransfersSince(ctx, currency, v.Since)
	if err != nil {
		return nil, err
	}
	gone := make(map[transferKey]Transfer, len(stored))
	for _, t := range stored {
		gone[transferKey{t.TxID, t.Output}] = t
	}
	var changed []Transfer
	twice := make(map[transferKey]bool, len(v.Transfers))
	for _, t := range v.Transfers {
		t.Counted = true
		key := transferKey{t.TxID, t.Output}
		if twice[key] {
			return nil, fmt.Errorf("transfer %s/%d is twice in one view", t.TxID, t.Output)
		}
		twice[key] = true
		old, known := gone[key]
		delete(gone, key)
		same := known && old.Address == t.Address && old.Amount == t.Amount && old.Height == t.Height && old.Locked == t.Locked
		if !same {
			changed = append(changed, t)
		}
	}
	for _, t := range gone {
		if t.Height > 0 && t.Height <= v.Kept && !believe {
			return nil, fmt.Errorf("%w: it no longer shows transaction %s of block %d, which is still in the chain", ErrWalletLost, t.TxID, t.Height)
		}
		t.Counted = false
		changed = append(changed, t)
	}
	return changed, tx.UpsertTransfers(ctx, changed)
}

// assess judges every card that a changed transfer or the tip concerns, and stores what follows.
func (s *Service) assess(ctx context.Context, tx Tx, currency string, tip Tip, changed []Transfer, done *Applied) error {
	touched := make([]string, 0, len(changed))
	for _, t := range changed {
		touched = append(touched, t.Address)
	}
	slices.Sort(touched)
	touched = slices.Compact(touched)
	cards, err := tx.LockCards(ctx, currency, touched, tip)
	if err != nil {
		return err
	}
	if _, err := s.judge(ctx, tx, currency, tip, cards, done); err != nil {
		return err
	}
	owned := make(map[string]bool, len(cards))
	for _, c := range cards {
		owned[c.Address] = true
	}
	for _, t := range changed {
		if !owned[t.Address] {
			done.Unattributed++
		}
	}
	return nil
}

// judge assesses cards, which are locked, and stores what follows.
func (s *Service) judge(ctx context.Context, tx Tx, currency string, tip Tip, cards []*Card, done *Applied) ([]Verdict, error) {
	done.Cards = len(cards)
	addresses := make([]string, len(cards))
	for i, c := range cards {
		addresses[i] = c.Address
	}
	facts, err := tx.TransfersTo(ctx, currency, addresses)
	if err != nil {
		return nil, err
	}
	byAddress := make(map[string][]Transfer, len(cards))
	for _, t := range facts {
		byAddress[t.Address] = append(byAddress[t.Address], t)
	}
	// Without a fresh rate, late money waits: the zero Rate never moves a card toward issuing.
	today, _ := s.rates.Rate(currency)
	verdicts := make([]Verdict, len(cards))
	for i, c := range cards {
		v := Judge(c, byAddress[c.Address], tip, today, uuid.Must(uuid.NewV7()))
		verdicts[i] = v
		if v.Issue {
			done.Paid++
		}
		if v.Alarm() {
			done.Alarms = append(done.Alarms, Alarm{c.UUID, v.Assessment.State})
		}
	}
	return verdicts, tx.SaveVerdicts(ctx, verdicts)
}

// ComparePool compares the wallet with the store's pool of addresses, through compare: it gets the newest address that is stored, and
// reports whether the wallet has made others since, or an error if the wallet does not have it.
func (s *Service) ComparePool(ctx context.Context, currency string, compare func(context.Context, Address) (ahead bool, err error)) (ahead bool, err error) {
	_, newest, err := s.store.AddressPool(ctx, currency)
	if err != nil || newest == nil {
		return false, err
	}
	ahead, err = compare(ctx, *newest)
	if err != nil {
		return false, fmt.Errorf("check address pool: %w", err)
	}
	return ahead, nil
}

// TrustPool notes that a pass went well after the wallet was compared with the pool. Until that was done within the last minute no address
// is handed out.
//
// A wallet that is ahead of a store that was not compared for longer means that the store was restored from a backup: what it
// thinks free may have been handed out since. All of it is skipped, at the price of some addresses, and none is ever used twice.
func (s *Service) TrustPool(ctx context.Context, l Lease, currency string, ahead bool) error {
	return s.store.InTx(ctx, func(tx Tx) error {
		if err := tx.CheckLease(ctx, l); err != nil {
			return err
		}
		return tx.CheckedPool(ctx, currency, ahead)
	})
}

// DistrustPool has no address handed out until TrustPool is called again.
func (s *Service) DistrustPool(ctx context.Context, currency string) error {
	return s.store.DistrustPool(ctx, currency)
}

// NewestAddress returns the newest address that is stored; nil if there is none.
func (s *Service) NewestAddress(ctx context.Context, currency string) (*Address, error) {
	_, newest, err := s.store.AddressPool(ctx, currency)
	return newest, err
}

// FillAddresses keeps the pool of a currency full: it asks create for up to limit new addresses and stores them. It returns how many.
// Addresses that are not newer than all that are stored mean that the wallet has forgotten those: that is ErrWalletLost, for now that it
// has some of them again nothing else would tell.
func (s *Service) FillAddresses(ctx context.Context, l Lease, currency string, limit int, create func(ctx context.Context, n int) ([]Address, error)) (int, error) {
	free, newest, err := s.store.AddressPool(ctx, currency)
	if err != nil {
		return 0, err
	}
	n := min(s.cfg.PoolSize-free, limit)
	if n <= 0 {
		return 0, nil
	}
	fresh, err := create(ctx, n)
	if err != nil {
		return 0, fmt.Errorf("make addresses: %w", err)
	}
	for _, a := range fresh {
		if newest != nil && a.Position <= newest.Position {
			return 0, fmt.Errorf("%w: it made number %d anew, but %d was stored", ErrWalletLost, a.Position, newest.Position)
		}
	}
	err = s.store.InTx(ctx, func(tx Tx) error {
		if err := tx.CheckLease(ctx, l); err != nil {
			return err
		}
		return tx.InsertAddresses(ctx, fresh)
	})
	if err != nil {
		return 0, fmt.Errorf("store addresses: %w", err)
	}
	return len(fresh), nil
}

// Cursor returns how far the chain of a currency has been applied.
func (s *Service) Cursor(ctx context.Context, currency string) (Cursor, error) {
	return s.store.Cursor(ctx, currency)
}

// AcquireLease takes or prolongs a lease for this process; ErrFenced if another process has it.
func (s *Service) AcquireLease(ctx context.Context, name string, ttl time.Duration) (Lease, error) {
	return s.store.AcquireLease(ctx, name, s.cfg.Replica, ttl)
}

// ReleaseLease gives a lease up before it ends, so that another process can go on at once.
func (s *Service) ReleaseLease(ctx context.Context, l Lease) error {
	return s.store.ReleaseLease(ctx, l)
}
