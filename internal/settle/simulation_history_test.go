package settle_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/vault"
)

// history is the random history of one account, from a seed: the actions of
// customers, miners, nodes, processes, the supplier and operators.
type history struct {
	ctx     context.Context
	db      *database
	seed    uint64
	w       *world
	o       *oracle
	press   *fakeSupplier
	account uuid.UUID
	byID    map[uuid.UUID]*sale

	active, spare *replica
	lease         settle.Lease
	holder        *replica // of the lease
	started       int
	quoteTTL      time.Duration
	confirmations []int
	compare       time.Duration // see settle.Config.CompareEvery
	idle          int           // steps without a watcher
	node          struct {
		down, foreign bool
		behind        int64
		until         int // the step at which it recovers
	}
	step  int
	lines []string
	mu    sync.Mutex
	wrong string // the first property that was violated
}

// database is a store that histories use one after the other.
type database struct {
	store  *store.Store
	vault  *vault.Vault
	beside *sql.DB // for resets and frequent reads
	cards  *sql.Stmt
	events *sql.Stmt
	used   int
	tally  map[string]int // occurrences by kind
}

// prepare prepares the statements that run after every step: reading through
// the service would take most of the time.
func (db *database) prepare(ctx context.Context) (err error) {
	if db.cards, err = db.beside.PrepareContext(ctx, `SELECT c.uuid, c.status,
		CASE WHEN c.payment_state = 'expired' AND c.canceled_at IS NOT NULL THEN 'canceled' ELSE c.payment_state END, c.received, c.settled, c.height, k.height,
		c.accepted, c.refunded, c.written_off,
		c.credit_paid, c.credit_held, c.credit_surplus, c.credit_refunded, c.credit_lost, c.credit_written_off, c.credit_due, c.amount, s.card_number,
		COALESCE(i.state, '') FROM chains k JOIN cards c ON c.currency = k.currency LEFT JOIN intents i ON i.card_uuid = c.uuid
		LEFT JOIN credentials s ON s.card_uuid = c.uuid`); err != nil {
		return err
	}
	db.events, err = db.beside.PrepareContext(ctx, "SELECT card_uuid, type FROM events ORDER BY seq")
	return err
}

// wipe deletes the previous history.
func (db *database) wipe() error {
	db.used++
	if db.used == 1 {
		return nil
	}
	var all strings.Builder
	for _, table := range []string{"resolutions", "events", "credentials", "intents", "transfers", "cards",
		"address_pools", "addresses", "chains", "leases", "accounts"} {
		all.WriteString("DELETE FROM " + table + ";")
	}
	// last: earlier deletions are recorded
	for _, table := range []string{"books_days", "books_doubts", "books_feeds", "books_notes"} {
		all.WriteString("DELETE FROM " + table + ";")
	}
	_, err := db.beside.Exec("BEGIN;" + all.String() + "UPDATE books SET kept_until = 0;COMMIT")
	return err
}

// violation is a property that does not hold, and the steps to it.
type violation struct {
	seed  uint64
	lines []string
	text  string
}

func (v *violation) String() string {
	return fmt.Sprintf("seed %d: %s\nsteps:\n  %s\nalone: go test ./internal/settle -run 'TestSimulation$' -seed %d",
		v.seed, v.text, strings.Join(v.lines, "\n  "), v.seed)
}

// runHistory runs the history of a seed, and returns its steps and the
// violation.
func runHistory(ctx context.Context, db *database, seed uint64) (steps []string, bad *violation) {
	r := rand.New(rand.NewPCG(seed, 0))
	h := &history{ctx: ctx, db: db, seed: seed, byID: map[uuid.UUID]*sale{}, w: newWorld(r)}
	h.press = &fakeSupplier{h: h, slowly: seed%4 == 0}
	if seed%2 == 0 {
		h.compare = -1
	}
	h.o = &oracle{firsts: map[string]time.Time{}, read: map[string]bool{}, fail: h.fail,
		rate: int64(h.w.between(50, 400)) * 1e8}
	h.quoteTTL = time.Duration(h.w.between(10, 90)) * time.Minute
	h.confirmations = []int{h.w.between(1, 12), h.w.between(1, 12)}
	defer func() {
		if p := recover(); p != nil {
			h.fail("panic: %v\n%s", p, debug.Stack())
		}
		if steps = h.lines; h.wrong != "" {
			bad = &violation{seed, h.lines, h.wrong}
		}
	}()
	if err := db.wipe(); err != nil {
		h.fail("wipe: %v", err)
		return
	}
	h.active, h.spare = h.start(), h.start()
	h.account = uuid.Must(uuid.NewV7())
	h.need("create account",
		db.store.InsertAccount(ctx, account.Account{ID: h.account, Name: fmt.Sprintf("seed %d", seed), CreatedAt: h.w.now}))
	h.tick(h.active)
	h.create()
	possible := h.steps()
	for range h.w.between(30, 80) {
		if h.wrong != "" {
			return
		}
		h.step++
		h.live(possible)
	}
	if h.wrong == "" {
		h.end()
	}
	return
}

