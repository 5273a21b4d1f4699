package settle_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

// fakeWallet is a wallet that makes the same addresses again when it is
// restored. Its chain has one block and no payments.
type fakeWallet struct {
	made   int64 // addresses
	beacon settle.Beacon
	kept   settle.Beacon // in its file
	asked  int           // addresses requested so far
	scans  int           // rescans so far
	ill    error         // result of a scan
	lost   error         // result of a rescan
}

func (p *fakeWallet) Currency() card.Currency { return chain.Currencies()[0] }

func (p *fakeWallet) Scan(context.Context, settle.Query) (settle.View, error) {
	return settle.View{Fingerprint: "wallet", Tip: card.Tip{Height: 1, Hash: "b1", Time: time.Now()}, Kept: 1}, p.ill
}

func (p *fakeWallet) NewAddresses(_ context.Context, after int64, n int) ([]settle.Address, error) {
	if after == settle.NoPosition {
		after = p.made - 1
	}
	all := make([]settle.Address, n)
	for i := range all {
		position := after + 1 + int64(i)
		all[i] = settle.Address{Currency: "monero", Address: fmt.Sprintf("address %d", position), Position: position}
	}
	p.make(after + int64(n))
	return all, nil
}

func (p *fakeWallet) make(upTo int64) {
	if n := upTo + 1 - p.made; n > 0 {
		p.made, p.asked = upTo+1, p.asked+int(n)
	}
}

func (p *fakeWallet) Reserve(_ context.Context, upTo int64, n int) (bool, error) {
	p.make(min(upTo, p.made-1+int64(n)))
	return p.made > upTo, nil
}

func (p *fakeWallet) Holds(_ context.Context, newest settle.Address) error {
	if newest.Position >= p.made {
		return card.ErrWalletLost
	}
	return nil
}

func (p *fakeWallet) Beacon(context.Context) (settle.Beacon, error) { return p.beacon, nil }

func (p *fakeWallet) SetBeacon(_ context.Context, b settle.Beacon, durable bool) error {
	b.Stored = false
	if p.beacon = b; durable {
		p.kept = b
		p.kept.Stored = true
	}
	return nil
}

func (p *fakeWallet) Recover(context.Context, string, *settle.Address, func(string)) error {
	p.scans++
	return p.lost
}

// restarted returns the wallet in the state of its file.
func (p *fakeWallet) restarted() *fakeWallet {
	return &fakeWallet{made: p.made, beacon: p.kept, kept: p.kept}
}

// deployment is a process with a fake wallet. Its database is a file that can
// be copied.
type deployment struct {
	t       *testing.T
	path    string
	store   *store.Store
	direct  *sql.DB // direct access
	orders  *order.Service
	watcher *settle.Watcher
	wallet  *fakeWallet
	account uuid.UUID
	log     strings.Builder // the watcher's
	woken   bool            // another pass was requested
	later   time.Duration   // time that the machine's clock does not show
	ahead   time.Duration   // the watcher's rate, relative to the machine's clock
}

const branchPool = 20

// openDeployment starts a process on a database.
func openDeployment(t *testing.T, path string, p *fakeWallet, account uuid.UUID) *deployment {
	t.Helper()
	b := openDeploymentAt(t, "sqlite:"+path, p, account)
	b.path = path
	return b
}

// openDeploymentAt starts a process on the database at a URL.
func openDeploymentAt(t *testing.T, url string, p *fakeWallet, account uuid.UUID) *deployment {
	t.Helper()
	b := &deployment{t: t, wallet: p, account: account, direct: rig.OpenSQL(t, url)}
	var err error
	b.store, err = store.Open(t.Context(), url, 4, chain.Currencies())
	check(t, err)
	t.Cleanup(func() { _ = b.store.Close() })
	b.orders, err = order.New(b.store, nil, &adjustableRate{usd: "150"}, nil, func() {}, order.Config{
		Currencies: chain.Currencies()})
	check(t, err)
	wake := wakesNothing()
	wake.Pass = func() { b.woken = true }
	b.watch(b.store, p, wake)
	return b
}

// watch replaces the watcher of the process.
func (b *deployment) watch(db settle.Store, c settle.Chain, wake settle.Wake) {
	b.t.Helper()
	var err error
	b.watcher, err = settle.New(db, &adjustableRate{usd: "150"}, c, wake, slog.New(slog.NewTextHandler(&b.log, nil)),
		settle.Config{PoolSize: branchPool,
			FillBatch: 64, AddressRate: 10, Beacon: true, Quiet: time.Second, Now: func() time.Time {
				return time.Now().Add(b.ahead)
			}})
	check(b.t, err)
}

