package client

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is what the requests to a webhook are signed with: "whsec_" and the
// base64 of its bytes, as [Client.CreateWebhook] answers it. Keep it where
// passwords are kept.
//
// It is neither printed by fmt nor logged by slog; marshalled as JSON it is
// written out. In an unexported field of a struct fmt can't recognise it: a
// struct that may be printed should not hold it there.
type Secret string

// Reveal is the secret's text.
func (s Secret) Reveal() string { return string(s) }

// Format keeps the secret out of whatever fmt prints.
func (s Secret) Format(f fmt.State, _ rune) {
	text := "[hidden]"
	if s == "" {
		text = "[none]"
	}
	_, _ = io.WriteString(f, text)
}

// LogValue keeps the secret out of logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(s)) }

// LogValue names the webhook, without its secret.
func (w WebhookWithSecret) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", w.Webhook.ID.String()), slog.Bool("enabled", w.Webhook.Enabled))
}
