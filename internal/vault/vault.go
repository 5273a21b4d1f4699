// Package vault encrypts card credentials at rest and computes keyed hashes.
//
// It may import package card and the actors whose Vault it implements. The keys
// are Tink keysets in one file: AES256-GCM for encryption, HMAC-SHA256 as a
// pseudorandom function for hashes. Without the file, the credentials of all
// cards are lost. The hashing key never changes, because hashes can't be
// computed again from stored data: with another key no token would be
// recognized, and a card number could be given out twice. The file is replaced
// atomically: after a crash it is the old one or the new one.
//
// Encrypted fields, each bound to its row and its account:
//
//   - credentials: card_number, expiration_date, security_code, url, url_password, by the card's uuid
//   - cards: refund_address, by the card's uuid
//   - webhooks: secret and old_secret, both as webhook_secret, by the webhook's id
//   - stock: the same fields as of credentials until they are wiped, by the item's id and no account
package vault

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/prf"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/webhook"
)

// Vault encrypts, decrypts and hashes with the keys of one file. It follows
// changes of the file's encryption keys. It is safe for concurrent use.
type Vault struct {
	path    string
	keys    atomic.Pointer[keySet]
	reading sync.Mutex
	readAt  atomic.Int64 // of the file, in Unix nanoseconds
	retired atomic.Pointer[[]card.KeyID]
	fileErr atomic.Pointer[error] // of the last read of the file; nil if it succeeded

	mu sync.Mutex
	// unknown are keys that a ciphertext names and the file lacks; true if no
	// process has the key.
	unknown map[card.KeyID]bool
}

// keySet is the parsed content of a key file.
type keySet struct {
	text  [sha256.Size]byte // of the file
	aead  tink.AEAD
	prf   *prf.Set
	check []byte // identifies the hashing keys
	keys.Ring
}

var (
	_ account.Vault = (*Vault)(nil)
	_ keys.Vault    = (*Vault)(nil)
	_ issue.Vault   = (*Vault)(nil)
	_ order.Vault   = (*Vault)(nil)
	_ webhook.Vault = (*Vault)(nil)
)

// keyFile is the JSON of a key file: two Tink keysets in Tink's JSON format,
// and the times when encryption keys were created.
type keyFile struct {
	Encryption json.RawMessage          `json:"encryption"`
	Hashing    json.RawMessage          `json:"hashing"`
	Created    map[card.KeyID]time.Time `json:"created,omitempty"` // old versions do not write it
}

// Errors that callers distinguish.
var (
	ErrExists      = errors.New("key file already exists")
	ErrPermissions = errors.New("key file can be read by others than its owner")

	errOtherHashing = errors.New("it has other hashing keys")
)

// Open reads a key file. The error is ErrPermissions if other users can read
// it.
func Open(path string) (*Vault, error) {
	k, err := readKeys(path)
	if err != nil {
		return nil, err
	}
	v := &Vault{path: path, unknown: map[card.KeyID]bool{}}
	v.keys.Store(k)
	v.retired.Store(new([]card.KeyID))
	v.readAt.Store(time.Now().UnixNano())
	return v, nil
}

func readKeys(path string) (*keySet, error) {
	file, text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	encryption, err := readKeyset(file.Encryption)
	if err != nil {
		return nil, fmt.Errorf("key file %s: encryption keys can't be read", path)
	}
	hashing, err := readKeyset(file.Hashing)
	if err != nil {
		return nil, fmt.Errorf("key file %s: hashing keys can't be read", path)
	}
	k := &keySet{text: sha256.Sum256(text), Ring: ringOf(encryption, file.Created)}
	if k.aead, err = aead.New(encryption); err != nil {
		return nil, fmt.Errorf("key file %s: encryption keys: %w", path, err)
	}
	if k.prf, err = prf.NewPRFSet(hashing); err != nil {
		return nil, fmt.Errorf("key file %s: hashing keys: %w", path, err)
	}
	if k.check, err = k.prf.ComputePrimaryPRF([]byte("same hashing keys"), 32); err != nil {
		return nil, fmt.Errorf("key file %s: hashing keys: %w", path, err)
	}
	return k, nil
}

// Reread reads the key file again. After an error, also if the file has other
// hashing keys, the current keys stay in use.
func (v *Vault) Reread() error {
	v.reading.Lock()
	defer v.reading.Unlock()
	return v.reread()
}

// FileError returns the error of the last read of the key file. The current
// keys stay in use, but the next start of the process will fail.
func (v *Vault) FileError() error {
	if err := v.fileErr.Load(); err != nil {
		return *err
	}
	return nil
}

// minRereadInterval limits reads of the key file for a key that it lacks. One
// response may contain thousands of ciphertexts of such a key.
const minRereadInterval = time.Second

// rereadFor reads the key file again for a key that is not in use. If the key
// is already known to be missing, it reads at most once per minRereadInterval.
// The keys loop reports errors.
func (v *Vault) rereadFor(key card.KeyID) {
	v.mu.Lock()
	_, seen := v.unknown[key]
	v.mu.Unlock()
	v.reading.Lock()
	defer v.reading.Unlock()
	if age := time.Now().UnixNano() - v.readAt.Load(); !seen || age >= int64(minRereadInterval) || age < 0 {
		_ = v.reread()
	}
}

