package settle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/rig"
)

// epochs returns the numbers and reasons of the epochs, in the order of their
// start.
func (b *deployment) epochs() (numbers []int64, reasons []string) {
	b.t.Helper()
	rows, err := b.direct.Query("SELECT epoch, reason FROM epochs ORDER BY rowid")
	check(b.t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var number int64
		var reason string
		check(b.t, rows.Scan(&number, &reason))
		numbers, reasons = append(numbers, number), append(reasons, reason)
	}
	check(b.t, rows.Err())
	return numbers, reasons
}

// A clock that was set back must not begin an epoch with the number of another.
func TestWatcher_ClockWentBack_EpochNumberGrows(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	b.pass()
	check(t, b.watcher.Close(t.Context()))
	carried := time.Now().Add(24 * time.Hour).UnixMilli()
	b.wallet.beacon.Epoch = carried
	b = openDeployment(t, b.path, b.wallet, b.account)
	b.pass()
	check(t, b.watcher.Close(t.Context()))
	b = openDeployment(t, b.path, &fakeWallet{made: b.wallet.made}, b.account) // only the database has recorded it
	b.pass()
	numbers, reasons := b.epochs()
	if len(numbers) != 3 || !slices.IsSorted(numbers) || numbers[1] <= carried || numbers[2] <= numbers[1] {
		t.Errorf("epochs %v; beacon %d before the second", numbers, carried)
	}
	if want := []string{"the first one", "the wallet knows a later time than the database"}; len(reasons) < 2 ||
		!slices.Equal(reasons[:2], want) {
		t.Errorf("reasons %q, want %q", reasons, want)
	}
}

// The lost period may have used all addresses that the rate limit allows, so a
// burst right after it would make the next loss impossible to estimate.
func TestWatcher_EpochSkipsAddresses_MakesNoneInBurst(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	free := func() (int, int64) {
		t.Helper()
		check(t, b.watcher.Tick(t.Context()))
		pool, err := b.store.AddressPool(t.Context(), "monero")
		check(t, err)
		return pool.Free, pool.LastEpoch
	}
	n, first := free()
	if n == 0 {
		t.Error("the first epoch, which skips none, has no addresses")
	}
	b.sell(30, map[string]bool{})
	copied := b.backup()
	older(t, copied, time.Minute)
	check(t, b.store.Close())
	b = openDeployment(t, copied, b.wallet, b.account)
	epoch, began := first, time.Now()
	for range 100 {
		began = time.Now()
		if n, epoch = free(); epoch != first {
			break
		}
	}
	paced := int(10 * time.Since(began).Seconds()) // on a busy machine, the rate limit allows some during the pass
	if epoch == first || n > paced {
		t.Errorf("epoch %d after %d begins with %d addresses; the rate limit allows %d", epoch, first, n, paced)
	}
}

// A database of a version without marks gives no estimate of the lost time: no
// addresses are skipped, and sales start immediately.
func TestWatcher_FirstEpochOfOldDatabase_MakesAddressesImmediately(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	b.sell(5, map[string]bool{})
	check(t, b.watcher.Close(t.Context()))
	db := rig.OpenSQL(t, "sqlite:"+b.path)
	for _, statement := range []string{"DELETE FROM leases", "DELETE FROM epochs",
		"UPDATE address_pools SET paced_until = 0"} {
		_, err := db.Exec(statement)
		check(t, err)
	}
	before, err := b.store.AddressPool(t.Context(), "monero")
	check(t, err)
	b = openDeployment(t, b.path, &fakeWallet{made: b.wallet.made}, b.account)
	check(t, b.watcher.Tick(t.Context()))
	after, err := b.store.AddressPool(t.Context(), "monero")
	check(t, err)
	if after.Free != branchPool || after.Newest.Position != before.Newest.Position+branchPool {
		t.Errorf("%d addresses are free, the newest is %d after %d", after.Free, after.Newest.Position,
			before.Newest.Position)
	}
}

// The log shows why nothing is sold, but not in each pass, and finally the
// number of skipped addresses.
func TestWatcher_EpochSkipsAddresses_IsLogged(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	b.sell(30, map[string]bool{})
	newest := b.wallet.beacon.Position
	copied := b.backup()
	older(t, copied, time.Minute)
	check(t, b.store.Close())
	// the wallet has none of that minute's addresses yet
	b = openDeployment(t, copied, &fakeWallet{made: newest + 1}, b.account)
	b.pass()
	pool, err := b.store.AddressPool(t.Context(), "monero")
	check(t, err)
	skipped := pool.Newest.Position - int64(pool.Free) - newest
	log := b.log.String()
	lines := strings.Count(log, "no cards are sold until then") // of nine passes or more
	if skipped < 600 || lines < 1 || lines > 2 || !strings.Contains(log, fmt.Sprintf(" skipped=%d\n", skipped)) {
		t.Errorf("%d addresses were skipped; logged:\n%s", skipped, log)
	}
}