// wait lets two seconds pass for the rate limit of addresses.
func (b *deployment) wait() {
	b.t.Helper()
	const pause = 2 * time.Second
	_, err := b.direct.Exec("UPDATE address_pools SET paced_until = paced_until - 2000")
	check(b.t, err)
	b.wallet.beacon.PacedUntil, b.wallet.kept.PacedUntil = b.wallet.beacon.PacedUntil.Add(-pause),
		b.wallet.kept.PacedUntil.Add(-pause)
	b.later += pause
}

// pass makes passes until addresses are free.
func (b *deployment) pass() {
	b.t.Helper()
	for range 1000 {
		b.woken = false
		check(b.t, b.watcher.Tick(b.t.Context()))
		pool, err := b.store.AddressPool(b.t.Context(), "monero")
		check(b.t, err)
		if pool.Free > 0 {
			return
		}
		if !b.woken {
			b.wait()
		}
	}
	pool, _ := b.store.AddressPool(b.t.Context(), "monero")
	b.t.Fatalf("no address is free: %+v made %d beacon %+v", pool, b.wallet.made, b.wallet.beacon)
}

// sell sells n cards, and adds their addresses to sold. It fails if one was
// sold before.
func (b *deployment) sell(n int, sold map[string]bool) {
	b.t.Helper()
	for i := 0; i < n; {
		c, err := create(b.t.Context(), b.orders, b.account, "150")
		if errors.Is(err, card.ErrNoAddress) {
			b.pass()
			continue
		}
		check(b.t, err)
		if sold[c.Address] {
			b.t.Fatalf("%s was handed out twice", c.Address)
		}
		sold[c.Address] = true
		i++
	}
}

// newDeployment opens a new deployment.
func newDeployment(t *testing.T) *deployment {
	t.Helper()
	path := strings.TrimPrefix(databases.SQLite(t), "sqlite:")
	b := openDeployment(t, path, &fakeWallet{made: 1}, uuid.Nil)
	b.account = insertAccount(t, b.store)
	return b
}

// backup copies the database.
func (b *deployment) backup() string {
	b.t.Helper()
	to := filepath.Join(b.t.TempDir(), "copy.db")
	_, err := b.direct.Exec("VACUUM INTO '" + to + "'")
	check(b.t, err)
	return to
}

// older backdates a copy of the database.
func older(t *testing.T, path string, by time.Duration) {
	t.Helper()
	ms := fmt.Sprint(by.Milliseconds())
	db := rig.OpenSQL(t, "sqlite:"+path)
	for _, statement := range []string{
		"UPDATE leases SET marked_at = marked_at - " + ms + ", expires_at = 0",
		"UPDATE address_pools SET checked_at = checked_at - " + ms + ", paced_until = paced_until - " + ms,
	} {
		_, err := db.Exec(statement)
		check(t, err)
	}
}

// aged returns a backdated beacon.
func aged(b settle.Beacon, by time.Duration) settle.Beacon {
	b.MarkedAt, b.PacedUntil = b.MarkedAt.Add(-by), b.PacedUntil.Add(-by)
	return b
}

// No address is handed out twice after a restore of the database, the wallet or
// both, of any age.
func TestWatcher_AnythingRestored_NoAddressTwice(t *testing.T) {
	t.Parallel()
	for name, restore := range map[string]func(saved, now *fakeWallet) *fakeWallet{
		"the database alone":             func(_, now *fakeWallet) *fakeWallet { return now },
		"the database, wallet restarted": func(_, now *fakeWallet) *fakeWallet { return now.restarted() },
		"database and wallet":            func(saved, _ *fakeWallet) *fakeWallet { return saved },
	} {
		for _, lost := range []struct {
			time time.Duration
			sold int
		}{{time.Second, 5}, {20 * time.Second, 150}, {10 * time.Minute, 10 * branchPool}, {10 * time.Minute, 1000}} {
			t.Run(fmt.Sprint(name, ", ", lost.time, ", ", lost.sold, " sold"), func(t *testing.T) {
				if testing.Short() && lost.sold >= 10*branchPool {
					t.Skip("left out by -short: sells hundreds of cards")
				}
				t.Parallel()
				b := newDeployment(t)
				sold := map[string]bool{}
				b.pass()
				b.sell(30, sold)
				copied, wallet := b.backup(), *b.wallet
				before := b.later
				b.sell(lost.sold, sold)
				past := max(lost.time, b.later-before)
				older(t, copied, past)
				saved := &fakeWallet{made: wallet.made, beacon: aged(wallet.kept, past), kept: aged(wallet.kept, past)}
				check(t, b.store.Close())

				again := openDeployment(t, copied, restore(saved, b.wallet), b.account)
				again.sell(2*branchPool+lost.sold, sold)
			})
		}
	}
}

