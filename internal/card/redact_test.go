package card_test

import (
	"testing"

	"github.com/cardmint/cardmint/internal/card"
)

func TestRedact_RemovesPossibleCardNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "",
		"/note":                                  "/note",
		"/4242424242424242":                      "/[number]",
		"a 4242 4242 4242 4242 b":                "a [number] b",
		"4242-4242-4242-4242":                    "[number]",
		"123456789012":                           "[number]",
		"12345678901":                            "12345678901",
		"x4242424242424242y9900000000000004z":    "x[number]y[number]z",
		"019aa1c9-f868-7cef-8e4e-9b1c97fb1d88":   "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88",
		"choose one of: 50, 100, 150 to 750":     "choose one of: 50, 100, 150 to 750",
		"expected between 50 and 750 US dollars": "expected between 50 and 750 US dollars",
	} {
		if got := card.Redact(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
