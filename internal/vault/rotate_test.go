package vault_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/vault"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got error %v, want %v", got, want)
	}
}

// keyOf returns the key of a ciphertext.
func keyOf(t *testing.T, ciphertext []byte) card.KeyID {
	t.Helper()
	key, named := card.KeyOf(ciphertext)
	if !named {
		t.Fatalf("%x contains no key", ciphertext)
	}
	return key
}

func TestRotation_NewPrimaryKey_SealsNewData(t *testing.T) {
	v, path := newVault(t)
	id := uuid.New()
	seal := func() []byte {
		t.Helper()
		sealed, err := v.Seal(id, id, "f", "text")
		check(t, err)
		return sealed
	}
	opens := func(sealed []byte) {
		t.Helper()
		if plain, err := v.Open(id, id, "f", sealed); err != nil || plain.Reveal() != "text" {
			t.Errorf("opened %q, %v", plain.Reveal(), err)
		}
	}
	older, first := seal(), v.Keys().Primary
	digest, err := v.Digest("token", []byte("x"))
	check(t, err)

	added, err := vault.AddKey(path)
	check(t, err)
	check(t, v.Reread())
	if keys := v.Keys(); keys.Primary != first || !slices.Equal(keys.IDs, []card.KeyID{first, added}) ||
		keys.Created[added].IsZero() || keys.Created[first].IsZero() {
		t.Fatalf("%+v after %s was added to %s", keys, added, first)
	}
	if key := keyOf(t, seal()); key != first {
		t.Errorf("sealed with %s before it was promoted", key)
	}

	check(t, vault.PromoteKey(path, added))
	check(t, v.Reread())
	newer := seal()
	if key := keyOf(t, newer); key != added || !bytes.Equal(newer[:5], added.Prefix()) {
		t.Errorf("sealed with %s, which is not promoted", key)
	}
	opens(older)
	opens(newer)
	resealed, err := v.Reseal(id, id, []string{"f"}, [][]byte{older})
	check(t, err)
	if key := keyOf(t, resealed[0]); key != added {
		t.Errorf("resealed with %s", key)
	}
	opens(resealed[0])

	wantError(t, vault.RetireKey(path, added), vault.ErrIsPrimary)
	check(t, vault.RetireKey(path, first))
	check(t, v.Reread())
	opens(newer)
	opens(resealed[0])
	// A row that is rolled back to a version under a retired key fails closed.
	if _, err := v.Open(id, id, "f", older); !errors.Is(err, card.ErrUnavailable) {
		t.Errorf("opened a ciphertext of a retired key: %v", err)
	}
	wantError(t, vault.RetireKey(path, first), vault.ErrNoKey)
	wantError(t, vault.PromoteKey(path, first), vault.ErrNoKey)
	if again, err := v.Digest("token", []byte("x")); err != nil || !bytes.Equal(again, digest) {
		t.Errorf("the rotation changed a hash: %v", err)
	}
}

// A ciphertext with a key that this process has not read yet makes the vault
// read the file immediately. While the file lacks the key, the error is
// ErrUnavailable, not corruption.
func TestOpen_KeyAddedLater(t *testing.T) { synctest.Test(t, testKeyAddedLater) }

func testKeyAddedLater(t *testing.T) {
	v, path := newVault(t)
	other := filepath.Join(t.TempDir(), "other.keys")
	text, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(other, text, 0o600))
	added, err := vault.AddKey(other)
	check(t, err)
	check(t, vault.PromoteKey(other, added))
	ahead, err := vault.Open(other)
	check(t, err)
	id := uuid.New()
	sealed, err := ahead.Seal(id, id, "f", "text")
	check(t, err)

	_, err = v.Open(id, id, "f", sealed)
	wantError(t, err, card.ErrUnavailable)
	if strings.Contains(err.Error(), "text") || !strings.Contains(err.Error(), added.String()) {
		t.Errorf("%v", err)
	}
	_, err = v.OpenCredentials(id, id, card.Sealed{CardNumber: sealed})
	wantError(t, err, card.ErrUnavailable)
	if met := v.UnknownKeys(); !slices.Equal(met, []card.KeyID{added}) {
		t.Errorf("met %v", met)
	}
	// The key exists in no process: a bit of the ciphertext has flipped.
	v.MarkNonexistent([]card.KeyID{added})
	if _, err = v.Open(id, id, "f", sealed); err == nil || errors.Is(err, card.ErrUnavailable) {
		t.Errorf("corrupt: %v", err)
	}
	if met := v.UnknownKeys(); len(met) != 0 {
		t.Errorf("still unknown: %v", met)
	}

	text, err = os.ReadFile(other)
	check(t, err)
	check(t, os.WriteFile(path, text, 0o600))
	time.Sleep(time.Second - 1)
	if _, err = v.Open(id, id, "f", sealed); err == nil {
		t.Error("the file was read twice within a second")
	}
	time.Sleep(time.Nanosecond)
	if plain, err := v.Open(id, id, "f", sealed); err != nil || plain.Reveal() != "text" {
		t.Errorf("after the file has the key: %v", err)
	}
	// A ciphertext that a known key can't open is corrupt.
	flipped := bytes.Clone(sealed)
	flipped[7] ^= 1
	if _, err = v.Open(id, id, "f", flipped); err == nil || errors.Is(err, card.ErrUnavailable) {
		t.Errorf("flipped: %v", err)
	}
}

