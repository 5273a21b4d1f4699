package monero_test

import (
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/rig"
)

// Addresses that the Monero project publishes.
const (
	standard   = "4AdUndXHHZ6cfufTMvppY6JwXNouMBzSkbLYfpAV5Usx3skxNgYeYTRj5UzqtReoS44qo9mtmXCqY45DJ852K5Jv2684Rge"
	integrated = "4LL9oSLmtpccfufTMvppY6JwXNouMBzSkbLYfpAV5Usx3skxNgYeYTRj5UzqtReoS44qo9mtmXCqY45DJ852K5Jv2bYXZKKQePHES9khPK"
)

func TestCheckAddress(t *testing.T) {
	const (
		none   = "is not an address of Monero"
		typo   = "is not an address of Monero: its checksum is wrong, so a character is missing or mistyped"
		others = "is an address of none of Monero's networks"
	)
	mainnet, stagenet := rig.MoneroAddress(42, 0, 1), rig.MoneroAddress(36, 0, 1)
	for name, tt := range map[string]struct{ address, ours, want string }{
		"standard":          {standard, mainnet, ""},
		"subaddress":        {rig.MoneroAddress(42, 0, 7), mainnet, ""},
		"integrated":        {integrated, mainnet, ""},
		"no wallet known":   {rig.MoneroAddress(53, 0, 7), "", ""},
		"stagenet, on it":   {rig.MoneroAddress(24, 0, 7), stagenet, ""},
		"wallet of no form": {standard, "7simulated", ""},
		"of another network": {rig.MoneroAddress(36, 0, 7), mainnet,
			"is an address of Monero's stagenet, and payments here are made on its mainnet"},
		"integrated, foreign": {integrated, stagenet,
			"is an address of Monero's mainnet, and payments here are made on its stagenet"},
		"mistyped":              {strings.Replace(standard, "AdUnd", "AdUnb", 1), mainnet, typo},
		"swapped":               {strings.Replace(standard, "XHH", "HXH", 1), mainnet, typo},
		"cut off":               {standard[:94], mainnet, none},
		"with a space":          {standard + " ", mainnet, none},
		"a payment uri":         {"monero:" + standard, mainnet, none},
		"of Bitcoin":            {"bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq", mainnet, none},
		"a name":                {"donate.example.org", mainnet, none},
		"nothing":               {"", mainnet, none},
		"of another coin":       {rig.MoneroAddress(1, 0, 7), mainnet, others},
		"integrated, too short": {rig.MoneroAddress(19, 0, 7), mainnet, none},
	} {
		got := ""
		if err := monero.Coin().CheckAddress(tt.address, tt.ours); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestCheckTxID(t *testing.T) {
	txid := strings.Repeat("0123456789abcdef", 4)
	for text, want := range map[string]bool{txid: true, txid[1:]: false, txid + "0": false, strings.ToUpper(txid): false,
		strings.Replace(txid, "f", "g", 1): false, "": false} {
		if got := monero.Coin().CheckTxID(text) == nil; got != want {
			t.Errorf("%q: accepted: %t", text, got)
		}
	}
}
