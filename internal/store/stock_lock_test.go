package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
)

func TestTakeStock_AnItemThatSomebodyLooksAtIsNotOutOfStock(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t) // SQLite has one writer
	s := open(t, url)
	stockUp(t, s, 1)
	// an order that is about to be refused: its key is taken, or too much is
	// open
	other, err := rig.OpenSQL(t, url).Begin()
	check(t, err)
	_, err = other.Exec("SELECT id FROM stock WHERE state = 'free' FOR NO KEY UPDATE")
	check(t, err)
	_, err = s.TakeStock(t.Context(), shelf, uuid.New(), 150_50, epoch)
	if errors.Is(err, card.ErrOutOfStock) {
		t.Error("an item is free, and the supplier clearly declines:", err)
	}
	check(t, other.Rollback())
	_, err = s.TakeStock(t.Context(), shelf, uuid.New(), 150_50, epoch)
	check(t, err)
	wantStock(t, s, 0, 0, 1, 0)
}

// The item is taken by an attempt whose COMMIT takes longer than the attempt.
func TestTakeStock_AnItemTakenLateIsNotLost(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t) // SQLite has one writer
	s := open(t, url)
	stockUp(t, s, 1)
	id := uuid.New()
	first, err := rig.OpenSQL(t, url).Begin()
	check(t, err)
	_, err = first.Exec("UPDATE stock SET state = 'issued', card_uuid = $1 WHERE state = 'free'", id)
	check(t, err)
	_, err = s.TakeStock(t.Context(), shelf, id, 150_50, epoch)
	check(t, first.Commit())
	if errors.Is(err, card.ErrOutOfStock) {
		t.Error("clearly declined, and issued nevertheless")
	}
}
