package card

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"strconv"
)

// maxAmount bounds all amounts, so that two of them can be added without
// overflow.
const maxAmount Amount = math.MaxInt64 / 2

// MaxAmount returns the most that one address of the coin can hold: the coin's
// supply, but no more than maxAmount.
func (c Currency) MaxAmount() Amount {
	if c.Supply > 0 {
		return min(c.Supply, maxAmount)
	}
	return maxAmount
}

// CheckTotal returns ErrImpossible if counted transfers add up to more than one
// address can hold.
func (c Currency) CheckTotal(ts []Transfer) error {
	left := c.MaxAmount()
	for _, t := range ts {
		if !t.Counted {
			continue
		}
		if t.Amount < 0 || t.Amount > left {
			return ErrImpossible
		}
		left -= t.Amount
	}
	return nil
}

// Total is an exact sum of amounts of any size. The zero Total is 0. A Total is
// immutable.
type Total struct{ n *big.Int } // nil for 0

// TotalOf returns the sum of amounts.
func TotalOf(as ...Amount) Total {
	n := new(big.Int)
	for _, a := range as {
		n.Add(n, big.NewInt(int64(a)))
	}
	return Total{n}
}

// ParseTotal parses the form that String returns.
func ParseTotal(s string) (Total, error) {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return Total{}, errors.New("not an integer")
	}
	return Total{n}, nil
}

// Add returns the sum of t and us.
func (t Total) Add(us ...Total) Total {
	n := new(big.Int).Set(t.big())
	for _, u := range us {
		n.Add(n, u.big())
	}
	return Total{n}
}

// Sub returns t - u.
func (t Total) Sub(u Total) Total { return Total{new(big.Int).Sub(t.big(), u.big())} }

// Equal reports whether t and u are equal.
func (t Total) Equal(u Total) bool { return t.big().Cmp(u.big()) == 0 }

// String returns the number of atomic units.
func (t Total) String() string { return t.big().String() }

// big returns the number. The caller must not change it.
func (t Total) big() *big.Int {
	if t.n == nil {
		return new(big.Int)
	}
	return t.n
}

// FormatTotal returns a total in whole coins, in the form of Decimal.String.
func (c Currency) FormatTotal(t Total) string { return decimal(t.String(), c.Decimals) }

// decimal formats an integer divided by ten to the power of scale, without
// trailing zeros.
func decimal(integer string, scale int) string {
	return string(appendDecimal(nil, []byte(integer), scale))
}

func appendDecimal(b, integer []byte, scale int) []byte {
	digits, negative := bytes.CutPrefix(integer, []byte("-"))
	if negative {
		b = append(b, '-')
	}
	whole := max(0, len(digits)-scale)
	if b = append(b, digits[:whole]...); whole == 0 {
		b = append(b, '0')
	}
	fraction := bytes.TrimRight(digits[whole:], "0")
	if len(fraction) == 0 {
		return b
	}
	b = append(b, '.')
	for range scale - len(digits) {
		b = append(b, '0')
	}
	return append(b, fraction...)
}

// String returns the number without an exponent and without trailing zeros.
func (d Decimal) String() string { return string(d.append()) }

func (d Decimal) append() []byte {
	const most = len("-9223372.036854775808")
	return appendDecimal(make([]byte, 0, most), strconv.AppendInt(make([]byte, 0, most), d.Units, 10), d.Scale)
}
