package server

import (
	"testing"

	"github.com/cardmint/cardmint/openapi"
)

func TestUnknownParameters_NoQueryCostsNothing(t *testing.T) {
	s, err := loadSpec(openapi.YAML)
	if err != nil {
		t.Fatal(err)
	}
	declared := s.routes["GET /api/cards"].Operation.Parameters
	if n := testing.AllocsPerRun(100, func() {
		if unknownParameters("", declared) != nil {
			t.Error("nothing is unknown")
		}
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func FuzzDistance_IsThatOfTheShortestWay(f *testing.F) {
	for _, seed := range [][2]string{{"", ""}, {"a", ""}, {"stauts", "status"}, {"kitten", "sitting"}, {"limit", "limit"}, {"created_at", "created_after"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 14 {
			t.Skip("would take the plain way too long")
		}
		if got, want := distance(a, b), plainDistance(a, b); got != want {
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
