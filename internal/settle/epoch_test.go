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

// purse is a wallet that makes the same addresses again when it is restored.
// Its chain has one block and no payments.
type purse struct {
	made   int64 // addresses
	beacon settle.Beacon
	kept   settle.Beacon // what its file has
	asked  int           // how many addresses it was told to make
	scans  int           // how often it rescanned its chain
	ill    error         // what a scan returns instead
	lost   error         // what a rescan returns
}

func (p *purse) Currency() card.Currency { return chain.Currencies()[0] }

func (p *purse) Scan(context.Context, settle.Query) (settle.View, error) {
	return settle.View{Fingerprint: "purse", Tip: card.Tip{Height: 1, Hash: "b1", Time: time.Now()}, Kept: 1}, p.ill
}

func (p *purse) NewAddresses(_ context.Context, after int64, n int) ([]settle.Address, error) {
	if after == settle.NoPosition {
		after = p.made - 1
	}
	all := make([]settle.Address, n)
	for i := range all {
		position := after + 1 + int64(i)
		all[i] = settle.Address{Currency: "monero", Address: fmt.Sprintf("purse %d", position), Position: position}
	}
	p.make(after + int64(n))
	return all, nil
}

func (p *purse) make(upTo int64) {
	if n := upTo + 1 - p.made; n > 0 {
		p.made, p.asked = upTo+1, p.asked+int(n)
	}
}

func (p *purse) Reserve(_ context.Context, upTo int64, n int) (bool, error) {
	p.make(min(upTo, p.made-1+int64(n)))
	return p.made > upTo, nil
}

func (p *purse) Holds(_ context.Context, newest settle.Address) error {
	if newest.Position >= p.made {
		return card.ErrWalletLost
	}
	return nil
}

func (p *purse) Beacon(context.Context) (settle.Beacon, error) { return p.beacon, nil }

func (p *purse) SetBeacon(_ context.Context, b settle.Beacon, durable bool) error {
	b.Stored = false
	if p.beacon = b; durable {
		p.kept = b
		p.kept.Stored = true
	}
	return nil
}

func (p *purse) Recover(context.Context, string, *settle.Address, func(string)) error {
	p.scans++
	return p.lost
}

// restarted returns the wallet as its file has it.
func (p *purse) restarted() *purse { return &purse{made: p.made, beacon: p.kept, kept: p.kept} }

// branch is a process of a shop with a purse. Its database is a file that can
// be copied.
type branch struct {
	t       *testing.T
	path    string
	store   *store.Store
	direct  *sql.DB // past the store
	orders  *order.Service
	watcher *settle.Watcher
	purse   *purse
	account uuid.UUID
	log     strings.Builder // the watcher's
	woken   bool            // it wants another pass at once
	later   time.Duration   // how much time has passed that the machine's clock does not show
	ahead   time.Duration   // of the machine's clock is the watcher's
}

const branchPool = 20

// openBranch starts a process on a database.
func openBranch(t *testing.T, path string, p *purse, account uuid.UUID) *branch {
	t.Helper()
	b := openBranchAt(t, "sqlite:"+path, p, account)
	b.path = path
	return b
}

// openBranchAt starts a process on the database at a URL.
func openBranchAt(t *testing.T, url string, p *purse, account uuid.UUID) *branch {
	t.Helper()
	b := &branch{t: t, purse: p, account: account, direct: rig.OpenSQL(t, url)}
	var err error
	b.store, err = store.Open(t.Context(), url, 4, chain.Currencies())
	check(t, err)
	t.Cleanup(func() { _ = b.store.Close() })
	b.orders, err = order.New(b.store, nil, &dial{usd: "150"}, nil, func() {}, order.Config{
		Currencies: chain.Currencies()})
	check(t, err)
	wake := nobody()
	wake.Pass = func() { b.woken = true }
	b.watch(b.store, p, wake)
	return b
}

// watch replaces the watcher of the process.
func (b *branch) watch(db settle.Store, c settle.Chain, wake settle.Wake) {
	b.t.Helper()
	var err error
	b.watcher, err = settle.New(db, &dial{usd: "150"}, c, wake, slog.New(slog.NewTextHandler(&b.log, nil)),
		settle.Config{PoolSize: branchPool,
			FillBatch: 64, AddressRate: 10, Beacon: true, Quiet: time.Second, Now: func() time.Time {
				return time.Now().Add(b.ahead)
			}})
	check(b.t, err)
}

// wait has two seconds pass, as far as the pace of addresses goes.
func (b *branch) wait() {
	b.t.Helper()
	const pause = 2 * time.Second
	_, err := b.direct.Exec("UPDATE address_pools SET paced_until = paced_until - 2000")
	check(b.t, err)
	b.purse.beacon.PacedUntil, b.purse.kept.PacedUntil = b.purse.beacon.PacedUntil.Add(-pause),
		b.purse.kept.PacedUntil.Add(-pause)
	b.later += pause
}

