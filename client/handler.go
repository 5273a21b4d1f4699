package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
)

// WebhookOption configures the handler of [NewWebhookHandler].
type WebhookOption func(*webhookHandler)

// WithSecrets also accepts requests that are signed with one of these secrets,
// such as the old secret during a rotation.
func WithSecrets(more ...Secret) WebhookOption {
	return func(h *webhookHandler) { h.secrets = append(h.secrets, more...) }
}

// WithDeduplicator sets the [Deduplicator] that drops repeated events,
// including those sent by [Client.Redeliver]. Defaults to a
// [MemoryDeduplicator] of 10,000 events, which serves one process.
func WithDeduplicator(d Deduplicator) WebhookOption {
	return func(h *webhookHandler) { h.dedup = d }
}

// WithErrorFunc sets the function that is called for each rejected request,
// with an [ErrWebhookSignature], which any program on the internet can cause,
// an [ErrWebhookPayload], or an error that wraps the handler's. Defaults to a
// warning by [slog].
func WithErrorFunc(report func(ctx context.Context, err error)) WebhookOption {
	return func(h *webhookHandler) { h.report = report }
}

type webhookHandler struct {
	secrets []Secret
	keys    [][]byte
	handle  func(context.Context, *Event) error
	dedup   Deduplicator
	report  func(context.Context, error)
}

// NewWebhookHandler returns a handler for the path of a webhook's URL. It calls
// handle with each event that the service sends and that was not handled
// before. It fails if a secret is invalid.
//
//	receiver, err := client.NewWebhookHandler(secret, func(ctx context.Context, e *client.Event) error {
//		if e.Type != client.EventTypeCardGenerated || e.Seq == 0 { // another type, or a test event
//			return nil
//		}
//		card, err := c.GetCard(ctx, e.CardUUID)
//		...
//	})
//
// The event counts as handled, and is not sent again, when handle returns nil.
// When handle returns an error or panics, or the process ends, the service
// sends the event again, first after 5 seconds and up to ten times over three
// days. An event may therefore be handled twice if the first response was lost,
// so handle should be idempotent. After 15 seconds the service closes the
// connection and the context ends; store longer work and do it afterwards.
//
// Events may arrive out of order (see Seq) and concurrently. handle is never
// called concurrently for the same event.
//
// The response is 204 for a handled event, 405 if the method is not POST, 413
// for a body of more than 64 KiB, 401 for [ErrWebhookSignature], 400 for
// [ErrWebhookPayload], and 500, without the error's text, if handle fails. A
// panic is passed on to the server.
func NewWebhookHandler(secret Secret, handle func(ctx context.Context, e *Event) error,
	opts ...WebhookOption) (http.Handler, error) {
	h := &webhookHandler{
		secrets: []Secret{secret},
		handle:  handle,
		dedup:   NewMemoryDeduplicator(10_000),
		report: func(ctx context.Context, err error) {
			slog.WarnContext(ctx, "webhook request not accepted", "err", err)
		},
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("NewWebhookHandler: an option is nil")
		}
		opt(h)
	}
	if h.handle == nil || h.dedup == nil || h.report == nil {
		return nil, errors.New("NewWebhookHandler: a function or the Deduplicator is nil")
	}
	var err error
	if h.keys, err = webhookKeys(h.secrets); err != nil {
		return nil, fmt.Errorf("NewWebhookHandler: %w", err)
	}
	h.secrets = nil
	return h, nil
}

// ServeHTTP implements [http.Handler].
func (h *webhookHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "webhooks are sent by POST", http.StatusMethodNotAllowed)
		return
	}
	ctx := r.Context()
	payload, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPayload))
	if err != nil {
		status := http.StatusBadRequest
		if _, long := asType[*http.MaxBytesError](err); long {
			status = http.StatusRequestEntityTooLarge
		}
		h.refuse(ctx, w, status, fmt.Errorf("%w: %w", ErrWebhookPayload, err))
		return
	}
	e, err := parseWebhook(payload, r.Header, h.keys)
	switch {
	case errors.Is(err, ErrWebhookSignature):
		h.refuse(ctx, w, http.StatusUnauthorized, err)
		return
	case err != nil:
		h.refuse(ctx, w, http.StatusBadRequest, err)
		return
	}
	if err := h.dedup.Once(ctx, e.ID, func(ctx context.Context) error { return h.handle(ctx, e) }); err != nil {
		h.report(ctx, fmt.Errorf("handle event %s, %s: %w", e.ID, e.Type, err))
		http.Error(w, "the event was not handled", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// refuse responds with the reason, which the service shows to the account in
// ListDeliveries and TestWebhook.
func (h *webhookHandler) refuse(ctx context.Context, w http.ResponseWriter, status int, err error) {
	h.report(ctx, err)
	http.Error(w, err.Error(), status)
}
