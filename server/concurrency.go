package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/limit"
)

// A streamed list takes as long as its client reads. Each keeps a page of cards
// in memory.
const (
	listsPerToken   = 4
	listsPerAccount = 8  // of all tokens of the account
	listsAtOnce     = 32 // of all accounts in this process
)

// A request that waits for events keeps little more than a connection. One
// query serves all of them.
const (
	waitsPerToken   = 16
	waitsPerAccount = 128 // of all tokens of the account
	waitsAtOnce     = 500 // of all accounts in this process
)

// boundedQuota is a quota, and the message for clients that exceed it.
type boundedQuota struct {
	card.Quota
	message string
}

// concurrency limits how many requests of a kind are open at once, by token,
// account and process. It is for requests that last as long as their client
// wants.
type concurrency struct {
	ofToken, ofAccount, ofAll boundedQuota

	shares  *limit.Shares // of accounts
	mu      sync.Mutex
	byToken map[uuid.UUID]int64
}

// newLists returns the limits of streamed lists.
func newLists() *concurrency {
	return newConcurrency(
		boundedQuota{card.Quota{Name: "lists-of-token", Limit: listsPerToken},
			fmt.Sprintf(`Your token has %d lists without "limit" in progress, `+
				`which is the maximum. Read one to its end, or read pages with "limit".`, listsPerToken)},
		boundedQuota{card.Quota{Name: "lists-of-account", Limit: listsPerAccount},
			fmt.Sprintf(`Your account has %d lists without "limit" in progress, `+
				`which is the maximum. Read one to its end, or read pages with "limit".`, listsPerAccount)},
		boundedQuota{card.Quota{Name: "lists", Limit: listsAtOnce},
			`The service is sending as many lists without "limit" as it can. ` +
				`Try again in a few seconds, or read pages with "limit".`})
}

// newWaits returns the limits of requests that wait for events.
func newWaits() *concurrency {
	return newConcurrency(
		boundedQuota{card.Quota{Name: "waits-of-token", Limit: waitsPerToken},
			fmt.Sprintf(`Your token has %d requests that wait for events, `+
				`which is the maximum. Wait for the events of all cards with one of them, or send requests without "wait".`,
				waitsPerToken)},
		boundedQuota{card.Quota{Name: "waits-of-account", Limit: waitsPerAccount},
			fmt.Sprintf(`Your account has %d requests that wait for events, `+
				`which is the maximum. Wait for the events of all cards with one of them, or send requests without "wait".`,
				waitsPerAccount)},
		boundedQuota{card.Quota{Name: "waits", Limit: waitsAtOnce}, `As many requests wait for events as the service allows. ` +
			`Try again in a few seconds, or send requests without "wait".`})
}

func newConcurrency(ofToken, ofAccount, ofAll boundedQuota) *concurrency {
	return &concurrency{ofToken: ofToken, ofAccount: ofAccount, ofAll: ofAll,
		shares: limit.NewShares(int(ofAll.Limit), int(ofAccount.Limit)), byToken: map[uuid.UUID]int64{}}
}

// acquire acquires a slot; the caller must release it. The error is
// card.ErrQuotaExceeded if no slot is free.
func (p *concurrency) acquire(who account.Identity) (release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.byToken[who.TokenID] == p.ofToken.Limit:
		return nil, quotaExceeded(p.ofToken)
	case p.shares.UsedUp(who.AccountID):
		return nil, quotaExceeded(p.ofAccount)
	case !p.shares.Acquire(who.AccountID):
		return nil, quotaExceeded(p.ofAll)
	}
	p.byToken[who.TokenID]++
	return func() { p.release(who) }, nil
}

func (p *concurrency) release(who account.Identity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shares.Release(who.AccountID)
	if p.byToken[who.TokenID]--; p.byToken[who.TokenID] == 0 {
		delete(p.byToken, who.TokenID)
	}
}

func quotaExceeded(b boundedQuota) error {
	err := card.ErrQuotaExceeded.WithMessage(b.message).WithQuota(b.Quota)
	err.RetryAfter = 5 * time.Second
	return err
}
