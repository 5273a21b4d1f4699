package client

import (
	"fmt"
	"io"
	"log/slog"
)

// Format keeps the credentials out of the output of fmt, with any verb, also
// when they are part of a [Card].
func (c Credentials) Format(f fmt.State, _ rune) {
	text := "[hidden]"
	if c == (Credentials{}) {
		text = "[none]"
	}
	_, _ = io.WriteString(f, text)
}

// LogValue keeps the credentials out of logs.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(c)) }

// LogValue returns the card's UUID and state, without its credentials.
func (c Card) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("uuid", c.UUID.String()),
		slog.String("status", string(c.Status)),
		slog.String("payment_state", string(c.Payment.State)),
	)
}
