package card

import "testing"

func FuzzDistance_EqualsRecursion(f *testing.F) {
	for _, seed := range [][2]string{{"", ""}, {"a", ""}, {"stauts", "status"}, {"kitten", "sitting"},
		{"limit", "limit"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 14 {
			return // the recursion would take too long
		}
		if got, want := distance(a, b), recursiveDistance(a, b); got != want {
			t.Errorf("from %q to %q: %d, want %d", a, b, got, want)
		}
	})
}

// recursiveDistance tries every edit.
func recursiveDistance(a, b string) int {
	switch {
	case a == "" || b == "":
		return len(a) + len(b)
	case a[0] == b[0]:
		return recursiveDistance(a[1:], b[1:])
	}
	return 1 + min(recursiveDistance(a[1:], b[1:]), recursiveDistance(a[1:], b), recursiveDistance(a, b[1:]))
}
