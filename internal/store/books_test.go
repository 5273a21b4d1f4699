package store_test

import (
	"bytes"
	stdcmp "cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"math/big"
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
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

// anyAmount returns a random amount, often close to the minimum or maximum.
func anyAmount(r *rand.Rand) int64 {
	switch r.IntN(4) {
	case 0:
		return []int64{math.MaxInt64, math.MaxInt64 - 1, 1 << 32, 1<<32 - 1, 1, 0}[r.IntN(6)]
	case 1:
		return r.Int64N(1 << 33)
	}
	return r.Int64()
}

// wantSum compares a sum with one computed by math/big.
func wantSum(t *testing.T, name string, got card.Total, amounts ...int64) {
	t.Helper()
	want := new(big.Int)
	for _, a := range amounts {
		want.Add(want, big.NewInt(a))
	}
	if got.String() != want.String() {
		t.Errorf("%s: %s, want %s, of %d", name, got, want, amounts)
	}
}

func TestBooks_SumsOfAnySizeAreExact(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s, db := open(t, url), rig.OpenSQL(t, url)
		account := newAccount(t, s)
		var cards []*card.Card
		for range 5 {
			cards = append(cards, insertCard(t, s, newCard(account)))
		}
		exec := func(statement string, args ...any) {
			t.Helper()
			for n := 1; strings.Contains(statement, "?"); n++ { // SQLite accepts these, too
				statement = strings.Replace(statement, "?", fmt.Sprint("$", n), 1)
			}
			_, err := db.Exec(statement, args...)
			check(t, err)
		}
		rounds := 40
		if testing.Short() {
			rounds = 10
		}
		for round := range rounds {
			r := rand.New(rand.NewPCG(uint64(round), 1))
			exec("DELETE FROM transfers")
			var all, stray, held, refunded, lost []int64
			var doubtful []operator.Discrepancy
			for i, c := range cards {
				received, own := new(big.Int), []int64(nil)
				for range r.IntN(4) {
					own = append(own, anyAmount(r))
					received.Add(received, big.NewInt(own[len(own)-1]))
				}
				for j, a := range own {
					exec("INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES ('monero', ?, ?, ?, ?, 5, FALSE, TRUE, 1)",
						fmt.Sprint(i), j, c.Address, a)
				}
				all = append(all, own...)
				stored := received.Int64() // wraps around
				k := [3]int64{anyAmount(r), anyAmount(r), -anyAmount(r)}
				if r.IntN(3) > 0 {
					k = [3]int64{stored, 0, 0}
				}
				if !received.IsInt64() {
					doubtful = append(doubtful,
						operator.Discrepancy{ID: c.UUID, Text: "its received amount does not match its transfers"})
				}
				if new(big.Int).Add(big.NewInt(k[0]), big.NewInt(k[1])).Cmp(big.NewInt(stored)) != 0 {
					doubtful = append(doubtful,
						operator.Discrepancy{ID: c.UUID, Text: "its credits do not add up to its received amount"})
				}
				held, refunded, lost = append(held, k[0]), append(refunded, k[1]), append(lost, k[2])
				exec("UPDATE cards SET received = ?, credit_held = ?, credit_refunded = ?, credit_lost = ?, payment_state = 'late' WHERE uuid = ?", stored, k[0], k[1], k[2], c.UUID.String())
			}
			for j := range r.IntN(4) {
				stray = append(stray, anyAmount(r))
				exec("INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES ('monero', 'x', ?, 'nowhere', ?, 0, FALSE, TRUE, 1)", j, stray[j])
			}
			books := readBooks(t, s)
			b := books.Coins[0]
			wantSum(t, "counted", b.Counted, append(slices.Clone(all), stray...)...)
			wantSum(t, "unattributed", b.Unattributed, stray...)
			wantSum(t, "held", b.Held, held...)
			wantSum(t, "refunded", b.Refunded, refunded...)
			wantSum(t, "lost", b.Lost, lost...)
			wantDoubtsOf(t, books, doubtful)
		}
	})
}

