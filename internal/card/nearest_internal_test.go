package card_test

import (
	"testing"

	"github.com/cardmint/cardmint/internal/card"
)

func FuzzDistance_IsThatOfTheShortestWay(f *testing.F) {
	for _, seed := range [][2]string{{"", ""}, {"a", ""}, {"stauts", "status"}, {"kitten", "sitting"},
		{"limit", "limit"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 14 {
			return // the plain way would take too long
		}
		if got, want := card.Distance(a, b), plainDistance(a, b); got != want {
			t.Errorf("from %q to %q: %d, want %d", a, b, got, want)
		}
	})
}

// plainDistance tries every way.
func plainDistance(a, b string) int {
	switch {
	case a == "" || b == "":
		return len(a) + len(b)
	case a[0] == b[0]:
		return plainDistance(a[1:], b[1:])
	}
	return 1 + min(plainDistance(a[1:], b[1:]), plainDistance(a[1:], b), plainDistance(a, b[1:]))
}
