package store_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

const expiredAtOnce = 0 // a time to live that is over when the statement ends

// lockHorizon is monero's.
const lockHorizon = 5000

func TestAcquireLease_OneHolderAndAFenceThatGrows(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		first, err := s.AcquireLease(ctx, "watch", "a", time.Minute)
		check(t, err)
		again, err := s.AcquireLease(ctx, "watch", "a", time.Minute)
		check(t, err)
		if first != again {
			t.Errorf("prolonging changed %+v to %+v", first, again)
		}
		_, err = s.AcquireLease(ctx, "watch", "b", time.Minute)
		wantError(t, err, card.ErrFenced)
		_, err = s.AcquireLease(ctx, "watch", "a", expiredAtOnce)
		check(t, err)
		taken, err := s.AcquireLease(ctx, "watch", "b", time.Minute)
		check(t, err)
		if taken.Fence <= first.Fence {
			t.Errorf("fence %d after %d", taken.Fence, first.Fence)
		}
		wantError(t, s.Do(ctx, func(tx *store.Tx) error { return tx.CheckLease(ctx, first) }), card.ErrFenced)
		check(t, s.Do(ctx, func(tx *store.Tx) error { return tx.CheckLease(ctx, taken) }))
		check(t, s.ReleaseLease(ctx, first)) // an old holder can't release the new one's
		check(t, s.Do(ctx, func(tx *store.Tx) error { return tx.CheckLease(ctx, taken) }))
		check(t, s.ReleaseLease(ctx, taken))
		third, err := s.AcquireLease(ctx, "watch", "c", time.Minute)
		check(t, err)
		if third.Fence <= taken.Fence {
			t.Errorf("fence %d after %d", third.Fence, taken.Fence)
		}
	})
}

func addAddresses(t *testing.T, s *store.Store, first, n int) []string {
	t.Helper()
	var as []settle.Address
	var names []string
	for i := first; i < first+n; i++ {
		as = append(as, settle.Address{Currency: "monero", Address: fmt.Sprintf("a%05d", i), Position: int64(i)})
		names = append(names, as[len(as)-1].Address)
	}
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.InsertAddresses(ctx, as) })
	return names
}

func TestTakeAddresses_NoneIsTakenTwice(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		want := addAddresses(t, s, 0, 1200)
		var mu sync.Mutex
		var got []string
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					some, err := s.TakeAddresses(t.Context(), "monero", 40)
					if err != nil {
						t.Error(err)
						return
					}
					if len(some) == 0 {
						return
					}
					mu.Lock()
					got = append(got, some...)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTakeAddresses_InOrderUntilThereAreNone(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		take := func(want ...string) {
			t.Helper()
			got, err := s.TakeAddresses(t.Context(), "monero", 2)
			check(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		take()
		addAddresses(t, s, 7, 3)
		take("a00007", "a00008")
		free, newest, err := s.AddressPool(t.Context(), "monero")
		check(t, err)
		if free != 1 || newest == nil || newest.Position != 9 || newest.Address != "a00009" {
			t.Errorf("%d free, newest %+v", free, newest)
		}
		take("a00009")
		take()
		addAddresses(t, s, 10, 1)
		take("a00010")
		_, err = s.TakeAddresses(t.Context(), "bitcoin", 1)
		check(t, err)
	})
}

func TestTakeAddresses_OneThatMoneyCameToIsLeftOut(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		addAddresses(t, s, 0, 3)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.UpsertTransfers(ctx, []card.Transfer{{Currency: "monero", TxID: "t", Address: "a00001", Amount: 1, FirstSeenAt: epoch}})
		})
		got, err := s.TakeAddresses(t.Context(), "monero", 3)
		check(t, err)
		if diff := cmp.Diff([]string{"a00000", "a00002"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestInsertAddresses_TwiceIsRefused(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		addAddresses(t, s, 0, 1)
		err := s.Do(t.Context(), func(tx *store.Tx) error {
			return tx.InsertAddresses(t.Context(), []settle.Address{{Currency: "monero", Address: "a00000", Position: 99}})
		})
		wantError(t, err, card.ErrDuplicate)
	})
}