// Every unknown key is remembered, so that other processes can be asked for it.
// Corrupt ciphertexts, which may contain any key, can't fill the memory: after
// a thousand, the set is cleared.
func TestUnknownKeys_Thousand_AllKept(t *testing.T) {
	v, _ := newVault(t)
	id, met := uuid.New(), 0
	for _, tt := range []struct{ named, want int }{{1, 1}, {2, 2}, {1000, 1000}, {1001, 1}} {
		for ; met < tt.named; met++ {
			unknown := v.Keys().Primary ^ card.KeyID(met+1)
			if _, err := v.Open(id, id, "f", append(unknown.Prefix(), "sealed"...)); !errors.Is(err, card.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if got := len(v.UnknownKeys()); got != tt.want {
			t.Errorf("after %d keys, %d are unknown, want %d", tt.named, got, tt.want)
		}
	}
}

func TestReread_InvalidFile_ChangesNothing(t *testing.T) {
	v, path := newVault(t)
	other, otherPath := newVault(t)
	foreign, err := os.ReadFile(otherPath)
	check(t, err)
	good, err := os.ReadFile(path)
	check(t, err)
	id := uuid.New()
	sealed, err := v.Seal(id, id, "f", "text")
	check(t, err)
	for name, f := range map[string]func() error{
		"missing":   func() error { return os.Remove(path) },
		"empty":     func() error { return os.WriteFile(path, nil, 0o600) },
		"truncated": func() error { return os.WriteFile(path, good[:len(good)/2], 0o600) },
		"canary": func() error {
			return os.WriteFile(path, []byte(`{"encryption":"canary","hashing":"canary"}`), 0o600)
		},
		"other hashing":   func() error { return os.WriteFile(path, foreign, 0o600) },
		"readable by all": func() error { return errors.Join(os.WriteFile(path, good, 0o600), os.Chmod(path, 0o640)) },
	} {
		check(t, f())
		if err := v.Reread(); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
		if plain, err := v.Open(id, id, "f", sealed); err != nil || plain.Reveal() != "text" {
			t.Errorf("%s: %v", name, err)
		}
		if again, err := v.Seal(id, id, "f", "text"); err != nil || keyOf(t, again) == other.Keys().Primary {
			t.Errorf("%s: %v", name, err)
		}
		check(t, errors.Join(os.RemoveAll(path), os.WriteFile(path, good, 0o600)))
		check(t, v.Reread())
	}
}

// A killed command leaves either the old file or the new one, never a part of
// it.
func TestChange_Interrupted_ReturnsError(t *testing.T) {
	_, path := newVault(t)
	before, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(path+".new", before[:20], 0o600))
	_, err = vault.AddKey(path)
	wantError(t, err, vault.ErrInUse)
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file changed: %v", err)
	}
	check(t, os.Remove(path+".new"))
	_, err = vault.AddKey(path)
	check(t, err)
	info, err := os.Stat(path)
	check(t, err)
	if left, _ := filepath.Glob(path + ".*"); info.Mode().Perm() != 0o600 || len(left) > 0 {
		t.Errorf("mode %v, left %v", info.Mode(), left)
	}
	check(t, os.Chmod(path, 0o644))
	_, err = vault.AddKey(path)
	wantError(t, err, vault.ErrPermissions)
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestChange_Symlink_Followed(t *testing.T) {
	v, path := newVault(t)
	link := filepath.Join(t.TempDir(), "link.keys")
	check(t, os.Symlink(path, link))
	added, err := vault.AddKey(link)
	check(t, err)
	check(t, v.Reread())
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 || !v.Keys().Has(added) {
		t.Errorf("the link was replaced: %v", err)
	}
}

// Versions without rotation wrote files without the creation times of keys.
func TestOpen_FileOfOldVersion(t *testing.T) {
	_, path := newVault(t)
	var file map[string]json.RawMessage
	text, err := os.ReadFile(path)
	check(t, err)
	check(t, json.Unmarshal(text, &file))
	delete(file, "created")
	text, err = json.Marshal(file)
	check(t, err)
	check(t, os.WriteFile(path, text, 0o600))
	added, err := vault.AddKey(path)
	check(t, err)
	v, err := vault.Open(path)
	check(t, err)
	if keys := v.Keys(); len(keys.IDs) != 2 || len(keys.Created) != 1 || keys.Created[added].IsZero() {
		t.Errorf("%+v", keys)
	}
}

func TestSealCredentials_AllFields_SameKey(t *testing.T) {
	v, _ := newVault(t)
	id, account := uuid.New(), uuid.New()
	plain := card.Credentials{CardNumber: "9912345678901232", ExpirationDate: "11/29", SecurityCode: "123",
		URL: "https://x.invalid", URLPassword: "p"}
	sealed, err := v.SealCredentials(id, account, plain)
	check(t, err)
	all := [][]byte{sealed.CardNumber, sealed.ExpirationDate, sealed.SecurityCode, sealed.URL, sealed.URLPassword}
	for _, text := range all {
		if keyOf(t, text) != v.Keys().Primary {
			t.Errorf("sealed with %s", keyOf(t, text))
		}
	}
	if opened, err := v.OpenCredentials(id, account, sealed); err != nil || opened != plain {
		t.Errorf("%v", err)
	}

	want := card.Credentials{Masked: true, CardNumber: "************1232", ExpirationDate: "11/29", SecurityCode: "***",
		URL: "https://x.invalid", URLPassword: "********"}
	masked, err := v.MaskCredentials(id, account,
		card.Sealed{ExpirationDate: sealed.ExpirationDate, URL: sealed.URL, LastFour: sealed.LastFour})
	if err != nil || masked != want { // masking does not decrypt the number
		t.Errorf("masked %q, %v", masked.CardNumber.Reveal(), err)
	}
	older := sealed
	older.LastFour, older.SecurityCode, older.URLPassword = "", nil, nil
	if masked, err = v.MaskCredentials(id, account, older); err != nil || masked != want {
		t.Errorf("masked %q, %v", masked.CardNumber.Reveal(), err)
	}
	older.CardNumber = nil
	if _, err = v.MaskCredentials(id, account, older); err == nil {
		t.Error("masked a number that can't be decrypted")
	}
}

// Tink chooses random nonces of 96 bits; among a million, two are equal with a
// probability of 10^-17.
func TestSeal_NoNonceTwice(t *testing.T) {
	v, _ := newVault(t)
	id, seen := uuid.New(), make(map[string]bool, 100_000)
	for range 100_000 {
		sealed, err := v.Seal(id, id, "f", "1")
		check(t, err)
		nonce := string(sealed[5:17])
		if seen[nonce] {
			t.Fatalf("nonce %x twice", nonce)
		}
		seen[nonce] = true
	}
}

// A suspended process may resume before its loops do. It must not encrypt with
// a key that was retired in between.
func TestSeal_OldKeys_FileReadFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, path := newVault(t)
		first, id := v.Keys().Primary, uuid.New()
		added, err := vault.AddKey(path)
		check(t, err)
		check(t, vault.PromoteKey(path, added))
		early, err := v.Seal(id, id, "f", "text")
		check(t, err)
		if key := keyOf(t, early); key != first {
			t.Errorf("sealed with %s", key)
		}
		time.Sleep(5*time.Second + 1)
		check(t, vault.RetireKey(path, first))
		sealed, err := v.SealCredentials(id, id, card.Credentials{CardNumber: "1234"})
		check(t, err)
		if key := keyOf(t, sealed.URLPassword); key != added || v.Keys().Has(first) {
			t.Errorf("sealed with %s", key)
		}
	})
}
