package account_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
)

// seedVault digests everything to the same bytes, which makes the dev token
// predictable.
type seedVault struct {
	account.Vault
	seed []byte
}

func (s seedVault) Digest(string, []byte) ([]byte, error) { return s.seed, nil }

// The expected texts were computed by another program. A change of digits or
// checksum would invalidate every existing token.
func TestToken_Format_IsStable(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for _, tt := range []struct{ seed, test, live string }{
		{"0000000000000000000000000000000000000000", "cm_test_0000000000000000000000000003o7gbQ",
			"cm_live_0000000000000000000000000001YkmWe"},
		{"0000000000000000000000000000000000000001", "cm_test_0000000000000000000000000013NzCMg",
			"cm_live_0000000000000000000000000010cofc6"},
		{"000000000000000000000000000000000000003d", "cm_test_00000000000000000000000000z1eBKYw",
			"cm_live_00000000000000000000000000z3ZgK3i"},
		{"000000000000000000000000000000000000003e", "cm_test_0000000000000000000000000103w1xej",
			"cm_live_0000000000000000000000000101OUBBp"},
		{"0102030405060708090a0b0c0d0e0f1011121314", "cm_test_08umpsRGMi9hXbwR6pXWz2Ckob63MmgIx",
			"cm_live_08umpsRGMi9hXbwR6pXWz2Ckob60pFRNH"},
		{"ffffffffffffffffffffffffffffffffffffffff", "cm_test_aWgEPTl1tmebfsQzFP4bxwgy80V42TjbZ",
			"cm_live_aWgEPTl1tmebfsQzFP4bxwgy80V1HsgCj"},
	} {
		seed, err := hex.DecodeString(tt.seed + "a5a5a5a5a5a5a5a5a5a5a5a5") // only the first 160 bits count
		check(t, err)
		for mode, want := range map[string]string{card.TestMode: tt.test, card.LiveMode: tt.live} {
			s := d.with(t, seedVault{d.vault, seed}, mode)
			text, err := s.DevToken(t.Context())
			check(t, err)
			if text.Reveal() != want {
				t.Errorf("seed %s: %s, want %s", tt.seed, text.Reveal(), want)
			}
			if _, err := s.Authenticate(t.Context(), want); err != nil {
				t.Errorf("%s is rejected: %v", want, err)
			}
		}
	}
}

func TestCreateToken_Texts_UniqueAndWellFormed(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	seen, leading := map[string]bool{}, map[byte]bool{}
	for range 50 {
		token, text := d.token(t, 0)
		random, is := strings.CutPrefix(text, "cm_test_")
		if !is || len(random) != 33 || strings.Trim(random, digits) != "" || seen[random[:27]] {
			t.Fatalf("token %s", text)
		}
		seen[random[:27]], leading[random[0]] = true, true
		d.accepts(t, token, text, 1)
	}
	if len(leading) < 10 {
		t.Errorf("50 tokens begin with %d different digits: they are not random over their whole length", len(leading))
	}
}

// Malformed tokens must not load the database.
func TestAuthenticate_Malformed_RejectedWithoutLookup(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	_, text := d.token(t, 0)
	for name, malformed := range map[string]string{
		"empty":                                  "",
		"prefix alone":                           "cm_test_",
		"without a prefix":                       text[len("cm_test_"):],
		"unknown mode":                           "cm_prod_" + text[len("cm_test_"):],
		"in capitals":                            "CM_TEST_" + text[len("cm_test_"):],
		"one digit too short":                    text[:len(text)-1],
		"one digit too long":                     text + "0",
		"one digit long, but with its checksum":  "cm_test_00000000000000000000000000002OUWLi",
		"one digit short, but with its checksum": "cm_test_000000000000000000000000001ETyca",
		"a space before it":                      " " + text,
		"a newline after it":                     text + "\n",
		"twice":                                  text + text,
		"nothing but checksum":                   "cm_test_" + text[len(text)-6:],
	} {
		t.Run(name, func(t *testing.T) { d.rejects(t, malformed, 0) })
	}
}

func TestAuthenticate_Mistyped_RejectedWithoutLookup(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, 0)
	for i := range text {
		wrong := []byte(text)
		if wrong[i]++; wrong[i] > 'z' {
			wrong[i] = '0'
		}
		d.rejects(t, string(wrong), 0)
	}
	for i := len("cm_test_"); i < len(text)-1; i++ {
		if text[i] == text[i+1] {
			continue
		}
		swapped := []byte(text)
		swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
		d.rejects(t, string(swapped), 0)
	}
	d.accepts(t, token, text, 1)
}

// A test token must never be valid in a live service, even with the same
// database and keys.
func TestAuthenticate_OtherMode_Rejected(t *testing.T) {
	t.Parallel()
	test := newFixture(t)
	live := *test
	live.Service = test.with(t, test.vault, card.LiveMode)
	testToken, testText := test.token(t, 0)
	liveToken, liveText := live.token(t, 0)
	if !strings.HasPrefix(liveText, "cm_live_") {
		t.Errorf("token of the live mode: %s", liveText)
	}
	test.accepts(t, testToken, testText, 1)
	live.accepts(t, liveToken, liveText, 1)
	test.rejects(t, liveText, 0)
	live.rejects(t, testText, 0)
}

func TestNew_Mode_DefaultsToTest(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for mode, want := range map[string]string{"": "cm_test_", card.TestMode: "cm_test_", card.LiveMode: "cm_live_"} {
		_, text, err := d.with(t, d.vault, mode).CreateToken(t.Context(), "shop",
			account.TokenRequest{Scopes: account.AllScopes})
		check(t, err)
		if !strings.HasPrefix(text.Reveal(), want) {
			t.Errorf("mode %q: %s", mode, text.Reveal())
		}
	}
	for _, mode := range []string{"prod", "Test", "test "} {
		if s, err := account.New(d.store, d.vault, account.Config{Mode: mode}); err == nil || s != nil {
			t.Errorf("mode %q is allowed", mode)
		}
	}
}
