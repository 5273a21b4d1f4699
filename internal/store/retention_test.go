package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

const (
	old100   = 100 * time.Hour
	hoursOld = 200
)

// feed describes the events of an account after a number, as a client reads
// them.
func feed(t testing.TB, s *store.Store, account uuid.UUID, after int64) (all []string) {
	t.Helper()
	es, err := s.Events(t.Context(), account, after, 1000)
	check(t, err)
	for _, e := range es {
		all = append(all, fmt.Sprint(e.Seq, " ", e.Type))
	}
	return all
}

// prune prunes n events at a time until none are left, and returns the number
// of calls that pruned any.
func prune(t testing.TB, s *store.Store, account uuid.UUID, n int) (times int) {
	t.Helper()
	for {
		pruned, err := s.PruneEvents(t.Context(), account, old100, n)
		check(t, err)
		if pruned == 0 {
			return times
		}
		times++
	}
}

// oldFeed inserts eight events. The first five are old.
func oldFeed(t *testing.T, b *oldBooks) {
	t.Helper()
	c := insertCard(t, b.Store, newCard(b.account))
	for range 8 {
		insertEvents(t, b.Store, newEvent(c, card.EventDetected))
	}
	b.exec("UPDATE events SET created_at = ? WHERE seq <= 5", b.now.Add(-hoursOld*time.Hour).UnixMilli())
	b.exec("UPDATE events SET created_at = ? WHERE seq > 5", b.now.UnixMilli())
}

func TestPruneEvents_ReadersThatAreOlderGetAReset(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		b := newOldBooks(t, url)
		w := newWebhook(b.account)
		inTx(t, b.Store, func(ctx context.Context, tx *store.Tx) error { return tx.InsertWebhook(ctx, w) })
		oldFeed(t, b)
		b.exec("UPDATE deliveries SET state = 'delivered', due_at = NULL WHERE seq <= 6")
		readBooks(t, b.Store)
		if n := prune(t, b.Store, b.account, 2); n != 4 { // 1 2, 2 3, 3 4, 4 5
			t.Errorf("pruned %d times", n)
		}
		for after, want := range map[int64][]string{
			0: {"5 feed.reset", "6 payment.detected", "7 payment.detected", "8 payment.detected"},
			4: {"5 feed.reset", "6 payment.detected", "7 payment.detected", "8 payment.detected"},
			5: {"6 payment.detected", "7 payment.detected", "8 payment.detected"},
			8: nil,
		} {
			if diff := cmp.Diff(want, feed(t, b.Store, b.account, after)); diff != "" {
				t.Errorf("after %d: %s", after, diff)
			}
		}
		es, err := b.Events(t.Context(), b.account, 0, 1)
		check(t, err)
		if e := es[0]; !e.Since.Equal(epoch) || e.CardUUID != uuid.Nil || e.Status != "" || e.State != "" {
			t.Errorf("the reset is %+v", e)
		}
		wantDeliveries(t, b.Store, w.ID, "8 pending", "7 pending", "6 delivered")
		b.wantDoubts(readBooks(t, b.Store))
		insertEvents(t, b.Store, newEvent(insertCard(t, b.Store, newCard(b.account)), card.EventGenerated))
		if got := seqs(t, b.Store, b.account); !slices.Equal(got, []int64{5, 6, 7, 8, 9}) {
			t.Errorf("numbers: %v", got)
		}
	})
}

// The feed of an inactive account consists of the reset event.
func TestPruneEvents_AllOfThem(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		b := newOldBooks(t, url)
		oldFeed(t, b)
		b.exec("UPDATE events SET created_at = 0")
		prune(t, b.Store, b.account, 100)
		if diff := cmp.Diff([]string{"8 feed.reset"}, feed(t, b.Store, b.account, 0)); diff != "" {
			t.Error(diff)
		}
		b.wantDoubts(readBooks(t, b.Store))
		var notes int
		check(t, b.db.QueryRow("SELECT COUNT(*) FROM books_notes").Scan(&notes))
		if notes > 0 {
			t.Errorf("%d notes for the next reading", notes)
		}
	})
}

