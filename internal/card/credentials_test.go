package card_test

import (
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// wellFormed are credentials without a flaw until the end of November 2026.
func wellFormed(change ...func(*card.Credentials)) card.Credentials {
	c := card.Credentials{CardNumber: "4242424242424242", ExpirationDate: "11/26", SecurityCode: "123",
		URL: "https://cards.example/1", URLPassword: "p"}
	for _, f := range change {
		f(&c)
	}
	return c
}

func TestFlaw_FindsEachFault(t *testing.T) {
	const (
		number   = "the supplier gave a card number that is not well formed"
		expiry   = "the supplier gave a card that is expired, or whose expiration date can't be read"
		security = "the supplier gave a security code that is not well formed"
		address  = "the supplier gave a web address that is not https"
		password = "the supplier gave no password for the web address"
	)
	set := func(field func(*card.Credentials) *card.Secret, value string) card.Credentials {
		return wellFormed(func(c *card.Credentials) { *field(c) = card.Secret(value) })
	}
	pan := func(c *card.Credentials) *card.Secret { return &c.CardNumber }
	until := func(c *card.Credentials) *card.Secret { return &c.ExpirationDate }
	code := func(c *card.Credentials) *card.Secret { return &c.SecurityCode }
	url := func(c *card.Credentials) *card.Secret { return &c.URL }
	for name, tt := range map[string]struct {
		credentials card.Credentials
		want        string
	}{
		"well formed":                      {wellFormed(), ""},
		"12 digits":                        {set(pan, "42424242424"+card.LuhnDigit("42424242424")), ""},
		"19 digits":                        {set(pan, "4242424242424242424"), number},
		"19 digits with their check digit": {set(pan, "4242424242424242428"), ""},
		"11 digits":                        {set(pan, "42424242424"), number},
		"20 digits":                        {set(pan, "42424242424242424242"), number},
		"no number":                        {set(pan, ""), number},
		"a wrong check digit":              {set(pan, "4242424242424241"), number},
		"a letter":                         {set(pan, "424242424242424a"), number},
		"a letter before the check digit":  {set(pan, "42424242424a4242"), number},
		"the last month of the past":       {set(until, "10/26"), expiry},
		"this month":                       {set(until, "11/26"), ""},
		"a month that does not exist":      {set(until, "13/26"), expiry},
		"a year first":                     {set(until, "2026-11"), expiry},
		"a code of two":                    {set(code, "12"), security},
		"a code of four":                   {set(code, "1234"), ""},
		"a code of five":                   {set(code, "12345"), security},
		"a code with a letter":             {set(code, "12a"), security},
		"http":                             {set(url, "http://cards.example/1"), address},
		"a script":                         {set(url, "javascript:alert(1)"), address},
		"https without a host":             {set(url, "https:///x"), address},
		"an address that can't be read":    {set(url, "https://cards.example/%zz"), address},
		"no password":                      {wellFormed(func(c *card.Credentials) { c.URLPassword = "" }), password},
	} {
		if got := tt.credentials.Flaw(time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if wellFormed().Flaw(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)) != expiry {
		t.Error("valid after the end of its month")
	}
}

func TestMask_HidesLengths(t *testing.T) {
	for number, want := range map[card.Secret]string{"4242424242424242": "4242", "123456789012": "9012", "123": "123",
		"": ""} {
		if got := card.LastFour(number); got != want {
			t.Errorf("last four of %q are %q", number.Reveal(), got)
		}
	}
	want := card.Credentials{Masked: true, CardNumber: "************4242", ExpirationDate: "11/26", SecurityCode: "***",
		URL: "https://x.invalid", URLPassword: "********"}
	if got := card.MaskCredentials("4242", "11/26", "https://x.invalid"); got != want {
		t.Errorf("%q %q %q", got.CardNumber.Reveal(), got.SecurityCode.Reveal(), got.URLPassword.Reveal())
	}
}
