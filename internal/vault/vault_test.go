package vault_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/vault"
)

func newVault(t *testing.T) (*vault.Vault, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.keys")
	if err := vault.Create(path); err != nil {
		t.Fatal(err)
	}
	v, err := vault.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return v, path
}

func TestSeal_OtherPlace_DoesNotOpen(t *testing.T) {
	v, path := newVault(t)
	id, account := uuid.New(), uuid.New()
	sealed, err := v.Seal(id, account, "card_number", "9912345678901232")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, []byte("991234")) {
		t.Error("the ciphertext contains the number")
	}
	again, err := vault.Open(path) // another process with the same file
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Open(id, account, "card_number", sealed); err != nil || got.Reveal() != "9912345678901232" {
		t.Errorf("opened %q, %v", got.Reveal(), err)
	}
	other, _ := newVault(t)
	for name, open := range map[string]func() error{
		"another card":    func() error { _, err := v.Open(uuid.New(), account, "card_number", sealed); return err },
		"another account": func() error { _, err := v.Open(id, uuid.New(), "card_number", sealed); return err },
		"another field":   func() error { _, err := v.Open(id, account, "security_code", sealed); return err },
		"other keys":      func() error { _, err := other.Open(id, account, "card_number", sealed); return err },
		"empty":           func() error { _, err := v.Open(id, account, "card_number", nil); return err },
	} {
		if open() == nil {
			t.Errorf("%s: opened", name)
		}
	}
	for i := range sealed {
		flipped := bytes.Clone(sealed)
		flipped[i] ^= 1
		if _, err := v.Open(id, account, "card_number", flipped); err == nil {
			t.Errorf("opened with byte %d changed", i)
		}
	}
}

// A vault encrypts secrets of cards and webhooks. Errors must name the right
// kind, so that an operator does not look for a card that does not exist.
func TestOpen_Error_NamesField(t *testing.T) {
	v, _ := newVault(t)
	id, account := uuid.New(), uuid.New()
	_, err := v.Open(id, account, "webhook_secret", []byte("damaged"))
	if err == nil || strings.Contains(err.Error(), "card") ||
		!strings.HasPrefix(err.Error(), "open webhook_secret of "+id.String()+":") {
		t.Errorf("a secret of a webhook: %v", err)
	}
	_, err = v.OpenCredentials(id, account, card.Sealed{CardNumber: []byte("damaged")})
	if err == nil || !strings.HasPrefix(err.Error(), "credentials of card "+id.String()+": open card_number of ") {
		t.Errorf("credentials: %v", err)
	}
}

func TestSeal_SameText_DifferentCiphertexts(t *testing.T) {
	v, _ := newVault(t)
	id := uuid.New()
	one, _ := v.Seal(id, id, "f", "text")
	two, err := v.Seal(id, id, "f", "text")
	if err != nil || bytes.Equal(one, two) {
		t.Errorf("equal: %v, error %v", bytes.Equal(one, two), err)
	}
}

func TestDigest_DependsOnKeysAndLabel(t *testing.T) {
	v, path := newVault(t)
	same, err := vault.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := newVault(t)
	digest := func(v *vault.Vault, label, data string) string {
		d, err := v.Digest(label, []byte(data))
		if err != nil || len(d) != 32 {
			t.Fatalf("%d bytes, %v", len(d), err)
		}
		return string(d)
	}
	base := digest(v, "token", "x")
	if digest(same, "token", "x") != base {
		t.Error("not the same in another process")
	}
	for name, d := range map[string]string{"other keys": digest(other, "token", "x"),
		"other label": digest(v, "card number", "x"), "other data": digest(v, "token", "y")} {
		if d == base {
			t.Errorf("%s: the same digest", name)
		}
	}
}

func TestCreate_ExistingFile_ReturnsError(t *testing.T) {
	_, path := newVault(t)
	if err := vault.Create(path); !errors.Is(err, vault.ErrExists) {
		t.Errorf("second time: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := vault.Open(path); !errors.Is(err, vault.ErrPermissions) {
		t.Errorf("readable by others: %v", err)
	}
}

func TestOpen_Error_DoesNotQuoteFile(t *testing.T) {
	for _, text := range []string{"", "canary", `{"encryption":"canary","hashing":"canary"}`,
		`{"encryption":{"key":[{"keyData":{"value":"canary"}}]}}`} {
		path := filepath.Join(t.TempDir(), "x.keys")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := vault.Open(path)
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := vault.Open(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no file: no error")
	}
}
