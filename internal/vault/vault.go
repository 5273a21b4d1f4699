// Package vault encrypts card credentials at rest and makes keyed hashes.
//
// It may import package card and the actors whose Vault it implements. Keys are Tink keysets in one file: AES256-GCM for encryption,
// HMAC-SHA256 as a pseudorandom function for hashes. Losing the file means losing the credentials of every card.
//
// What is encrypted, each value bound to its row and its account:
//
//   - credentials: card_number, expiration_date, security_code, url, url_password, by the card's uuid
//   - cards: refund_address, by the card's uuid
//   - webhooks: secret and old_secret, both as webhook_secret, by the webhook's id
package vault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/google/uuid"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/prf"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/webhook"
)

// Vault encrypts, decrypts and hashes with the keys of one file. It is safe for concurrent use.
type Vault struct {
	aead tink.AEAD
	prf  *prf.Set
}

var (
	_ account.Vault = (*Vault)(nil)
	_ issue.Vault   = (*Vault)(nil)
	_ order.Vault   = (*Vault)(nil)
	_ webhook.Vault = (*Vault)(nil)
)

// keyFile is the content of a key file: two Tink keysets in Tink's JSON format.
type keyFile struct {
	Encryption json.RawMessage `json:"encryption"`
	Hashing    json.RawMessage `json:"hashing"`
}

// Errors that callers distinguish.
var (
	ErrExists      = errors.New("key file already exists")
	ErrPermissions = errors.New("key file can be read by others than its owner")
)

// Create writes new keys to a file that only its owner may read. It never overwrites a file: the error is then ErrExists.
func Create(path string) error {
	encryption, err := newKeyset(aead.AES256GCMKeyTemplate())
	if err != nil {
		return err
	}
	hashing, err := newKeyset(prf.HMACSHA256PRFKeyTemplate())
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(keyFile{encryption, hashing}, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s", ErrExists, path)
	}
	if err != nil {
		return fmt.Errorf("create key file: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	// The keys must be on the disk before anything is encrypted with them.
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write key file: %w", err)
	}
	return nil
}

// Open reads a key file. The error is ErrPermissions if others than its owner may read it.
func Open(path string) (*Vault, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open key file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s", ErrPermissions, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	var file keyFile
	if json.Unmarshal(text, &file) != nil {
		return nil, fmt.Errorf("key file %s: not made by keys create", path) // without the cause, which could quote a key
	}
	encryption, err := readKeyset(file.Encryption)
	if err != nil {
		return nil, fmt.Errorf("key file %s: encryption keys can't be read", path)
	}
	hashing, err := readKeyset(file.Hashing)
	if err != nil {
		return nil, fmt.Errorf("key file %s: hashing keys can't be read", path)
	}
	v := &Vault{}
	if v.aead, err = aead.New(encryption); err != nil {
		return nil, fmt.Errorf("key file %s: encryption keys: %w", path, err)
	}
	if v.prf, err = prf.NewPRFSet(hashing); err != nil {
		return nil, fmt.Errorf("key file %s: hashing keys: %w", path, err)
	}
	return v, nil
}

// Seal implements webhook.Vault and order.Vault. The ciphertext is bound to id, account and field.
func (v *Vault) Seal(id, account uuid.UUID, field string, plaintext card.Secret) ([]byte, error) {
	ciphertext, err := v.aead.Encrypt([]byte(plaintext.Reveal()), associatedData(id, account, field))
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", field, err)
	}
	return ciphertext, nil
}

// Open implements webhook.Vault and order.Vault.
func (v *Vault) Open(id, account uuid.UUID, field string, ciphertext []byte) (card.Secret, error) {
	plaintext, err := v.aead.Decrypt(ciphertext, associatedData(id, account, field))
	if err != nil {
		return "", fmt.Errorf("open %s of %s: %w", field, id, err)
	}
	return card.Secret(plaintext), nil
}

// Digest implements account.Vault, issue.Vault and order.Vault.
func (v *Vault) Digest(label string, data []byte) ([]byte, error) {
	digest, err := v.prf.ComputePrimaryPRF(append([]byte(label+"\x00"), data...), 32)
	if err != nil {
		return nil, fmt.Errorf("digest %s: %w", label, err)
	}
	return digest, nil
}

// associatedData binds a ciphertext to its place, so that it can't be decrypted anywhere else.
func associatedData(id, account uuid.UUID, field string) []byte {
	return []byte("cardmint/1/" + account.String() + "/" + id.String() + "/" + field)
}

func newKeyset(template *tinkpb.KeyTemplate) (json.RawMessage, error) {
	handle, err := keyset.NewHandle(template)
	if err != nil {
		return nil, fmt.Errorf("make keys: %w", err)
	}
	var text bytes.Buffer
	// Not encrypted: the file itself is the secret. A key management service would wrap the keysets here.
	if err := insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&text)); err != nil {
		return nil, fmt.Errorf("make keys: %w", err)
	}
	return text.Bytes(), nil
}

func readKeyset(text json.RawMessage) (*keyset.Handle, error) {
	return insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(text)))
}