// wantDoubtsOf compares the doubts about cards' sums.
func wantDoubtsOf(t *testing.T, books operator.Books, want []operator.Discrepancy) {
	t.Helper()
	got := slices.DeleteFunc(slices.Clone(books.Discrepancies), func(d operator.Discrepancy) bool {
		return d.Text != "its received amount does not match its transfers" &&
			d.Text != "its credits do not add up to its received amount"
	})
	byText := func(a, b operator.Discrepancy) int {
		return stdcmp.Or(strings.Compare(a.Text, b.Text), bytes.Compare(a.ID[:], b.ID[:]))
	}
	slices.SortFunc(got, byText)
	slices.SortFunc(want, byText)
	if !slices.Equal(got, want) {
		t.Errorf("doubts %+v, want %+v", got, want)
	}
}

// Before amounts were limited, ten payments of a million coins overflowed the
// sum of a card.
func TestBooks_CardSumOverflowed_IsDiscrepancy(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c := insertCard(t, s, newCard(newAccount(t, s)))
		const million = 999_999_999999999999
		for range 10 {
			arrive(t, s, card.Transfer{Address: c.Address, Amount: million})
		}
		sum := int64(million)
		sum *= 10
		assess(t, s, c, card.Assessment{State: card.Underpaid, Received: card.Amount(sum)})
		books := readBooks(t, s)
		wantSum(t, "counted", books.Coins[0].Counted, slices.Repeat([]int64{million}, 10)...)
		if !slices.Contains(books.Discrepancies,
			operator.Discrepancy{ID: c.UUID, Text: "its received amount does not match its transfers"}) {
			t.Errorf("doubts: %+v", books.Discrepancies)
		}
	})
}

func nobody(operator.Progress) {}

// readBooks reads and stores the books as an operator does, and fails the test
// if a full reading differs.
func readBooks(t testing.TB, s *store.Store) operator.Books {
	t.Helper()
	read, err := s.ReadBooks(t.Context(), false, nobody)
	check(t, err)
	full, err := s.ReadBooks(t.Context(), true, nobody)
	check(t, err)
	if diff := cmp.Diff(full.Books, read.Books, cmpopts.IgnoreFields(operator.Books{}, "AsOf"),
		cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("a full reading differs: %s", diff)
	}
	check(t, s.KeepBooks(t.Context(), read))
	return read.Books
}

// oldBooks is a database whose rows are old enough for stored books. Its
// methods change them with SQL, as another program may.
type oldBooks struct {
	*store.Store
	t       *testing.T
	db      *sql.DB
	account uuid.UUID
	now     time.Time
	n       int
}

func newOldBooks(t *testing.T, url string) *oldBooks {
	s := open(t, url)
	return &oldBooks{Store: s, t: t, db: rig.OpenSQL(t, url), account: newAccount(t, s), now: time.Now()}
}

func (b *oldBooks) exec(statement string, args ...any) {
	b.t.Helper()
	for n := 1; strings.Contains(statement, "?"); n++ { // SQLite accepts these, too
		statement = strings.Replace(statement, "?", fmt.Sprint("$", n), 1)
	}
	_, err := b.db.Exec(statement, args...)
	check(b.t, err)
}

// card inserts a card of the given age in hours, and returns its uuid.
func (b *oldBooks) card(hours int, address string) string {
	b.t.Helper()
	b.n++
	at := b.now.Add(-time.Duration(hours) * time.Hour).UnixMilli()
	id := fmt.Sprintf("%08x-%04x-7000-8000-%012x", at>>16, at&0xffff, b.n)
	b.exec(`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at, confirmations_required)
		VALUES (?, ?, ?, 100, 'monero', 1000, ?, 1, 0, 'fixed', 0, 10)`, id, b.account.String(), at, address)
	return id
}

