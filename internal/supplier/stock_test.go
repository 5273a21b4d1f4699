package supplier_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/rig/vaulttest"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/vault"
)

// shelf is a stock with its store, vault, clock and log.
type shelf struct {
	*supplier.Stock
	t   *testing.T
	url string
	db  *store.Store
	v   *vault.Vault
	now time.Time
	log bytes.Buffer
}

// onShelf runs a test on every database. The stock issues no items that expire
// within 40 days.
func onShelf(t *testing.T, f func(t *testing.T, s *shelf)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, url string) {
		s := &shelf{t: t, url: url, db: storetest.Open(t, url), v: vaulttest.New(t), now: november}
		var err error
		s.Stock, err = supplier.NewStock("shelf", s.db, s.v, supplier.StockConfig{MinValidity: 960 * time.Hour, LowStock: 2,
			Now: func() time.Time { return s.now }, Log: slog.New(slog.NewTextHandler(&s.log, nil))})
		need(t, err)
		f(t, s)
	})
}

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const header = "usd_amount,card_number,expiration_date,security_code,url,url_password\n"

// number returns the n-th card number.
func number(n int) string {
	body := fmt.Sprintf("99%013d", n)
	return body + card.LuhnDigit(body)
}

// row returns a line with the n-th card.
func row(usd string, n int, expires string) string {
	return fmt.Sprintf("%s,%s,%s,123,https://cards.example/%d,secret%d\n", usd, number(n), expires, n, n)
}

// importing returns an import, and its errors.
func (s *shelf) importing() (i supplier.Import, wrong *[]string) {
	wrong = new([]string)
	return supplier.Import{Shelf: s.db, Vault: s.v, Supplier: "shelf", Min: card.MinUSD, Max: card.MaxUSD, Now: s.now,
		Soon:     s.now.Add(960 * time.Hour),
		Wrong:    func(line int, why string) { *wrong = append(*wrong, fmt.Sprintf("%d: %s", line, why)) },
		Progress: func(int) {}}, wrong
}

// shelve imports lines.
func (s *shelf) shelve(lines ...string) {
	s.t.Helper()
	i, wrong := s.importing()
	file := strings.NewReader(header + strings.Join(lines, ""))
	_, err := i.Check(s.t.Context(), file)
	need(s.t, err)
	n, err := i.Store(s.t.Context(), file)
	if err != nil || n != len(lines) || len(*wrong) > 0 {
		s.t.Fatalf("%d imported, error %v, wrong: %q", n, err, *wrong)
	}
}

func request(usd card.USD) issue.Request {
	return issue.Request{Key: uuid.Must(uuid.NewV7()).String(), USD: usd}
}

func TestStock_Imported_IsIssued(t *testing.T) {
	onShelf(t, func(t *testing.T, s *shelf) {
		s.shelve(row("100", 2, "12/28"), row("100", 1, "11/27"), row("50.50", 3, "11/27"), row("100", 4, "12/26"))
		r := request(100_00)
		want(t, s.Lookup, r, issue.Unknown)
		first := want(t, s.Submit, r, issue.Issued)
		wanted := card.Credentials{CardNumber: card.Secret(number(1)), ExpirationDate: "11/27", SecurityCode: "123",
			URL: "https://cards.example/1", URLPassword: "secret1"}
		if first.Credentials != wanted || first.USD != 100_00 || first.Reference == "" {
			t.Errorf("not the item that expires first and lasts long enough: %s US dollars, expires %s",
				first.USD, first.Credentials.ExpirationDate.Reveal())
		}
		for _, again := range []call{s.Submit, s.Lookup, s.Cancel} {
			if diff := cmp.Diff(first, want(t, again, r, issue.Issued)); diff != "" {
				t.Error("another answer to the same key")
			}
		}
		want(t, s.Submit, request(100_00), issue.Issued)
		a := want(t, s.Submit, request(100_00), issue.Declined)
		if a.Reason != "out of stock" || !a.Temporary {
			t.Errorf("%+v", a)
		}
		want(t, s.Submit, request(50_50), issue.Issued)
		if _, err := s.Submit(t.Context(), issue.Request{Key: "x"}); err == nil {
			t.Error("accepted a key that is not a uuid")
		}
	})
}

