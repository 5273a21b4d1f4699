package server

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// How many requests of a kind use the database at the same time. Cards that are
// created together share statements, of which the largest has 256; reading gets
// as many, which is more than there are connections, so that none is idle while
// a response is written. Nobody sends many of the others, or should.
const (
	createSlots  = 256
	readSlots    = 256
	manageSlots  = 32
	knownSlots   = 256
	unknownSlots = 64
)

// One account has up to three quarters of the slots of a kind at work.
func maxShare(slots int) int { return slots * 3 / 4 }

// Bulk requests change many rows and take seconds. Each account runs one at a
// time, and a second one waits for up to bulkWait. They keep apart from the
// other requests that manage, which take milliseconds.
const (
	bulkSlots = 4
	bulkShare = 1
	bulkWait  = 5 * time.Second
)

// gates keep kinds of requests apart, so that too many of one leave room for
// the others.
type gates struct {
	metrics                    Metrics
	create, read, manage, bulk *gate
	// Tokens that this process has seen to be good are looked up again every
	// few seconds. Anybody can make up any number of others.
	known, unknown *gate
}

func newGates(metrics Metrics) *gates {
	g := &gates{metrics: metrics,
		create: newGate("create", createSlots, maxShare(createSlots)),
		read:   newGate("read", readSlots, maxShare(readSlots)),
		manage: newGate("manage", manageSlots, maxShare(manageSlots)),
		bulk:   newGate("bulk", bulkSlots, bulkShare),
		// Accounts are not known yet, so that there are no shares.
		known:   newGate("authenticate", knownSlots, knownSlots),
		unknown: newGate("authenticate", unknownSlots, unknownSlots)}
	g.bulk.maxWait = bulkWait
	return g
}

// acquire takes a place at a gate, which the caller must give back by release. The
// error is card.ErrUnavailable, or card.ErrQuotaExceeded if the account's own
// bulk request is in the way. The account is uuid.Nil before it is known.
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

// bulkQuota is what an account may run of bulk requests.
var bulkQuota = boundedQuota{card.Quota{Name: "bulk-of-account", Limit: bulkShare},
	"Your account already deletes a webhook or recovers its events. Only one such request runs at a time. Try again in a few seconds."}

// overloaded is the refusal of a request that was not begun. Its time varies,
// so that those who are refused together do not come again together.
func overloaded() error {
	err := card.ErrUnavailable.WithMessage(
		`The service has more requests than it can answer in time, and has not begun with yours. Try again when the time in "Retry-After" is over.`)
	err.RetryAfter = time.Second + rand.N(4*time.Second)
	return err
}

// admit has requests enter the gates. It stands between what a request says and
// what is done about it: who sends or reads slowly holds no place.
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

// of returns the gate of a request; nil for one that needs no database, or
// waits for something else than it and is counted there: lists without pages
// and streams of events (slots), receivers of webhooks, and payments of a
// sandbox.
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
	// ListEvents enters for as long as it does not wait
	case "ListCurrencies", "ListOffers", "TestWebhook", "SimulatePayment", "ListEvents":
		return nil
	case "RecoverWebhook", "DeleteWebhook":
		return g.bulk
	}
	return g.manage
}
