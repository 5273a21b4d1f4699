package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/settle"
)

// errWaiting means that the books agree, but something waits for an operator.
// The exit code is codeWaiting.
var errWaiting = errors.New("it agrees, but something waits")

const codeWaiting = 3

type reconcileCommand struct {
	output `embed:""`

	Full  bool      `help:"Read everything again, and compare it with what earlier readings kept."`
	Coins coinFlags `embed:""`
}

func (reconcileCommand) Help() string {
	return `Compares all received money with all issued cards, in one snapshot. For each currency, the money counted on the chain must equal the money that was credited to cards, is surplus, belongs to no card, or was returned; and the issued cards must be the paid ones. Every row must be decodable, credentials and refund addresses must be decryptable, and the row of every token must match its seal. Everything else is printed as a doubt.

Daily sums are stored, so that the next run reads only changes. Run --full from time to time, and after manual changes of the database: it reads every row, in pieces, and doubts days whose sums differ from the stored ones. The next run reads such a day again. The first run takes as long as --full. Progress is printed on standard error.

It also prints what waits for an operator although the books are right: undecided money at addresses of no card, cards whose money has been late for a day, cards that were paid an hour ago or requested ten times but not issued, cards whose issuing is parked or whose refund is due, and cards whose money left the chain after they were issued.

The balance of the wallet is printed next to the money counted in blocks, if node and wallet can be read. A view-only wallet does not see outgoing payments, so both are equal. "sold" is the face value of the issued cards in US dollars. Their cost is not known: suppliers do not report it.

Exit codes:
  0  the books are right, and nothing waits
  1  the books are wrong, or can't be read
  3  the books are right, but something waits for an operator

With --json, amounts are decimal strings of whole coins. The object has as_of, full, agrees, coins (currency, counted, in_blocks, wallet_balance, wallet_error, credited, made, open, held, refunded, surplus, unattributed, returned, lost, written_off; sold_usd and cost_usd in US dollars; issued, paid and late are numbers of cards), doubts (id, if it is about one thing, and text) and waiting (kind, which is unattributed, late, unissued, parked, refund_due or reversed; currency, amount, since, card or txid and output). wallet_balance and cost_usd are null if they are not known. Of each kind of doubt, and of what waits, at most 20 are listed.

Examples:
  cardmint reconcile
  cardmint reconcile --full
  cardmint reconcile --json`
}

// Run reconciles the books.
func (c reconcileCommand) Run(ctx context.Context, g *globals) error {
	return g.withAdmin(ctx, func(admin adminContext) error {
		started := time.Now()
		fmt.Fprintln(g.stderr, "adding up ...")
		books, err := app.Reconcile(ctx, admin.operator, admin.accounts,
			operator.Audit{Full: c.Full, Vault: admin.vault, Progress: printProgress(5*time.Second, g.stderr)})
		if err != nil {
			return err
		}
		wallets, err := c.readWallets(ctx, admin, books)
		if err != nil {
			return err
		}
		if c.JSON {
			err = writeJSON(g, newJSONBooks(books, wallets, c.Full))
		} else {
			err = printBooks(g, g.stdout, books, wallets)
		}
		switch {
		case err != nil:
			return err
		case len(books.Discrepancies) > 0:
			return app.WithHint(fmt.Errorf("%d doubts, or more: 20 of a kind are shown", len(books.Discrepancies)),
				"change nothing by hand; keep a copy with 'cardmint backup FILE', look at each card with 'cardmint card show UUID', and see docs/operate/alarms.md#cardmintdiscrepancy")
		case !c.JSON:
			fmt.Fprintf(g.stdout, "everything agrees (%s)\n", time.Since(started).Round(time.Millisecond))
		}
		if len(books.Waiting) > 0 {
			return app.WithHint(errWaiting,
				"decide with the commands that these name: cardmint card list --attention; cardmint transfers --unattributed")
		}
		return nil
	})
}

// printProgress returns a function that prints progress at most once per
// interval.
func printProgress(pause time.Duration, to io.Writer) func(operator.Progress) {
	last := time.Now()
	return func(p operator.Progress) {
		if time.Since(last) >= pause {
			last = time.Now()
			fmt.Fprintf(to, "read %d cards and %d transfers, up to %s\n", p.Cards, p.Transfers, p.Day.Format(time.DateOnly))
		}
	}
}

// coinsOf formats a total in whole coins.
func coinsOf(currency string, a card.Total) string {
	coin, _ := chain.ByCode(currency)
	return coin.FormatTotal(a)
}

// walletBalance is the balance of a coin's wallet, or the error of reading it.
type walletBalance struct {
	balance card.Total
	err     error
}

