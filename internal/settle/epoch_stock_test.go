package settle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
)

// Cards in stock may have been issued in the period that a database lost.
// Without a loss, none were, however long the pause.
func TestWatcher_DatabaseWentBack_HoldsStock(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		restored bool
		wallet   func(saved, now *fakeWallet) *fakeWallet
		want     card.StockState
	}{
		"restored":                      {true, func(saved, _ *fakeWallet) *fakeWallet { return saved }, card.StockHeld},
		"the wallet knows a later time": {false, func(_, now *fakeWallet) *fakeWallet { return now }, card.StockHeld},
		"a long pause":                  {false, func(saved, _ *fakeWallet) *fakeWallet { return saved }, card.StockFree},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newDeployment(t)
			b.pass()
			item := card.StockItem{ID: uuid.New(), Supplier: "shelf", USD: 1, ExpiresAt: time.Now(), NumberHash: []byte("1"),
				Sealed: &card.Sealed{}}
			check(t, b.store.ImportStock(t.Context(), func(add func([]card.StockItem) error) error {
				return add([]card.StockItem{item})
			}))
			copied, wallet := b.backup(), *b.wallet
			b.sell(30, map[string]bool{})
			check(t, b.store.Close())
			older(t, copied, 6*time.Minute)
			if tt.restored {
				_, err := rig.OpenSQL(t,
					"sqlite:"+copied).Exec(
					fmt.Sprintf("INSERT INTO settings (name, value) VALUES ('restored_at', '%d')", time.Now().UnixMilli()))
				check(t, err)
			}
			saved := &fakeWallet{made: wallet.made, beacon: aged(wallet.kept, 6*time.Minute),
				kept: aged(wallet.kept, 6*time.Minute)}
			again := openDeployment(t, copied, tt.wallet(saved, b.wallet), b.account)
			again.pass()
			beside, epochs := rig.OpenSQL(t, "sqlite:"+copied), 0
			for tries := 0; epochs < 2 && tries < 5000; tries++ { // first it skips addresses
				check(t, again.watcher.Tick(t.Context()))
				check(t, beside.QueryRow("SELECT COUNT(*) FROM epochs").Scan(&epochs))
			}
			if epochs < 2 {
				t.Fatal("no epoch began")
			}
			counts, err := again.store.StockCounts(t.Context())
			check(t, err)
			if len(counts) != 1 || counts[0].State != tt.want {
				t.Errorf("%+v, want %s", counts, tt.want)
			}
		})
	}
}