// transfer inserts a transfer that was first seen the given number of hours
// ago.
func (b *oldBooks) transfer(hours int, address string, amount int64) string {
	b.t.Helper()
	b.n++
	id := fmt.Sprint("tx ", b.n)
	b.exec("INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES ('monero', ?, 0, ?, ?, 5, FALSE, TRUE, ?)",
		id, address, amount, b.now.Add(-time.Duration(hours)*time.Hour).UnixMilli())
	return id
}

// wantDoubts compares the texts of all doubts.
func (b *oldBooks) wantDoubts(books operator.Books, want ...string) {
	b.t.Helper()
	var got []string
	for _, d := range books.Discrepancies {
		got = append(got, d.Text)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		b.t.Errorf("doubts: %s", diff)
	}
}

// An incremental reading returns the same as a full one after any sequence of
// changes to recent and old rows.
func TestBooks_IncrementalReading_EqualsFullReading(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		seeds, steps := 6, 50
		if testing.Short() {
			seeds, steps = 2, 25
		}
		for seed := range seeds {
			b := newOldBooks(t, url)
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			for step := range steps {
				var done []string
				for range 1 + r.IntN(3) {
					done = append(done, b.change(r))
				}
				if r.IntN(3) == 0 {
					continue // not after every step, so that changes to recent rows are noted, too
				}
				if readBooks(t, b.Store); t.Failed() {
					t.Fatalf("seed %d, step %d: %q", seed, step, done)
				}
				if r.IntN(8) == 0 {
					full, err := b.ReadBooks(t.Context(), true, nobody)
					check(t, err)
					check(t, b.KeepBooks(t.Context(), full))
				}
			}
			for _, table := range []string{"attributions", "resolutions", "credentials", "intents", "events", "transfers",
				"cards", "books_days", "books_doubts", "books_notes"} {
				b.exec("DELETE FROM " + table)
			}
			b.exec("UPDATE books SET kept_until = 0")
		}
	})
}