// walletTimeout limits the calls to node and wallet, which are optional.
const walletTimeout = 10 * time.Second

// readWallets reads the balances of the wallets of the coins in books. A
// simulated chain has no wallet.
func (c reconcileCommand) readWallets(ctx context.Context, admin adminContext,
	books operator.Books) (map[string]walletBalance,
	error) {
	coins, err := c.Coins.enabled()
	if err != nil {
		return nil, err
	}
	wallets := map[string]walletBalance{}
	for _, coin := range coins {
		if !slices.ContainsFunc(books.Coins, func(b operator.CoinBooks) bool { return b.Currency == coin.Code }) {
			continue
		}
		cursor, err := admin.db.Cursor(ctx, coin.Currency)
		if err != nil {
			return nil, err
		}
		if cursor.Fingerprint != "" && !isSimulated(cursor) {
			wallets[coin.Code] = readWallet(ctx, coin, cursor)
		}
	}
	return wallets, nil
}

func readWallet(ctx context.Context, coin app.Coin, cursor settle.Cursor) (w walletBalance) {
	ctx, cancel := context.WithTimeout(ctx, walletTimeout)
	defer cancel()
	n, err := coin.Settings.Open()
	if err != nil {
		return walletBalance{err: err}
	}
	defer n.Close()
	switch fingerprint, err := n.Identify(ctx); {
	case err != nil:
		return walletBalance{err: err}
	case fingerprint != cursor.Fingerprint:
		return walletBalance{err: fmt.Errorf("%w: run 'cardmint wallet check'", card.ErrWrongChain)}
	}
	w.balance, w.err = n.Balance(ctx)
	return w
}

// dollarsOf formats a total of US cents as dollars.
func dollarsOf(cents card.Total) string { return card.Currency{Decimals: 2}.FormatTotal(cents) }

func printBooks(g *globals, to io.Writer, books operator.Books, wallets map[string]walletBalance) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, b := range books.Coins {
		row := func(indent, name string, a card.Total, what string) {
			fmt.Fprintf(table, "%s%s\t%s\t%s\n", indent, name, coinsOf(b.Currency, a), what)
		}
		fmt.Fprintf(table, "%s\n", b.Currency)
		row("  ", "counted", b.Counted, "on the chain and in the mempool")
		if w, read := wallets[b.Currency]; read {
			row("      ", "in blocks", b.Counted.Sub(b.Unconfirmed), "as the books have it")
			if w.err != nil {
				fmt.Fprintf(table, "      in the wallet\t-\tnot read: %v\n", w.err)
			} else {
				row("      ", "in the wallet", w.balance, "its balance now")
			}
		}
		row("  ", "= credited", b.Credited(), "to cards")
		row("      ", "made", b.Made, fmt.Sprintf("%d issued, %d paid", b.Issued, b.Paid))
		row("      ", "open", b.Open, "waiting for more money, confirmations or the supplier")
		row("      ", "held", b.Held, fmt.Sprintf("late or too little: %d cards wait for an operator", b.Late))
		row("      ", "refunded", b.Refunded, "given back by operators")
		row("  ", "+ surplus", b.Surplus, "beyond what a card was asked for")
		row("  ", "+ unattributed", b.Unattributed, "to addresses of no card")
		row("  ", "+ returned", b.Returned, "to addresses of no card, and given back by operators")
		row("  ", "lost", b.Lost,
			"made or given back for what is gone from the chain; written off: "+coinsOf(b.Currency, b.WrittenOff))
		fmt.Fprintf(table, "  sold\t%s\tUS dollars: face value of %d issued cards\n", dollarsOf(b.SoldCents), b.Issued)
		fmt.Fprint(table, "  cost\t-\tnot known: suppliers do not report it\n")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, d := range books.Discrepancies {
		who := ""
		if d.ID != uuid.Nil {
			who = d.ID.String() + ": "
		}
		fmt.Fprintf(to, "%s %s%s\n", g.paint(to, red, "doubt:"), who, d.Text)
	}
	printWaiting(g, to, books.Waiting)
	return nil
}

