package vault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/prf"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
)

// Errors of changes to a key file.
var (
	ErrNoKey     = errors.New("the key file has no such key")
	ErrIsPrimary = errors.New("the key is the primary one")
	ErrInUse     = errors.New("another command is changing the key file, or was interrupted")
)

// Create writes new keys to a file that only its owner can read. The error is
// ErrExists if the file exists.
func Create(path string) error {
	encryption, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	hashing, err := keyset.NewHandle(prf.HMACSHA256PRFKeyTemplate())
	if err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	file := keyFile{Created: map[card.KeyID]time.Time{ringOf(encryption, nil).Primary: now()}}
	if file.Hashing, err = writeKeyset(hashing); err != nil {
		return err
	}
	text, err := file.with(encryption)
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
	if err := errors.Join(fill(f, text), syncDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("write key file: %w", err)
	}
	return nil
}

// AddKey adds a new encryption key to a key file. It is not used for encryption
// before PromoteKey.
func AddKey(path string) (card.KeyID, error) {
	var added card.KeyID
	err := change(path, func(file *keyFile, m *keyset.Manager) error {
		id, err := m.Add(aead.AES256GCMKeyTemplate())
		if err != nil {
			return fmt.Errorf("make a key: %w", err)
		}
		added = card.KeyID(id)
		if file.Created == nil {
			file.Created = map[card.KeyID]time.Time{}
		}
		file.Created[added] = now()
		return nil
	})
	return added, err
}

// PromoteKey makes a key the primary one of a key file. The error is ErrNoKey
// if the file lacks it.
func PromoteKey(path string, id card.KeyID) error {
	return change(path, func(_ *keyFile, m *keyset.Manager) error {
		if m.SetPrimary(uint32(id)) != nil {
			return ErrNoKey
		}
		return nil
	})
}

// RetireKey removes a key from a key file. Its ciphertexts can no longer be
// decrypted. The error is ErrIsPrimary if it is the primary key, and ErrNoKey
// if the file lacks it.
func RetireKey(path string, id card.KeyID) error {
	return change(path, func(file *keyFile, m *keyset.Manager) error {
		handle, err := m.Handle()
		if err != nil {
			return err
		}
		if ringOf(handle, nil).Primary == id {
			return ErrIsPrimary
		}
		if m.Delete(uint32(id)) != nil {
			return ErrNoKey
		}
		delete(file.Created, id)
		return nil
	})
}

// change atomically replaces a key file with a changed one.
func change(path string, f func(*keyFile, *keyset.Manager) error) error {
	path, err := filepath.EvalSymlinks(path) // the rename must not replace a link
	if err != nil {
		return fmt.Errorf("open key file: %w", err)
	}
	next, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // also a lock
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s exists", ErrInUse, path+".new")
	}
	if err != nil {
		return fmt.Errorf("write key file: %w", err)
	}
	text, err := changed(path, f)
	if err == nil {
		err = keepOwner(path, next)
	}
	if err == nil {
		err = fill(next, text)
	} else {
		_ = next.Close()
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		_ = os.Remove(path + ".new")
		return fmt.Errorf("change key file: %w", err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("change key file: %w", err)
	}
	return nil
}

func changed(path string, f func(*keyFile, *keyset.Manager) error) ([]byte, error) {
	file, _, err := readFile(path)
	if err != nil {
		return nil, err
	}
	encryption, err := readKeyset(file.Encryption)
	if err != nil {
		return nil, errors.New("encryption keys can't be read")
	}
	m := keyset.NewManagerFromHandle(encryption)
	if err := f(&file, m); err != nil {
		return nil, err
	}
	if encryption, err = m.Handle(); err != nil {
		return nil, err
	}
	return file.with(encryption)
}

// fill writes, syncs and closes a new file: keys must be durable before they
// are used.
func fill(f *os.File, text []byte) error {
	_, err := f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncDir makes new names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// readFile reads a key file, and returns it with its text. The error is
// ErrPermissions if other users can access the file.
func readFile(path string) (file keyFile, text []byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return file, nil, fmt.Errorf("open key file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return file, nil, fmt.Errorf("%w: %s", ErrPermissions, path)
	}
	if text, err = os.ReadFile(path); err != nil {
		return file, nil, fmt.Errorf("read key file: %w", err)
	}
	if json.Unmarshal(text, &file) != nil {
		// without the cause, which could quote a key
		return file, nil, fmt.Errorf("key file %s: not made by keys create", path)
	}
	return file, text, nil
}

// with returns the text of the file with other encryption keys.
func (f keyFile) with(encryption *keyset.Handle) (text []byte, err error) {
	if f.Encryption, err = writeKeyset(encryption); err != nil {
		return nil, err
	}
	text, err = json.MarshalIndent(f, "", "  ")
	return append(text, '\n'), err
}

func writeKeyset(handle *keyset.Handle) (json.RawMessage, error) {
	var text bytes.Buffer
	// Not encrypted: the file itself is the secret. A key management service
	// would encrypt the keysets here.
	if err := insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&text)); err != nil {
		return nil, fmt.Errorf("make keys: %w", err)
	}
	return text.Bytes(), nil
}

func readKeyset(text json.RawMessage) (*keyset.Handle, error) {
	return insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(text)))
}

// ringOf returns the enabled keys of a keyset.
func ringOf(handle *keyset.Handle, created map[card.KeyID]time.Time) keys.Ring {
	info := handle.KeysetInfo()
	r := keys.Ring{Primary: card.KeyID(info.GetPrimaryKeyId()), Created: created}
	for _, one := range info.GetKeyInfo() {
		if one.GetStatus() == tinkpb.KeyStatusType_ENABLED {
			r.IDs = append(r.IDs, card.KeyID(one.GetKeyId()))
		}
	}
	return r
}

func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