// change changes a random row, and returns the statement.
func (b *oldBooks) change(r *rand.Rand) string {
	const hours = 24 * 12
	address := func() string { return fmt.Sprint("address ", r.IntN(12)) }
	pick := func(query string) string {
		var all []string
		rows, err := b.db.Query(query)
		check(b.t, err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var one string
			check(b.t, rows.Scan(&one))
			all = append(all, one)
		}
		slices.Sort(all)
		if len(all) == 0 {
			return uuid.Nil.String()
		}
		return all[r.IntN(len(all))]
	}
	aCard := func() string { return pick("SELECT CAST(uuid AS TEXT) FROM cards") }
	aTransfer := func() string { return pick("SELECT txid FROM transfers") }
	amount := r.Int64N(3)
	statements := []func() (string, []any){
		func() (string, []any) {
			return "UPDATE cards SET received = ?, credit_paid = ? WHERE uuid = ?", []any{amount, amount, aCard()}
		},
		func() (string, []any) {
			return "UPDATE cards SET credit_held = ?, refunded = 1 WHERE uuid = ?", []any{amount, aCard()}
		},
		func() (string, []any) {
			return "UPDATE cards SET status = 'generated', payment_state = 'paid' WHERE uuid = ?", []any{aCard()}
		},
		func() (string, []any) {
			return "UPDATE cards SET payment_state = 'late' WHERE uuid = ?", []any{aCard()}
		},
		func() (string, []any) {
			return "UPDATE cards SET currency = ? WHERE uuid = ?", []any{fmt.Sprint("canary ", r.IntN(1e6)), aCard()}
		},
		func() (string, []any) {
			return "UPDATE cards SET address = ? WHERE uuid = ?", []any{fmt.Sprint("moved ", r.IntN(1e6)), aCard()}
		},
		func() (string, []any) {
			return "UPDATE transfers SET counted = NOT counted WHERE txid = ?", []any{aTransfer()}
		},
		func() (string, []any) {
			return "UPDATE transfers SET address = ? WHERE txid = ?", []any{address(), aTransfer()}
		},
		func() (string, []any) {
			return "UPDATE transfers SET amount = ? WHERE txid = ?", []any{amount, aTransfer()}
		},
		func() (string, []any) {
			return "UPDATE transfers SET first_seen_at = ? WHERE txid = ?",
				[]any{b.now.Add(-time.Duration(r.IntN(hours)) * time.Hour).UnixMilli(), aTransfer()}
		},
		func() (string, []any) { return "DELETE FROM transfers WHERE txid = ?", []any{aTransfer()} },
		func() (string, []any) {
			return "INSERT INTO attributions (currency, txid, output, id, kind, card_uuid, amount, note, operator, created_at) VALUES ('monero', ?, 0, ?, 'card', ?, 1, '', '', 0) ON CONFLICT DO NOTHING",
				[]any{aTransfer(), uuid.NewString(), aCard()}
		},
		func() (string, []any) {
			return "INSERT INTO attributions (currency, txid, output, id, kind, amount, note, operator, created_at) VALUES ('monero', ?, 0, ?, 'refund', 1, '', '', 0) ON CONFLICT DO NOTHING",
				[]any{aTransfer(), uuid.NewString()}
		},
		func() (string, []any) { return "DELETE FROM attributions WHERE txid = ?", []any{aTransfer()} },
		func() (string, []any) {
			return "INSERT INTO resolutions (id, card_uuid, kind, amount, note, operator, created_at) VALUES (?, ?, 'refund', 1, '', '', 0)", []any{uuid.NewString(), aCard()}
		},
		func() (string, []any) { return "DELETE FROM resolutions WHERE card_uuid = ?", []any{aCard()} },
		func() (string, []any) {
			return "INSERT INTO credentials (card_uuid, card_number, expiration_date, security_code, url, url_password) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
				[]any{aCard(), []byte("x"), []byte("x"), []byte("x"), []byte("x"), []byte("x")}
		},
		func() (string, []any) { return "DELETE FROM credentials WHERE card_uuid = ?", []any{aCard()} },
		func() (string, []any) {
			return "UPDATE cards SET credentials_purged_at = ? WHERE uuid = ?",
				[]any{sql.NullInt64{Int64: 1, Valid: amount > 0}, aCard()}
		},
		func() (string, []any) {
			return "INSERT INTO intents (card_uuid, state, due_at) VALUES (?, ?, 0) ON CONFLICT (card_uuid) DO UPDATE SET state = excluded.state",
				[]any{aCard(), []string{"open", "done", "parked", "refund_due"}[r.IntN(4)]}
		},
		func() (string, []any) { return "DELETE FROM intents WHERE card_uuid = ?", []any{aCard()} },
	}
	n := r.IntN(len(statements) + 8)
	switch {
	case n >= len(statements)+4:
		return "transfer " + b.transfer(r.IntN(hours), address(), amount)
	case n >= len(statements):
		at := address()
		var taken int
		check(b.t, b.db.QueryRow("SELECT COUNT(*) FROM cards WHERE currency = 'monero' AND address = $1", at).Scan(&taken))
		if taken > 0 {
			return "nothing"
		}
		return "card " + b.card(r.IntN(hours), at)
	}
	statement, args := statements[n]()
	for _, a := range args {
		if a == uuid.Nil.String() {
			return "nothing"
		}
	}
	b.exec(statement, args...)
	return fmt.Sprint(statement, args)
}

