package supplier_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/supplier"
)

func TestSandbox_TheSameKeyYieldsTheSameCard(t *testing.T) {
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	key := uuid.NewString()
	one, err := supplier.NewSandbox(clock).Issue(t.Context(), key, 50_00)
	if err != nil {
		t.Fatal(err)
	}
	two, err := supplier.NewSandbox(clock).Issue(t.Context(), key, 50_00)
	if err != nil || one != two {
		t.Errorf("differs from the first (%v)", err)
	}
}

func TestSandbox_CardsAreWellFormedAndNeverReal(t *testing.T) {
	now := time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC)
	s := supplier.NewSandbox(func() time.Time { return now })
	seen := map[string]bool{}
	for range 2000 {
		c, err := s.Issue(t.Context(), uuid.NewString(), 50_00)
		if err != nil {
			t.Fatal(err)
		}
		number := c.CardNumber.Reveal()
		if !regexp.MustCompile(`^99\d{14}$`).MatchString(number) || card.LuhnDigit(number[:15]) != number[15:] {
			t.Errorf("number %s", number)
		}
		if seen[number] {
			t.Errorf("number %s twice", number)
		}
		seen[number] = true
		if c.ExpirationDate.Reveal() != "11/29" {
			t.Errorf("expires %s", c.ExpirationDate.Reveal())
		}
		if !regexp.MustCompile(`^\d{3}$`).MatchString(c.SecurityCode.Reveal()) {
			t.Errorf("code %s", c.SecurityCode.Reveal())
		}
		if !regexp.MustCompile(`^https://sandbox\.invalid/cards/[a-z2-7]{16}$`).MatchString(c.URL.Reveal()) || len(c.URLPassword) != 16 {
			t.Errorf("url %s", c.URL.Reveal())
		}
	}
}
