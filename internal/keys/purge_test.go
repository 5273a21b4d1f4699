package keys_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/operator"
)

// wantPurged checks which of the cards have lost their credentials.
func (s *fixture) wantPurged(ids []uuid.UUID, want ...bool) {
	s.t.Helper()
	for i, id := range ids {
		c, err := s.db.CardByUUID(s.t.Context(), s.account, id)
		check(s.t, err)
		if purged := c.CredentialsPurgedAt != nil; purged != want[i] || (c.Sealed == nil) != want[i] ||
			c.Status != card.Generated {
			s.t.Errorf("card %d: purged %v, sealed %v, %s", i, purged, c.Sealed != nil, c.Status)
		}
	}
	books, err := s.db.ReadBooks(s.t.Context(), true, func(operator.Progress) {})
	check(s.t, err)
	for _, d := range books.Discrepancies {
		if strings.Contains(d.Text, "credentials") {
			s.t.Errorf("discrepancy: %s", d.Text)
		}
	}
}

func TestPurger_DeletesOldCredentials(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		ids := s.issue(3)
		purger, err := keys.NewPurger(s.db, time.Hour, s.logger())
		check(t, err)
		s.exec("UPDATE credentials SET issued_at = issued_at - 3600000 WHERE card_uuid = $1", ids[0])
		s.exec("UPDATE credentials SET issued_at = NULL WHERE card_uuid <> $1", ids[0]) // stored by an old version
		s.exec("UPDATE events SET created_at = created_at - 7200000 WHERE card_uuid = $1", ids[1])
		never, err := keys.NewPurger(s.db, 0, s.logger())
		check(t, err)
		check(t, never.Tick(t.Context()))
		s.wantPurged(ids, false, false, false)
		check(t, purger.Tick(t.Context()))
		s.wantPurged(ids, true, true, false)
		if text := s.log.String(); !strings.Contains(text, "cards=2") {
			t.Errorf("logged:\n%s", text)
		}
		before, err := s.db.CardByUUID(t.Context(), s.account, ids[0])
		check(t, err)
		check(t, purger.Tick(t.Context()))
		after, err := s.db.CardByUUID(t.Context(), s.account, ids[0])
		check(t, err)
		if !before.CredentialsPurgedAt.Equal(*after.CredentialsPurgedAt) || strings.Count(s.log.String(), "purged") != 1 {
			t.Error("purged twice")
		}
		s.wantReadable(ids[2:])
	})
}

// Two workers purge more than a page at the same time.
func TestPurger_TwoWorkers(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		ids := s.issue(20)
		s.exec("UPDATE credentials SET issued_at = issued_at - 3600000")
		other := s.secondProcess()
		failed := make(chan error, 2)
		for _, x := range []*fixture{s, other} {
			go func() {
				var err error
				for range 20 {
					if _, _, e := x.db.PurgeCredentials(t.Context(), time.Hour, 2); e != nil {
						err = e
					}
				}
				failed <- err
			}()
		}
		check(t, <-failed)
		check(t, <-failed)
		want := make([]bool, len(ids))
		for i := range want {
			want[i] = true
		}
		s.wantPurged(ids, want...)
	})
}

func TestPurgeCard_IssuedCard_Once(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		ids := s.issue(2)
		purge := keys.Purge{ID: uuid.Must(uuid.NewV7()), CardUUID: ids[0], Note: "why", Operator: "who"}
		for i, want := range []bool{true, false} {
			if purged, err := s.db.PurgeCard(t.Context(), purge); err != nil || purged != want {
				t.Errorf("time %d: %v, %v", i, purged, err)
			}
		}
		s.wantPurged(ids, true, false)
		r, err := s.db.CardDetail(t.Context(), ids[0])
		check(t, err)
		if len(r.Resolutions) != 1 || r.Resolutions[0].Kind != "purge" || r.Resolutions[0].Note != "why" ||
			r.Resolutions[0].Operator != "who" || r.Credentials {
			t.Errorf("%+v", r.Resolutions)
		}
		s.exec("UPDATE cards SET status = 'awaiting_payment' WHERE uuid = $1", ids[1])
		purge.CardUUID = ids[1]
		_, err = s.db.PurgeCard(t.Context(), purge)
		wantError(t, err, keys.ErrNotIssued)
		purge.CardUUID = uuid.New()
		_, err = s.db.PurgeCard(t.Context(), purge)
		wantError(t, err, card.ErrNoRow)
	})
}

// Lost credentials are a discrepancy. A purge that deletes nothing must not
// hide it by recording a purge.
func TestPurgeCard_LostCredentials_StillReported(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		id := s.issue(1)[0]
		s.exec("DELETE FROM credentials WHERE card_uuid = $1", id)
		if purged, err := s.db.PurgeCard(t.Context(),
			keys.Purge{ID: uuid.Must(uuid.NewV7()), CardUUID: id, Note: "why", Operator: "who"}); err != nil || purged {
			t.Errorf("%v, %v", purged, err)
		}
		c, err := s.db.CardByUUID(t.Context(), s.account, id)
		check(t, err)
		if c.CredentialsPurgedAt != nil {
			t.Error("lost credentials are recorded as purged")
		}
	})
}

func TestCheckRetention_BelowAnHour_ReturnsError(t *testing.T) {
	t.Parallel()
	for retention, ok := range map[time.Duration]bool{0: true, time.Hour: true, 720 * time.Hour: true,
		time.Hour - 1: false, -time.Hour: false} {
		if err := keys.CheckRetention(retention); (err == nil) != ok {
			t.Errorf("%v: %v", retention, err)
		}
	}
}
