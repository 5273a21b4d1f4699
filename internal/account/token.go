package account

import (
	"crypto/rand"
	"hash/crc32"
	"math/big"
	"strings"

	"github.com/cardmint/cardmint/internal/card"
)

// A token is cm_MODE_ followed by 27 random characters (160 bits) and a
// checksum of 6 characters. The checksum rejects a mistyped token without a
// lookup. The form lets scanners find a leaked token.
const (
	tokenRandom   = 27
	tokenChecksum = 6
	base62        = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

func newToken(mode string) card.Secret {
	limit := new(big.Int).Exp(big.NewInt(62), big.NewInt(tokenRandom), nil)
	n, _ := rand.Int(rand.Reader, limit) // never fails (crypto/rand)
	return tokenText(mode, n)
}

func tokenText(mode string, random *big.Int) card.Secret {
	token := "cm_" + mode + "_" + encode62(random, tokenRandom)
	return card.Secret(token + checksum(token))
}

func checksum(s string) string {
	return encode62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(s)))), tokenChecksum)
}

// encode62 returns n in base 62. It changes n.
func encode62(n *big.Int, width int) string {
	text := make([]byte, width)
	digit, base := new(big.Int), big.NewInt(62)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		text[i] = base62[digit.Int64()]
	}
	return string(text)
}

// wellFormed reports whether token has the form and checksum of a token of this
// mode.
func wellFormed(token, mode string) bool {
	random, ok := strings.CutPrefix(token, "cm_"+mode+"_")
	if !ok || len(random) != tokenRandom+tokenChecksum {
		return false
	}
	body := len(token) - tokenChecksum
	return checksum(token[:body]) == token[body:]
}