// Incremental readings don't read stored days again. A change that triggers did
// not note is found only by a full reading, and the next reading reads its day.
func TestBooks_UnnoticedChange_FullReadingFindsIt(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		b := newOldBooks(t, url)
		b.transfer(24*9, "nobody", 10)
		b.wantDoubts(readBooks(t, b.Store))
		b.transfer(24*9, "nobody", 5)
		b.exec("DELETE FROM books_notes")
		counted := func(full bool) (string, operator.Reading) {
			t.Helper()
			r, err := b.ReadBooks(t.Context(), full, nobody)
			check(t, err)
			return r.Coins[0].Counted.String(), r
		}
		if got, r := counted(false); got != "10" {
			t.Errorf("an incremental reading returned %s", got)
			b.wantDoubts(r.Books)
		}
		got, full := counted(true)
		if got != "15" || len(full.Discrepancies) != 1 ||
			!strings.Contains(full.Discrepancies[0].Text,
				"1 transfers of monero were kept, which add up to (10 10 0 0), but there are 2, which add up to (15 15 0 0)") {
			t.Errorf("a full reading returned %s, %+v", got, full.Discrepancies)
		}
		check(t, b.KeepBooks(t.Context(), full))
		if got, r := counted(false); got != "15" {
			t.Errorf("the next reading returned %s", got)
		} else {
			check(t, b.KeepBooks(t.Context(), r))
		}
		b.wantDoubts(readBooks(t, b.Store))
	})
}

// Rows of a day should not disappear: a day without any is doubted until a full
// reading confirms it.
func TestBooks_DayWithoutRows_IsDiscrepancy(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		b := newOldBooks(t, url)
		b.transfer(24*9, "nobody", 10)
		b.transfer(24*20, "nobody", 10)
		b.wantDoubts(readBooks(t, b.Store))
		b.exec("DELETE FROM transfers WHERE first_seen_at < ?", b.now.Add(-24*15*time.Hour).UnixMilli())
		want := b.now.Add(-24*20*time.Hour).UTC().Format(time.DateOnly) +
			": 1 transfers of monero were kept, and none is left"
		for range 2 {
			b.wantDoubts(readBooks(t, b.Store), want)
		}
		full, err := b.ReadBooks(t.Context(), true, nobody)
		check(t, err)
		b.wantDoubts(full.Books, want)
		check(t, b.KeepBooks(t.Context(), full))
		b.wantDoubts(readBooks(t, b.Store))
	})
}

// If a transfer moves to another card, both cards are checked, for old and for
// recent transfers.
func TestBooks_MovedTransfer_BothCardsAreDiscrepancies(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		for _, hours := range []int{24 * 9, 1} {
			b := newOldBooks(t, url)
			one, two := fmt.Sprint("one ", hours), fmt.Sprint("two ", hours)
			left := b.card(24*10, one)
			b.card(24*10, two)
			id := b.transfer(hours, one, 10)
			b.exec("UPDATE cards SET received = 10, credit_paid = 10 WHERE uuid = ?", left)
			b.wantDoubts(readBooks(t, b.Store))
			b.exec("UPDATE transfers SET address = ? WHERE txid = ?", two, id)
			const text = "its received amount does not match its transfers"
			b.wantDoubts(readBooks(t, b.Store), text, text)
			b.wantDoubts(readBooks(t, b.Store), text, text) // still
			b.exec("UPDATE transfers SET address = ? WHERE txid = ?", one, id)
			b.wantDoubts(readBooks(t, b.Store))
			b.exec("DELETE FROM transfers")
			b.exec("DELETE FROM cards")
			b.exec("DELETE FROM books_days")
		}
	})
}

// Changes during a reading belong to the next one. Of two concurrent readings,
// only the first to be stored is kept.
func TestBooks_AreAsOfOneMoment(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		b := newOldBooks(t, url)
		for day := range 5 {
			b.transfer(24*(5+day), "nobody", 10)
		}
		meanwhile := false
		r, err := b.ReadBooks(context.WithoutCancel(t.Context()), false, func(operator.Progress) {
			if !meanwhile {
				meanwhile = true
				b.exec("UPDATE transfers SET amount = 1000")
			}
		})
		check(t, err)
		if got := r.Coins[0].Counted.String(); got != "50" || !meanwhile {
			t.Errorf("%s", got)
		}
		earlier, err := b.ReadBooks(t.Context(), false, nobody)
		check(t, err)
		check(t, b.KeepBooks(t.Context(), r))
		check(t, b.KeepBooks(t.Context(), earlier))
		if got := readBooks(t, b.Store).Coins[0].Counted.String(); got != "5000" {
			t.Errorf("%s", got)
		}
	})
}

