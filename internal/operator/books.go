package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Books is everything added up, as of one moment.
type Books struct {
	AsOf  time.Time   // by the database's clock
	Coins []CoinBooks // by currency
	// Discrepancies are what should not be, by card, account, webhook or day, at most
	// some of each kind. Without any, the books are right.
	Discrepancies []Discrepancy
	// Waiting is what agrees, but waits for an operator, at most some of each
	// kind.
	Waiting []Waiting
}

// CoinBooks adds up one currency. What cards hold is taken from the cards, what
// was counted from the transfers: that both agree is what is to be shown. The
// sums are exact, whatever their size.
type CoinBooks struct {
	Currency     string
	Counted      card.Total // of all transfers that are in the chain or the mempool
	Unattributed card.Total // of these, to addresses of no card
	Returned     card.Total // likewise, and given back by operators
	Unconfirmed  card.Total // the part of Counted in the mempool

	Made       card.Total // credited to cards that are made
	Open       card.Total // credited to cards that wait, for more money, confirmations or the supplier
	Held       card.Total // of late payments, for an operator to settle
	Surplus    card.Total // beyond what a card was asked for
	Refunded   card.Total // given back by operators
	Lost       card.Total // credited to cards that are made, or given back, and no longer in the chain
	WrittenOff card.Total // of that, what operators bear
	SoldCents  card.Total // face value of the issued cards, in US cents

	Paid   int64 // cards whose payment was confirmed
	Issued int64 // cards that are made
	Late   int64 // cards that wait for an operator because their money is late or too little
}

// Credited returns what the cards hold of what was received.
func (b CoinBooks) Credited() card.Total { return b.Made.Add(b.Open, b.Held, b.Refunded) }

// Discrepancy is something that should not be.
type Discrepancy struct {
	ID   uuid.UUID // of a card, an account or a webhook; zero for a day or a currency
	Text string
}

// WaitingKind is what kind of thing waits.
type WaitingKind string

// Kinds of things that wait.
const (
	WaitingUnattributed WaitingKind = "unattributed" // money to an address of no card, of which nothing was decided
	// a card whose money has been late, or too little, for longer than
	// LateLasts
	WaitingLate WaitingKind = "late"
	// a card paid longer than UnissuedLasts ago, or requested at least
	// ManyAttempts times
	WaitingUnissued WaitingKind = "unissued"
	// a paid card whose issuing stopped because its state at the supplier is
	// unknown
	WaitingParked    WaitingKind = "parked"
	WaitingRefundDue WaitingKind = "refund_due" // a paid card that no supplier issues
	WaitingReversed  WaitingKind = "reversed"   // an issued or refunded card whose money left the chain
)

// A late payment and an open intent wait once they reach these limits.
const (
	LateLasts     = 24 * time.Hour
	UnissuedLasts = time.Hour
	ManyAttempts  = 10
)

// Waiting is something that waits.
type Waiting struct {
	Kind     WaitingKind
	Currency string
	Amount   card.Amount // that was received and waits
	Since    time.Time   // zero if it is not known
	CardUUID uuid.UUID   // of all kinds but WaitingUnattributed
	TxID     string      // of WaitingUnattributed
	Output   int64       // likewise
}

// Progress is how far a reading of the books is.
type Progress struct {
	Day              time.Time // that was read last
	Cards, Transfers int64     // that were read
}

// Reading is what a store reads of its books.
type Reading struct {
	Books
	// From is the least uuid of the cards that were read: all from there on,
	// and Others before.
	From   uuid.UUID
	Others []uuid.UUID
	// Recheck are the cards that are to be read again next time.
	Recheck []uuid.UUID
	// State is what the store needs to keep the reading.
	State any
}

// Audit is how books are to be reconciled. The zero Audit reads what changed,
// and decrypts nothing.
type Audit struct {
	Full     bool           // read everything, and compare it with what was kept
	Vault    Vault          // decrypts what is encrypted of the cards that are read; nil for nothing
	Progress func(Progress) // is told now and then; nil for nobody
}

