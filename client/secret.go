package client

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is the signing key of a webhook: "whsec_" and the base64 of its bytes,
// as [Client.CreateWebhook] returns it. Keep it with your passwords.
//
// It is redacted by fmt and slog, but not when marshaled as JSON. fmt can't
// redact it in an unexported field of a struct, so do not print such a struct.
type Secret string

// Reveal returns the secret's text.
func (s Secret) Reveal() string { return string(s) }

// Format keeps the secret out of the output of fmt.
func (s Secret) Format(f fmt.State, _ rune) {
	text := "[hidden]"
	if s == "" {
		text = "[none]"
	}
	_, _ = io.WriteString(f, text)
}

// LogValue keeps the secret out of logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(s)) }

// LogValue identifies the webhook, without its secret.
func (w WebhookWithSecret) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", w.Webhook.ID.String()), slog.Bool("enabled", w.Webhook.Enabled))
}