// reread implements Reread. The caller holds v.reading.
func (v *Vault) reread() (err error) {
	v.readAt.Store(time.Now().UnixNano())
	defer func() {
		v.fileErr.Store(nil)
		if err != nil {
			v.fileErr.Store(&err)
		}
	}()
	k, err := readKeys(v.path)
	if err != nil {
		return err
	}
	switch old := v.keys.Load(); {
	case k.text == old.text:
	case !bytes.Equal(k.check, old.check):
		return fmt.Errorf("key file %s: %w: it belongs to another database", v.path, errOtherHashing)
	default:
		v.keys.Store(k)
	}
	return nil
}

// maxKeyAge is the longest time since the last read of the file before
// something is encrypted. The keys loop reads it more often, but a process that
// was suspended must not continue with a key that was retired in between.
const maxKeyAge = 5 * time.Second

// current returns the keys to encrypt with. The error is card.ErrUnavailable if
// the primary key was retired: new ciphertexts could not be decrypted anywhere
// else, nor here after the file is replaced.
func (v *Vault) current() (*keySet, error) {
	if age := time.Now().UnixNano() - v.readAt.Load(); age > int64(maxKeyAge) || age < 0 {
		_ = v.Reread() // the keys loop reports errors
	}
	k := v.keys.Load()
	if slices.Contains(*v.retired.Load(), k.Primary) {
		return nil, card.ErrUnavailable.WithCause(fmt.Errorf("%w: %s", card.ErrRetiredKey, k.Primary))
	}
	return k, nil
}

// SetRetired implements keys.Vault.
func (v *Vault) SetRetired(all []card.KeyID) { v.retired.Store(&all) }

// Keys implements keys.Vault.
func (v *Vault) Keys() keys.Ring { return v.keys.Load().Ring }

// Seal implements webhook.Vault and order.Vault. The ciphertext is bound to id,
// account and field. The error is card.ErrUnavailable if the primary key was
// retired.
func (v *Vault) Seal(id, account uuid.UUID, field string, plaintext card.Secret) ([]byte, error) {
	k, err := v.current()
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", field, err)
	}
	return k.seal(id, account, field, plaintext)
}

func (k *keySet) seal(id, account uuid.UUID, field string, plaintext card.Secret) ([]byte, error) {
	ciphertext, err := k.aead.Encrypt([]byte(plaintext.Reveal()), associatedData(id, account, field))
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", field, err)
	}
	return ciphertext, nil
}

// Open implements webhook.Vault and order.Vault. If the ciphertext names a key
// that is not in use here, Open reads the key file again, at most once a second
// for the same key. If the file lacks the key, the error is
// card.ErrUnavailable, until MarkNonexistent is called with it.
func (v *Vault) Open(id, account uuid.UUID, field string, ciphertext []byte) (card.Secret, error) {
	k := v.keys.Load()
	key, named := card.KeyOf(ciphertext)
	if named && !k.Has(key) {
		v.rereadFor(key)
		if k = v.keys.Load(); !k.Has(key) && v.mayExist(key) {
			return "", card.ErrUnavailable.WithCause(
				fmt.Errorf("open %s of %s: the key file does not have its key %s", field, id, key))
		}
	}
	plaintext, err := k.aead.Decrypt(ciphertext, associatedData(id, account, field))
	if err != nil {
		return "", fmt.Errorf("open %s of %s: %w", field, id, err)
	}
	return card.Secret(plaintext), nil
}

// Reseal implements keys.Vault.
func (v *Vault) Reseal(id, account uuid.UUID, fields []string, ciphertexts [][]byte) ([][]byte, error) {
	k, err := v.current()
	if err != nil {
		return nil, fmt.Errorf("reseal: %w", err)
	}
	resealed := make([][]byte, len(ciphertexts))
	for i, text := range ciphertexts {
		plain, err := v.Open(id, account, fields[i], text)
		if err != nil {
			return nil, err
		}
		if resealed[i], err = k.seal(id, account, fields[i], plain); err != nil {
			return nil, err
		}
	}
	return resealed, nil
}

// maxUnknown limits the unknown keys in memory: corrupt ciphertexts may name
// any key.
const maxUnknown = 1000

// mayExist records an unknown key, and reports whether another process may have
// it.
func (v *Vault) mayExist(key card.KeyID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	nonexistent, seen := v.unknown[key]
	if !seen {
		if len(v.unknown) == maxUnknown {
			clear(v.unknown)
		}
		v.unknown[key] = false
	}
	return !nonexistent
}

// UnknownKeys implements keys.Vault.
func (v *Vault) UnknownKeys() []card.KeyID {
	v.mu.Lock()
	defer v.mu.Unlock()
	var open []card.KeyID
	for key, nonexistent := range v.unknown {
		if !nonexistent {
			open = append(open, key)
		}
	}
	return open
}

// MarkNonexistent implements keys.Vault.
func (v *Vault) MarkNonexistent(all []card.KeyID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, key := range all {
		v.unknown[key] = true
	}
}

// Digest implements account.Vault, issue.Vault and order.Vault.
func (v *Vault) Digest(label string, data []byte) ([]byte, error) {
	digest, err := v.keys.Load().prf.ComputePrimaryPRF(append([]byte(label+"\x00"), data...), 32)
	if err != nil {
		return nil, fmt.Errorf("digest %s: %w", label, err)
	}
	return digest, nil
}

// associatedData binds a ciphertext to its row and field.
func associatedData(id, account uuid.UUID, field string) []byte {
	return []byte("cardmint/1/" + account.String() + "/" + id.String() + "/" + field)
}
