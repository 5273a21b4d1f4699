package settle_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/vaulttest"
	"github.com/cardmint/cardmint/internal/store"
)

var (
	oneSeed   = flag.Uint64("seed", 0, "simulate the history of this seed alone")
	firstSeed = flag.Uint64("first", 1, "simulate from this seed on")
	seeds     = flag.Int("seeds", 0, "simulate so many histories; 0 for a few")
)

// TestSimulation runs random histories of payments, and compares the product
// with an oracle after every step.
func TestSimulation(t *testing.T) {
	first, n := *firstSeed, *seeds
	switch {
	case n == 0 && testing.Short():
		n = 10
	case n == 0:
		n = pick(20, 50)
	}
	if *oneSeed > 0 {
		first, n = *oneSeed, 1
	}
	// Seeds of former failures run every time. A change of the steps in a
	// history changes the seed.
	var numbers []uint64
	for _, old := range []struct {
		seed uint64
		what string
	}{
		{467, "a block from the future was believed to be of the moment it was applied, and a decision after its quote expired made a card unpaid again"},
		{200031, "a smaller amount that was accepted had to keep what had been paid before"},
		{1015806, "a wallet that had lost its addresses made some of them anew, and was believed"},
		{200127, "a rescan that ended with a lost reply kept the next one from being asked for"},
	} {
		numbers = append(numbers, old.seed)
	}
	if *oneSeed > 0 {
		numbers = nil
	}
	for i := range n {
		numbers = append(numbers, first+uint64(i))
	}
	dir := memory(t)
	simulate(t, runtime.GOMAXPROCS(0), numbers, func(worker int) string {
		return "sqlite:" + filepath.Join(dir, fmt.Sprintf("%d.db", worker))
	})
}

// TestSimulation_Postgres does the same on the other database.
func TestSimulation_Postgres(t *testing.T) {
	if testing.Short() {
		t.Skip("left out: it needs PostgreSQL")
	}
	if *oneSeed > 0 {
		t.Skip("left out: one seed is simulated on SQLite")
	}
	var numbers []uint64
	for i := range uint64(20) {
		numbers = append(numbers, *firstSeed+i)
	}
	simulate(t, 2, numbers, func(int) string { return rig.Postgres(t) })
}

// TestSimulation_SameSeed_SameHistory shows that a seed reproduces a failure.
func TestSimulation_SameSeed_SameHistory(t *testing.T) {
	if testing.Short() {
		t.Skip("left out: it takes seconds")
	}
	db := openDatabase(t, "sqlite:"+filepath.Join(memory(t), "x.db"))
	for seed := range uint64(pick(3, 10)) {
		first, bad := runHistory(t.Context(), db, *firstSeed+seed)
		again, _ := runHistory(t.Context(), db, *firstSeed+seed)
		if bad != nil {
			t.Fatal(bad)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatalf("seed %d is not the same again (-first +again):\n%s", *firstSeed+seed, diff)
		}
	}
}

// memory returns a directory for databases, in memory if a suitable file system
// exists: nothing here has to survive a power failure.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "simulation")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// pick chooses by the speed of this binary.
func pick(slow, fast int) int {
	if raceDetector {
		return slow
	}
	return fast
}

// simulate runs the histories of seeds on several workers, each with its own
// database.
func simulate(t *testing.T, workers int, numbers []uint64, newURL func(worker int) string) {
	n := len(numbers)
	var next, done atomic.Int64
	bad := make(chan *violation, workers)
	started := time.Now()
	var group sync.WaitGroup
	var used []*database
	for worker := range min(workers, n) {
		db := openDatabase(t, newURL(worker))
		used = append(used, db)
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				_, v := runHistory(t.Context(), db, numbers[i])
				done.Add(1)
				if v != nil {
					bad <- v
					next.Store(int64(n))
				}
			}
		})
	}
	finished := make(chan struct{})
	go func() { group.Wait(); close(finished) }()
	progress := time.NewTicker(10 * time.Second)
	defer progress.Stop()
	speed := func() float64 { return float64(done.Load()) / time.Since(started).Seconds() }
	for running := true; running; {
		select {
		case <-progress.C:
			fmt.Fprintf(os.Stderr, "%s: %d of %d histories, %.0f a second\n", t.Name(), done.Load(), n, speed())
		case <-finished:
			running = false
		}
	}
	t.Logf("%d histories, %.0f a second", done.Load(), speed())
	tally := map[string]int{}
	for _, db := range used {
		for what, times := range db.tally {
			tally[what] += times
		}
	}
	for _, what := range slices.Sorted(maps.Keys(tally)) {
		t.Logf("%8d %s", tally[what], what)
	}
	close(bad)
	for v := range bad {
		t.Error(v)
	}
}

func openDatabase(t *testing.T, url string) *database {
	t.Helper()
	v := vaulttest.New(t)
	_, err := store.Migrate(t.Context(), url)
	check(t, err)
	s, err := store.Open(t.Context(), url, 2, chain.Currencies())
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	db := &database{store: s, vault: v, beside: rig.OpenSQL(t, url), tally: map[string]int{}}
	check(t, db.prepare(t.Context()))
	return db
}
