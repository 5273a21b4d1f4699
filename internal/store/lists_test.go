package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

func ids(cards []*card.Card) []uuid.UUID {
	all := make([]uuid.UUID, len(cards))
	for i, c := range cards {
		all[i] = c.UUID
	}
	return all
}

// One statement searches at most a hundred accounts.
func TestFindCards_WithAStateOfMoreAccountsThanAStatementSearches(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		var want []uuid.UUID
		for i := range 230 {
			c := insertCard(t, s, newCard(newAccount(t, s)))
			if i%3 == 0 {
				assess(t, s, c, card.Assessment{State: card.Late})
				want = append(want, c.UUID)
			}
		}
		slices.Reverse(want)
		found, err := s.FindCards(t.Context(), operator.Search{State: card.Late, Limit: 20})
		check(t, err)
		if diff := cmp.Diff(want[:20], ids(found)); diff != "" {
			t.Error(diff)
		}
		found, err = s.FindCards(t.Context(), operator.Search{State: card.Late, Limit: 1000})
		check(t, err)
		if diff := cmp.Diff(want, ids(found)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCards_PagesOfAStatusHaveEachCardOnce(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		owner, other := newAccount(t, s), newAccount(t, s)
		want := map[card.Status][]uuid.UUID{}
		for i := range 24 {
			insertCard(t, s, newCard(other))
			c := insertCard(t, s, newCard(owner))
			status := card.AwaitingPayment
			if i%3 == 1 {
				generate(t, s, c.UUID)
				status = card.Generated
			}
			want[status], want[""] = append([]uuid.UUID{c.UUID}, want[status]...), append([]uuid.UUID{c.UUID}, want[""]...)
		}
		for status, want := range want {
			var got []uuid.UUID
			filter := order.Filter{AccountID: owner, Status: status, Limit: 5}
			for {
				page, err := s.Cards(t.Context(), filter)
				check(t, err)
				got = append(got, ids(page)...)
				if len(page) < filter.Limit {
					break
				}
				filter.Before = got[len(got)-1]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%q: %s", status, diff)
			}
		}
	})
}

// A card that needs an operator for two reasons is listed once.
func TestFindCards_SeveralReasons_ListedOnce(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		var want []uuid.UUID
		owner := newAccount(t, s)
		for range 3 {
			c := insertCard(t, s, newCard(owner))
			assess(t, s, c, card.Assessment{State: card.Late, Credit: card.Credit{Lost: 1}})
			want = append(want, c.UUID)
		}
		for _, search := range []operator.Search{{}, {AccountID: owner}, {State: card.Late},
			{AccountID: owner, State: card.Late}} {
			search.NeedsOperator, search.Limit = true, 2
			found, err := s.FindCards(t.Context(), search)
			check(t, err)
			if diff := cmp.Diff(want[:2], ids(found)); diff != "" {
				t.Errorf("%+v: %s", search, diff)
			}
		}
	})
}

// The flags of transfers only narrow the search for strays. Here they are
// unset, as if a program of an earlier version had stored the transfers.
func TestStrays_OfAnOlderProgramAreFoundAndOthersAreNot(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s, db := open(t, url), rig.OpenSQL(t, url)
		c := insertCard(t, s, newCard(newAccount(t, s)))
		for i, address := range []string{c.Address, "nobody", "elsewhere"} {
			execPlans(t, db, fmt.Sprintf(`INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at)
				VALUES ('monero', 'tx%d', 0, '%s', 1, 1, FALSE, TRUE, %d)`, i, address, i))
		}
		execPlans(t, db, `INSERT INTO attributions (currency, txid, output, id, kind, amount, note, operator, created_at)
			VALUES ('monero', 'tx2', 0, '`+uuid.NewString()+`', 'refund', 1, '', '', 0)`)
		wantStrays(t, s, "tx1", "tx2 tx1")
		// A pass that sees them again does not change that.
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			all, err := tx.TransfersIn(ctx, "monero", 0, nil)
			if err != nil {
				return err
			}
			return tx.UpsertTransfers(ctx, all)
		})
		wantStrays(t, s, "tx1", "tx2 tx1")
	})
}

