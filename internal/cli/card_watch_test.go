package cli

import (
	"strings"
	"testing"

	"github.com/cardmint/cardmint/client"
)

func TestCardWatch_RealCard_IsMaskedUnlessRevealed(t *testing.T) {
	issued := &client.Card{Status: client.CardStatusGenerated, Credentials: client.Credentials{
		CardNumber: "4111111111111111", SecurityCode: "123", ExpirationDate: "11/29", URLPassword: "secret"}}
	for _, tt := range []struct {
		token  string
		reveal bool
		want   string
	}{
		{"cm_live_x", false, "************1111 *** ******"},
		{"cm_live_x", true, "4111111111111111 123 secret"},
		{"cm_test_x", false, "4111111111111111 123 secret"},
	} {
		c := cardWatchCommand{apiFlags: apiFlags{Token: tt.token}, Reveal: tt.reveal}
		shown, err := c.credentials(t.Context(), nil, issued)
		if err != nil {
			t.Fatal(err)
		}
		k := shown.Credentials
		if got := strings.Join([]string{k.CardNumber, k.SecurityCode, k.URLPassword}, " "); got != tt.want {
			t.Errorf("%s, reveal %t: %s", tt.token, tt.reveal, got)
		}
	}
	if issued.Credentials.SecurityCode != "123" {
		t.Error("the card was changed")
	}
}

func TestDevState_OtherAddress_GetsNoToken(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("CARDMINT_TOKEN", "")
	remove, err := devState{URL: "http://127.0.0.1:9", Token: "cm_test_x"}.write()
	if err != nil {
		t.Fatal(err)
	}
	a := apiFlags{URL: "http://127.0.0.1:9"}
	if _, err := a.open(); err != nil || a.Token != "cm_test_x" {
		t.Errorf("token %q, error %v", a.Token, err)
	}
	b := apiFlags{URL: "https://cards.example.com"}
	if _, err := b.open(); err == nil || b.Token != "" {
		t.Errorf("token %q, error %v", b.Token, err)
	}
	c := apiFlags{Token: "cm_test_y"}
	if _, err := c.open(); err != nil || c.URL != defaultURL {
		t.Errorf("address %q, error %v", c.URL, err)
	}
	later := devState{URL: "http://127.0.0.1:10", Token: "cm_test_z"}
	removeLater, err := later.write()
	if err != nil {
		t.Fatal(err)
	}
	remove() // of a process that ends after another one has started
	if now, err := readDevState(); err != nil || now != later {
		t.Errorf("%+v, error %v", now, err)
	}
	removeLater()
	if _, err := readDevState(); err == nil {
		t.Error("the state is left")
	}
}
