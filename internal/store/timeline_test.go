package store_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
)

// The old primary is back, and does not know yet that another one was promoted. What was acknowledged since must not seem to be lost.
func TestSeveralHosts_TheOldPrimaryIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	primary := rig.NewCluster(t)
	standby := primary.Standby(t, "second")
	line := rig.NewLine(t, primary.Host())
	s := openNew(t, "postgres://postgres@"+line.Host()+","+standby.Host()+"/postgres?sslmode=disable")
	owner := newAccount(t, s)
	warm(t, s)
	for deadline := time.Now().Add(10 * time.Second); standby.Value(t, "SELECT count(*) FROM accounts") != "1" && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	line.Down()
	standby.Promote(t)
	c := newCard(owner)
	heals(t, func() error { _, err := s.InsertCard(t.Context(), c); return err })
	line.Up()
	var all sync.WaitGroup
	for range 8 { // more than one session, so that new ones are made
		all.Go(func() {
			for range 20 {
				if _, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID); err != nil && !errors.Is(err, card.ErrUnavailable) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	primary.Stop()
	heals(t, func() error { _, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID); return err })
}
