package card

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// KeyID names an encryption key. It is not secret.
type KeyID uint32

// keyPrefix is the first byte of a Tink ciphertext. The key's id follows, in
// big-endian order.
const keyPrefix = 0x01

// Prefix returns the first bytes of every ciphertext of the key.
func (k KeyID) Prefix() []byte { return binary.BigEndian.AppendUint32([]byte{keyPrefix}, uint32(k)) }

// String returns eight hexadecimal digits.
func (k KeyID) String() string { return fmt.Sprintf("%08x", uint32(k)) }

// ParseKeyID parses the form that String returns.
func ParseKeyID(text string) (KeyID, error) {
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil || len(text) != 8 {
		return 0, fmt.Errorf("%q is not the id of a key, which has eight hexadecimal digits", text)
	}
	return KeyID(n), nil
}

// KeyOf returns the key that a ciphertext names; false if it names none.
func KeyOf(ciphertext []byte) (KeyID, bool) {
	if len(ciphertext) < 5 || ciphertext[0] != keyPrefix {
		return 0, false
	}
	return KeyID(binary.BigEndian.Uint32(ciphertext[1:])), true
}
