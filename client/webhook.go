package client

import (
	"context"
	"net/url"
	"time"

	"github.com/google/uuid"
)

// CreateWebhook registers an address that events are sent to, and answers the
// webhook with its secret, which is not shown again. [NewWebhookHandler] and
// [ParseWebhook] receive what is sent.
//
// A webhook is made once however often the call repeats itself. If it fails for
// good after a connection that broke, repeat it with the same
// [WithIdempotencyKey], or look for the webhook with [Client.ListWebhooks], and
// delete it or change its secret.
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

// GetWebhook reads one webhook. One that does not exist or belongs to another
// account is an [*Error] with [ProblemCodeNotFound], here and wherever a
// webhook is named.
func (c *Client) GetWebhook(ctx context.Context, id uuid.UUID, opts ...CallOption) (*Webhook, error) {
	return call[Webhook](ctx, c, request{operation: opGetWebhook(id.String())}, opts)
}

// UpdateWebhook changes the fields that are not nil and answers the webhook
// after that:
//
//	enabled := true
//	hook, err := c.UpdateWebhook(ctx, id, client.UpdateWebhookRequest{Enabled: &enabled})
//
// What waits to be sent to a webhook that is disabled waits on; once it is
// enabled, [Client.RecoverWebhook] has all of it sent at once, and what
// happened meanwhile.
func (c *Client) UpdateWebhook(ctx context.Context, id uuid.UUID, in UpdateWebhookRequest,
	opts ...CallOption) (*Webhook, error) {
	return call[Webhook](ctx, c, request{operation: opUpdateWebhook(id.String()), in: in}, opts)
}

// DeleteWebhook removes a webhook and forgets its deliveries. If an attempt
// broke off and the webhook is not there when it is repeated, it was deleted:
// that is no error.
func (c *Client) DeleteWebhook(ctx context.Context, id uuid.UUID, opts ...CallOption) error {
	return c.exec(ctx, request{operation: opDeleteWebhook(id.String())}, nil, opts)
}

// RotateWebhookSecret answers the webhook with a new secret, which is not shown
// again. For 24 hours requests are signed with the new one and the one before
// it: give the receiver the new one, or both, within that time.
//
// The secret is changed once however often the call repeats itself. That
// matters because requests are signed with the two newest only: if the call
// fails for good and leaves open whether it was changed, repeat it with the
// same [WithIdempotencyKey], or change the secret again and give the receiver
// the answer at once.
func (c *Client) RotateWebhookSecret(ctx context.Context, id uuid.UUID, opts ...CallOption) (*WebhookWithSecret,
	error) {
	return call[WebhookWithSecret](ctx, c, request{operation: opRotateWebhookSecret(id.String())}, opts)
}

// TestWebhook sends an example to a webhook, now and once, and answers what
// came of it: also an attempt that the receiver refused is no error. The
// example's Seq is 0 and its card does not exist. With the zero request it is
// an [EventTypeCardGenerated].
//
// If it repeats itself after a connection that broke, the receiver may be sent
// two.
func (c *Client) TestWebhook(ctx context.Context, id uuid.UUID, in TestWebhookRequest,
	opts ...CallOption) (*DeliveryAttempt, error) {
	return call[DeliveryAttempt](ctx, c, request{operation: opTestWebhook(id.String()), in: in}, opts)
}

// Redeliver has an event sent again as soon as possible, whatever came of it
// before, with the same id and all the attempts of a new delivery. A webhook
// that is disabled is an [*Error] with [ProblemCodeWebhookDisabled].
func (c *Client) Redeliver(ctx context.Context, id, event uuid.UUID, opts ...CallOption) error {
	return c.exec(ctx, request{operation: opRedeliver(id.String(), event.String())}, nil, opts)
}

// RecoverWebhook has every event sent now that happened at since or later and
// that failed to be delivered, waits for its next attempt, or happened while
// the webhook was disabled or before it was there, and answers how many these
// are. A webhook that is disabled is an [*Error] with
// [ProblemCodeWebhookDisabled].
func (c *Client) RecoverWebhook(ctx context.Context, id uuid.UUID, since time.Time, opts ...CallOption) (*Recovery,
	error) {
	query := url.Values{"since": {since.UTC().Format(time.RFC3339Nano)}}
	return call[Recovery](ctx, c, request{operation: opRecoverWebhook(id.String()), query: query.Encode()}, opts)
}