func wantStrays(t *testing.T, s *store.Store, unattributed, strays string) {
	t.Helper()
	left, err := s.Unattributed(t.Context(), 9)
	check(t, err)
	all, err := s.Strays(t.Context(), 9)
	check(t, err)
	var got [2][]string
	for _, transfer := range left {
		got[0] = append(got[0], transfer.TxID)
	}
	for _, arrival := range all {
		got[1] = append(got[1], arrival.TxID)
	}
	if diff := cmp.Diff([2]string{unattributed, strays},
		[2]string{strings.Join(got[0], " "), strings.Join(got[1], " ")}); diff != "" {
		t.Error(diff)
	}
}

// beforeLists is the last schema without the indexes of lists.
const beforeLists = 8

func TestMigrate_FindsTheStraysOfBefore(t *testing.T) {
	t.Parallel()
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		_, db := migrateTo(t, url, beforeLists)
		owner, owned := uuid.NewString(), uuid.NewString()
		execPlans(t, db, "INSERT INTO accounts (id, name, created_at) VALUES ('"+owner+"', 'a', 0)")
		execPlans(t, db, `INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at, confirmations_required)
			VALUES ('`+owned+`', '`+owner+`', 0, 1, 'monero', 1, 'a', 1, 0, 's', 0, 1)`)
		for i, address := range []string{"a", "a", "nobody", "elsewhere"} {
			execPlans(t, db, fmt.Sprintf(`INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at)
				VALUES ('monero', 'tx%d', 0, '%s', 1, 1, FALSE, TRUE, %d)`, i, address, i))
		}
		for _, txid := range []string{"tx1", "tx3"} { // tx1 paid to the address of the new card
			execPlans(t, db, `INSERT INTO attributions (currency, txid, output, id, kind, amount, note, operator, created_at)
				VALUES ('monero', '`+txid+`', 0, '`+uuid.NewString()+`', 'refund', 1, '', '', 0)`)
		}
		migrate(t, url)
		wantStrays(t, open(t, url), "tx2", "tx3 tx2 tx1")
	})
}

// A long read, as by pg_dump, delays the indexes, and no other session.
func TestMigrate_OthersWorkWhileIndexesAreBuilt(t *testing.T) {
	t.Parallel()
	url := new(rig.Databases).Postgres(t)
	_, db := migrateTo(t, url, beforeLists)
	owner := uuid.NewString()
	execPlans(t, db, "INSERT INTO accounts (id, name, created_at) VALUES ('"+owner+"', 'a', 0)")
	insert := func(from, to int) {
		execPlans(t, db, fmt.Sprintf(`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at, confirmations_required)
			SELECT gen_random_uuid(), '%s', 0, 1, 'monero', 1, 'a' || i, 1, 0, 's', 0, 1 FROM generate_series(%d, %d) AS i`, owner, from, to))
	}
	const many = 50_000
	insert(1, many)
	reader, err := rig.OpenSQL(t, url).BeginTx(context.WithoutCancel(t.Context()),
		&sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	check(t, err)
	end := sync.OnceFunc(func() { _ = reader.Rollback() })
	defer end()
	_, err = reader.Exec("SELECT COUNT(*) FROM cards")
	check(t, err)
	// During the read, building the indexes fails. The invalid indexes that
	// remain are not used.
	_, err = store.Migration{LockWait: 3 * time.Second}.Run(t.Context(), url)
	wantError(t, err, store.ErrLocked)
	if v := version(t, url); v >= newestSchema {
		t.Errorf("version %d", v)
	}
	time.AfterFunc(5*time.Second, end)
	stop, stopped := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var waits []time.Duration
		for i := many + 1; ; i++ {
			start := time.Now()
			insert(i, i)
			waits = append(waits, time.Since(start))
			select {
			case <-stop:
				stopped <- waits
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	start := time.Now()
	schema, err := store.Migration{}.Run(t.Context(), url)
	took := time.Since(start)
	close(stop)
	waits := <-stopped
	check(t, err)
	if schema.Version != newestSchema || took < 4*time.Second {
		t.Errorf("schema %+v after %s", schema, took)
	}
	if slowest := slices.Max(waits); slowest > 2*time.Second || len(waits) < 50 {
		t.Errorf("%d cards were inserted in the meantime, the slowest in %s", len(waits), slowest)
	}
	var invalid []string
	query(t, url, &invalid, "SELECT CAST(indexrelid AS regclass) FROM pg_index WHERE NOT indisvalid")
	if len(invalid) > 0 {
		t.Errorf("unusable: %v", invalid)
	}
}