func TestStock_Cancel_ReleasesReserved(t *testing.T) {
	onShelf(t, func(t *testing.T, s *shelf) {
		s.shelve(row("100", 1, "11/27"))
		r := request(100_00)
		a := want(t, s.Cancel, r, issue.Declined)
		if a.Reason != "canceled" {
			t.Errorf("%+v", a)
		}
		want(t, s.Submit, r, issue.Issued)
	})
}

// Lookup finds only issued items. Unknown would cause another request, so a
// failed lookup must be an error.
func TestStock_Lookup_FindsIssued(t *testing.T) {
	onShelf(t, func(t *testing.T, s *shelf) {
		s.shelve(row("100", 1, "11/27"))
		r := request(100_00)
		_, err := rig.OpenSQL(t, s.url).Exec("UPDATE stock SET state = 'reserved', card_uuid = $1", uuid.MustParse(r.Key))
		need(t, err)
		want(t, s.Lookup, r, issue.Unknown)
		want(t, s.Submit, r, issue.Issued)
		want(t, s.Lookup, r, issue.Issued)
		stock, err := supplier.NewStock("shelf", brokenStore{s.db}, s.v, supplier.StockConfig{})
		need(t, err)
		for what, f := range map[string]call{"look up": stock.Lookup, "cancel": stock.Cancel} {
			if a, err := f(t.Context(), r); !errors.Is(err, errBroken) || a != (issue.Answer{}) {
				t.Errorf("%s: %s, error %v", what, a.Outcome, err)
			}
		}
	})
}

// brokenStore is a store that can't find an item.
type brokenStore struct{ *store.Store }

var errBroken = errors.New("broken pipe")

func (brokenStore) StockItem(context.Context, string, uuid.UUID) (card.StockItem, error) {
	return card.StockItem{}, errBroken
}

// An erased item is neither issued a second time nor replaced by another one.
func TestStock_ErasedItem_IsNotReplaced(t *testing.T) {
	onShelf(t, func(t *testing.T, s *shelf) {
		s.shelve(row("100", 1, "11/27"), row("100", 2, "11/27"))
		r := request(100_00)
		want(t, s.Submit, r, issue.Issued)
		wiped := wipedStore{s.db}
		stock, err := supplier.NewStock("shelf", wiped, s.v, supplier.StockConfig{})
		need(t, err)
		for _, f := range []call{stock.Submit, stock.Lookup} {
			a, err := f(t.Context(), r)
			if err != nil || a.Outcome != issue.Issued || a.Flaw == "" || a.Credentials != (card.Credentials{}) {
				t.Errorf("%s, flaw %q, error %v", a.Outcome, a.Flaw, err)
			}
		}
	})
}

// wipedStore is a store whose items are erased.
type wipedStore struct{ *store.Store }

func (w wipedStore) TakeStock(ctx context.Context, supplier string, id uuid.UUID, usd card.USD,
	after time.Time) (card.StockItem, error) {
	item, err := w.Store.TakeStock(ctx, supplier, id, usd, after)
	item.Sealed = nil
	return item, err
}

func (w wipedStore) StockItem(ctx context.Context, supplier string, id uuid.UUID) (card.StockItem, error) {
	item, err := w.Store.StockItem(ctx, supplier, id)
	item.Sealed = nil
	return item, err
}

func TestStock_Offers_OutlastQuote(t *testing.T) {
	onShelf(t, func(t *testing.T, s *shelf) {
		s.shelve(row("100", 1, "11/27"), row("100", 2, "11/27"), row("50", 3, "12/26"))
		offers, err := s.Offers(t.Context())
		need(t, err)
		if diff := cmp.Diff(
			[]card.Offer{{Min: 50_00, Max: 50_00, Life: 961 * time.Hour},
				{Min: 100_00, Max: 100_00, Left: 2, Life: 961 * time.Hour}}, offers); diff != "" {
			t.Error(diff)
		}
		// The cards expire when December begins. A card may last long enough to
		// be issued, but not for a quote.
		s.now = time.Date(2027, 12, 1, 0, 0, 0, 0, time.UTC).Add(-961 * time.Hour)
		if offers, err := s.Offers(t.Context()); err != nil || len(offers) != 2 || offers[1].Left != 0 ||
			offers[1].Has(100_00) {
			t.Errorf("%v, error %v", offers, err)
		}
		want(t, s.Submit, request(100_00), issue.Issued)
		s.now = s.now.Add(time.Hour)
		want(t, s.Submit, request(100_00), issue.Declined)
	})
}

