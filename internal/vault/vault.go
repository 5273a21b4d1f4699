// Package vault encrypts card credentials at rest and makes keyed hashes.
//
// It may import package card and the actors whose Vault it implements. Keys are
// Tink keysets in one file: AES256-GCM for encryption, HMAC-SHA256 as a
// pseudorandom function for hashes. Losing the file means losing the
// credentials of every card. The hashing key never changes: hashes can't be
// computed again from what is stored, so with another key no token would be
// recognised, and a card number could be given out twice. A change of the file
// replaces it as a whole, so that after a crash it is the old one or the new
// one.
//
// What is encrypted, each value bound to its row and its account:
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
	looked  atomic.Int64 // when the file was last read, in Unix nanoseconds
	retired atomic.Pointer[[]card.KeyID]
	fileErr atomic.Pointer[error] // of the last reading of the file; nil if that succeeded

	mu sync.Mutex
	// keys that a ciphertext named and the file does not have; true if there is
	// no such key anywhere
	strangers map[card.KeyID]bool
}

// keys are the keys of the file as it was once.
type keySet struct {
	text  [sha256.Size]byte // of the file
	aead  tink.AEAD
	prf   *prf.Set
	check []byte // differs with the hashing keys
	keys.Keys
}

var (
	_ account.Vault = (*Vault)(nil)
	_ keys.Vault    = (*Vault)(nil)
	_ issue.Vault   = (*Vault)(nil)
	_ order.Vault   = (*Vault)(nil)
	_ webhook.Vault = (*Vault)(nil)
)

// keyFile is the content of a key file: two Tink keysets in Tink's JSON format,
// and when encryption keys were made.
type keyFile struct {
	Encryption json.RawMessage          `json:"encryption"`
	Hashing    json.RawMessage          `json:"hashing"`
	Created    map[card.KeyID]time.Time `json:"created,omitempty"` // programs of before do not write it
}

// Errors that callers distinguish.
var (
	ErrExists      = errors.New("key file already exists")
	ErrPermissions = errors.New("key file can be read by others than its owner")

	errOtherHashing = errors.New("it has other hashing keys")
)

// Open reads a key file. The error is ErrPermissions if others than its owner
// may read it.
func Open(path string) (*Vault, error) {
	k, err := readKeys(path)
	if err != nil {
		return nil, err
	}
	v := &Vault{path: path, strangers: map[card.KeyID]bool{}}
	v.keys.Store(k)
	v.retired.Store(new([]card.KeyID))
	v.looked.Store(time.Now().UnixNano())
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
	k := &keySet{text: sha256.Sum256(text), Keys: keysOf(encryption, file.Created)}
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

// Reread reads the key file again. If that fails, or the file has other hashing
// keys, the keys of before stay in use.
func (v *Vault) Reread() error {
	v.reading.Lock()
	defer v.reading.Unlock()
	return v.reread()
}

// FileError returns the error of the last reading of the key file. The keys of
// before stay in use, but the next start of the process will fail.
func (v *Vault) FileError() error {
	if err := v.fileErr.Load(); err != nil {
		return *err
	}
	return nil
}

// rereadAtMost is how often the key file is read for a key that is known not to
// be there. One answer may have thousands of its ciphertexts.
const rereadAtMost = time.Second

// rereadFor reads the key file again for a key that is not in use, unless it
// was read for that key before and was read just now. The loop tells of errors.
func (v *Vault) rereadFor(key card.KeyID) {
	v.mu.Lock()
	_, met := v.strangers[key]
	v.mu.Unlock()
	v.reading.Lock()
	defer v.reading.Unlock()
	if age := time.Now().UnixNano() - v.looked.Load(); !met || age >= int64(rereadAtMost) || age < 0 {
		_ = v.reread()
	}
}

// reread is Reread for a caller that holds v.reading.
func (v *Vault) reread() (err error) {
	v.looked.Store(time.Now().UnixNano())
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

// rereadAfter is how old the keys may be by which something is encrypted. A
// loop reads the file more often. But a process that was stopped for a while
// must not go on with a key that was retired meanwhile.
const rereadAfter = 5 * time.Second

// current returns the keys to encrypt with. The error is card.ErrUnavailable if
// the primary key was retired: what it encrypts now could not be read anywhere
// else, nor here once the file is replaced.
func (v *Vault) current() (*keySet, error) {
	if age := time.Now().UnixNano() - v.looked.Load(); age > int64(rereadAfter) || age < 0 {
		_ = v.Reread() // the loop tells of errors
	}
	k := v.keys.Load()
	if slices.Contains(*v.retired.Load(), k.Primary) {
		return nil, card.ErrUnavailable.WithCause(fmt.Errorf("%w: %s", card.ErrRetiredKey, k.Primary))
	}
	return k, nil
}

// Retired implements keys.Vault.
func (v *Vault) Retired(all []card.KeyID) { v.retired.Store(&all) }

// Keys implements keys.Vault.
func (v *Vault) Keys() keys.Keys { return v.keys.Load().Keys }

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
// that is not in use here, Open reads the key file again: at once for a key
// that it meets for the first time, and once a second at most for others. If
// the file does not have the key either, the error is card.ErrUnavailable,
// until NoSuchKeys says that there is none.
func (v *Vault) Open(id, account uuid.UUID, field string, ciphertext []byte) (card.Secret, error) {
	k := v.keys.Load()
	key, named := card.KeyOf(ciphertext)
	if named && !k.Has(key) {
		v.rereadFor(key)
		if k = v.keys.Load(); !k.Has(key) && v.meet(key) {
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

// mostStrangers limits how many keys are remembered that ciphertexts named and
// nobody here has. Damaged ones may name any.
const mostStrangers = 1000

// meet notes a key that a ciphertext named, and reports whether somebody may
// have it.
func (v *Vault) meet(key card.KeyID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	nobodys, met := v.strangers[key]
	if !met {
		if len(v.strangers) == mostStrangers {
			clear(v.strangers)
		}
		v.strangers[key] = false
	}
	return !nobodys
}

// Strangers implements keys.Vault.
func (v *Vault) Strangers() []card.KeyID {
	v.mu.Lock()
	defer v.mu.Unlock()
	var open []card.KeyID
	for key, nobodys := range v.strangers {
		if !nobodys {
			open = append(open, key)
		}
	}
	return open
}

// NoSuchKeys implements keys.Vault.
func (v *Vault) NoSuchKeys(all []card.KeyID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, key := range all {
		v.strangers[key] = true
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

// associatedData binds a ciphertext to its place, so that it can't be decrypted
// anywhere else.
func associatedData(id, account uuid.UUID, field string) []byte {
	return []byte("cardmint/1/" + account.String() + "/" + id.String() + "/" + field)
}
