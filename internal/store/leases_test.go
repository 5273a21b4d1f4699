package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

const expiredAtOnce = 0 // a TTL that is over when the statement ends

// lockHorizon is monero's.
const lockHorizon = 5000

func TestAcquireLease_OneHolderAndAFenceThatGrows(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		first, err := s.AcquireLease(ctx, "watch", "a", time.Minute)
		check(t, err)
		again, err := s.AcquireLease(ctx, "watch", "a", time.Minute)
		check(t, err)
		if again.Now.Before(first.Now) {
			t.Errorf("the clock went from %s to %s", first.Now, again.Now)
		}
		if first.Now = again.Now; first != again {
			t.Errorf("renewing changed %+v to %+v", first, again)
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

// attest begins or continues an epoch of monero.
func attest(t *testing.T, s *store.Store) {
	t.Helper()
	l, err := s.AcquireLease(t.Context(), settle.LeaseName("monero"), "watcher", time.Hour)
	check(t, err)
	if l.Epoch == 0 {
		_, err = s.BeginEpoch(t.Context(), l, settle.Epoch{Currency: "monero", Number: l.Now.UnixMilli()})
		check(t, err)
	}
}

func addAddresses(t *testing.T, s *store.Store, first, n int) []string {
	t.Helper()
	var as []settle.Address
	var names []string
	for i := first; i < first+n; i++ {
		as = append(as, settle.Address{Currency: "monero", Address: fmt.Sprintf("a%05d", i), Position: int64(i)})
		names = append(names, as[len(as)-1].Address)
	}
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.InsertAddresses(ctx, as, time.Time{}) })
	attest(t, s)
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
		pool, err := s.AddressPool(t.Context(), "monero")
		check(t, err)
		if newest := pool.Newest; pool.Free != 1 || newest == nil || newest.Position != 9 || newest.Address != "a00009" ||
			pool.Next != 9 {
			t.Errorf("%+v, newest %+v", pool, newest)
		}
		take("a00009")
		take()
		addAddresses(t, s, 10, 1)
		take("a00010")
		_, err = s.TakeAddresses(t.Context(), "bitcoin", 1)
		check(t, err)
	})
}

func TestTakeAddresses_AddressWithTransfer_IsSkipped(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		addAddresses(t, s, 0, 3)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.UpsertTransfers(ctx,
				[]card.Transfer{{Currency: "monero", TxID: "t", Address: "a00001", Amount: 1, FirstSeenAt: epoch}})
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
			return tx.InsertAddresses(t.Context(), []settle.Address{{Currency: "monero", Address: "a00000", Position: 99}},
				time.Time{})
		})
		wantError(t, err, card.ErrDuplicate)
	})
}

// takes fails the test unless the store hands out these addresses.
func takes(t *testing.T, s *store.Store, want ...string) {
	t.Helper()
	got, err := s.TakeAddresses(t.Context(), "monero", 1)
	check(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// mark renews the watcher's attestation.
func mark(t *testing.T, s *store.Store) settle.Lease {
	t.Helper()
	l, err := s.AcquireLease(t.Context(), settle.LeaseName("monero"), "watcher", time.Hour)
	check(t, err)
	return l
}

func TestTakeAddresses_AProcessMustHaveSeenTheMarksGrow(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		worker, api := open(t, url), open(t, url)
		addAddresses(t, worker, 0, 3)
		takes(t, worker, "a00000") // it attests itself
		// It has seen only one mark: the database may be a copy.
		takes(t, api)
		takes(t, api)
		mark(t, worker)
		takes(t, api, "a00001")
		takes(t, open(t, url)) // marks seen by another process don't count
	})
}

func TestTakeAddresses_NoneOnceTheMarksStop(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		addAddresses(t, s, 0, 3)
		_, err := rig.OpenSQL(t, url).Exec("UPDATE leases SET marked_at = marked_at - 11000")
		check(t, err)
		takes(t, s)
		mark(t, s)
		takes(t, s, "a00000")
	})
}

func TestTakeAddresses_NoneWhileTheWalletWasNotCompared(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		addAddresses(t, s, 0, 3)
		_, err := rig.OpenSQL(t, url).Exec("UPDATE address_pools SET checked_at = checked_at - 61000")
		check(t, err)
		takes(t, s)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.CheckedPool(ctx, "monero") })
		takes(t, s, "a00000")
	})
}

