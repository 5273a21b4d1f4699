package rig

import (
	"encoding/binary"
	"math/big"
	"slices"
	"strings"

	"golang.org/x/crypto/sha3"
)

// MoneroAddress returns a well-formed address without known keys. kind is its
// first byte, which encodes the network and the kind: 18 for a primary address
// of mainnet, 42 for a subaddress. Equal arguments give equal addresses.
func MoneroAddress(kind byte, account, index int64) string {
	data := make([]byte, 65, 69)
	data[0] = kind
	binary.BigEndian.PutUint64(data[1:], uint64(account))
	binary.BigEndian.PutUint64(data[9:], uint64(index))
	hash := sha3.NewLegacyKeccak256()
	_, _ = hash.Write(data)
	return moneroBase58(append(data, hash.Sum(nil)[:4]...))
}

// moneroBase58 encodes each 8 bytes as 11 digits, and the last 5 as 7.
func moneroBase58(data []byte) string {
	const digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	var text strings.Builder
	for block := range slices.Chunk(data, 8) {
		n, digit := new(big.Int).SetBytes(block), new(big.Int)
		encoded := make([]byte, map[int]int{8: 11, 5: 7}[len(block)])
		for i := range slices.Backward(encoded) {
			n.DivMod(n, big.NewInt(58), digit)
			encoded[i] = digits[digit.Int64()]
		}
		text.Write(encoded)
	}
	return text.String()
}
