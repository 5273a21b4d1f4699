package acceptance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
)

// stockFile writes a CSV file with n cards of an amount, and returns its path
// and the number of its first card.
func stockFile(t testing.TB, usd string, first, n int) (path, number string) {
	t.Helper()
	var text strings.Builder
	text.WriteString("usd_amount,card_number,expiration_date,security_code,url,url_password\n")
	expires := time.Now().AddDate(2, 0, 0).Format("01/06")
	for i := range n {
		body := fmt.Sprintf("99%013d", first+i)
		if i == 0 {
			number = body + card.LuhnDigit(body)
		}
		fmt.Fprintf(&text, "%s,%s,%s,123,https://cards.example/%d,secret\n", usd, body+card.LuhnDigit(body), expires, first+i)
	}
	return writeFile(t, "cards.csv", text.String()), number
}

func writeFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Imported cards are offered, sold once, and counted.
func TestStock_ImportedCard_IsSoldOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("left out: waits for seconds")
	}
	t.Parallel()
	p := newProgram(t, "")
	token := p.account(t)
	suppliers := writeFile(t, "suppliers.toml",
		"[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\ntest = true\nmin_validity = \"720h\"\nlow_stock = 1\n")
	file, number := stockFile(t, "150", 1, 1)
	stock := func(args ...string) []string {
		return append(append([]string{"stock"}, args...), "--suppliers", suppliers)
	}
	load := stock("import", file, "--supplier", "shelf")

	wantOutput(t, p.must(t, load...), "USD  CARDS\n150  1\n",
		"would import 1 cards into the stock of shelf. Nothing was changed.")
	wantOutput(t, p.must(t, append(load, "--yes")...), "imported 1 cards")
	_, stderr, code := p.run(append(load, "--yes")...)
	if code != 1 || strings.Contains(stderr, number) {
		t.Errorf("exit code %d, printed %q", code, stderr)
	}
	wantOutput(t, stderr, "line 2: its card number is in stock, or was issued before\n",
		"cardmint: nothing was imported: lines that are wrong: 1\nhint: ")
	wantOutput(t, p.must(t, stock("hold", "--supplier", "shelf")...), "holding 1 more cards")
	wantOutput(t, p.must(t, stock("release", "--supplier", "shelf")...), "would release 1 cards. Nothing was changed.")
	wantOutput(t, p.must(t, stock("release", "--supplier", "shelf", "--yes")...), "released 1 cards")
	wantOutput(t, p.must(t, stock("list")...), "shelf     150  1     0         0       0     0     0")
	wantOutput(t, p.must(t, "supplier", "check", "--suppliers", suppliers), "shelf  stock  50 to 750  150 (1 left)")

	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--suppliers", suppliers)
	c := newClient(t, s.url, token)
	await(t, waitLimit, "a single offer of the last card", func() bool {
		offers, err := c.ListOffers(t.Context())
		must(t, err)
		return len(offers) == 1 && offers[0].MinUSD.String() == "150" && offers[0].Left != nil && *offers[0].Left == 1
	})
	made, err := c.WaitForCard(t.Context(), s.order(t, token, "1").UUID)
	if err != nil {
		t.Fatal(err)
	}
	if made.Credentials.CardNumber != number {
		t.Error("the issued card is not from the stock")
	}
	_, err = c.CreateCard(t.Context(), client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"})
	var problem *client.Error
	if !errors.As(err, &problem) || problem.Code != client.ProblemCodeAmountUnavailable {
		t.Error(err)
	}
	stdout, stderr, code := p.run(stock("list")...)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	wantOutput(t, stdout, "shelf     150  0     0         1       0     0     0        LOW")
	wantOutput(t, stderr, "amounts that run low: 1", "hint: ")
	s.awaitOutput(t, 20*time.Second, "stock is low: import cards")
	s.stop(t)
	wantOutput(t, s.Output(), "supplier=shelf usd=150 left=0 limit=1")
}

