package webhook

import (
	"context"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/limit"
)

// At gives a poster another clock.
func (p *HTTPPoster) At(now func() time.Time) *HTTPPoster {
	p.now = now
	return p
}

// Exhaust uses up what an account may send to an address where nothing has
// accepted an event.
func (p *HTTPPoster) Exhaust(account uuid.UUID, address netip.Addr) {
	p.destinations.admit(endpointKey{account: account}, address)
	own := p.destinations.addresses[limit.Network(address)].accounts[account].unproven
	own.SetBurst(1)
	own.SetLimit(0.001)
	own.Allow()
}

// Attempted is a delivery and the attempt that was just made at it.
type Attempted = attempted

// Claims returns up to n webhooks that have something due.
func (s *Sender) Claims(ctx context.Context, n int) ([]*Claim, error) { return s.claimWebhooks(ctx, n) }

// DueDeliveries returns what a turn would attempt next.
func (s *Sender) DueDeliveries(ctx context.Context, c *Claim, n int) ([]Delivery, error) {
	return s.dueDeliveries(ctx, c, n)
}

// SaveAttempts stores a round of attempts.
func (s *Sender) SaveAttempts(ctx context.Context, c *Claim, all []Attempted) error {
	return s.saveAttempts(ctx, c, all)
}