// More rows than a page holds, many of them with the same time.
func TestBooks_AreReadInPieces(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: fills a database")
	}
	onEach(t, func(t *testing.T, url string) {
		b := newOldBooks(t, url)
		const n = 25_000
		id, series := "CAST('01900000-0000-7000-8000-' || printf('%012x', i) AS TEXT)",
			fmt.Sprintf("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) ", n)
		if !strings.HasPrefix(url, "sqlite:") {
			id = "CAST('01900000-0000-7000-8000-' || lpad(to_hex(i), 12, '0') AS UUID)"
		}
		at := b.now.Add(-24 * 9 * time.Hour).UnixMilli()
		b.exec(`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at, confirmations_required, received, credit_paid) ` +
			series + "SELECT " + id + ", '" + b.account.String() +
			"', 0, 100, 'monero', 1000, 'address ' || i, 1, 0, 'fixed', 0, 10, i, i FROM n")
		b.exec("INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) " +
			series + "SELECT 'monero', 'tx ' || i, 0, 'address ' || i, i, 5, FALSE, TRUE, " + fmt.Sprint(at) + " FROM n")
		read, err := b.ReadBooks(t.Context(), true, nobody)
		check(t, err)
		if c := read.Coins[0]; c.Counted.String() != fmt.Sprint(n*(n+1)/2) || c.Open.String() != c.Counted.String() ||
			len(read.Discrepancies) > 0 {
			t.Errorf("%+v, %+v", c, read.Discrepancies)
		}
		check(t, b.KeepBooks(t.Context(), read))
		b.exec(fmt.Sprintf(
			"UPDATE cards SET received = 0 WHERE address IN ('address 1', 'address 10000', 'address 10001', 'address %d')", n))
		const first, second = "its received amount does not match its transfers",
			"its credits do not add up to its received amount"
		b.wantDoubts(readBooks(t, b.Store), first, first, first, first, second, second, second, second)
	})
}

// A purge is no discrepancy, even if the books of the day are already stored.
// After a key rotation, which updates every row, the next reading reads none of
// them again.
func TestBooks_NoteAPurgeAndNoRotation(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		b := newOldBooks(t, url)
		id := b.card(24*5, "an address")
		b.exec("UPDATE cards SET status = 'generated' WHERE uuid = ?", id)
		b.exec("INSERT INTO intents (card_uuid, state, attempts, due_at, supplier, key) VALUES (?, 'done', 1, 0, 'sandbox', 'key')", id)
		insert := func() {
			b.exec("INSERT INTO credentials (card_uuid, card_number, expiration_date, security_code, url, url_password) VALUES (?, ?, ?, ?, ?, ?)", id,
				[]byte{1}, []byte{1}, []byte{1}, []byte{1}, []byte{1})
		}
		insert()
		b.wantDoubts(readBooks(t, b.Store))
		b.exec("UPDATE credentials SET card_number = ?, url = ?", []byte{2}, []byte{2})
		b.exec("UPDATE cards SET refund_address = ?", []byte{2})
		var notes int
		check(t, b.db.QueryRow("SELECT COUNT(*) FROM books_notes").Scan(&notes))
		if notes > 0 {
			t.Errorf("%d notes", notes)
		}
		purged, _, err := b.PurgeCredentials(t.Context(), 0, 10)
		check(t, err)
		if purged != 1 {
			t.Fatalf("%d purged", purged)
		}
		b.wantDoubts(readBooks(t, b.Store))
		insert()
		b.wantDoubts(readBooks(t, b.Store), "its credentials were purged, but it has some")
		b.exec("DELETE FROM credentials")
		b.exec("UPDATE cards SET credentials_purged_at = NULL")
		b.wantDoubts(readBooks(t, b.Store), "it is issued, but has no credentials")
	})
}
