package app

import (
	"slices"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
)

func TestWebConfig_Origins_AreAsBrowsersSendThem(t *testing.T) {
	for _, x := range []struct {
		given, want string // "" if it is refused
	}{
		{"https://shop.example", "https://shop.example"},
		{"HTTPS://Shop.Example", "https://shop.example"},
		{"https://shop.example:443", "https://shop.example"},
		{"http://localhost:3000", "http://localhost:3000"},
		{"https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"},
		{"*", ""}, {"https://*", ""}, {"https://*.shop.example", ""}, {"null", ""}, {"", ""}, {"shop.example", ""},
		{"https://", ""}, {"https://:8443", ""},
		{"https://shop.example/", ""}, {"https://shop.example/x", ""}, {"https://shop.example?x", ""},
		{"https://shop.example#x", ""},
		{"https://me@shop.example", ""}, {"ftp://shop.example", ""}, {"https://shop.example:", ""},
		{"https://shop.example:x", ""},
	} {
		f := WebConfig{CORSOrigins: []string{"https://other.example", x.given}}
		err := f.validate(card.TestMode)
		if (err == nil) != (x.want != "") || err == nil &&
			!slices.Equal(f.CORSOrigins, []string{"https://other.example", x.want}) {
			t.Errorf("--cors-origins %s: %v, %v", x.given, f.CORSOrigins, err)
		}
	}
	for _, x := range []struct{ given, mode, want string }{
		{"https://cards.example/", card.LiveMode, "https://cards.example"},
		{"http://cards.example", card.TestMode, "http://cards.example"},
		{"http://cards.example", card.LiveMode, ""},
		{"https://cards.example/api", card.TestMode, ""},
	} {
		f := WebConfig{PublicURL: x.given}
		if err := f.validate(x.mode); (err == nil) != (x.want != "") || err == nil && f.PublicURL != x.want {
			t.Errorf("--public-url %s in %s mode: %s, %v", x.given, x.mode, f.PublicURL, err)
		}
	}
}