func TestPruneEvents_PendingDeliveriesKeepTheirEvent(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		b := newOldBooks(t, url)
		w := newWebhook(b.account)
		inTx(t, b.Store, func(ctx context.Context, tx *store.Tx) error { return tx.InsertWebhook(ctx, w) })
		oldFeed(t, b)
		b.exec("UPDATE deliveries SET state = 'delivered', due_at = NULL WHERE seq <> 4")
		prune(t, b.Store, b.account, 100)
		want := []string{"3 feed.reset", "4 payment.detected", "5 payment.detected", "6 payment.detected",
			"7 payment.detected", "8 payment.detected"}
		if diff := cmp.Diff(want, feed(t, b.Store, b.account, 0)); diff != "" {
			t.Error(diff)
		}
		due, err := b.DueDeliveries(t.Context(), w.ID, time.Now(), 10)
		check(t, err)
		if len(due) != 1 || due[0].Event.Seq != 4 || due[0].Event.Type != card.EventDetected {
			t.Errorf("due: %+v", due)
		}
		saveDeliveries(t, b.Store, w.ID, of(4, webhook.DeliveryDelivered, time.Time{}))
		prune(t, b.Store, b.account, 100)
		if got := feed(t, b.Store, b.account, 0); got[0] != "5 feed.reset" || len(got) != 4 {
			t.Errorf("once it is delivered: %v", got)
		}
	})
}

// retirable inserts an old expired card at an address, and returns its uuid.
func (b *oldBooks) retirable(address string) string {
	b.t.Helper()
	id := b.card(hoursOld, address)
	b.exec("UPDATE cards SET payment_state = 'expired' WHERE uuid = ?", id)
	return id
}

func (b *oldBooks) watched() {
	b.t.Helper()
	b.exec("INSERT INTO chains (currency, fingerprint, height, hash, time) VALUES ('monero', 'x', 9, 'x', ?)",
		b.now.UnixMilli())
}

// retire retires in pages of n, and returns how many cards it deleted.
func retire(t testing.TB, s *store.Store, account uuid.UUID, n int) (all int64) {
	t.Helper()
	for after := uuid.Nil; ; {
		retired, last, err := s.RetireCards(t.Context(), account, "monero", old100, after, n)
		check(t, err)
		all, after = all+retired, last
		if last == uuid.Nil {
			return all
		}
	}
}

func (b *oldBooks) cards() []string {
	b.t.Helper()
	return b.texts("SELECT CAST(uuid AS TEXT) FROM cards ORDER BY uuid")
}

func (b *oldBooks) texts(query string) (all []string) {
	b.t.Helper()
	rows, err := b.db.Query(query)
	check(b.t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var one string
		check(b.t, rows.Scan(&one))
		all = append(all, one)
	}
	check(b.t, rows.Err())
	return all
}

