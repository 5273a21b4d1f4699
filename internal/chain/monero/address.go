package monero

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"golang.org/x/crypto/sha3"

	"github.com/cardmint/cardmint/internal/chain/rpc"
)

// An address is a byte for network and kind, two public keys of 32 bytes, and
// the first 4 bytes of the Keccak-256 of these, in Monero's base58. Source:
// https://docs.getmonero.org/public-address/standard-address/ An integrated
// address has a payment id of 8 bytes before the checksum.
const (
	addressBytes   = 69
	paymentIDBytes = 8
	checksumBytes  = 4
)

// addressKind is the network and kind that an address names.
type addressKind struct {
	network string // mainnet, testnet or stagenet; regtest uses the addresses of mainnet
	sub     bool
	payment bool // has a payment id
}

var addressKinds = map[byte]addressKind{
	18: {network: "mainnet"}, 42: {network: "mainnet", sub: true}, 19: {network: "mainnet", payment: true},
	53: {network: "testnet"}, 63: {network: "testnet", sub: true}, 54: {network: "testnet", payment: true},
	24: {network: "stagenet"}, 36: {network: "stagenet", sub: true}, 25: {network: "stagenet", payment: true},
}

// Errors of addresses. Each continues a sentence that begins with the name of
// the field.
var (
	errNotAddress  = errors.New("is not an address of Monero")
	errAddressTypo = errors.New(
		"is not an address of Monero: its checksum is wrong, so a character is missing or mistyped")
	errOtherNetworks = errors.New("is an address of none of Monero's networks")
)

// parseAddress returns the kind of a wallet's own address. An error continues a
// sentence that begins with the name of the field.
func parseAddress(address string) (addressKind, error) {
	kind, err := addressKindOf(address)
	if err != nil || kind.payment {
		return addressKind{}, fmt.Errorf("is no address: %q", rpc.Excerpt(address))
	}
	return kind, nil
}

// addressKindOf returns the kind of an address.
func addressKindOf(address string) (addressKind, error) {
	data, ok := decodeBase58(address)
	if !ok || len(data) != addressBytes && len(data) != addressBytes+paymentIDBytes {
		return addressKind{}, errNotAddress
	}
	body, checksum := data[:len(data)-checksumBytes], data[len(data)-checksumBytes:]
	hash := sha3.NewLegacyKeccak256()
	_, _ = hash.Write(body)
	kind, known := addressKinds[data[0]]
	switch {
	case !bytes.Equal(hash.Sum(nil)[:checksumBytes], checksum):
		return addressKind{}, errAddressTypo
	case !known:
		return addressKind{}, errOtherNetworks
	case kind.payment != (len(data) > addressBytes):
		return addressKind{}, errNotAddress
	}
	return kind, nil
}

// checkAddress implements driver.Coin.CheckAddress. It accepts integrated
// addresses, because exchanges still give them to their customers, and all
// wallets can pay to them.
func checkAddress(address, ours string) error {
	kind, err := addressKindOf(address)
	if network := networkOf(ours); err == nil && network != "" && kind.network != network {
		err = fmt.Errorf("is an address of Monero's %s, and payments here are made on its %s", kind.network, network)
	}
	return err
}

// checkTxID implements driver.Coin.CheckTxID.
func checkTxID(txid string) error {
	if len(txid) != 64 || strings.Trim(txid, "0123456789abcdef") != "" {
		return errors.New("is not the id of a transaction of Monero: that has 64 hexadecimal digits")
	}
	return nil
}

const base58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// decodeBase58 decodes Monero's base58: 8 bytes become 11 digits, and a shorter
// last block becomes the fewest that fit it.
func decodeBase58(text string) (data []byte, ok bool) {
	sizes := map[int]int{2: 1, 3: 2, 5: 3, 6: 4, 7: 5, 9: 6, 10: 7, 11: 8} // bytes by number of digits
	for len(text) > 0 {
		block := text[:min(11, len(text))]
		text = text[len(block):]
		size, known := sizes[len(block)]
		if !known {
			return nil, false
		}
		var n uint64
		for _, digit := range []byte(block) {
			value := strings.IndexByte(base58, digit)
			high, low := bits.Mul64(n, 58)
			sum, carry := bits.Add64(low, uint64(max(0, value)), 0)
			if value < 0 || high != 0 || carry != 0 {
				return nil, false
			}
			n = sum
		}
		if size < 8 && n>>(8*size) != 0 {
			return nil, false
		}
		for i := size - 1; i >= 0; i-- {
			data = append(data, byte(n>>(8*i)))
		}
	}
	return data, true
}

// checkAddressAt checks that an address can be at an index of an account whose
// own address is base; "" is not compared. Only the first address of the first
// account is not a subaddress.
func checkAddressAt(address, base string, account, index int64) error {
	kind, err := parseAddress(address)
	switch {
	case err != nil:
		return err
	case kind.sub == (account == 0 && index == 0):
		return fmt.Errorf("can't be at index %d of account %d: %s", index, account, address)
	case base != "" && (index == 0) != (address == base):
		return fmt.Errorf("is %s at index %d, and %s at 0", address, index, base)
	case base != "" && networkOf(base) != kind.network:
		return errors.New("is of another network")
	}
	return nil
}

// networkOf returns the network of an address, or "".
func networkOf(address string) string {
	kind, err := parseAddress(address)
	if err != nil {
		return ""
	}
	return kind.network
}
