package card_test

import (
	"testing"

	"github.com/cardmint/cardmint/internal/card"
)

func TestMask_ShowsEndsOfAddress(t *testing.T) {
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

func TestMaskCredentials_OnlyDistinguishesCards(t *testing.T) {
	masked := wellFormed(func(c *card.Credentials) { c.CardNumber = "4242424242421234" }).Mask()
	want := card.Credentials{Masked: true, CardNumber: "************1234", ExpirationDate: "11/26", SecurityCode: "***",
		URL: "https://cards.example/1", URLPassword: "********"}
	if masked != want {
		t.Errorf("number %s, code %s, password %s", masked.CardNumber.Reveal(), masked.SecurityCode.Reveal(),
			masked.URLPassword.Reveal())
	}
	if again := masked.Mask(); again != want {
		t.Errorf("masked again: number %s", again.CardNumber.Reveal())
	}
}

func TestErrScope_NamesScope(t *testing.T) {
	e := card.ErrScope.WithScope("cards:read")
	if e.Scope != "cards:read" ||
		e.Message != `This operation needs the scope "cards:read", which your token does not have. Use a token that has it, or ask the operator for one.` {
		t.Errorf("%q: %s", e.Scope, e.Message)
	}
	if e.Kind != card.Forbidden || e.Code != "insufficient_scope" || card.ErrScope.Scope != "" ||
		card.ErrScope.Message == e.Message {
		t.Errorf("%+v", e)
	}
}
