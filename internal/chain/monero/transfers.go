package monero

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/rpc"
)

// transferEntry is an entry of get_transfers: the payment of one transaction to
// one subaddress. If several outputs go to the same subaddress, the entry has
// their sum.
type transferEntry struct {
	Address         string       `json:"address"`
	Amount          uint64       `json:"amount"` // piconero
	Amounts         []uint64     `json:"amounts,omitempty"`
	Confirmations   int64        `json:"confirmations,omitempty"` // missing if 0, as in the mempool
	DoubleSpendSeen bool         `json:"double_spend_seen"`
	Height          int64        `json:"height"` // 0 in the mempool
	Locked          bool         `json:"locked"`
	Subaddress      subaddressID `json:"subaddr_index"`
	Timestamp       int64        `json:"timestamp"` // Unix seconds: of the block, or when the wallet saw it in the mempool
	TxID            string       `json:"txid"`
	Type            string       `json:"type"` // in, block (a coinbase) or pool
	UnlockTime      uint64       `json:"unlock_time"`
}

type subaddressID struct {
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
}

const (
	maxAccount    = math.MaxInt32  // so that account and index fit into a transfer's output
	maxSubaddress = math.MaxUint32 // the wallet's limit
	maxAmount     = 1 << 62        // a quarter of all coins
	spendableAge  = 10             // CRYPTONOTE_DEFAULT_TX_SPENDABLE_AGE: blocks before an output can be spent
	unlockLeeway  = 3 * time.Hour  // how far the network's time may be ahead of the local clock
)

// transfers validates entries and converts them to transfers, one for each
// transaction and subaddress. The error is card.ErrWrongAnswer if an entry
// contradicts itself, another entry or the tip.
func (m *Chain) transfers(entries []transferEntry, tip card.Tip) ([]card.Transfer, error) {
	type key struct {
		txID   string
		output int64
	}
	now := m.config.Now()
	at := make(map[key]int, len(entries))
	sums := make(map[string]card.Amount, len(entries))
	transfers := make([]card.Transfer, 0, len(entries))
	for _, e := range entries {
		if err := e.check(now, tip); err != nil {
			return nil, err
		}
		if e.Type == "pool" && e.DoubleSpendSeen {
			continue
		}
		t := e.transfer(now)
		t.Currency = m.config.Coin.Code
		k := key{t.TxID, t.Output}
		i, seen := at[k]
		if !seen {
			at[k] = len(transfers)
			transfers = append(transfers, t)
			if sums[t.Address] += t.Amount; sums[t.Address] < 0 {
				return nil, e.wrongAnswer("amount", "%d, together with others to its address, is too large", e.Amount)
			}
			continue
		}
		if err := e.merge(&transfers[i], t); err != nil {
			return nil, err
		}
	}
	return transfers, nil
}

// merge compares an entry's transfer with an earlier one for the same
// transaction and subaddress. Entries have the sum of such outputs, so both
// show the same money. The mempool may still list it after a block took it,
// with the amount as if no output of the same key had come first.
func (e transferEntry) merge(known *card.Transfer, t card.Transfer) error {
	mined, pool := *known, t
	if known.Height == 0 {
		mined, pool = t, *known
	}
	switch {
	case t.Address != known.Address:
		return e.wrongAnswer("address", "differs in two entries")
	case mined.Height == pool.Height && mined.Amount != pool.Amount, mined.Amount > pool.Amount:
		return e.wrongAnswer("amount", "differs in two entries: %d and %d", known.Amount, t.Amount)
	case pool.Height != 0 && mined.Height != pool.Height:
		return e.wrongAnswer("height", "differs in two entries: %d and %d", known.Height, t.Height)
	case mined.Height == pool.Height && mined.Locked != pool.Locked:
		return e.wrongAnswer("locked", "differs in two entries")
	}
	*known = mined
	return nil
}

func (e transferEntry) wrongAnswer(field, format string, args ...any) error {
	return fmt.Errorf("get transfers: %w",
		rpc.WrongAnswer(fmt.Errorf("%s of %s %w", field, e.TxID, fmt.Errorf(format, args...))))
}

// check returns an error if an entry cannot be right.
func (e transferEntry) check(now time.Time, tip card.Tip) error {
	mined := e.Type != "pool"
	switch {
	case !isHash(e.TxID):
		return wrongAnswer("get transfers", "txid is %q", rpc.Excerpt(e.TxID))
	case e.Subaddress.Major > maxAccount:
		return e.wrongAnswer("subaddr_index", "is of account %d", e.Subaddress.Major)
	case mined && e.Height <= 0, !mined && e.Height != 0:
		return e.wrongAnswer("height", "is %d, though its type is %q", e.Height, e.Type)
	case e.Height > tip.Height:
		return fmt.Errorf("get transfers: %w: height of %s is %d, node is at %d", card.ErrChainNotReady, e.TxID, e.Height,
			tip.Height)
	case mined && e.Confirmations != tip.Height+1-e.Height, !mined && e.Confirmations != 0:
		return e.wrongAnswer("confirmations", "is %d, though its height is %d of %d", e.Confirmations, e.Height, tip.Height)
	case e.Timestamp < firstBlockTime, e.Timestamp > now.Add(clockLeeway).Unix():
		return e.wrongAnswer("timestamp", "is %d", e.Timestamp)
	}
	if err := checkAddressAt(e.Address, "", int64(e.Subaddress.Major), int64(e.Subaddress.Minor)); err != nil {
		return e.wrongAnswer("address", "%w", err)
	}
	return cmp.Or(e.checkAmount(), e.checkLock(now, tip))
}

