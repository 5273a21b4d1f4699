package card

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// USD is an amount of US dollars, in cents.
type USD int64

// The bounds of a card's balance, both included.
const (
	MinUSD USD = 50_00
	MaxUSD USD = 750_00
)

// ParseUSD parses a plain decimal number with at most two decimals: no sign, no
// exponent, no spaces. Trailing zeros do not count as decimals.
func ParseUSD(s string) (USD, error) {
	n, err := parseUnits(s, 2)
	return USD(n), err
}

// String returns whole dollars without decimals ("150") and other amounts with
// two ("150.50").
func (u USD) String() string {
	text, _ := u.MarshalText()
	return string(text)
}

// MarshalText returns the text of String.
func (u USD) MarshalText() ([]byte, error) {
	b := strconv.AppendInt(make([]byte, 0, len("750.00")), int64(u/100), 10)
	if cents := int(u % 100); cents != 0 {
		b = append(b, '.', lastDigit(cents/10), lastDigit(cents))
	}
	return b, nil
}

// Amount is an amount of a coin, in its atomic units (piconero, satoshi).
type Amount int64

// Decimal is an exact decimal number: Units divided by ten to the power of
// Scale.
type Decimal struct {
	Units int64
	Scale int
}

// ParseDecimal parses a plain decimal number with at most scale decimals: no
// sign, no exponent, no spaces. Trailing zeros do not count as decimals.
func ParseDecimal(s string, scale int) (Decimal, error) {
	n, err := parseUnits(s, scale)
	return Decimal{n, scale}, err
}

// MarshalText returns the text of String, so that the number is a string in
// JSON.
func (d Decimal) MarshalText() ([]byte, error) { return d.append(), nil }

// UnmarshalText parses the form of ParseDecimal. Scale becomes the number of
// decimals without trailing zeros.
func (d *Decimal) UnmarshalText(text []byte) (err error) {
	_, fraction, _ := strings.Cut(string(text), ".")
	*d, err = ParseDecimal(string(text), len(strings.TrimRight(fraction, "0")))
	return err
}

// Rescale returns the number with another scale. It fails if that loses
// decimals or does not fit.
func (d Decimal) Rescale(scale int) (Decimal, error) {
	return ParseDecimal(d.String(), scale)
}

// Rate is the price of one whole coin in US dollars.
type Rate struct {
	USD    Decimal   // Scale is RateScale
	At     time.Time // when the source was read
	Source string    // rate source
}

// RateScale is the number of decimals of a rate.
const RateScale = 8

// Currency is a coin that cards can be paid with.
type Currency struct {
	Code          string // its name in the API
	Name          string
	Decimals      int           // of the coin
	Supply        Amount        // all coins that can ever exist; 0 if that does not fit an Amount
	Confirmations int           // required for a payment
	BlockTime     time.Duration // mean time between blocks
	AmountKey     string        // the amount's name in payment URIs
}

// The deepest reorganization, and the longest wait for a lock. Both are times,
// so that they do not depend on the coin's block time.
const (
	reorgHorizon = 4 * time.Hour
	lockHorizon  = 10_000 * time.Minute
)

// ReorgHorizonBlocks returns how many of the newest blocks are reread. A deeper
// reorganization goes unnoticed.
func (c Currency) ReorgHorizonBlocks() int64 { return int64(reorgHorizon / c.BlockTime) }

// MaxConfirmations returns the highest permitted number of confirmations: half
// of the blocks that are reread.
func (c Currency) MaxConfirmations() int { return int(c.ReorgHorizonBlocks() / 2) }

// LockHorizonBlocks returns for how many blocks a locked transfer is reread.
// The end of a longer lock is noticed when the wallet rescans its chain.
func (c Currency) LockHorizonBlocks() int64 { return int64(lockHorizon / c.BlockTime) }

// Decimal returns an amount in whole coins.
func (c Currency) Decimal(a Amount) Decimal { return Decimal{int64(a), c.Decimals} }

// PaymentURI returns the instruction to pay amount to address, for wallets.
func (c Currency) PaymentURI(address string, amount Amount) string {
	return c.Code + ":" + address + "?" + c.AmountKey + "=" + c.Decimal(amount).String()
}

// Price returns the price of usd at rate, rounded up to one atomic unit, so
// that the amount is never worth less than usd. It fails if the rate is not
// positive or the amount does not fit.
func (c Currency) Price(usd USD, rate Rate) (Amount, error) {
	if rate.USD.Units <= 0 || usd <= 0 {
		return 0, errors.New("price: rate and amount must be positive")
	}
	// cents/100 / (units/10^scale) * 10^decimals, as one fraction
	numerator := new(big.Int).Mul(big.NewInt(int64(usd)), pow10(c.Decimals+rate.USD.Scale))
	denominator := new(big.Int).Mul(big.NewInt(100), big.NewInt(rate.USD.Units))
	quotient, remainder := numerator.QuoRem(numerator, denominator, new(big.Int))
	if remainder.Sign() > 0 {
		quotient.Add(quotient, big.NewInt(1))
	}
	if !quotient.IsInt64() || Amount(quotient.Int64()) > c.MaxAmount() {
		return 0, fmt.Errorf("price: %s US dollars at rate %s do not fit the currency", usd, rate.USD)
	}
	return Amount(quotient.Int64()), nil
}

// Worth returns the value of amount at rate, rounded down to a cent. It is 0 if
// the rate is unknown, and saturates at the largest USD.
func (c Currency) Worth(amount Amount, rate Rate) USD {
	if amount <= 0 || rate.USD.Units <= 0 {
		return 0
	}
	cents := new(big.Int).Mul(big.NewInt(int64(amount)), big.NewInt(rate.USD.Units))
	cents.Quo(cents.Mul(cents, big.NewInt(100)), pow10(c.Decimals+rate.USD.Scale))
	if !cents.IsInt64() {
		return math.MaxInt64
	}
	return USD(cents.Int64())
}

// Covers reports whether amount is worth at least usd at rate.
func (c Currency) Covers(amount Amount, usd USD, rate Rate) bool {
	price, err := c.Price(usd, rate)
	return err == nil && amount >= price
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// parseUnits parses digits with at most scale decimals, not counting trailing
// zeros, as an integer of 10^-scale.
func parseUnits(s string, scale int) (int64, error) {
	whole, fraction, point := strings.Cut(s, ".")
	if whole == "" || (point && fraction == "") || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, errors.New("must be a plain decimal number such as 150 or 150.5, without sign or exponent")
	}
	if fraction = strings.TrimRight(fraction, "0"); len(fraction) > scale {
		return 0, fmt.Errorf("must have at most %d decimals", scale)
	}
	n, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", scale-len(fraction)), 10, 64)
	if err != nil {
		return 0, errors.New("is too large")
	}
	return n, nil
}