func TestStock_Low_IsLoggedOnce(t *testing.T) {
	onShelf(t, func(t *testing.T, s *shelf) {
		tick := func(want string) {
			t.Helper()
			s.log.Reset()
			for range 2 {
				need(t, s.Tick(t.Context()))
			}
			if got := s.log.String(); strings.Count(got, "\n") != min(1, len(want)) || !strings.Contains(got, want) {
				t.Errorf("want %q, got:\n%s", want, got)
			}
		}
		s.shelve(row("100", 1, "11/27"), row("100", 2, "11/27"))
		tick("")
		want(t, s.Submit, request(100_00), issue.Issued)
		tick(`level=WARN msg="stock is low: import cards" supplier=shelf usd=100 left=1 limit=2`)
		want(t, s.Submit, request(100_00), issue.Issued)
		tick("")
		s.shelve(row("100", 3, "11/27"), row("100", 4, "11/27"))
		tick(`msg="stock is no longer low" supplier=shelf usd=100 left=2`)
		// They expire when December begins, and are no longer offered once they
		// could expire before they are paid and used.
		s.now = time.Date(2027, 12, 1, 0, 0, 0, 0, time.UTC).Add(-961 * time.Hour)
		tick(`level=WARN msg="stock is low: import cards" supplier=shelf usd=100 left=0 limit=2`)
	})
}

func TestImport_InvalidLines_AreNamedNotQuoted(t *testing.T) {
	onShelf(t, func(t *testing.T, s *shelf) {
		s.shelve(row("100", 1, "11/27"))
		i, wrong := s.importing()
		file := "url,url_password,security_code,expiration_date,card_number,usd_amount\r\n" +
			"https://cards.example/2,secret,123,12/26," + number(2) + ",100\r\n" +
			"https://cards.example/3,secret,123,12/27," + number(2) + ",100\r\n" +
			"https://cards.example/1,secret,123,12/27," + number(1) + ",100\r\n" +
			"https://cards.example/4,secret,123,12/27," + number(4) + ",ten\r\n" +
			"https://cards.example/4,secret,123,12/27," + number(4) + ",1000\r\n" +
			"https://cards.example/4,secret,123,12/27,1234567890123456,100\r\n" +
			"https://cards.example/4,secret,123,10/26," + number(4) + ",100\r\n" +
			"https://cards.example/4,secret,x," + "12/27," + number(4) + ",100\r\n" +
			"http://cards.example/4,secret,123,12/27," + number(4) + ",100\r\n" +
			"https://cards.example/4,,123,12/27," + number(4) + ",100\r\n" +
			"https://cards.example/4,secret,123,12/27,\"" + number(4) + ",100\r\n"
		found, err := i.Check(t.Context(), strings.NewReader(file))
		need(t, err)
		want := []string{
			"5: its usd_amount must be a plain decimal number such as 150 or 150.5, without sign or exponent",
			"6: its usd_amount must be between 50 and 750",
			"7: it has a card number that is not well formed",
			"8: it has a card that is expired, or whose expiration date can't be read",
			"9: it has a security code that is not well formed",
			"10: it has a web address that is not https",
			"11: it has no password for the web address",
			"12: it is not CSV: a quote is missing, or there is one too many",
			"3: it has the card number of line 2",
			"4: its card number is in stock, or was issued before",
		}
		if diff := cmp.Diff(want, *wrong); diff != "" {
			t.Error(diff)
		}
		if found.Wrong != len(want) || found.Cards[100_00] != 1 {
			t.Errorf("%d invalid, %d valid", found.Wrong, found.Cards[100_00])
		}
	})
}