func printWaiting(g *globals, to io.Writer, waiting []operator.Waiting) {
	for _, w := range waiting {
		amount := coinsOf(w.Currency, card.TotalOf(w.Amount)) + " " + w.Currency
		since := "some time"
		if !w.Since.IsZero() {
			since = formatTime(&w.Since)
		}
		what := map[operator.WaitingKind]string{
			operator.WaitingUnattributed: fmt.Sprintf("%s of transaction %s, output %d, came to no card", amount,
				oneLine(w.TxID), w.Output),
			operator.WaitingLate:     fmt.Sprintf("card %s: %s are late or too little", w.CardUUID, amount),
			operator.WaitingUnissued: fmt.Sprintf("card %s: it is paid, and not issued", w.CardUUID),
			operator.WaitingParked: fmt.Sprintf("card %s: it is paid, but its issuing is parked: retry or refund it",
				w.CardUUID),
			operator.WaitingRefundDue: fmt.Sprintf("card %s: it is paid, but the supplier declined it: retry or refund it",
				w.CardUUID),
			operator.WaitingReversed: fmt.Sprintf(
				"card %s: %s left the chain after it was issued or refunded: write it off, or wait for it",
				w.CardUUID, amount),
		}[w.Kind]
		fmt.Fprintf(to, "%s %s, since %s\n", g.paint(to, yellow, "waits:"), what, since)
	}
}

type jsonBooks struct {
	AsOf    instant       `json:"as_of"`
	Full    bool          `json:"full"`
	Agrees  bool          `json:"agrees"`
	Coins   []jsonCoin    `json:"coins"`
	Doubts  []jsonDoubt   `json:"doubts"`
	Waiting []jsonWaiting `json:"waiting"`
}

type jsonCoin struct {
	Currency     string `json:"currency"`
	Counted      string `json:"counted"`
	InBlocks     string `json:"in_blocks"`
	Credited     string `json:"credited"`
	Made         string `json:"made"`
	Open         string `json:"open"`
	Held         string `json:"held"`
	Refunded     string `json:"refunded"`
	Surplus      string `json:"surplus"`
	Unattributed string `json:"unattributed"`
	Returned     string `json:"returned"`
	Lost         string `json:"lost"`
	WrittenOff   string `json:"written_off"`
	Issued       int64  `json:"issued"`
	Paid         int64  `json:"paid"`
	Late         int64  `json:"late"`

	WalletBalance optional `json:"wallet_balance"`
	WalletError   optional `json:"wallet_error"`
	SoldUSD       string   `json:"sold_usd"`
	CostUSD       optional `json:"cost_usd"` // no supplier reports it
}

type jsonDoubt struct {
	ID   *uuid.UUID `json:"id,omitempty"`
	Text string     `json:"text"`
}

type jsonWaiting struct {
	Kind     operator.WaitingKind `json:"kind"`
	Currency string               `json:"currency"`
	Amount   string               `json:"amount"`
	Since    instant              `json:"since,omitzero"`
	Card     *uuid.UUID           `json:"card,omitempty"`
	TxID     string               `json:"txid,omitempty"`
	Output   *int64               `json:"output,omitempty"`
}

func newJSONBooks(books operator.Books, wallets map[string]walletBalance, full bool) jsonBooks {
	j := jsonBooks{AsOf: instant{books.AsOf}, Full: full, Agrees: len(books.Discrepancies) == 0, Coins: []jsonCoin{},
		Doubts: []jsonDoubt{}, Waiting: []jsonWaiting{}}
	for _, b := range books.Coins {
		in := func(a card.Total) string { return coinsOf(b.Currency, a) }
		coin := jsonCoin{Currency: b.Currency, Counted: in(b.Counted), InBlocks: in(b.Counted.Sub(b.Unconfirmed)),
			Credited: in(b.Credited()), Made: in(b.Made), Open: in(b.Open), Held: in(b.Held),
			Refunded: in(b.Refunded), Surplus: in(b.Surplus), Unattributed: in(b.Unattributed), Returned: in(b.Returned),
			Lost: in(b.Lost), WrittenOff: in(b.WrittenOff),
			Issued: b.Issued, Paid: b.Paid, Late: b.Late, SoldUSD: dollarsOf(b.SoldCents)}
		if w, read := wallets[b.Currency]; read && w.err != nil {
			coin.WalletError = optional(w.err.Error())
		} else if read {
			coin.WalletBalance = optional(in(w.balance))
		}
		j.Coins = append(j.Coins, coin)
	}
	for _, d := range books.Discrepancies {
		doubt := jsonDoubt{Text: d.Text}
		if d.ID != uuid.Nil {
			doubt.ID = &d.ID
		}
		j.Doubts = append(j.Doubts, doubt)
	}
	for _, w := range books.Waiting {
		waiting := jsonWaiting{Kind: w.Kind, Currency: w.Currency, Amount: coinsOf(w.Currency, card.TotalOf(w.Amount)),
			Since: instant{w.Since}, TxID: w.TxID}
		if w.Kind == operator.WaitingUnattributed {
			waiting.Output = &w.Output
		} else {
			waiting.Card = &w.CardUUID
		}
		j.Waiting = append(j.Waiting, waiting)
	}
	return j
}
