package card_test

import (
	"testing"

	"github.com/cardmint/cardmint/internal/card"
)

func TestMask_ShowsTheEndsOfAnAddress(t *testing.T) {
	for address, want := range map[card.Secret]string{
		"":                                   "",
		"short":                              "...",
		"abcdefghijklmnopqrstuvw":            "...",
		"abcdefghijklmnopqrstuvwx":           "abcdef...stuvwx",
		"1BoatSLRHtKNngkdXEeobR76b53LETtpyT": "1BoatS...ETtpyT",
	} {
		if got := card.Mask(address); got != want {
			t.Errorf("%s: %q, want %q", address.Reveal(), got, want)
		}
	}
}
