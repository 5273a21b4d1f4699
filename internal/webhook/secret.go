package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

const (
	secretOverlap = 24 * time.Hour // how long the previous secret still signs too
	secretBytes   = 32
	secretPrefix  = "whsec_" // by the Standard Webhooks specification
	secretField   = "webhook_secret"
)

// newSecret sets a new secret on a webhook, and returns it.
func (s *Service) newSecret(w *Webhook) (card.Secret, error) {
	raw := make([]byte, secretBytes)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	secret := card.Secret(secretPrefix + base64.StdEncoding.EncodeToString(raw))
	sealed, err := s.vault.Seal(w.ID, w.AccountID, secretField, secret)
	if err != nil {
		return "", fmt.Errorf("seal secret of webhook: %w", err)
	}
	w.Sealed = sealed
	w.Version++
	return secret, nil
}

// secrets returns the secrets that sign requests to a webhook at the time now,
// the newest first.
func secrets(vault Vault, w *Webhook, now time.Time) ([]card.Secret, error) {
	sealed := [][]byte{w.Sealed}
	if w.OldUntil != nil && now.Before(*w.OldUntil) {
		sealed = append(sealed, w.SealedOld)
	}
	all := make([]card.Secret, len(sealed))
	for i, text := range sealed {
		var err error
		if all[i], err = vault.Open(w.ID, w.AccountID, secretField, text); err != nil {
			return nil, fmt.Errorf("open secret of webhook %s: %w", w.ID, err)
		}
	}
	return all, nil
}