// pass makes passes until addresses are free.
func (b *branch) pass() {
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
	b.t.Fatalf("no address is free: %+v made %d beacon %+v", pool, b.purse.made, b.purse.beacon)
}

// sell sells n cards, and adds their addresses to sold. It fails if one was
// sold before.
func (b *branch) sell(n int, sold map[string]bool) {
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

// newBranch opens a shop.
func newBranch(t *testing.T) *branch {
	t.Helper()
	path := strings.TrimPrefix(databases.SQLite(t), "sqlite:")
	b := openBranch(t, path, &purse{made: 1}, uuid.Nil)
	b.account = insertAccount(t, b.store)
	return b
}

// backup copies the database as it is now.
func (b *branch) backup() string {
	b.t.Helper()
	to := filepath.Join(b.t.TempDir(), "copy.db")
	_, err := b.direct.Exec("VACUUM INTO '" + to + "'")
	check(b.t, err)
	return to
}

// older makes a copy look as if it was made so long before.
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

// aged returns a beacon as it was so long before.
func aged(b settle.Beacon, by time.Duration) settle.Beacon {
	b.MarkedAt, b.PacedUntil = b.MarkedAt.Add(-by), b.PacedUntil.Add(-by)
	return b
}

// Whatever is restored, and however old it is, no address is handed out that
// was handed out in the lost time.
func TestWatcher_AnythingRestored_NoAddressTwice(t *testing.T) {
	t.Parallel()
	for name, restore := range map[string]func(saved, now *purse) *purse{
		"the database alone":             func(_, now *purse) *purse { return now },
		"the database, wallet restarted": func(_, now *purse) *purse { return now.restarted() },
		"database and wallet":            func(saved, _ *purse) *purse { return saved },
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
				b := newBranch(t)
				sold := map[string]bool{}
				b.pass()
				b.sell(30, sold)
				copied, wallet := b.backup(), *b.purse
				before := b.later
				b.sell(lost.sold, sold)
				past := max(lost.time, b.later-before)
				older(t, copied, past)
				saved := &purse{made: wallet.made, beacon: aged(wallet.kept, past), kept: aged(wallet.kept, past)}
				check(t, b.store.Close())

				again := openBranch(t, copied, restore(saved, b.purse), b.account)
				again.sell(2*branchPool+lost.sold, sold)
			})
		}
	}
}

