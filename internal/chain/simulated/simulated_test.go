package simulated_test

import (
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/chain/simulated"
	"github.com/cardmint/cardmint/internal/rig"
)

// Addresses that the Monero project publishes.
const (
	standard   = "4AdUndXHHZ6cfufTMvppY6JwXNouMBzSkbLYfpAV5Usx3skxNgYeYTRj5UzqtReoS44qo9mtmXCqY45DJ852K5Jv2684Rge"
	integrated = "4LL9oSLmtpccfufTMvppY6JwXNouMBzSkbLYfpAV5Usx3skxNgYeYTRj5UzqtReoS44qo9mtmXCqY45DJ852K5Jv2bYXZKKQePHES9khPK"
)

func TestCheckAddress_AcceptsRealAddresses(t *testing.T) {
	own := "7" + strings.Repeat("x", 94)
	accepts := simulated.CheckAddress(monero.Coin().CheckAddress)
	for address, want := range map[string]bool{
		own: true, standard: true, integrated: true, rig.MoneroAddress(36, 0, 7): true,
		own + "x": false, own[:94]: false, strings.Replace(own, "x", "0", 1): false, standard[:94]: false,
		"": false,
	} {
		if got := accepts(address, own) == nil; got != want {
			t.Errorf("%q: accepted: %t", address, got)
		}
	}
}
