package settle

import (
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Report says how a Tick ended, for monitoring.
type Report struct {
	Leads bool // this process watches the chain; otherwise another one does, and the rest is not set unless Err is
	Err   error
	Cause string // of Err, in a few public words out of a fixed set; "" if it is not known
	Took  time.Duration
	// What follows is set if a view of the chain was applied, which may be so
	// although there is an error.
	Applied   bool
	Tip       card.Tip // the newest block that was applied
	Behind    int64    // blocks that were new
	Transfers int      // that were new, changed or gone
}