// A backup that is restored holds an old time of the last comparison with the wallet.
func TestTakeAddresses_NoneFromARestoredBackupUntilTheWalletWasAsked(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		for _, tt := range []struct {
			restored, ahead bool
			want            string
		}{
			{restored: false, ahead: false, want: "a00000"},
			{restored: false, ahead: true, want: "a00001"}, // only a process that died between wallet and store
			{restored: true, ahead: false, want: "a00002"},
			{restored: true, ahead: true, want: "a00010"},
		} {
			s := open(t, url)
			if tt.want == "a00000" {
				addAddresses(t, s, 0, 10)
			}
			take := func() []string {
				got, err := s.TakeAddresses(t.Context(), "monero", 1)
				check(t, err)
				return got
			}
			if tt.restored {
				_, err := rig.OpenSQL(t, url).Exec("UPDATE address_pools SET checked_at = checked_at - 61000")
				check(t, err)
				if got := take(); len(got) != 0 {
					t.Errorf("%+v: took %v", tt, got)
				}
			}
			inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.CheckedPool(ctx, "monero", tt.ahead) })
			if tt.restored && tt.ahead {
				if got := take(); len(got) != 0 {
					t.Errorf("%+v: took %v, which may have been handed out", tt, got)
				}
				addAddresses(t, s, 10, 1)
			}
			if diff := cmp.Diff([]string{tt.want}, take()); diff != "" {
				t.Errorf("%+v: %s", tt, diff)
			}
		}
	})
}

func TestUpsertTransfers_TheSameFactsAgainChangeNothing(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		facts := []card.Transfer{
			{Currency: "monero", TxID: "t1", Output: 1, Address: "a", Amount: 5, Height: 100, FirstSeenAt: epoch, Counted: true},
			{Currency: "monero", TxID: "t1", Output: 2, Address: "b", Amount: 6, Height: 100, Locked: true, FirstSeenAt: epoch, Counted: true},
			{Currency: "monero", TxID: "t2", Output: 1, Address: "a", Amount: 7, Height: 0, FirstSeenAt: epoch, Counted: true},
			{Currency: "monero", TxID: "t3", Output: 1, Address: "a", Amount: 8, Height: 90, FirstSeenAt: epoch, Counted: true},
			{Currency: "monero", TxID: "t4", Output: 1, Address: "a", Amount: 9, Height: 100, FirstSeenAt: epoch, Counted: false},
		}
		for range 3 {
			inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.UpsertTransfers(ctx, facts) })
		}
		later := facts[0]
		later.Height, later.FirstSeenAt = 101, epoch.Add(time.Hour)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.UpsertTransfers(ctx, []card.Transfer{later}) })
		later.FirstSeenAt = epoch // the earlier time is kept
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			since, err := tx.TransfersSince(ctx, "monero", 90)
			check(t, err)
			sortTransfers(since)
			if diff := cmp.Diff([]card.Transfer{later, facts[1], facts[2]}, since); diff != "" {
				t.Error(diff)
			}
			to, err := tx.TransfersTo(ctx, "monero", []string{"a", "none"})
			check(t, err)
			sortTransfers(to)
			if diff := cmp.Diff([]card.Transfer{later, facts[2], facts[3]}, to); diff != "" {
				t.Error(diff)
			}
			return tx.SaveCursor(ctx, "monero", settle.Cursor{Fingerprint: "f", Tip: card.Tip{Height: 101, Hash: "h", Time: epoch}})
		})
		cursor, err := s.Cursor(t.Context(), chain.Currencies()[0])
		check(t, err)
		if diff := cmp.Diff(settle.Cursor{Fingerprint: "f", Tip: card.Tip{Height: 101, Hash: "h", Time: epoch}, LowestLocked: 100, Newest: settle.NoPosition}, cursor); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCursor_LocksThatLastTooLongAreNotWaitedFor(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		const tip = 20_000
		locked := func(output, height int64, is bool) card.Transfer {
			return card.Transfer{Currency: "monero", TxID: "t", Output: output, Address: "a", Amount: 5, Height: height, Locked: is, FirstSeenAt: epoch, Counted: true}
		}
		for _, tt := range []struct {
			name string
			add  card.Transfer
			want int64
		}{
			{"in the mempool", locked(1, 0, true), 0},
			{"for ever", locked(2, 500, true), 0},
			{"a block too long", locked(3, tip-lockHorizon, true), 0},
			{"nearly too long", locked(4, tip-lockHorizon+1, true), tip - lockHorizon + 1},
			{"for less", locked(5, tip-100, true), tip - lockHorizon + 1},
			{"no longer", locked(4, tip-lockHorizon+1, false), tip - 100},
		} {
			inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
				if err := tx.UpsertTransfers(ctx, []card.Transfer{tt.add}); err != nil {
					return err
				}
				return tx.SaveCursor(ctx, "monero", settle.Cursor{Fingerprint: "f", Tip: card.Tip{Height: tip, Hash: "h", Time: epoch}})
			})
			if cursor, err := s.Cursor(t.Context(), chain.Currencies()[0]); err != nil || cursor.LowestLocked != tt.want {
				t.Errorf("%s: lowest locked is %d, want %d (%v)", tt.name, cursor.LowestLocked, tt.want, err)
			}
		}
	})
}

func sortTransfers(ts []card.Transfer) {
	slices.SortFunc(ts, func(a, b card.Transfer) int {
		if a.TxID != b.TxID {
			return map[bool]int{true: -1, false: 1}[a.TxID < b.TxID]
		}
		return int(a.Output - b.Output)
	})
}