func TestRetireCards_DeletesOnlyWhatNobodyPaidFor(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		b := newOldBooks(t, url)
		b.watched()
		free, canceled := b.retirable("free"), b.retirable("canceled")
		b.exec("UPDATE cards SET canceled_at = 1, idempotency_key = 'a key', request_hash = ? WHERE uuid = ?",
			[]byte("hash"), canceled)
		kept := map[string]string{}
		for name, statement := range map[string]string{
			"unpaid":          "UPDATE cards SET payment_state = 'unpaid' WHERE uuid = ?",
			"late":            "UPDATE cards SET payment_state = 'late' WHERE uuid = ?",
			"issued":          "UPDATE cards SET status = 'generated' WHERE uuid = ?",
			"received":        "UPDATE cards SET received = 1 WHERE uuid = ?",
			"refunded":        "UPDATE cards SET refunded = 1 WHERE uuid = ?",
			"accepted":        "UPDATE cards SET accepted = 1 WHERE uuid = ?",
			"of another coin": "UPDATE cards SET currency = 'litecoin' WHERE uuid = ?",
			"long quote":      "UPDATE cards SET expires_at = 9000000000000 WHERE uuid = ?",
			"intent":          "INSERT INTO intents (card_uuid, state, due_at) VALUES (?, 'parked', 0)",
			"resolution": "INSERT INTO resolutions (id, card_uuid, kind, amount, note, operator, created_at) VALUES ('" +
				uuid.NewString() + "', ?, 'retry', 0, '', '', 0)",
			"purge": "INSERT INTO purges (id, card_uuid, note, operator, created_at) VALUES ('" + uuid.NewString() +
				"', ?, '', '', 0)",
			"event": "INSERT INTO events (account_id, seq, id, type, card_uuid, created_at) VALUES ('" + b.account.String() +
				"', 1, '" + uuid.NewString() +
				"', 'payment.expired', ?, 0)",
			"stock": "INSERT INTO stock (id, supplier, usd_cents, state, expires_at, card_uuid, imported_at, number_hash) VALUES ('" + uuid.NewString() +
				"', 'shelf', 100, 'held', 0, ?, 0, 'x')",
			"credentials": "INSERT INTO credentials (card_uuid, card_number, expiration_date, security_code, url, url_password) VALUES (?, 'x', 'x', 'x', 'x', 'x')",
			"attribution": "INSERT INTO attributions (currency, txid, output, id, kind, card_uuid, amount, note, operator, created_at) VALUES ('monero', 'x', 0, '" +
				uuid.NewString() + "', 'card', ?, 1, '', '', 0)",
		} {
			kept[name] = b.retirable(name)
			if strings.HasPrefix(url, "sqlite:") {
				statement = strings.NewReplacer("'x', 'x', 'x', 'x', 'x'", "x'00', x'00', x'00', x'00', x'00'", "0, 'x')",
					"0, x'00')").Replace(statement)
			}
			b.exec(statement, kept[name])
		}
		for name, how := range map[string]string{"paid": "TRUE", "paid, and gone": "FALSE"} {
			kept[name] = b.retirable(name)
			b.exec("UPDATE transfers SET counted = "+how+" WHERE txid = ?", b.transfer(1, name, 5))
		}
		young := b.card(99, "young")
		b.exec("UPDATE cards SET payment_state = 'expired' WHERE uuid = ?", young)
		if n := retire(t, b.Store, b.account, 3); n != 2 {
			t.Errorf("retired %d", n)
		}
		left := b.cards()
		for name, id := range kept {
			if !slices.Contains(left, id) {
				t.Errorf("deleted one: %s", name)
			}
		}
		if slices.Contains(left, free) || slices.Contains(left, canceled) || !slices.Contains(left, young) ||
			len(left) != len(kept)+1 {
			t.Errorf("%d are left", len(left))
		}
		if used, err := b.CardOfKey(t.Context(), b.account, "a key"); err == nil {
			t.Errorf("the key is still that of %s", used)
		}
	})
}

// A card is deleted only if the chain was scanned long enough after its expiry
// to rule out a payment.
func TestRetireCards_GoesByTheNewestBlock(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		b := newOldBooks(t, url)
		b.retirable("free")
		if n := retire(t, b.Store, b.account, 10); n != 0 {
			t.Error("the chain was never watched")
		}
		b.watched()
		b.exec("UPDATE chains SET time = ?", b.now.Add(-(hoursOld-99)*time.Hour).UnixMilli())
		if n := retire(t, b.Store, b.account, 10); n != 0 {
			t.Error("the chain was watched until 99 hours after")
		}
		b.exec("UPDATE chains SET time = ?", b.now.UnixMilli())
		if n := retire(t, b.Store, b.account, 10); n != 1 {
			t.Errorf("retired %d", n)
		}
	})
}

