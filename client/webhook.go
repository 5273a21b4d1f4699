package client

import (
	"context"
	"net/url"
	"time"

	"github.com/google/uuid"
)

// CreateWebhook registers a URL that receives events, and returns the webhook
// with its secret, which is not shown again. Receive the events with
// [NewWebhookHandler] or [ParseWebhook].
//
// Retries never create a second webhook. If the call fails after a broken
// connection, repeat it with the same [WithIdempotencyKey], or find the webhook
// with [Client.ListWebhooks] and delete it or rotate its secret.
func (c *Client) CreateWebhook(ctx context.Context, in CreateWebhookRequest, opts ...CallOption) (*WebhookWithSecret,
	error) {
	return call[WebhookWithSecret](ctx, c, request{operation: opCreateWebhook(), in: in}, opts)
}

// ListWebhooks lists the account's webhooks, oldest first.
func (c *Client) ListWebhooks(ctx context.Context, opts ...CallOption) ([]Webhook, error) {
	list, err := call[[]Webhook](ctx, c, request{operation: opListWebhooks()}, opts)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// GetWebhook reads one webhook. If it does not exist or belongs to another
// account, the error is an [*Error] with [ProblemCodeNotFound], in all methods
// that take a webhook.
func (c *Client) GetWebhook(ctx context.Context, id uuid.UUID, opts ...CallOption) (*Webhook, error) {
	return call[Webhook](ctx, c, request{operation: opGetWebhook(id.String())}, opts)
}

// UpdateWebhook changes the fields that are not nil and returns the webhook:
//
//	enabled := true
//	hook, err := c.UpdateWebhook(ctx, id, client.UpdateWebhookRequest{Enabled: &enabled})
//
// Events of a disabled webhook stay pending; once it is enabled,
// [Client.RecoverWebhook] sends all of them at once, including later events.
func (c *Client) UpdateWebhook(ctx context.Context, id uuid.UUID, in UpdateWebhookRequest,
	opts ...CallOption) (*Webhook, error) {
	return call[Webhook](ctx, c, request{operation: opUpdateWebhook(id.String()), in: in}, opts)
}

// DeleteWebhook deletes a webhook and its deliveries. If a retry after a broken
// attempt does not find the webhook, the broken attempt has deleted it: that is
// not an error.
func (c *Client) DeleteWebhook(ctx context.Context, id uuid.UUID, opts ...CallOption) error {
	return c.exec(ctx, request{operation: opDeleteWebhook(id.String())}, nil, opts)
}

// RotateWebhookSecret returns the webhook with a new secret, which is not shown
// again. For 24 hours requests are signed with both the new and the previous
// secret: give the receiver the new one, or both, within that time.
//
// Retries rotate the secret once. That matters because requests are signed with
// the two newest secrets only. If the call fails with an unknown outcome,
// repeat it with the same [WithIdempotencyKey], or rotate again and give the
// receiver the new secret at once.
func (c *Client) RotateWebhookSecret(ctx context.Context, id uuid.UUID, opts ...CallOption) (*WebhookWithSecret,
	error) {
	return call[WebhookWithSecret](ctx, c, request{operation: opRotateWebhookSecret(id.String())}, opts)
}

// TestWebhook sends one test event to a webhook immediately and returns the
// attempt. An attempt that the receiver rejects is not an error. The event's
// Seq is 0 and its card does not exist. With the zero request it is an
// [EventTypeCardGenerated].
//
// After a broken connection, a retry may send a second test event.
func (c *Client) TestWebhook(ctx context.Context, id uuid.UUID, in TestWebhookRequest,
	opts ...CallOption) (*DeliveryAttempt, error) {
	return call[DeliveryAttempt](ctx, c, request{operation: opTestWebhook(id.String()), in: in}, opts)
}

// Redeliver sends an event again as soon as possible, regardless of earlier
// attempts, with the same id and all attempts of a new delivery. If the webhook
// is disabled, the error is an [*Error] with [ProblemCodeWebhookDisabled].
func (c *Client) Redeliver(ctx context.Context, id, event uuid.UUID, opts ...CallOption) error {
	return c.exec(ctx, request{operation: opRedeliver(id.String(), event.String())}, nil, opts)
}

// RecoverWebhook immediately sends all events since the given time that failed,
// are pending, or happened while the webhook was disabled or did not exist yet,
// and returns their number. If the webhook is disabled, the error is an
// [*Error] with [ProblemCodeWebhookDisabled].
func (c *Client) RecoverWebhook(ctx context.Context, id uuid.UUID, since time.Time, opts ...CallOption) (*Recovery,
	error) {
	query := url.Values{"since": {since.UTC().Format(time.RFC3339Nano)}}
	return call[Recovery](ctx, c, request{operation: opRecoverWebhook(id.String()), query: query.Encode()}, opts)
}