// Check counts the cards that expire soon, and accepts the amounts at both
// limits.
func TestImport_CountsCardsThatExpireSoon(t *testing.T) {
	onShelf(t, func(t *testing.T, s *shelf) {
		i, wrong := s.importing()
		file := header + row("50", 1, "12/26") + row("750", 2, "12/26") + row("750", 3, "12/27")
		found, err := i.Check(t.Context(), strings.NewReader(file))
		need(t, err)
		if found.Soon != 2 || found.Cards[50_00] != 1 || found.Cards[750_00] != 2 || len(*wrong) > 0 {
			t.Errorf("%d expire soon, want 2; of 50 US dollars %d, of 750 %d; wrong: %q", found.Soon, found.Cards[50_00],
				found.Cards[750_00], *wrong)
		}
	})
}

func TestImport_ReportsProgress(t *testing.T) {
	onShelf(t, func(t *testing.T, s *shelf) {
		i, wrong := s.importing()
		var told []int
		i.Progress = func(lines int) { told = append(told, lines) }
		_, err := i.Check(t.Context(), strings.NewReader(header+strings.Repeat("bad\n", 20_001)))
		need(t, err)
		if !slices.Equal(told, []int{10_000, 20_000}) || len(*wrong) != 20_001 {
			t.Errorf("progress %v, %d invalid lines", told, len(*wrong))
		}
	})
}

func TestImport_NoHeader_IsAnError(t *testing.T) {
	onShelf(t, func(t *testing.T, s *shelf) {
		for _, file := range []string{"", row("100", 1, "11/27"), "usd_amount,card_number\n",
			strings.Replace(header, "url,", "link,", 1), "extra," + header} {
			i, _ := s.importing()
			if _, err := i.Check(t.Context(), strings.NewReader(file)); err == nil ||
				!strings.HasPrefix(err.Error(), "line 1: ") || strings.Contains(err.Error(), number(1)) {
				t.Errorf("%q: %v", file, err)
			}
		}
		i, wrong := s.importing()
		if found, err := i.Check(t.Context(), strings.NewReader("\ufeff"+header+row("100", 1, "11/27"))); err != nil ||
			found.Cards[100_00] != 1 {
			t.Errorf("%v, %q", err, *wrong)
		}
	})
}

func TestImport_AllOrNothing(t *testing.T) {
	onShelf(t, func(t *testing.T, s *shelf) {
		var lines []string
		for n := range 1200 {
			lines = append(lines, row("100", n, "11/27"))
		}
		i, _ := s.importing()
		if _, err := i.Store(t.Context(), strings.NewReader(header+strings.Join(lines, "")+"bad\n")); err == nil {
			t.Error("a changed file was imported")
		}
		if _, err := i.Store(t.Context(), strings.NewReader(header+strings.Join(lines, "")+lines[7])); !errors.Is(err,
			card.ErrDuplicate) {
			t.Error(err)
		}
		if counts, err := s.db.StockCounts(t.Context()); err != nil || len(counts) > 0 {
			t.Errorf("%v, %v", counts, err)
		}
		s.shelve(lines...)
		if offers, err := s.Offers(t.Context()); err != nil || offers[0].Left != 1200 {
			t.Errorf("%v, %v", offers, err)
		}
	})
}

// After a restore, an issued item is marked as free. Declined would make
// another supplier issue a second card.
func TestStock_Held_DeclinesNothing(t *testing.T) {
	onShelf(t, func(t *testing.T, s *shelf) {
		s.shelve(row("100", 1, "11/27"))
		r := request(100_00)
		want(t, s.Submit, r, issue.Issued)
		_, err := rig.OpenSQL(t, s.url).Exec("UPDATE stock SET state = 'free', card_uuid = NULL") // the restored backup
		need(t, err)
		_, err = s.db.HoldStock(t.Context(), "shelf")
		need(t, err)
		if a, err := s.Submit(t.Context(), r); err == nil && a.Outcome == issue.Declined {
			t.Errorf("the stock declined, although it has issued an item: %s", a.Reason)
		}
	})
}