// The address of a deleted card is never reused, and late payments to it are
// still found.
func TestRetireCards_AddressesStayKnown(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		b := newOldBooks(t, url)
		b.watched()
		id := b.retirable("free")
		if n := retire(t, b.Store, b.account, 10); n != 1 {
			t.Fatalf("retired %d", n)
		}
		again := newCard(b.account)
		again.Address = "free"
		if inserted, err := b.InsertCard(t.Context(), again, 0); err != nil || inserted {
			t.Errorf("the address was handed out again: %v, %v", inserted, err)
		}
		late := newTransfer("late", 0, "free", 7)
		inTx(t, b.Store, func(ctx context.Context, tx *store.Tx) error {
			return tx.UpsertTransfers(ctx, []card.Transfer{late})
		})
		found, err := b.Unattributed(t.Context(), 10)
		check(t, err)
		if len(found) != 1 || found[0].TxID != "late" {
			t.Fatalf("unattributed: %+v", found)
		}
		known, err := b.RetiredCards(t.Context(), append(found, newTransfer("x", 0, "unknown", 1)))
		check(t, err)
		one := known[[2]string{"monero", "free"}]
		if len(known) != 1 || one.UUID.String() != id || !strings.HasPrefix(one.Account, "account ") || one.USD != 1_00 ||
			one.Amount != 1000 ||
			time.Since(one.DeletedAt) > time.Hour || one.ExpiredAt.UnixMilli() != 0 {
			t.Errorf("known: %+v", known)
		}
		b.wantDoubts(readBooks(t, b.Store))
	})
}

// A card is not deleted while a pass stores a transfer to its address. The pass
// has already found the card, so a deletion would leave the money unassigned.
func TestRetireCards_APassHasJustStoredATransfer(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		b := newOldBooks(t, url)
		b.watched()
		b.retirable("free")
		lease, err := b.AcquireLease(t.Context(), settle.LeaseName("monero"), "watcher", time.Hour)
		check(t, err)
		done := make(chan int64, 1)
		inTx(t, b.Store, func(ctx context.Context, tx *store.Tx) error {
			if err := tx.CheckLease(ctx, lease); err != nil {
				return err
			}
			if err := tx.UpsertTransfers(ctx, []card.Transfer{newTransfer("late", 0, "free", 7)}); err != nil {
				return err
			}
			go func() {
				n, _, err := b.RetireCards(context.Background(), b.account, "monero", old100, uuid.Nil, 10)
				if err != nil {
					n = -1
				}
				done <- n
			}()
			for deadline := time.Now().Add(10 * time.Second); !strings.HasPrefix(url, "sqlite:") &&
				time.Now().Before(deadline); {
				var waits bool // SQLite has one writer at a time anyway
				check(t, b.db.QueryRow(
					"SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits))
				if waits {
					return nil
				}
				if len(done) > 0 {
					t.Error("it did not wait for the pass")
					return nil
				}
			}
			return nil
		})
		if n := <-done; n != 0 || len(b.cards()) != 1 {
			t.Errorf("retired %d", n)
		}
	})
}

// After any sequence of changes, only unpaid cards are deleted, and the books
// and lists stay the same apart from them.
func TestRetireCards_BooksAndListsStayRight(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		seeds, steps := 4, 40
		if testing.Short() {
			seeds, steps = 2, 30
		}
		deleted := int64(0)
		for seed := range seeds {
			b := newOldBooks(t, url)
			if seed == 0 {
				b.watched()
			}
			r := rand.New(rand.NewPCG(uint64(seed), 11))
			for step := range steps {
				for range 1 + r.IntN(4) {
					b.change(r)
				}
				b.card(r.IntN(24*12), fmt.Sprint("fresh ", seed, step))
				b.exec("UPDATE cards SET payment_state = 'expired' WHERE payment_state = 'unpaid' AND address LIKE ?",
					fmt.Sprint("%", r.IntN(4)))
				if r.IntN(3) == 0 {
					readBooks(t, b.Store) // stores days, which later changes outdate
				}
				if r.IntN(3) > 0 {
					continue
				}
				n := b.retireAll(r)
				if deleted += n; t.Failed() {
					t.Fatalf("seed %d, step %d: deleted %d", seed, step, n)
				}
			}
			for _, table := range []string{"attributions", "resolutions", "credentials", "intents", "events", "transfers",
				"cards", "books_days", "books_doubts", "books_notes"} {
				b.exec("DELETE FROM " + table)
			}
			b.exec("UPDATE books SET kept_until = 0")
		}
		if deleted < 10 {
			t.Errorf("only %d cards were deleted", deleted)
		}
	})
}

