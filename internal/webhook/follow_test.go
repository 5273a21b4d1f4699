package webhook_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

// waiting is a request that waits for events.
type waiting struct {
	found <-chan struct{}
	stop  func()
}

func (s *fixture) wait(account uuid.UUID, filter webhook.EventFilter) waiting {
	s.t.Helper()
	found, stop := s.webhooks.AwaitEvents(account, filter)
	s.t.Cleanup(stop)
	return waiting{found, stop}
}

func (w waiting) over() bool {
	select {
	case <-w.found:
		return true
	default:
		return false
	}
}

// tick calls Tick, and checks its calls to the store.
func (s *fixture) tick(calls ...string) {
	s.t.Helper()
	s.took()
	check(s.t, s.webhooks.Tick(s.t.Context()))
	if diff := cmp.Diff(calls, s.took()); diff != "" {
		s.t.Errorf("calls to the store (-want +got):\n%s", diff)
	}
}

func (s *fixture) wantOver(what string, w waiting, want bool) {
	s.t.Helper()
	if got := w.over(); got != want {
		s.t.Errorf("%s: over is %t, want %t", what, got, want)
	}
}

func TestAwaitEvents_FirstNewEvent_ClosesChannel(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.tick() // no request waits, so no query is made
		first, another := s.wait(s.account, webhook.EventFilter{}), s.wait(s.account, webhook.EventFilter{})
		stranger := s.wait(newAccount(t, s.store), webhook.EventFilter{})
		s.tick("last of 2 accounts")
		s.wantOver("without an event", first, false)
		s.insertEvents(1)
		s.wantOver("before anybody checked", first, false)
		s.tick("last of 2 accounts")
		s.wantOver("the first", first, true)
		s.wantOver("who waits beside it", another, true)
		s.wantOver("another account's", stranger, false)
		s.tick("last of 1 accounts")
		later := s.wait(s.account, webhook.EventFilter{After: 1})
		late := s.wait(s.account, webhook.EventFilter{}) // the event was committed between reading and waiting
		s.tick("last of 2 accounts")
		s.wantOver("who has seen the event", later, false)
		s.wantOver("who has not seen it", late, true)
		later.stop()
		stranger.stop()
		s.tick()
	})
}

// A request that waits for a card is not woken by events of other cards, and is
// queried only when the account has new events.
func TestAwaitEvents_OneCard_IgnoresOthers(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		other := insertCard(t, s.store, s.account)
		mine, others := s.wait(s.account, webhook.EventFilter{CardUUID: s.card.UUID}),
			s.wait(s.account, webhook.EventFilter{CardUUID: other.UUID})
		foreign := s.wait(newAccount(t, s.store), webhook.EventFilter{CardUUID: s.card.UUID})
		s.tick("last of 2 accounts")
		s.insertEvents(1)
		s.tick("last of 2 accounts", "last of 2 cards")
		s.wantOver("its card", mine, true)
		s.wantOver("another card", others, false)
		s.wantOver("another account's card", foreign, false)
		s.tick("last of 2 accounts")
		again := s.wait(s.account, webhook.EventFilter{CardUUID: s.card.UUID, After: 1})
		s.tick("last of 2 accounts")
		s.wantOver("what was seen", again, false)
		s.insertEvents(1)
		s.tick("last of 2 accounts", "last of 2 cards")
		s.wantOver("the next", again, true)
		s.wantOver("another card", others, false)
		es, more, err := s.webhooks.ListEvents(t.Context(), s.account,
			webhook.EventFilter{CardUUID: s.card.UUID, After: 1, Limit: 9})
		if err != nil || more || len(es) != 1 || es[0].Seq != 2 {
			t.Errorf("events %v, more: %t, error: %v", es, more, err)
		}
		_, _, err = s.webhooks.ListEvents(t.Context(), s.account,
			webhook.EventFilter{CardUUID: s.card.UUID, After: 3, Limit: 9})
		wantError(t, err, card.ErrInvalidRequest)
	})
}

func TestListEvents_OneCard_Pages(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.insertEvents(3)
		for _, tt := range []struct {
			after int64
			limit int
			want  []int64
			more  bool
		}{
			{0, 2, []int64{1, 2}, true},
			{1, 2, []int64{2, 3}, false},
			{2, 2, []int64{3}, false},
		} {
			es, more, err := s.webhooks.ListEvents(t.Context(), s.account,
				webhook.EventFilter{CardUUID: s.card.UUID, After: tt.after, Limit: tt.limit})
			check(t, err)
			var got []int64
			for _, e := range es {
				got = append(got, e.Seq)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || more != tt.more {
				t.Errorf("after %d: more is %t, want %t; events %s", tt.after, more, tt.more, diff)
			}
		}
	})
}

// Seq jumps ahead after a restore. Every waiting request is woken.
func TestAwaitEvents_FeedReset_ClosesChannel(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		ahead := s.wait(s.account, webhook.EventFilter{After: 1000})
		s.insertEvents(3)
		s.tick("last of 1 accounts")
		s.wantOver("ahead of the feed", ahead, false)
		l, err := s.store.AcquireLease(t.Context(), "any", "holder", time.Minute)
		check(t, err)
		check(t, s.store.ResetFeeds(t.Context(), l, l.Now))
		s.tick("last of 1 accounts")
		s.wantOver("after the jump", ahead, true)
	})
}

func TestServiceTick_StoreFails_CanBeRepeated(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		w := s.wait(s.account, webhook.EventFilter{CardUUID: s.card.UUID})
		s.insertEvents(1)
		for _, s.fails = range []string{"LastSeqs", "LastSeqsOfCards", "CardEvents"} {
			err := s.webhooks.Tick(t.Context())
			if s.fails == "CardEvents" {
				_, _, err = s.webhooks.ListEvents(t.Context(), s.account, webhook.EventFilter{CardUUID: s.card.UUID, Limit: 1})
			} else {
				s.wantOver("while "+s.fails+" fails", w, false)
			}
			if !errors.Is(err, card.ErrUnavailable) {
				t.Errorf("when %s fails: %v", s.fails, err)
			}
		}
		s.fails = ""
		s.wantOver("in the end", w, true)
	})
}