// fail records a violation; the first one counts.
func (h *history) fail(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wrong == "" {
		h.wrong = fmt.Sprintf(format, args...)
	}
}

// count counts an occurrence.
func (h *history) count(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.db.tally[what]++
}

func (h *history) need(what string, err error) {
	if err != nil {
		h.fail("%s: %v", what, err)
	}
}

func (h *history) note(format string, args ...any) {
	line := fmt.Sprintf("%2d %s h%d ", h.step, h.w.now.Format("02 15:04:05"), h.w.height()) + fmt.Sprintf(format, args...)
	h.lines = append(h.lines, line)
}

func (h *history) clock() time.Time { return h.w.now }

// Rate implements order.Rates.
func (h *history) Rate(string) (card.Rate, error) {
	if h.o.rate == 0 {
		return card.Rate{}, card.ErrNoRate
	}
	return card.Rate{USD: card.Decimal{Units: h.o.rate, Scale: card.RateScale}, At: h.w.now, Source: "world"}, nil
}

func (h *history) order(id uuid.UUID) *sale { return h.byID[id] }

// live takes one step, and then sometimes lets the processes work.
func (h *history) live(steps []step) {
	if h.step == h.node.until {
		h.node.down, h.node.foreign, h.node.behind = false, false, 0
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	n := h.w.r.IntN(total)
	for _, s := range steps {
		if n -= s.weight; n < 0 {
			s.do()
			break
		}
	}
	if h.idle > 0 {
		h.idle--
		return
	}
	if h.holder != h.active && h.w.chance(30) {
		h.expireLease()
	}
	if h.w.chance(50) {
		h.tick(h.active)
	}
	if h.w.chance(8) {
		h.tick(h.spare)
	}
	if due := slices.ContainsFunc(h.o.orders, (*sale).isDue); due && h.w.chance(60) || h.w.chance(4) {
		h.issue(h.active)
	}
	if h.w.chance(2) {
		h.reconcile()
	}
}

// expireLease ends the holder's lease without notice.
func (h *history) expireLease() {
	h.holder.usurped = true
	h.need("expire lease", h.db.store.ReleaseLease(h.ctx, h.lease))
}

// tick runs a Tick of a replica, and compares its effects.
func (h *history) tick(r *replica) error {
	excused := h.node.down || h.node.foreign || h.node.behind > 0 || h.w.known < len(h.w.wallet) || r.usurped ||
		r.meanwhile != nil ||
		r.disk.before || r.disk.after || h.w.height() < h.o.tip.Height ||
		slices.ContainsFunc(h.w.txs, func(tx *transaction) bool { return tx.forgotten })
	before := h.o.tip
	err := r.watcher.Tick(h.ctx)
	if err != nil && !excused {
		h.fail("%s: tick: %v", r.name, err)
	}
	if err == nil && r.look != nil {
		h.fail("%s did not store what it saw, without an error", r.name)
	}
	r.look, r.meanwhile = nil, nil
	r.disk.before, r.disk.after = false, false
	for _, kind := range []error{card.ErrFenced, card.ErrWalletLost, card.ErrWrongChain, card.ErrChainNotReady,
		card.ErrUnavailable} {
		if errors.Is(err, kind) {
			h.count("tick: " + kind.Error())
			break
		}
	}
	h.note("%s ticks: h%d -> h%d%s", r.name, before.Height, h.o.tip.Height, h.failed(err))
	h.observe()
	return err
}

// failed returns an error on one line, without the parts that differ between
// runs.
func (h *history) failed(err error) string {
	if err == nil {
		return ""
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	text, _, _ = strings.Cut(text, ": it no longer shows transaction") // one of several
	for _, x := range h.o.orders {
		text = strings.ReplaceAll(text, x.id.String(), fmt.Sprintf("card %d", x.index))
	}
	return " (" + text + ")"
}

// observe compares every card with its requirements.
func (h *history) observe() {
	rows, err := h.db.cards.QueryContext(h.ctx)
	if err != nil {
		h.fail("read cards: %v", err)
		return
	}
	defer func() { _ = rows.Close() }()
	n := 0
	for ; rows.Next(); n++ {
		c, number, issuing := &card.Card{}, []byte(nil), ""
		h.need("read card",
			rows.Scan(&c.UUID, &c.Status, &c.State, &c.Received, &c.Settled, &c.Height, &c.TipHeight, &c.Accepted, &c.Refunded,
				&c.WrittenOff,
				&c.Credit.Paid, &c.Credit.Held, &c.Credit.Surplus, &c.Credit.Refunded, &c.Credit.Lost, &c.Credit.WrittenOff,
				&c.Credit.Due, &c.Amount, &number, &issuing))
		if number != nil {
			c.Sealed = &card.Sealed{CardNumber: number}
		}
		if x := h.order(c.UUID); x != nil {
			h.o.checkRefund(x, c, issuing == "refund_due")
		} else {
			h.fail("there is a card %s that nobody asked for", c.UUID)
		}
	}
	if h.need("read cards", rows.Err()); n != len(h.o.orders) {
		h.fail("there are %d cards, must be %d", n, len(h.o.orders))
	}
}

// reconcile compares the books, which are updated incrementally, and sometimes
// compares them with a full reading.
func (h *history) reconcile() {
	b, err := h.active.desk.Reconcile(h.ctx, operator.Audit{})
	h.need("reconcile", err)
	if (int(h.seed)+h.step)%4 == 0 {
		full, err := h.db.store.ReadBooks(h.ctx, true, func(operator.Progress) {})
		h.need("read all books", err)
		if diff := cmp.Diff(full.Books, b, cmpopts.IgnoreFields(operator.Books{}, "AsOf"),
			cmpopts.EquateEmpty()); diff != "" {
			h.fail("a full reading of the books says something else: %s", diff)
		}
	}
	waits := make([]string, len(h.o.orders))
	for i, x := range h.o.orders {
		waits[i] = h.waits(x)
	}
	h.o.checkBooks(b, waits)
}

// waits returns how the issuing of a card waits for an operator, which only the
// supplier can cause: it is parked, or its refund is due. It returns "" if it
// does not wait.
func (h *history) waits(x *sale) string {
	if !x.refused {
		return ""
	}
	record, err := h.db.store.CardDetail(h.ctx, x.id)
	h.need("record", err)
	if err != nil || record.Intent == nil || record.Intent.State != "parked" && record.Intent.State != "refund_due" {
		return ""
	}
	return record.Intent.State
}

// issue runs the issuer of a replica, with a supplier, a store and a chain that
// may fail during the round.
func (h *history) issue(r *replica) {
	pl, text := h.newPlan()
	var paid []*sale
	for i, x := range h.o.orders {
		if pl.askable[i] {
			paid = append(paid, x)
		}
	}
	broken := false
	switch {
	case len(paid) == 0:
	case h.w.chance(12):
		broken = true
		r.disk.before, r.disk.after = h.w.chance(50), h.w.chance(50)
		text += fmt.Sprintf(" disk fails before %t, after %t;", r.disk.before, r.disk.after)
	case h.w.chance(8):
		x := paid[h.w.r.IntN(len(paid))]
		pl.leaves = func() { h.leaves(x) }
		text = fmt.Sprintf(" the payment of card %d leaves before it is asked for;", x.index)
	case h.w.chance(20):
		x := paid[h.w.r.IntN(len(paid))]
		pl.at, pl.meanwhile = x.index, h.whileIssuing(r, x)
		text = fmt.Sprintf(" something happens while card %d is made;", x.index)
	default:
		for _, x := range paid {
			if h.w.chance(25) {
				pl.answers[x.index] = answer(h.w.between(int(hangs), int(garbles)))
				text += fmt.Sprintf(" card %d: %v;", x.index, pl.answers[x.index])
			}
		}
	}
	asks := h.press.asks
	n, err := r.issuer.IssueDue(context.WithValue(h.ctx, planKey{}, pl))
	if err != nil && !broken && !errors.Is(err, card.ErrFenced) {
		h.fail("issue: %v", err)
	}
	r.disk.before, r.disk.after = false, false
	if n > 0 {
		h.note("%s issues %d, asks %d:%s%s", r.name, n, h.press.asks-asks, text, h.failed(err))
	}
	h.observe()
}

// newPlan returns a supplier that makes every paid card.
func (h *history) newPlan() (*plan, string) {
	pl := &plan{askable: make([]bool, len(h.o.orders)), answers: make([]answer, len(h.o.orders)),
		unseen: make([]bool, len(h.o.orders)),
		old:    slices.IndexFunc(h.o.orders, func(x *sale) bool { return x.generated })}
	for i, x := range h.o.orders {
		pl.askable[i] = x.isDue()
	}
	return pl, ""
}
