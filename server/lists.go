package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// A list without pages may take as long as its client reads. Each keeps a page of cards in memory, so that there may be only so many.
const (
	listsPerToken = 4
	listsAtOnce   = 32 // of all tokens, in this process
)

// lists counts the lists without pages that are being sent. Its zero value is ready for use.
type lists struct {
	mu      sync.Mutex
	all     int
	byToken map[uuid.UUID]int
}

// begin begins a list, which the caller must end. The error is card.ErrQuotaExceeded if there are too many.
func (l *lists) begin(token uuid.UUID) (end func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.byToken[token] == listsPerToken:
		return nil, tooManyLists(card.Quota{Name: "lists-of-token", Limit: listsPerToken}, fmt.Sprintf(`Your token has %d lists without "limit" being sent, `+
			`which is as many as it may have. Read one to its end, or read pages with "limit".`, listsPerToken))
	case l.all == listsAtOnce:
		return nil, tooManyLists(card.Quota{Name: "lists", Limit: listsAtOnce}, `The service is sending as many lists without "limit" as it can. `+
			`Try again in a few seconds, or read pages with "limit".`)
	}
	if l.byToken == nil {
		l.byToken = map[uuid.UUID]int{}
	}
	l.all++
	l.byToken[token]++
	return func() { l.end(token) }, nil
}

func (l *lists) end(token uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.byToken[token]--; l.byToken[token] == 0 {
		delete(l.byToken, token)
	}
}

func tooManyLists(q card.Quota, message string) error {
	err := card.ErrQuotaExceeded.Saying(message).WithQuota(q)
	err.RetryAfter = 5 * time.Second
	return err
}
