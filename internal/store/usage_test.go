package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/rig"
)

func TestUsage_IsThatOfTheOthersThatLive(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		want := func(process string, want map[string]string) {
			t.Helper()
			got, err := s.UsageOfOthers(t.Context(), process, time.Minute)
			check(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		want("a", map[string]string{})
		for range 2 { // repeating is harmless
			check(t, s.SaveUsage(t.Context(), "a", "[1]"))
			check(t, s.SaveUsage(t.Context(), "b", "[2]"))
			check(t, s.SaveUsage(t.Context(), "c", "[3]"))
		}
		check(t, s.SaveUsage(t.Context(), "b", "[4]"))
		want("a", map[string]string{"b": "[4]", "c": "[3]"})
		want("x", map[string]string{"a": "[1]", "b": "[4]", "c": "[3]"})
		age(t, url, "b", 2*time.Minute)
		age(t, url, "c", 2*time.Hour)
		want("x", map[string]string{"a": "[1]"})
		for range 2 {
			check(t, s.DeleteUsage(t.Context(), "a"))
		}
		got, err := s.UsageOfOthers(t.Context(), "x", 100*time.Hour)
		check(t, err)
		if diff := cmp.Diff(map[string]string{"b": "[4]"}, got); diff != "" {
			t.Errorf("remaining: %s", diff)
		}
	})
}

// age backdates the usage that a process stored.
func age(t *testing.T, url, process string, by time.Duration) {
	t.Helper()
	_, err := rig.OpenSQL(t, url).Exec("UPDATE request_usage SET saved_at = saved_at - $1 WHERE process = $2",
		by.Milliseconds(), process)
	check(t, err)
}
