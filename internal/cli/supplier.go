package cli

import (
	"time"

	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/supplier"
)

// supplierFlags say who makes the cards.
type supplierFlags struct {
	Sandbox supplier.Behaviour `name:"sandbox-supplier" env:"CARDMINT_SANDBOX_SUPPLIER" default:"prompt" enum:"prompt,slow,pending,ambiguous,declining" placeholder:"BEHAVIOUR" help:"How the supplier of sandbox cards behaves: prompt, slow, pending, ambiguous or declining (${default})."`
}

// open returns the supplier.
func (f supplierFlags) open() issue.Supplier { return supplier.NewSandbox(f.Sandbox, time.Now) }
