package card

import (
	"net/url"
	"strings"
	"time"
)

// Flaw returns the reason why a card with these credentials must not be issued,
// or "".
func (c Credentials) Flaw(now time.Time) string {
	number := c.CardNumber.Reveal()
	if len(number) < 12 || len(number) > 19 || strings.Trim(number, "0123456789") != "" ||
		LuhnDigit(number[:len(number)-1]) != number[len(number)-1:] {
		return "the supplier gave a card number that is not well formed"
	}
	month, err := time.Parse("01/06", c.ExpirationDate.Reveal())
	if err != nil || !now.Before(month.AddDate(0, 1, 0)) {
		return "the supplier gave a card that is expired, or whose expiration date can't be read"
	}
	if code := c.SecurityCode.Reveal(); len(code) < 3 || len(code) > 4 || strings.Trim(code, "0123456789") != "" {
		return "the supplier gave a security code that is not well formed"
	}
	if page, err := url.Parse(c.URL.Reveal()); err != nil || page.Scheme != "https" || page.Host == "" {
		return "the supplier gave a web address that is not https"
	}
	if c.URLPassword == "" {
		return "the supplier gave no password for the web address"
	}
	return ""
}

// LastFour returns the last four characters of a card number, which PCI DSS
// (requirement 3.4) permits to store and show.
func LastFour(number Secret) string { return string(number[max(0, len(number)-4):]) }

// MaskCredentials returns credentials that only distinguish cards: the last
// four digits of the card number, and nothing of security code and password,
// not even their length.
func MaskCredentials(lastFour string, expirationDate, url Secret) Credentials {
	return Credentials{Masked: true, CardNumber: Secret("************" + lastFour), ExpirationDate: expirationDate,
		SecurityCode: "***", URL: url,
		URLPassword: "********"}
}

// Mask returns c as masked by MaskCredentials.
func (c Credentials) Mask() Credentials {
	if c.Masked {
		return c
	}
	return MaskCredentials(LastFour(c.CardNumber), c.ExpirationDate, c.URL)
}

// LuhnDigit returns the check digit that completes a card number (ISO/IEC
// 7812-1, annex B). digits must be decimal digits.
func LuhnDigit(digits string) string {
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return string(rune('0' + (10-sum%10)%10))
}