// Reconcile adds up everything that was received and issued, and says what does
// not agree: no discrepancies mean that for each currency what was counted on the
// chain is what was credited to cards, is surplus, came to no card's address or
// was given back of that, and that the cards which were made are those that
// were paid. It reads what changed since the last time and believes the kept
// sums of the rest, unless the audit is a full one. That the reading can't be
// kept is logged: the next one costs more.
func (s *Service) Reconcile(ctx context.Context, a Audit) (Books, error) {
	if a.Progress == nil {
		a.Progress = func(Progress) {}
	}
	r, err := s.store.ReadBooks(ctx, a.Full, a.Progress)
	if err != nil {
		return Books{}, fmt.Errorf("reconcile: %w", err)
	}
	b := r.Books
	b.Discrepancies = slices.Clone(b.Discrepancies)
	for _, c := range b.Coins {
		if is := c.Credited().Add(c.Surplus, c.Unattributed, c.Returned); !is.Equal(c.Counted) {
			b.Discrepancies = append(b.Discrepancies,
				Discrepancy{Text: fmt.Sprintf("%s: %s were counted, but %s credited, %s surplus, %s unattributed and %s returned make %s",
					c.Currency, c.Counted, c.Credited(), c.Surplus, c.Unattributed, c.Returned, is)})
		}
	}
	if a.Vault != nil {
		discrepancies, damaged, err := s.checkSealed(ctx, a.Vault, r)
		if err != nil {
			return Books{}, err
		}
		r.Recheck = append(r.Recheck, damaged...)
		b.Discrepancies = append(b.Discrepancies, discrepancies...)
	}
	if err := s.store.KeepBooks(ctx, r); err != nil {
		s.log.WarnContext(ctx, "the books were read, but can't be kept", "error", err)
	}
	return b, nil
}

const (
	checkedAtOnce = 500 // cards that are read together
	someDamaged   = 20  // how many are said to be damaged at most
)

// checkSealed decrypts what is encrypted of the cards that were read. It
// returns what can't be, at most some, and all cards that this is of: none is
// forgotten before it was said.
func (s *Service) checkSealed(ctx context.Context, vault Vault, r Reading) (discrepancies []Discrepancy, damaged []uuid.UUID,
	err error) {
	check := func(page []SealedCard) {
		for _, c := range page {
			if found := c.discrepancies(vault); len(found) > 0 {
				damaged = append(damaged, c.UUID)
				discrepancies = append(discrepancies, found[:min(len(found), someDamaged-len(discrepancies))]...)
			}
		}
	}
	for some := range slices.Chunk(r.Others, checkedAtOnce) {
		page, err := s.store.SealedCardsOf(ctx, some)
		if err != nil {
			return nil, nil, fmt.Errorf("check what is encrypted: %w", err)
		}
		check(page)
	}
	for from := r.From; ; {
		page, err := s.store.SealedCards(ctx, from, checkedAtOnce)
		if err != nil {
			return nil, nil, fmt.Errorf("check what is encrypted: %w", err)
		}
		if check(page); len(page) < checkedAtOnce {
			return discrepancies, damaged, nil
		}
		from = After(page[len(page)-1].UUID)
	}
}

// discrepancies says what of a card can't be decrypted.
func (c SealedCard) discrepancies(vault Vault) (all []Discrepancy) {
	add := func(what string, err error) {
		switch {
		case errors.Is(err, card.ErrUnavailable):
			all = append(all, Discrepancy{ID: c.UUID, Text: what + " can't be decrypted: the key file does not have the key"})
		case err != nil:
			all = append(all, Discrepancy{ID: c.UUID, Text: what + " can't be decrypted"})
		}
	}
	if c.Sealed != nil {
		_, err := vault.OpenCredentials(c.UUID, c.AccountID, *c.Sealed)
		add("its credentials", err)
	}
	if c.RefundAddress != nil {
		_, err := vault.Open(c.UUID, c.AccountID, card.RefundAddressField, c.RefundAddress)
		add("its refund address", err)
	}
	return all
}

// After returns the next uuid in the order of uuids.
func After(id uuid.UUID) uuid.UUID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}
