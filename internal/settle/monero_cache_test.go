package settle_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
)

var lostAddresses = flag.Int("lost-addresses", 210, "lose a wallet that made so many addresses")

// ownWallet gives the fixture its own monero-wallet-rpc, with the merchant's
// keys, so that the test can damage it. The watcher opens it.
func ownWallet(own **rig.MoneroWallet) func(*moneroFixture) {
	return func(s *moneroFixture) {
		*own = s.net.NewWallet(s.t, "", "")
		s.wallet.Target((*own).URL)
		s.config.WalletFile = "wallet"
	}
}

func TestWatcher_MoneroWalletKilledWhileReading_LosesNothing(t *testing.T) {
	t.Parallel()
	var own *rig.MoneroWallet
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		c, other := s.order(), s.order()
		s.paid(c, coin, few-1)
		s.tick()
		s.paid(other, coin, 1)
		before := s.facts(c, other)
		s.wallet.Before("refresh", func() {
			s.net.Daemon.Freeze(t) // in the middle of the pass
			time.AfterFunc(100*time.Millisecond, own.Kill)
		})
		t.Cleanup(s.net.Daemon.Thaw)
		s.refuses(nil)
		s.net.Daemon.Thaw()
		s.unchanged(before)
		s.refuses(nil) // still missing
		own.Launch(t)  // with no wallet open
		s.recovers()
		s.want(c, card.Generated, card.Paid, coin, s.confirmations(c))
		s.want(other, card.AwaitingPayment, card.Confirming, coin, s.confirmations(other))

		own.Close(t)
		s.tick() // opens it again immediately
		s.wantIssued(1)
		s.wantMoney(ledger{Counted: 2 * coin, Made: coin, Open: coin, Paid: 1, Issued: 1})
	}, fewConfirmations, ownWallet(&own))
}

func TestWatcher_MoneroWalletCacheDamaged_IsRebuilt(t *testing.T) {
	t.Parallel()
	var own *rig.MoneroWallet
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		c, other := s.order(), s.order()
		s.paid(c, coin, few-1)
		s.tick()
		before := s.facts(c, other)
		own.CorruptCache(t)
		s.paid(other, coin, 1)
		s.refuses(card.ErrChainNotReady)
		s.unchanged(before)
		own.DeleteCache(t)          // as the error recommends
		s.later += 20 * time.Second // until wallet and pool are compared again
		s.refuses(card.ErrWalletLost)
		s.unchanged(before)
		s.recovers()
		s.want(c, card.Generated, card.Paid, coin, s.confirmations(c))
		s.want(other, card.AwaitingPayment, card.Confirming, coin, 1)
		s.wantAddress()
		s.wantIssued(1)
		s.wantMoney(ledger{Counted: 2 * coin, Made: coin, Open: coin, Paid: 1, Issued: 1})
	}, fewConfirmations, ownWallet(&own))
}

// highCard returns a card whose address a wallet without its cache does not
// scan for: it scans for the first 200 only.
func (s *moneroFixture) highCard(own *rig.MoneroWallet) *card.Card {
	s.t.Helper()
	for newest := int64(0); newest < int64(*lostAddresses); {
		s.tick()
		pool, err := s.store.AddressPool(s.t.Context(), "monero")
		check(s.t, err)
		newest = pool.Newest.Position
	}
	for {
		c := s.wantAddress()
		var answer struct{ Index struct{ Minor int64 } }
		own.Call(s.t, "get_address_index", map[string]any{"address": c.Address}, &answer)
		if answer.Index.Minor > 260 {
			return c
		}
	}
}

func TestWatcher_MoneroWalletLostAddresses_RestoresThemAndTheirPayments(t *testing.T) {
	t.Parallel()
	var own *rig.MoneroWallet
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		first := s.highCard(own)
		own.LoseCache(t)
		s.paid(first, coin, few)
		// Before wallet and pool are compared again, the pool is filled with
		// addresses in use. A wallet that has made them again has not scanned
		// for their payments.
		for range 8 {
			_ = s.watcher.Tick(t.Context())
		}
		s.later += 20 * time.Second // now the comparison runs
		_ = s.watcher.Tick(t.Context())
		s.recovers()
		s.want(first, card.Generated, card.Paid, coin, few)
		s.wantIssued(1)

		second, other := s.highCard(own), s.order()
		s.paid(other, coin, few-1)
		s.tick()
		before := s.facts(second, other)
		own.LoseCache(t)
		txID := s.paid(second, coin, 1)
		s.later += 20 * time.Second
		s.refuses(card.ErrWalletLost)
		s.unchanged(before)
		started := time.Now()
		s.recovers()
		t.Logf("made at least %d addresses again and looked through %d blocks in %s", *lostAddresses, s.net.Height(t),
			time.Since(started))
		s.want(second, card.AwaitingPayment, card.Confirming, coin, 1)
		s.net.Confirm(t, txID, few)
		s.settle()
		s.want(second, card.Generated, card.Paid, coin, few)
		s.want(other, card.Generated, card.Paid, coin, s.confirmations(other))
		s.wantAddress()
		s.wantIssued(3)
		s.wantMoney(ledger{Counted: 3 * coin, Made: 3 * coin, Paid: 3, Issued: 3})
	}, fewConfirmations, ownWallet(&own), func(s *moneroFixture) { s.pool, s.batch = *lostAddresses+50, 512 })
}

func TestWatcher_MoneroFalseTransfer_UncountedOnlyByOperator(t *testing.T) {
	t.Parallel()
	phantom := true
	var entry map[string]any
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		c := s.order()
		height, at := s.top()
		var index struct{ Index map[string]any }
		s.net.Wallet.Call(t, "get_address_index", map[string]any{"address": c.Address}, &index)
		entry = map[string]any{"address": c.Address, "amount": int64(coin), "confirmations": 1, "double_spend_seen": false,
			"height": height, "locked": true, "subaddr_index": index.Index, "timestamp": at.Unix(),
			"txid": strings.Repeat("ab", 32),
			"type": "in", "unlock_time": 0}
		s.tick()
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 1)
		before := s.facts(c)
		phantom = false // no block has changed
		s.refuses(card.ErrWalletLost)
		s.refuses(card.ErrWalletLost) // it has scanned the whole chain, but possibly from too late a height
		s.unchanged(before)
		check(t, s.store.AskForRescan(t.Context(), "monero", true))
		s.recovers()
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.wantIssued(0)
		s.wantMoney(ledger{})
	}, func(s *moneroFixture) {
		s.wallet.Target(edited(t, s.net.WalletURL, func(method string, result map[string]any) {
			if in, _ := result["in"].([]any); method == "get_transfers" && phantom && entry != nil {
				result["in"] = append(in, entry)
			}
		}))
	})
}