// retireAll retires all cards that can be, and fails the test unless they are
// unpaid and are the only difference in the books and lists. Between the two
// comparisons it stores a reading, which may have started before the deletion.
func (b *oldBooks) retireAll(r *rand.Rand) int64 {
	b.t.Helper()
	unpaid := b.texts(`SELECT CAST(c.uuid AS TEXT) FROM cards c WHERE c.status = 'awaiting_payment' AND c.payment_state = 'expired' AND c.currency = 'monero'
		AND c.received + c.refunded + c.credit_paid + c.credit_held = 0 AND c.address NOT IN (SELECT address FROM transfers WHERE currency = 'monero')
		AND c.uuid NOT IN (SELECT card_uuid FROM attributions WHERE card_uuid IS NOT NULL UNION SELECT card_uuid FROM resolutions UNION SELECT card_uuid FROM intents
			UNION SELECT card_uuid FROM credentials) AND c.created_at < ` + fmt.Sprint(b.now.Add(-old100).UnixMilli()))
	full := func() operator.Books {
		read, err := b.ReadBooks(b.t.Context(), true, nobody)
		check(b.t, err)
		return read.Books
	}
	accounts, before, books := b.accounts(), b.cards(), full()
	early, err := b.ReadBooks(b.t.Context(), false, nobody)
	check(b.t, err)
	var n int64
	for _, account := range accounts {
		n += retire(b.t, b.Store, account, 1+r.IntN(3))
	}
	if r.IntN(2) == 0 {
		check(b.t, b.KeepBooks(b.t.Context(), early))
	}
	want := slices.DeleteFunc(before, func(id string) bool { return slices.Contains(unpaid, id) })
	if diff := cmp.Diff(want, b.cards(), cmpopts.EquateEmpty()); diff != "" || n != int64(len(unpaid)) {
		b.t.Errorf("deleted %d of %d: %s", n, len(unpaid), diff)
	}
	after := readBooks(b.t, b.Store) // a full and an incremental reading
	if diff := cmp.Diff(books, after, cmpopts.IgnoreFields(operator.Books{}, "AsOf"), cmpopts.EquateEmpty()); diff != "" {
		b.t.Errorf("the books: %s", diff)
	}
	return n
}

func (b *oldBooks) accounts() (ids []uuid.UUID) {
	b.t.Helper()
	ids, err := b.AccountIDs(b.t.Context())
	check(b.t, err)
	return ids
}

func TestHoldRetention_OneAtATime(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		hold := func(holder string, ttl time.Duration, want bool) {
			t.Helper()
			if held, err := s.AcquireRetention(t.Context(), holder, ttl); err != nil || held != want {
				t.Errorf("%s: %v, %v", holder, held, err)
			}
		}
		hold("a", time.Hour, true)
		hold("b", time.Hour, false)
		hold("a", -time.Hour, true)
		hold("b", time.Hour, true)
		hold("a", time.Hour, false)
		check(t, s.ReleaseRetention(t.Context(), "a"))
		hold("a", time.Hour, false)
		check(t, s.ReleaseRetention(t.Context(), "b"))
		hold("a", time.Hour, true)
	})
}