// A wallet that was restored with the database may scan blocks before it
// recreates the addresses that they pay to.
func TestWatcher_WalletWentBack_RescansIfPaymentsMayBeMissed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		restored bool // by 'cardmint restore', which records it
		ahead    bool // it has the addresses of the next ten minutes
		lost     time.Duration
		wallet   func(saved, now *fakeWallet) *fakeWallet
		want     int
	}{
		"with its database, and lacks addresses": {true, true, time.Hour, func(saved, _ *fakeWallet) *fakeWallet {
			return saved
		}, 1},
		"with its database, and has them": {true, true, time.Second, func(saved, _ *fakeWallet) *fakeWallet {
			return saved
		}, 0},
		"the database alone": {true, true, time.Second, func(_, now *fakeWallet) *fakeWallet { return now }, 0},
		"a long pause": {false, true, time.Hour, func(saved, _ *fakeWallet) *fakeWallet {
			return saved
		}, 0},
		"a pause": {false, true, 70 * time.Second, func(saved, _ *fakeWallet) *fakeWallet {
			return saved
		}, 0},
		"a pause or a snapshot of the first minute": {false, false, 70 * time.Second, func(saved, _ *fakeWallet) *fakeWallet {
			return saved
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newDeployment(t)
			b.pass()
			for range 20 {
				if tt.ahead {
					check(t, b.watcher.Tick(t.Context()))
				}
			}
			b.sell(5, map[string]bool{})
			copied, wallet := b.backup(), *b.wallet
			b.sell(30, map[string]bool{})
			check(t, b.store.Close())
			older(t, copied, tt.lost)
			if tt.restored {
				_, err := rig.OpenSQL(t,
					"sqlite:"+copied).Exec(
					fmt.Sprintf("INSERT INTO settings (name, value) VALUES ('restored_at', '%d')", time.Now().UnixMilli()))
				check(t, err)
			}
			saved := &fakeWallet{made: wallet.made, beacon: aged(wallet.kept, tt.lost), kept: aged(wallet.kept, tt.lost)}
			again := openDeployment(t, copied, tt.wallet(saved, b.wallet), b.account)
			again.pass()
			for range 3 {
				check(t, again.watcher.Tick(t.Context()))
			}
			if again.wallet.scans != tt.want {
				t.Errorf("%d rescans, want %d", again.wallet.scans, tt.want)
			}
		})
	}
}

func insertAccount(t *testing.T, db *store.Store) uuid.UUID {
	t.Helper()
	a := account.Account{ID: uuid.Must(uuid.NewV7()), Name: "branch", CreatedAt: time.Now()}
	check(t, db.InsertAccount(t.Context(), a))
	return a.ID
}

// resets returns the number of feed resets of the account. It fails the test if
// event numbers jump without a reset.
func (b *deployment) resets() int {
	b.t.Helper()
	events, err := b.store.Events(b.t.Context(), b.account, 0, 1000)
	check(b.t, err)
	n := 0
	for i, e := range events {
		isReset := e.Type == card.EventFeedReset
		if isReset {
			n++
			if e.Since.IsZero() || e.Since.After(e.CreatedAt) || e.Seq < e.Since.UnixMilli() {
				b.t.Errorf("event %d is reset since %s", e.Seq, e.Since)
			}
		}
		if i > 0 && (e.Seq == events[i-1].Seq+1) == isReset || e.Seq <= 0 {
			b.t.Errorf("event %d (%s) follows %d", e.Seq, e.Type, events[i-1].Seq)
		}
	}
	return n
}

// insertEvent inserts an event of the account.
func (b *deployment) insertEvent() {
	b.t.Helper()
	id := uuid.Must(uuid.NewV7())
	check(b.t, b.store.WebhookTx(b.t.Context(), func(tx webhook.Tx) error {
		return tx.InsertEvents(b.t.Context(),
			[]card.Event{
				{ID: id, AccountID: b.account, Type: card.EventWebhookDisabled, WebhookID: id, CreatedAt: card.TimeOf(id)}})
	}))
}