func TestStockImport_UnsafeFile_IsRefused(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	p.account(t)
	suppliers := writeFile(t, "suppliers.toml",
		"[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\ntest = true\n[[supplier]]\nname = \"toy\"\nkind = \"sandbox\"\n")
	file, _ := stockFile(t, "150", 1, 1)
	open, _ := stockFile(t, "150", 1, 1)
	if err := os.Chmod(open, 0o640); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ file, supplier, want string }{
		"readable by others": {open, "shelf", "can be read by others"},
		"not there":          {file + "x", "shelf", "no such file"},
		"another kind":       {file, "toy", `no supplier "toy" of kind stock`},
		"no supplier":        {file, "x", "hint: those that it names: shelf"},
		"not CSV":            {suppliers, "shelf", "line 1: it is not the header"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := p.run("stock", "import", test.file, "--supplier", test.supplier, "--suppliers", suppliers,
				"--yes")
			if code != 1 || stdout != "" {
				t.Errorf("exit code %d, printed %q", code, stdout)
			}
			wantOutput(t, stderr, test.want, "hint: ")
		})
	}
}

// The example files in the documentation can be imported unchanged.
func TestStockImport_DocumentedExample_IsImported(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	page, err := os.ReadFile("../../docs/suppliers-stock.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for file, block := range map[string]string{"suppliers.toml": "toml", "cards.csv": "csv"} {
		_, after, found := strings.Cut(string(page), "```"+block+"\n")
		text, _, closed := strings.Cut(after, "```")
		if !found || !closed {
			t.Fatalf("the page has no %s", block)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := newProgram(t, "")
	p.account(t)
	wantOutput(t,
		p.must(t, "--mode", "live", "stock", "import", filepath.Join(dir, "cards.csv"), "--supplier", "shelf", "--suppliers",
			filepath.Join(dir, "suppliers.toml"), "--yes"),
		"imported 1 cards into the stock of shelf")
}

// After a restore, an operator releases the held stock except for cards that
// were already sold. A stock item whose card has other credentials is listed as
// never received.
func TestStockRelease_Except_StaysHeld(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	p := newProgram(t, url)
	p.account(t)
	p.env = append(p.env,
		"CARDMINT_SUPPLIERS="+
			writeFile(t, "suppliers.toml", "[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\ntest = true\n"))
	file, number := stockFile(t, "150", 1, 3)
	p.must(t, "stock", "import", file, "--supplier", "shelf", "--yes")
	p.must(t, "stock", "hold", "--supplier", "shelf")
	type item struct {
		Item   string  `json:"item"`
		Number string  `json:"number"`
		Card   *string `json:"card"`
	}
	var held struct {
		Changed int64  `json:"changed"`
		Held    []item `json:"held_items"`
	}
	read := func(args ...string) {
		t.Helper()
		out := p.must(t, append(args, "--supplier", "shelf", "--json")...)
		if err := json.Unmarshal([]byte(out), &held); err != nil || strings.Contains(out, number) {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	read("stock", "release")
	if len(held.Held) != 3 || held.Changed != 0 || held.Held[0].Card != nil || len(held.Held[0].Number) < 4 {
		t.Fatalf("%+v", held)
	}
	i := slices.IndexFunc(held.Held, func(h item) bool { return strings.HasSuffix(h.Number, number[len(number)-4:]) })
	given := held.Held[i].Item
	wantOutput(t, p.must(t, "stock", "release", "--supplier", "shelf", "--except", given),
		"would release 2 cards. Nothing was changed.", given)
	_, stderr, code := p.run("stock", "release", "--supplier", "shelf", "--except",
		"019aa1c9-f868-7cef-8e4e-9b1c97fb1d88", "--yes")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	wantOutput(t, stderr, "is no item of shelf that is held\nhint: ")
	read("stock", "release", "--except", given, "--yes")
	if held.Changed != 2 || len(held.Held) != 1 || held.Held[0].Item != given {
		t.Errorf("%+v", held)
	}
	wantOutput(t, p.must(t, "stock", "list", "--held"), "shelf     150  2     0         0       1     0     0", "HELD ",
		given)

	// The item looks as if it was issued to a card of another supplier.
	const of = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
	if _, err := rig.OpenSQL(t, url).Exec("UPDATE stock SET state = 'issued', card_uuid = ? WHERE id = ?", of,
		given); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, p.must(t, "stock", "list"), "NEVER RECEIVED", given, of)
	wantOutput(t, p.must(t, "stock", "hold", "--supplier", "shelf"), "holding 2 more cards", "NEVER RECEIVED", given, of)
}
