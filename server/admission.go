package server

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Slots are how many requests of a kind use the database at once. Cards that
// are created together share statements of up to 256 rows. Reads get as many
// slots, which is more than there are connections, so that no connection is
// idle while a response is written. Other kinds are rare.
const (
	createSlots  = 256
	readSlots    = 256
	manageSlots  = 32
	knownSlots   = 256
	unknownSlots = 64
)

// maxShare is how many slots one account may use: three quarters.
func maxShare(slots int) int { return slots * 3 / 4 }

// Bulk requests change many rows and take seconds. An account runs one at a
// time; a second one waits for up to bulkWait. They have separate slots,
// because other management requests take milliseconds.
const (
	bulkSlots = 4
	bulkShare = 1
	bulkWait  = 5 * time.Second
)

// gates limit the concurrency of each kind of requests, so that a flood of one
// kind blocks no other kind.
type gates struct {
	metrics                    Metrics
	create, read, manage, bulk *gate
	// Tokens that this process knows to be valid are looked up again every few
	// seconds. A client can make up any number of other tokens.
	known, unknown *gate
}

func newGates(metrics Metrics) *gates {
	g := &gates{metrics: metrics,
		create: newGate("create", createSlots, maxShare(createSlots)),
		read:   newGate("read", readSlots, maxShare(readSlots)),
		manage: newGate("manage", manageSlots, maxShare(manageSlots)),
		bulk:   newGate("bulk", bulkSlots, bulkShare),
		// The account is not known yet, so there are no shares.
		known:   newGate("authenticate", knownSlots, knownSlots),
		unknown: newGate("authenticate", unknownSlots, unknownSlots)}
	g.bulk.maxWait = bulkWait
	return g
}

// acquire acquires a slot of a gate; the caller must release it. The error is
// card.ErrUnavailable, or card.ErrQuotaExceeded if the account is already
// running a bulk request. The account is uuid.Nil before it is known.
func (g *gates) acquire(ctx context.Context, through *gate, account uuid.UUID) error {
	if through.acquire(ctx, account) {
		return nil
	}
	if through == g.bulk && through.working.UsedUp(account) {
		return quotaExceeded(bulkQuota)
	}
	g.metrics.Shed(through.kind)
	return overloaded()
}

// bulkQuota limits the bulk requests of an account.
var bulkQuota = boundedQuota{card.Quota{Name: "bulk-of-account", Limit: bulkShare},
	"Your account already deletes a webhook or recovers its events. Only one such request runs at a time. Try again in a few seconds."}

// overloaded returns the refusal of a request that was not started. Retry-After
// varies, so that refused clients do not return at the same time.
func overloaded() error {
	err := card.ErrUnavailable.WithMessage(
		`The service has more requests than it can answer in time, and did not start yours. Try again after the time in "Retry-After".`)
	err.RetryAfter = time.Second + rand.N(4*time.Second)
	return err
}

// admit lets a request acquire its slot after its body was read, and release it
// before the response is written: slow clients hold no slot.
func (g *gates) admit(next StrictHandlerFunc, operation string) StrictHandlerFunc {
	return func(c *gin.Context, request any) (any, error) {
		through := g.of(operation, request)
		if through == nil {
			return next(c, request)
		}
		who, _ := identity(c)
		if err := g.acquire(c.Request.Context(), through, who.AccountID); err != nil {
			return nil, err
		}
		defer through.release(who.AccountID)
		return next(c, request)
	}
}

// of returns the gate of a request. It returns nil for requests that need no
// database, and for requests with another limit: streamed lists and events
// (concurrency), tests of webhooks, and payments of a sandbox.
func (g *gates) of(operation string, request any) *gate {
	switch operation {
	case "CreateCard":
		return g.create
	case "ListCards":
		if list, ok := request.(ListCardsRequestObject); ok && list.Params.Limit == nil {
			return nil
		}
		return g.read
	case "GetCard", "RevealCard", "ListWebhooks", "GetWebhook", "ListDeliveries":
		return g.read
	// ListEvents acquires a slot itself, except while it waits
	case "ListCurrencies", "ListOffers", "TestWebhook", "SimulatePayment", "ListEvents":
		return nil
	case "RecoverWebhook", "DeleteWebhook":
		return g.bulk
	}
	return g.manage
}