// After a rollback, the database has older marks than the processes remember.
// No address is handed out until an epoch begins, and then only addresses of
// that epoch.
func TestTakeAddresses_NoneFromADatabaseThatWentBack(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		worker, api := open(t, url), open(t, url)
		addAddresses(t, worker, 0, 10)
		for range 3 {
			mark(t, worker)
			_, err := api.PoolState(t.Context(), "monero")
			check(t, err)
		}
		takes(t, api, "a00000")
		raw := rig.OpenSQL(t, url)
		_, err := raw.Exec("UPDATE leases SET mark = mark - 2")
		check(t, err)
		if state, err := api.PoolState(t.Context(), "monero"); err != nil || !state.WentBack || state.Moving {
			t.Errorf("%+v, error %v", state, err)
		}
		takes(t, api)
		takes(t, worker) // also the worker, before it attests
		l := mark(t, worker)
		if l.Epoch != 0 || !l.WentBack || l.MarkedAt.IsZero() {
			t.Errorf("the epoch continued: %+v", l)
		}
		if again := mark(t, worker); again.Epoch != 0 || !again.MarkedAt.Equal(l.MarkedAt) {
			t.Errorf("a second mark attests: %+v", again)
		}
		takes(t, worker)
		began, err := worker.BeginEpoch(t.Context(), l,
			settle.Epoch{Currency: "monero", Number: l.Now.UnixMilli() + 1, First: 7})
		check(t, err)
		if began.Epoch != l.Now.UnixMilli()+1 || mark(t, worker).Epoch != began.Epoch {
			t.Errorf("began %+v", began)
		}
		takes(t, worker, "a00007")
		takes(t, api) // sees the new epoch for the first time
		mark(t, worker)
		takes(t, api, "a00008")
	})
}

// A standby replica has seen the marks, so the epoch continues when it takes
// over. A process that just started has not.
func TestAcquireLease_Standby_ContinuesEpoch(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		first, second := open(t, url), open(t, url)
		addAddresses(t, first, 0, 3)
		epoch := mark(t, first).Epoch
		acquire := func(s *store.Store, holder string) (settle.Lease, error) {
			return s.AcquireLease(t.Context(), settle.LeaseName("monero"), holder, time.Hour)
		}
		for range 2 { // a single observation would not rule out a rollback
			_, err := acquire(second, "second")
			wantError(t, err, card.ErrFenced)
			mark(t, first)
		}
		check(t, first.ReleaseLease(t.Context(), mark(t, first)))
		l, err := acquire(second, "second")
		check(t, err)
		if epoch == 0 || l.Epoch != epoch {
			t.Errorf("epoch %d, want %d", l.Epoch, epoch)
		}
		check(t, second.ReleaseLease(t.Context(), l))
		l, err = acquire(open(t, url), "third")
		check(t, err)
		if l.Epoch != 0 || l.WentBack {
			t.Errorf("%+v, although it has seen no marks", l)
		}
	})
}

func TestUpsertTransfers_TheSameFactsAgainChangeNothing(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		facts := []card.Transfer{
			{Currency: "monero", TxID: "t1", Output: 1, Address: "a", Amount: 5, Height: 100, FirstSeenAt: epoch, Counted: true},
			{Currency: "monero", TxID: "t1", Output: 2, Address: "b", Amount: 6, Height: 100, Locked: true, FirstSeenAt: epoch,
				Counted: true},
			{Currency: "monero", TxID: "t2", Output: 1, Address: "a", Amount: 7, Height: 0, FirstSeenAt: epoch, Counted: true},
			{Currency: "monero", TxID: "t3", Output: 1, Address: "a", Amount: 8, Height: 90, FirstSeenAt: epoch, Counted: true},
			{Currency: "monero", TxID: "t4", Output: 1, Address: "a", Amount: 9, Height: 100, FirstSeenAt: epoch,
				Counted: false},
		}
		for range 3 {
			inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.UpsertTransfers(ctx, facts) })
		}
		later := facts[0]
		later.Height, later.FirstSeenAt = 101, epoch.Add(time.Hour)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.UpsertTransfers(ctx, []card.Transfer{later}) })
		later.FirstSeenAt = epoch // keeps the earlier time
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			since, err := tx.TransfersIn(ctx, "monero", 90, nil)
			check(t, err)
			sortTransfers(since)
			if diff := cmp.Diff([]card.Transfer{later, facts[1], facts[2]}, since); diff != "" {
				t.Error(diff)
			}
			in, err := tx.TransfersIn(ctx, "monero", 100,
				[]settle.Blocks{{First: 0, Last: 3}, {First: 90, Last: 90}, {First: 92, Last: 200}})
			check(t, err)
			sortTransfers(in) // each once, although the range ends above 100
			if diff := cmp.Diff([]card.Transfer{later, facts[1], facts[2], facts[3]}, in); diff != "" {
				t.Error(diff)
			}
			of, err := tx.TransfersOf(ctx, "monero", []string{"t1", "t3", "t4", "t9"})
			check(t, err)
			sortTransfers(of)
			if diff := cmp.Diff([]card.Transfer{later, facts[1], facts[3]}, of); diff != "" {
				t.Error(diff)
			}
			to, err := tx.TransfersTo(ctx, "monero", []string{"a", "none"})
			check(t, err)
			sortTransfers(to)
			if diff := cmp.Diff([]card.Transfer{later, facts[2], facts[3]}, to); diff != "" {
				t.Error(diff)
			}
			return tx.SaveCursor(ctx, "monero",
				settle.Cursor{Fingerprint: "f", Tip: card.Tip{Height: 101, Hash: "h", Time: epoch}})
		})
		cursor, err := s.Cursor(t.Context(), chain.Currencies()[0])
		check(t, err)
		if diff := cmp.Diff(
			settle.Cursor{Fingerprint: "f", Tip: card.Tip{Height: 101, Hash: "h", Time: epoch}, LowestLocked: 100,
				Newest: settle.NoPosition}, cursor); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCursor_LocksThatLastTooLongAreNotWaitedFor(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		const tip = 20_000
		locked := func(output, height int64, is bool) card.Transfer {
			return card.Transfer{Currency: "monero", TxID: "t", Output: output, Address: "a", Amount: 5, Height: height,
				Locked: is, FirstSeenAt: epoch, Counted: true}
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
				return tx.SaveCursor(ctx, "monero",
					settle.Cursor{Fingerprint: "f", Tip: card.Tip{Height: tip, Hash: "h", Time: epoch}})
			})
			if cursor, err := s.Cursor(t.Context(), chain.Currencies()[0]); err != nil || cursor.LowestLocked != tt.want {
				t.Errorf("%s: lowest locked is %d, want %d (%v)", tt.name, cursor.LowestLocked, tt.want, err)
			}
		}
	})
}