// Event numbers jump ahead only if there is evidence of a rollback.
func TestWatcher_DatabaseWentBack_ResetsFeeds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		happens func(b *deployment) *deployment // returns the process that watches afterwards
		want    int
	}{
		"a restart": {func(b *deployment) *deployment {
			b.beats()
			check(b.t, b.store.Close())
			older(b.t, b.path, 20*time.Second)
			return openDeployment(b.t, b.path, &fakeWallet{made: b.wallet.made, beacon: aged(b.wallet.beacon, 20*time.Second)},
				b.account)
		}, 0},
		"a restart of the machine, or of a snapshot of it": {func(b *deployment) *deployment {
			b.beats()
			check(b.t, b.store.Close())
			older(b.t, b.path, 20*time.Second)
			return openDeployment(b.t, b.path, &fakeWallet{made: b.wallet.made, beacon: aged(b.wallet.kept, 20*time.Second)},
				b.account)
		}, 1},
		"a long pause, of which nothing is known": {func(b *deployment) *deployment {
			check(b.t, b.store.Close())
			older(b.t, b.path, 6*time.Minute)
			return openDeployment(b.t, b.path, &fakeWallet{made: b.wallet.made, beacon: aged(b.wallet.beacon, 6*time.Minute)},
				b.account)
		}, 1},
		"a restored dump": {func(b *deployment) *deployment {
			copied := b.backup()
			b.pass()
			b.sell(1, map[string]bool{})
			b.beats()
			check(b.t, b.store.Close())
			older(b.t, copied, time.Second)
			return openDeployment(b.t, copied, b.wallet, b.account)
		}, 1},
		"a backup that the program restored": {func(b *deployment) *deployment {
			check(b.t, b.store.MarkRestored(b.t.Context(), time.Now().Add(time.Second)))
			check(b.t, b.store.Close())
			older(b.t, b.path, time.Second)
			return openDeployment(b.t, b.path, &fakeWallet{made: b.wallet.made, beacon: aged(b.wallet.kept, time.Second)},
				b.account)
		}, 1},
		"a database that goes back below a process that lives": {func(b *deployment) *deployment {
			b.beats()
			_, err := b.direct.Exec("UPDATE leases SET mark = mark - 2")
			check(b.t, err)
			return b
		}, 1},
		"a wallet that was restored alone": {func(b *deployment) *deployment {
			*b.wallet = fakeWallet{made: b.wallet.made, beacon: aged(b.wallet.beacon, time.Hour)}
			b.wallet.beacon.Position -= 5
			return b
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newDeployment(t)
			b.pass()
			for range 3 {
				b.insertEvent()
			}
			b = tt.happens(b)
			b.sell(2*branchPool, map[string]bool{})
			b.beats()
			b.insertEvent()
			if got := b.resets(); got != tt.want {
				t.Errorf("%d resets, want %d", got, tt.want)
			}
			if b.wallet.beacon.Epoch == 0 || b.wallet.kept.Position < branchPool {
				t.Errorf("beacon %+v", b.wallet.kept)
			}
		})
	}
}

// beats makes a pass that writes a mark.
func (b *deployment) beats() {
	b.t.Helper()
	time.Sleep(time.Until(time.Now().Add(720 * time.Millisecond)))
	check(b.t, b.watcher.Tick(b.t.Context()))
}

// A start costs few addresses, and the pool is filled again within seconds.
func TestWatcher_Start_SkipsFewAddresses(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	sold := map[string]bool{}
	b.sell(5, sold)
	newest := b.wallet.beacon.Position
	check(t, b.store.Close())
	older(t, b.path, 30*time.Second)
	b.wallet.beacon, b.wallet.kept = aged(b.wallet.beacon, 30*time.Second), aged(b.wallet.kept, 30*time.Second)
	again := openDeployment(t, b.path, b.wallet, b.account)
	check(t, again.watcher.Tick(t.Context()))
	again.sell(1, sold)
	if cost := again.wallet.beacon.Position - newest; cost < 300 || cost > 30*10+64+30 {
		t.Errorf("%d addresses, want 300 for the time and the burst", cost)
	}
	if again.later > 4*time.Second {
		t.Errorf("the first card was sold after %s", again.later)
	}
	// The wallet already has the next ten minutes' addresses, so a start does
	// not wait for it.
	runway := func() int64 { return again.wallet.made - 1 - again.wallet.beacon.Position }
	for range 200 {
		if check(t, again.watcher.Tick(t.Context())); runway() >= 6000 {
			return
		}
	}
	t.Errorf("a runway of %d addresses", runway())
}

// Sales at the highest rate still leave time to make the runway.
func TestWatcher_UnderLoad_MakesRunway(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	sold := map[string]bool{}
	for range 60 {
		b.sell(branchPool, sold)
		b.wait()
		b.pass()
	}
	if runway := b.wallet.made - 1 - b.wallet.beacon.Position; runway < 6000 {
		t.Errorf("a runway of %d addresses", runway)
	}
}