// A wallet that went back with the database reads blocks before it makes
// addresses again that they pay to.
func TestWatcher_WalletWentBack_RescansIfPaymentsMayBeMissed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		restored bool // by 'cardmint restore', which says so
		ahead    bool // it has made the addresses of ten minutes ahead
		lost     time.Duration
		wallet   func(saved, now *purse) *purse
		want     int
	}{
		"with its database, and lacks addresses": {true, true, time.Hour, func(saved, _ *purse) *purse {
			return saved
		}, 1},
		"with its database, and has them": {true, true, time.Second, func(saved, _ *purse) *purse {
			return saved
		}, 0},
		"the database alone": {true, true, time.Second, func(_, now *purse) *purse { return now }, 0},
		"a long pause": {false, true, time.Hour, func(saved, _ *purse) *purse {
			return saved
		}, 0},
		"a pause": {false, true, 70 * time.Second, func(saved, _ *purse) *purse {
			return saved
		}, 0},
		"a pause or a snapshot of the first minute": {false, false, 70 * time.Second, func(saved, _ *purse) *purse {
			return saved
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBranch(t)
			b.pass()
			for range 20 {
				if tt.ahead {
					check(t, b.watcher.Tick(t.Context()))
				}
			}
			b.sell(5, map[string]bool{})
			copied, wallet := b.backup(), *b.purse
			b.sell(30, map[string]bool{})
			check(t, b.store.Close())
			older(t, copied, tt.lost)
			if tt.restored {
				_, err := rig.OpenSQL(t,
					"sqlite:"+copied).Exec(
					fmt.Sprintf("INSERT INTO settings (name, value) VALUES ('restored_at', '%d')", time.Now().UnixMilli()))
				check(t, err)
			}
			saved := &purse{made: wallet.made, beacon: aged(wallet.kept, tt.lost), kept: aged(wallet.kept, tt.lost)}
			again := openBranch(t, copied, tt.wallet(saved, b.purse), b.account)
			again.pass()
			for range 3 {
				check(t, again.watcher.Tick(t.Context()))
			}
			if again.purse.scans != tt.want {
				t.Errorf("it rescanned %d times, want %d", again.purse.scans, tt.want)
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

// resets returns how often the account's feed was reset, and fails unless each
// number is one more than the one before, or the first after a jump is the
// reset.
func (b *branch) resets() int {
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

// tell inserts an event of the account.
func (b *branch) tell() {
	b.t.Helper()
	id := uuid.Must(uuid.NewV7())
	check(b.t, b.store.WebhookTx(b.t.Context(), func(tx webhook.Tx) error {
		return tx.InsertEvents(b.t.Context(),
			[]card.Event{
				{ID: id, AccountID: b.account, Type: card.EventWebhookDisabled, WebhookID: id, CreatedAt: card.TimeOf(id)}})
	}))
}

// The numbers of events jump ahead where something shows that the database went
// back, and only there.
func TestWatcher_DatabaseWentBack_ResetsFeeds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		happens func(b *branch) *branch // and returns the process that watches then
		want    int
	}{
		"a restart": {func(b *branch) *branch {
			b.beats()
			check(b.t, b.store.Close())
			older(b.t, b.path, 20*time.Second)
			return openBranch(b.t, b.path, &purse{made: b.purse.made, beacon: aged(b.purse.beacon, 20*time.Second)}, b.account)
		}, 0},
		"a restart of the machine, or of a snapshot of it": {func(b *branch) *branch {
			b.beats()
			check(b.t, b.store.Close())
			older(b.t, b.path, 20*time.Second)
			return openBranch(b.t, b.path, &purse{made: b.purse.made, beacon: aged(b.purse.kept, 20*time.Second)}, b.account)
		}, 1},
		"a long pause, of which nothing is known": {func(b *branch) *branch {
			check(b.t, b.store.Close())
			older(b.t, b.path, 6*time.Minute)
			return openBranch(b.t, b.path, &purse{made: b.purse.made, beacon: aged(b.purse.beacon, 6*time.Minute)}, b.account)
		}, 1},
		"a restored dump": {func(b *branch) *branch {
			copied := b.backup()
			b.pass()
			b.sell(1, map[string]bool{})
			b.beats()
			check(b.t, b.store.Close())
			older(b.t, copied, time.Second)
			return openBranch(b.t, copied, b.purse, b.account)
		}, 1},
		"a backup that the program restored": {func(b *branch) *branch {
			check(b.t, b.store.MarkRestored(b.t.Context(), time.Now().Add(time.Second)))
			check(b.t, b.store.Close())
			older(b.t, b.path, time.Second)
			return openBranch(b.t, b.path, &purse{made: b.purse.made, beacon: aged(b.purse.kept, time.Second)}, b.account)
		}, 1},
		"a database that goes back below a process that lives": {func(b *branch) *branch {
			b.beats()
			_, err := b.direct.Exec("UPDATE leases SET mark = mark - 2")
			check(b.t, err)
			return b
		}, 1},
		"a wallet that was restored alone": {func(b *branch) *branch {
			*b.purse = purse{made: b.purse.made, beacon: aged(b.purse.beacon, time.Hour)}
			b.purse.beacon.Position -= 5
			return b
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBranch(t)
			b.pass()
			for range 3 {
				b.tell()
			}
			b = tt.happens(b)
			b.sell(2*branchPool, map[string]bool{})
			b.beats()
			b.tell()
			if got := b.resets(); got != tt.want {
				t.Errorf("%d resets, want %d", got, tt.want)
			}
			if b.purse.beacon.Epoch == 0 || b.purse.kept.Position < branchPool {
				t.Errorf("the wallet carries %+v", b.purse.kept)
			}
		})
	}
}

// beats makes a pass that marks.
func (b *branch) beats() {
	b.t.Helper()
	time.Sleep(time.Until(time.Now().Add(720 * time.Millisecond)))
	check(b.t, b.watcher.Tick(b.t.Context()))
}

// A start costs few addresses, and the pool is filled again within seconds.
func TestWatcher_Start_SkipsFewAddresses(t *testing.T) {
	t.Parallel()
	b := newBranch(t)
	sold := map[string]bool{}
	b.sell(5, sold)
	newest := b.purse.beacon.Position
	check(t, b.store.Close())
	older(t, b.path, 30*time.Second)
	b.purse.beacon, b.purse.kept = aged(b.purse.beacon, 30*time.Second), aged(b.purse.kept, 30*time.Second)
	again := openBranch(t, b.path, b.purse, b.account)
	check(t, again.watcher.Tick(t.Context()))
	again.sell(1, sold)
	if cost := again.purse.beacon.Position - newest; cost < 300 || cost > 30*10+64+30 {
		t.Errorf("%d addresses, want 300 for the time and the burst", cost)
	}
	if again.later > 4*time.Second {
		t.Errorf("the first card was sold after %s", again.later)
	}
	// The wallet has made the addresses of ten minutes ahead, so that a start
	// need not wait for it.
	runway := func() int64 { return again.purse.made - 1 - again.purse.beacon.Position }
	for range 200 {
		if check(t, again.watcher.Tick(t.Context())); runway() >= 6000 {
			return
		}
	}
	t.Errorf("a runway of %d addresses", runway())
}

// A shop that sells as fast as it may makes its runway all the same.
func TestWatcher_UnderLoad_MakesRunway(t *testing.T) {
	t.Parallel()
	b := newBranch(t)
	sold := map[string]bool{}
	for range 60 {
		b.sell(branchPool, sold)
		b.wait()
		b.pass()
	}
	if runway := b.purse.made - 1 - b.purse.beacon.Position; runway < 6000 {
		t.Errorf("a runway of %d addresses", runway)
	}
}