// checkAmount compares the amount with the outputs' amounts. It is less than
// their sum if an output's key was used before, for a smaller output: only the
// difference can be spent. An output whose key was used for a larger one is
// omitted.
func (e transferEntry) checkAmount() error {
	if e.Amount > maxAmount {
		return e.wrongAnswer("amount", "is %d, which is too large", e.Amount)
	}
	if len(e.Amounts) == 0 {
		return nil // stored by a wallet version without the list
	}
	var sum uint64
	for _, a := range e.Amounts {
		if sum += a; a > maxAmount || sum > maxAmount {
			return e.wrongAnswer("amounts", "have a sum that is too large")
		}
	}
	if e.Amount > sum || e.Amount == 0 && sum > 0 {
		return e.wrongAnswer("amount", "is %d, though the sum of amounts is %d", e.Amount, sum)
	}
	return nil
}

// checkLock compares locked with the values that imply it (is_transfer_unlocked
// of wallet2). The network's time is known only roughly, the height exactly.
func (e transferEntry) checkLock(now time.Time, tip card.Tip) error {
	young := e.Height == 0 || e.Height+spendableAge > tip.Height+1
	byTime := e.UnlockTime >= maxHeight
	ahead := !byTime && e.UnlockTime > uint64(tip.Height+1)
	switch {
	case byTime && !young:
		if !e.Locked && e.UnlockTime > uint64(now.Add(unlockLeeway).Unix()) {
			return e.wrongAnswer("locked", "is false, though unlock_time is %d", e.UnlockTime)
		}
	case e.Locked != (young || ahead):
		return e.wrongAnswer("locked", "is %t, though unlock_time is %d and its height %d of %d", e.Locked, e.UnlockTime,
			e.Height, tip.Height)
	}
	return nil
}

// transfer converts an entry.
func (e transferEntry) transfer(now time.Time) card.Transfer {
	seen := time.Unix(e.Timestamp, 0).UTC()
	if seen.After(now) {
		seen = now
	}
	return card.Transfer{
		TxID:        e.TxID,
		Output:      int64(e.Subaddress.Major)<<32 | int64(e.Subaddress.Minor), // account 0: the subaddress index
		Address:     e.Address,
		Amount:      card.Amount(e.Amount),
		Height:      e.Height,
		Locked:      e.Locked && e.UnlockTime != 0,
		FirstSeenAt: seen,
	}
}

// addressCache remembers the wallet's address at each index.
type addressCache struct {
	sync.Mutex
	wallet    string // primary address
	addresses map[subaddressID]string
}

func (o *addressCache) clear() {
	o.Lock()
	defer o.Unlock()
	o.addresses = nil
}

// Limits of confirmAddresses.
const (
	maxRemembered      = 50_000
	addressesPerAnswer = 1000
)

// confirmAddresses compares the entries' addresses with the wallet's addresses
// at their indices, because the address decides which card is credited. It asks
// the wallet once for each.
func (m *Chain) confirmAddresses(ctx context.Context, wallet string, entries []transferEntry) error {
	m.cache.Lock()
	defer m.cache.Unlock()
	if m.cache.wallet != wallet || m.cache.addresses == nil || len(m.cache.addresses) > maxRemembered {
		m.cache.wallet, m.cache.addresses = wallet, map[subaddressID]string{}
	}
	asked := map[subaddressID]bool{}
	byAccount := map[uint32][]int64{}
	var unsure []subaddressID
	for _, e := range entries {
		_, known := m.cache.addresses[e.Subaddress]
		switch {
		case known || asked[e.Subaddress]:
		case e.Type == "pool":
			unsure = append(unsure, e.Subaddress)
		default:
			byAccount[e.Subaddress.Major] = append(byAccount[e.Subaddress.Major], int64(e.Subaddress.Minor))
		}
		asked[e.Subaddress] = true
	}
	for account, indices := range byAccount {
		for some := range slices.Chunk(indices, addressesPerAnswer) {
			if err := m.cacheAddresses(ctx, account, some); err != nil {
				return err
			}
		}
	}
	for _, id := range unsure {
		// A wallet that lost its addresses sees payments to the next 200, but
		// returns the addresses of those in the mempool only after a block took
		// them.
		err := m.cacheAddresses(ctx, id.Major, []int64{int64(id.Minor)})
		if err != nil && !hasCode(err, codeAddressIndex) && !hasCode(err, codeAccountIndex) {
			return err
		}
	}
	for _, e := range entries {
		if have, known := m.cache.addresses[e.Subaddress]; known && have != e.Address {
			m.cache.addresses = nil // either may be wrong
			return e.wrongAnswer("address", "is %s, though get address says %s at index %d of account %d", e.Address, have,
				e.Subaddress.Minor, e.Subaddress.Major)
		}
	}
	return nil
}

func (m *Chain) cacheAddresses(ctx context.Context, account uint32, indices []int64) error {
	all, err := m.addressesAt(ctx, int64(account), indices)
	if err != nil {
		return err
	}
	for i, address := range all {
		m.cache.addresses[subaddressID{account, uint32(indices[i])}] = address
	}
	return nil
}