func TestLockedBlocks(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		var facts []card.Transfer
		add := func(height int64, locked, counted bool, currency string) {
			facts = append(facts,
				card.Transfer{Currency: currency, TxID: fmt.Sprint("t", len(facts)), Address: "a", Amount: 5, Height: height,
					Locked: locked, Counted: counted, FirstSeenAt: epoch})
		}
		for _, height := range []int64{30, 10, 20, 20, 40, 0} {
			add(height, true, true, "monero")
		}
		add(21, false, true, "monero")
		add(22, true, false, "monero")
		add(23, true, true, "other")
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.UpsertTransfers(ctx, facts) })
		for _, tt := range []struct {
			in   settle.Blocks
			n    int
			want []int64
		}{
			{settle.Blocks{First: 1, Last: 100}, 10, []int64{10, 20, 30, 40}},
			{settle.Blocks{First: 10, Last: 30}, 10, []int64{10, 20, 30}},
			{settle.Blocks{First: 11, Last: 29}, 10, []int64{20}},
			{settle.Blocks{First: 1, Last: 100}, 2, []int64{10, 20}},
			{settle.Blocks{First: 41, Last: 5}, 10, nil},
		} {
			if got, err := s.LockedBlocks(t.Context(), "monero", tt.in, tt.n); err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%d of %v: %v, want %v (%v)", tt.n, tt.in, got, tt.want, err)
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

// After a restore, the next event numbers may have been used. No event is
// numbered until an epoch is attested.
func TestInsist_NothingIsIssuedOrNumberedUnlessSomebodyAttests(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		addAddresses(t, s, 0, 1)
		c := payCards(t, s, 1)[0]
		s.RequireAttestation()
		works := func(want bool) {
			t.Helper()
			claimed, err := s.ClaimIntents(t.Context(), claimOf("sandbox"), 1, 0)
			check(t, err)
			if (len(claimed) == 1) != want {
				t.Errorf("%d claimed, want %t", len(claimed), want)
			}
			err = s.IssueTx(t.Context(), func(tx issue.Tx) error {
				return tx.InsertEvents(t.Context(), []card.Event{newEvent(c, card.EventGenerated)})
			})
			if (err == nil) != want || err != nil && !errors.Is(err, card.ErrUnavailable) {
				t.Errorf("events: %v, want %t", err, want)
			}
		}
		raw := rig.OpenSQL(t, url)
		change := func(statement string) {
			t.Helper()
			_, err := raw.Exec(statement)
			check(t, err)
		}
		works(true)
		change("UPDATE leases SET marked_at = marked_at - 11000")
		works(false)
		mark(t, s)
		works(true)
		change("UPDATE leases SET history = 'another'")
		works(false)
		check(t, s.InvalidateEpochs(t.Context()))
		works(false)
	})
}
