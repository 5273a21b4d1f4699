package settle

import (
	"fmt"

	"github.com/cardmint/cardmint/internal/card"
)

// validateTransfer returns card.ErrWalletLost if old, a stored transfer, can't
// have become what the chain shows now.
//
// A transaction pays to the same address whatever block it is in. In a block
// that is still in the chain, nothing changes but the lock. The amount of one
// in the mempool can only fall, unless blocks were replaced: an output whose
// key a block has used meanwhile is worth less, or nothing. An amount that
// can't be right is not a change but a wallet that is damaged. A rescan may
// mend it, so that the error is the same as for a transfer that vanished, and
// so is the operator's way out if a rescan does not help.
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
	return fmt.Errorf("%w: it shows transaction %s %s, otherwise than before: %s", card.ErrWalletLost, old.TxID, where,
		what)
}

// lingersInMempool reports whether the mempool shows a transfer only because it still
// lists what a block has taken. old is from a block that was not read: whether
// it is still there is found by comparing that block.
func lingersInMempool(old, now card.Transfer) bool {
	return now.Height == 0 && old.Address == now.Address
}
