package settle

import (
	"fmt"

	"github.com/cardmint/cardmint/internal/card"
)

// validateTransfer returns card.ErrWalletLost if old, a stored transfer, cannot
// have turned into now.
//
//   - A transaction pays to the same address in any block.
//   - In a block that is still in the chain, only the lock changes.
//   - An amount in the mempool can only fall: an output whose key a block has
//     used is worth less, or nothing. It can grow only if blocks were replaced.
//
// Any other change means that the wallet is damaged. A rescan may repair it, so
// the error is the same as for a missing transfer, and so is the operator's
// remedy if a rescan does not help.
func validateTransfer(old, now card.Transfer, cursor Cursor, v View) error {
	final := old.Height > 0 && old.Height <= v.Kept
	grew := now.Amount > old.Amount && v.Kept >= cursor.Tip.Height
	what := ""
	switch {
	case old.Address != now.Address:
		what = fmt.Sprintf("it now pays to %s, not to %s", now.Address, old.Address)
	case final && old.Amount != now.Amount, grew:
		what = fmt.Sprintf("its amount to %s is now %d, not %d", old.Address, now.Amount, old.Amount)
	case final && old.Height != now.Height:
		what = fmt.Sprintf("it is now in block %d", now.Height)
	default:
		return nil
	}
	where := "of the mempool"
	if old.Height > 0 {
		where = fmt.Sprintf("of block %d", old.Height)
	}
	if final {
		where += ", which is still in the chain"
	}
	return fmt.Errorf("%w: it shows transaction %s %s, but different: %s", card.ErrWalletLost, old.TxID, where,
		what)
}

// lingersInMempool reports whether a view shows a transfer in the mempool only
// because the wallet still lists it after a block took it. old is from a block
// that the view does not cover; rereading that block shows whether it is still
// there.
func lingersInMempool(old, now card.Transfer) bool {
	return now.Height == 0 && old.Address == now.Address
}
