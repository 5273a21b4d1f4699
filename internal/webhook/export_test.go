package webhook

import (
	"context"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/limit"
)

// At replaces a poster's clock.
func (p *HTTPPoster) At(now func() time.Time) *HTTPPoster {
	p.now = now
	return p
}

// Exhaust uses up an account's requests to an unproven address.
func (p *HTTPPoster) Exhaust(account uuid.UUID, address netip.Addr) {
	p.destinations.admit(endpointKey{account: account}, address)
	own := p.destinations.addresses[limit.Network(address)].accounts[account].unproven
	own.SetBurst(1)
	own.SetLimit(0.001)
	own.Allow()
}

// Attempted is a delivery with its newest attempt.
type Attempted = attempted

// Claims claims up to n webhooks with due deliveries.
func (s *Sender) Claims(ctx context.Context, n int) ([]*Claim, error) { return s.claimWebhooks(ctx, n) }

// DueDeliveries returns the next batch of a turn.
func (s *Sender) DueDeliveries(ctx context.Context, c *Claim, n int) ([]Delivery, error) {
	return s.dueDeliveries(ctx, c, n)
}

// SaveAttempts stores a batch of attempts.
func (s *Sender) SaveAttempts(ctx context.Context, c *Claim, all []Attempted) error {
	return s.saveAttempts(ctx, c, all)
}
