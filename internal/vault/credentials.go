package vault

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// credentialFields pairs each field with its name, which is part of the
// ciphertext's associated data.
func credentialFields(c *card.Credentials, sealed *card.Sealed) []struct {
	name  string
	plain *card.Secret
	text  *[]byte
} {
	return []struct {
		name  string
		plain *card.Secret
		text  *[]byte
	}{
		{"card_number", &c.CardNumber, &sealed.CardNumber},
		{"expiration_date", &c.ExpirationDate, &sealed.ExpirationDate},
		{"security_code", &c.SecurityCode, &sealed.SecurityCode},
		{"url", &c.URL, &sealed.URL},
		{"url_password", &c.URLPassword, &sealed.URLPassword},
	}
}

// SealCredentials encrypts each field separately, all with the same key, and
// binds it to the card, its account and the field's name. The errors are from
// Seal.
func (v *Vault) SealCredentials(id, account uuid.UUID, c card.Credentials) (card.Sealed, error) {
	k, err := v.current()
	if err != nil {
		return card.Sealed{}, fmt.Errorf("seal credentials: %w", err)
	}
	sealed := card.Sealed{LastFour: card.LastFour(c.CardNumber)}
	for _, f := range credentialFields(&c, &sealed) {
		ciphertext, err := k.seal(id, account, f.name, *f.plain)
		if err != nil {
			return card.Sealed{}, err
		}
		*f.text = ciphertext
	}
	return sealed, nil
}

// OpenCredentials decrypts what SealCredentials returned. It returns an error
// if a field was changed, or belongs to another card or field.
func (v *Vault) OpenCredentials(id, account uuid.UUID, sealed card.Sealed) (card.Credentials, error) {
	var c card.Credentials
	for _, f := range credentialFields(&c, &sealed) {
		plain, err := v.Open(id, account, f.name, *f.text)
		if err != nil {
			return card.Credentials{}, fmt.Errorf("credentials of card %s: %w", id, err)
		}
		*f.plain = plain
	}
	return c, nil
}

// MaskCredentials returns masked credentials. It decrypts the card number only
// if its last four digits are not stored.
func (v *Vault) MaskCredentials(id, account uuid.UUID, sealed card.Sealed) (card.Credentials, error) {
	open := func(field string, ciphertext []byte) (card.Secret, error) {
		plain, err := v.Open(id, account, field, ciphertext)
		if err != nil {
			err = fmt.Errorf("credentials of card %s: %w", id, err)
		}
		return plain, err
	}
	lastFour := sealed.LastFour
	if lastFour == "" {
		number, err := open("card_number", sealed.CardNumber)
		if err != nil {
			return card.Credentials{}, err
		}
		lastFour = card.LastFour(number)
	}
	expires, err := open("expiration_date", sealed.ExpirationDate)
	if err != nil {
		return card.Credentials{}, err
	}
	url, err := open("url", sealed.URL)
	if err != nil {
		return card.Credentials{}, err
	}
	return card.MaskCredentials(lastFour, expires, url), nil
}
