package retention_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/retention"
)

const day = 24 * time.Hour

// fakeStore counts calls. A given number of each account's events and cards are
// old.
type fakeStore struct {
	held          bool
	holds         int // until another process acquires the lease; 0 for never
	events, cards map[uuid.UUID]int
	did           []string
	err           error
}

func (s *fakeStore) AcquireRetention(context.Context, string, time.Duration) (bool, error) {
	if s.holds--; s.holds == 0 {
		s.held = false
	}
	return s.held, nil
}

func (s *fakeStore) ReleaseRetention(context.Context, string) error {
	s.held = false
	return nil
}

func (s *fakeStore) AccountIDs(context.Context) ([]uuid.UUID, error) {
	return []uuid.UUID{{1}, {2}}, nil
}

func (s *fakeStore) PruneEvents(_ context.Context, account uuid.UUID, age time.Duration, n int) (int, error) {
	n = min(n, s.events[account])
	s.events[account] -= n
	s.did = append(s.did, fmt.Sprintf("events of %d, %s: %d", account[0], age, n))
	return n, s.err
}

func (s *fakeStore) RetireCards(_ context.Context, account uuid.UUID, currency string, age time.Duration,
	after uuid.UUID,
	n int) (int64, uuid.UUID, error) {
	had := s.cards[account]
	s.cards[account] -= min(n, had)
	s.did = append(s.did, fmt.Sprintf("%s cards of %d after %d, %s: %d", currency, account[0], after[0], age, min(n, had)))
	if had < n {
		return int64(had), uuid.Nil, nil
	}
	return int64(n), uuid.UUID{after[0] + 1}, nil
}

func TestKeeper_Tick(t *testing.T) {
	some := func() *fakeStore {
		return &fakeStore{held: true, events: map[uuid.UUID]int{{1}: 450}, cards: map[uuid.UUID]int{{2}: 300}}
	}
	both := retention.Policy{Expired: 365 * day, Events: 90 * day, Deliveries: 30 * day}
	lost := some()
	lost.holds = 2
	failing := some()
	failing.err = errors.New("database down")
	for name, test := range map[string]struct {
		store  *fakeStore
		policy retention.Policy
		want   []string
		err    error
	}{
		"all that is old": {some(), both,
			[]string{"events of 1, 2160h0m0s: 200", "events of 1, 2160h0m0s: 200", "events of 1, 2160h0m0s: 50",
				"monero cards of 1 after 0, 8760h0m0s: 0", "events of 2, 2160h0m0s: 0", "monero cards of 2 after 0, 8760h0m0s: 200",
				"monero cards of 2 after 1, 8760h0m0s: 100"}, nil},
		"cards alone": {some(), retention.Policy{Expired: 7 * day}, []string{"monero cards of 1 after 0, 168h0m0s: 0",
			"monero cards of 2 after 0, 168h0m0s: 200", "monero cards of 2 after 1, 168h0m0s: 100"}, nil},
		"events as long as their deliveries": {some(), retention.Policy{Events: 7 * day, Deliveries: 30 * day},
			[]string{"events of 1, 744h0m0s: 200",
				"events of 1, 744h0m0s: 200", "events of 1, 744h0m0s: 50", "events of 2, 744h0m0s: 0"}, nil},
		"nothing":                 {some(), retention.Policy{Deliveries: 30 * day}, nil, nil},
		"another process deletes": {&fakeStore{}, both, nil, nil},
		"lease lost":              {lost, both, []string{"events of 1, 2160h0m0s: 200"}, nil},
		"database down":           {failing, both, []string{"events of 1, 2160h0m0s: 200"}, failing.err},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			keeper, err := retention.New(test.store, slog.New(slog.NewTextHandler(&log, nil)),
				retention.Config{Policy: test.policy, Currencies: []string{"monero"},
					Holder: "x", Pause: func(context.Context, time.Duration) {}})
			if err != nil {
				t.Fatal(err)
			}
			if err := keeper.Tick(t.Context()); !errors.Is(err, test.err) {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(test.want, test.store.did); diff != "" {
				t.Error(diff)
			}
			if name == "everything that is old" && !strings.Contains(log.String(), "events=450 expired_cards=300") {
				t.Errorf("logged: %s", &log)
			}
		})
	}
}

// The log contains one line about deletions, and none if nothing was due.
func TestKeeper_Deletions_Logged(t *testing.T) {
	for name, tt := range map[string]struct {
		events, cards int
		want          string // "" for no line
	}{
		"nothing":     {0, 0, ""},
		"events only": {3, 0, "events=3 expired_cards=0"},
		"cards only":  {0, 2, "events=0 expired_cards=2"},
	} {
		var log bytes.Buffer
		s := &fakeStore{held: true, events: map[uuid.UUID]int{{1}: tt.events}, cards: map[uuid.UUID]int{{2}: tt.cards}}
		keeper, err := retention.New(s, slog.New(slog.NewTextHandler(&log, nil)),
			retention.Config{Policy: retention.Policy{Expired: 365 * day, Events: 90 * day}, Currencies: []string{"monero"}})
		if err == nil {
			err = keeper.Tick(t.Context())
		}
		if got := log.String(); err != nil || (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: error %v, logged: %s", name, err, got)
		}
	}
}

// slowStore deletes slowly.
type slowStore struct{ *fakeStore }

func (s slowStore) PruneEvents(ctx context.Context, account uuid.UUID, age time.Duration, n int) (int, error) {
	time.Sleep(10 * time.Millisecond)
	return s.fakeStore.PruneEvents(ctx, account, age, n)
}

// Requests have priority: deletions take a tenth of the time.
func TestKeeper_Pauses_BetweenPages(t *testing.T) {
	for name, own := range map[string]bool{"by its own timer": false, "by a timer of the test": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := retention.Config{Policy: retention.Policy{Events: 90 * day}}
				var paused []time.Duration
				if own {
					cfg.Pause = func(_ context.Context, length time.Duration) { paused = append(paused, length) }
				}
				began := time.Now()
				keeper, err := retention.New(slowStore{&fakeStore{held: true, events: map[uuid.UUID]int{{1}: 450}}},
					slog.New(slog.DiscardHandler), cfg)
				if err == nil {
					err = keeper.Tick(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				// three pages of the first account, and none of the second
				want, deleting := 2*90*time.Millisecond, 4*10*time.Millisecond
				if own {
					if diff := cmp.Diff([]time.Duration{90 * time.Millisecond, 90 * time.Millisecond}, paused); diff != "" {
						t.Error(diff)
					}
					want = 0
				}
				if got := time.Since(began) - deleting; got != want {
					t.Errorf("paused for %s, want %s", got, want)
				}
			})
		})
	}
}

func TestPolicy_TooShort_ReturnsError(t *testing.T) {
	for policy, good := range map[retention.Policy]bool{
		{}:                               true,
		{Expired: 7 * day}:               true,
		{Events: 7 * day}:                true,
		{Expired: 7*day - 1}:             false,
		{Events: time.Hour}:              false,
		{Expired: 365 * day, Events: -1}: false,
	} {
		if _, err := retention.New(&fakeStore{}, slog.Default(), retention.Config{Policy: policy}); (err == nil) != good {
			t.Errorf("%+v: %v", policy, err)
		}
	}
}
