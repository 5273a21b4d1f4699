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

// Books are the sums over all cards and transfers in one snapshot.
type Books struct {
	AsOf  time.Time   // by the database's clock
	Coins []CoinBooks // by currency
	// Discrepancies are contradictions, by card, account, webhook or day,
	// limited per kind. Without any, the books are right.
	Discrepancies []Discrepancy
	// Waiting lists the items that need an operator, limited per kind.
	Waiting []Waiting
}

// CoinBooks are the sums of one currency. Credits are summed over cards, and
// Counted over transfers: reconciliation compares the two. The sums are exact
// at any size.
type CoinBooks struct {
	Currency     string
	Counted      card.Total // all transfers in the chain or the mempool
	Unattributed card.Total // part of Counted: sent to addresses without a card
	Returned     card.Total // part of Counted: sent to such addresses, and given back by operators
	Unconfirmed  card.Total // part of Counted: in the mempool

	Made       card.Total // credited to issued cards
	Open       card.Total // credited to cards that wait for more money, confirmations or the supplier
	Held       card.Total // late payments, which need an operator
	Surplus    card.Total // above the price of a card
	Refunded   card.Total // given back by operators
	Lost       card.Total // credited to issued cards, or given back, and no longer in the chain
	WrittenOff card.Total // part of Lost that operators have written off
	SoldCents  card.Total // face value of the issued cards, in US cents

	Paid   int64 // cards whose payment was confirmed
	Issued int64 // issued cards
	Late   int64 // cards that need an operator because their money is late or too little
}

// Credited returns the sum of all credits to cards.
func (b CoinBooks) Credited() card.Total { return b.Made.Add(b.Open, b.Held, b.Refunded) }

// Discrepancy is a contradiction in the books.
type Discrepancy struct {
	ID   uuid.UUID // of a card, an account or a webhook; zero for a day or a currency
	Text string
}

// WaitingKind is the kind of an item that needs an operator.
type WaitingKind string

// The kinds of items that need an operator.
const (
	WaitingUnattributed WaitingKind = "unattributed" // undecided money at an address without a card
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

// A late payment or an open intent needs an operator beyond these limits.
const (
	LateLasts     = 24 * time.Hour
	UnissuedLasts = time.Hour
	ManyAttempts  = 10
)

// Waiting is an item that needs an operator.
type Waiting struct {
	Kind     WaitingKind
	Currency string
	Amount   card.Amount // received
	Since    time.Time   // zero if unknown
	CardUUID uuid.UUID   // except with WaitingUnattributed
	TxID     string      // with WaitingUnattributed
	Output   int64       // with WaitingUnattributed
}

// Progress is the progress of a reading.
type Progress struct {
	Day              time.Time // the last one read
	Cards, Transfers int64     // read so far
}

// Reading is a store's reading of its books.
type Reading struct {
	Books
	// From and Others are the cards that were read: all from the uuid From on,
	// and Others before it.
	From   uuid.UUID
	Others []uuid.UUID
	// Recheck are the cards that the next reading must read again.
	Recheck []uuid.UUID
	// State is for the store's KeepBooks.
	State any
}

// Audit configures a reconciliation. The zero Audit reads changes only, and
// decrypts nothing.
type Audit struct {
	Full     bool           // read everything, and compare it with the stored sums
	Vault    Vault          // checks the encrypted fields of the cards that are read; nil for no check
	Progress func(Progress) // called now and then; nil for no calls
}

// Reconcile sums up all money received and all cards issued. It returns no
// discrepancies if for each currency the transfers on the chain equal the
// credits of cards, the surplus, the unattributed money and the returned money,
// and if exactly the paid cards were issued. Unless the audit is full, it reads
// the changes since the last reading and trusts the stored sums. A failure to
// store the reading is logged: the next one costs more.
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
				Discrepancy{
					Text: fmt.Sprintf("%s: %s were counted, but %s credited, %s surplus, %s unattributed and %s returned make %s",
						c.Currency, c.Counted, c.Credited(), c.Surplus, c.Unattributed, c.Returned, is)})
		}
	}
	if a.Vault != nil {
		discrepancies, corrupt, err := s.checkSealed(ctx, a.Vault, r)
		if err != nil {
			return Books{}, err
		}
		r.Recheck = append(r.Recheck, corrupt...)
		b.Discrepancies = append(b.Discrepancies, discrepancies...)
	}
	if err := s.store.KeepBooks(ctx, r); err != nil {
		s.log.WarnContext(ctx, "books were read, but not stored", "error", err)
	}
	return b, nil
}

const (
	sealedPage = 500 // cards decrypted together
	maxCorrupt = 20  // discrepancies of this kind in one report
)

// checkSealed decrypts the encrypted fields of the cards that were read. It
// returns up to maxCorrupt discrepancies, and all corrupt cards. Unreported
// ones are read again.
func (s *Service) checkSealed(ctx context.Context, vault Vault, r Reading) (discrepancies []Discrepancy,
	corrupt []uuid.UUID,
	err error) {
	check := func(page []SealedCard) {
		for _, c := range page {
			if found := c.discrepancies(vault); len(found) > 0 {
				corrupt = append(corrupt, c.UUID)
				discrepancies = append(discrepancies, found[:min(len(found), maxCorrupt-len(discrepancies))]...)
			}
		}
	}
	for some := range slices.Chunk(r.Others, sealedPage) {
		page, err := s.store.SealedCardsOf(ctx, some)
		if err != nil {
			return nil, nil, fmt.Errorf("check encrypted fields: %w", err)
		}
		check(page)
	}
	for from := r.From; ; {
		page, err := s.store.SealedCards(ctx, from, sealedPage)
		if err != nil {
			return nil, nil, fmt.Errorf("check encrypted fields: %w", err)
		}
		if check(page); len(page) < sealedPage {
			return discrepancies, corrupt, nil
		}
		from = After(page[len(page)-1].UUID)
	}
}

// discrepancies returns the fields of a card that can't be decrypted.
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

// After returns the smallest uuid greater than id.
func After(id uuid.UUID) uuid.UUID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}
