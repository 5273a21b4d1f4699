package settle

import (
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Report is the result of a Tick, for monitoring.
type Report struct {
	// Leads means that this process watches the chain. Without it, only Err,
	// Cause and Took can be set.
	Leads bool
	Err   error
	Cause string // of Err, in public words from a fixed set; "" if unknown
	Took  time.Duration
	// The rest is set if a view was applied, even if the Tick failed later.
	Applied   bool
	Tip       card.Tip // the newest applied block
	Behind    int64    // number of new blocks
	Transfers int      // new, changed or removed
}
