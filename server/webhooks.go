package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

// CreateWebhook implements createWebhook.
func (a *api) CreateWebhook(ctx context.Context, r CreateWebhookRequestObject) (CreateWebhookResponseObject, error) {
	ctx, owner, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	types := eventTypes(r.Body.Types)
	hooks, request, err := a.keyed(owner, r.Params.IdempotencyKey, "createWebhook", r.Body.URL,
		deref(r.Body.Description, ""), fmt.Sprint(deref(types, nil)))
	if err != nil {
		return nil, err
	}
	w, secret, err := hooks.CreateWebhook(ctx, owner,
		webhook.Request{URL: &r.Body.URL, Description: r.Body.Description, Types: types})
	if err != nil {
		return nil, err
	}
	location := "/api/webhooks/" + w.ID.String()
	return CreateWebhook201JSONResponse{
		Headers: CreateWebhook201ResponseHeaders{Location: &location, IdempotencyReplayed: replayed(request)},
		Body:    WebhookWithSecret{Webhook: wireWebhook(w), Secret: secret.Reveal()}}, nil
}

// ListWebhooks implements listWebhooks.
func (a *api) ListWebhooks(ctx context.Context, _ ListWebhooksRequestObject) (ListWebhooksResponseObject, error) {
	ctx, owner, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	all, err := a.webhooks.ListWebhooks(ctx, owner)
	if err != nil {
		return nil, err
	}
	list := ListWebhooks200JSONResponse{Body: make([]Webhook, len(all))}
	for i, w := range all {
		list.Body[i] = wireWebhook(w)
	}
	return list, nil
}

// GetWebhook implements getWebhook.
func (a *api) GetWebhook(ctx context.Context, r GetWebhookRequestObject) (GetWebhookResponseObject, error) {
	ctx, owner, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	w, err := a.webhooks.GetWebhook(ctx, owner, r.WebhookID)
	if err != nil {
		return nil, err
	}
	return GetWebhook200JSONResponse{OneWebhookJSONResponse{Body: wireWebhook(w)}}, nil
}

// UpdateWebhook implements updateWebhook.
func (a *api) UpdateWebhook(ctx context.Context, r UpdateWebhookRequestObject) (UpdateWebhookResponseObject, error) {
	ctx, owner, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	w, err := a.webhooks.UpdateWebhook(ctx, owner, r.WebhookID, webhook.Request{
		URL: r.Body.URL, Description: r.Body.Description, Types: eventTypes(r.Body.Types), Enabled: r.Body.Enabled,
	})
	if err != nil {
		return nil, err
	}
	return UpdateWebhook200JSONResponse{OneWebhookJSONResponse{Body: wireWebhook(w)}}, nil
}

// DeleteWebhook implements deleteWebhook.
func (a *api) DeleteWebhook(ctx context.Context, r DeleteWebhookRequestObject) (DeleteWebhookResponseObject, error) {
	ctx, owner, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	return DeleteWebhook204Response{}, a.webhooks.DeleteWebhook(ctx, owner, r.WebhookID)
}

// RotateWebhookSecret implements rotateWebhookSecret.
func (a *api) RotateWebhookSecret(gc context.Context,
	r RotateWebhookSecretRequestObject) (RotateWebhookSecretResponseObject, error) {
	ctx, owner, err := caller(gc)
	if err != nil {
		return nil, err
	}
	hooks, request, err := a.keyed(owner, r.Params.IdempotencyKey, "rotateWebhookSecret", r.WebhookID.String())
	if err != nil {
		return nil, err
	}
	w, secret, err := hooks.RotateWebhookSecret(ctx, owner, r.WebhookID)
	if err != nil {
		return nil, err
	}
	a.audited(gc, "webhook_secret_rotated", "rotateWebhookSecret", slog.String("webhook", w.ID.String()))
	return RotateWebhookSecret200JSONResponse{
		Headers: RotateWebhookSecret200ResponseHeaders{IdempotencyReplayed: replayed(request)},
		Body:    WebhookWithSecret{Webhook: wireWebhook(w), Secret: secret.Reveal()}}, nil
}

// TestWebhook implements testWebhook.
func (a *api) TestWebhook(ctx context.Context, r TestWebhookRequestObject) (TestWebhookResponseObject, error) {
	ctx, owner, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	kind := card.EventGenerated
	if r.Body != nil && r.Body.Type != nil {
		kind = card.EventType(*r.Body.Type)
	}
	hooks, request, err := a.keyed(owner, r.Params.IdempotencyKey, "testWebhook", r.WebhookID.String(), string(kind))
	if err != nil {
		return nil, err
	}
	attempt, err := hooks.TestWebhook(ctx, owner, r.WebhookID, kind)
	if err != nil {
		return nil, err
	}
	return TestWebhook200JSONResponse{Headers: TestWebhook200ResponseHeaders{IdempotencyReplayed: replayed(request)},
		Body: wireAttempt(attempt)}, nil
}

// ListDeliveries implements listDeliveries.
func (a *api) ListDeliveries(ctx context.Context, r ListDeliveriesRequestObject) (ListDeliveriesResponseObject, error) {
	ctx, owner, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	limit := int(deref(r.Params.Limit, pageSize))
	state := deref(r.Params.State, "")
	ds, more, err := a.webhooks.ListDeliveries(ctx, owner, r.WebhookID, webhook.DeliveryFilter{
		State: webhook.DeliveryState(state), Before: deref(r.Params.Before, 0), Limit: limit,
	})
	if err != nil {
		return nil, err
	}
	page := ListDeliveries200JSONResponse{Body: make([]Delivery, len(ds))}
	for i, d := range ds {
		page.Body[i] = wireDelivery(d)
	}
	if more {
		query := url.Values{"limit": {strconv.Itoa(limit)}, "before": {strconv.FormatInt(ds[limit-1].Event.Seq, 10)}}
		if state != "" {
			query.Set("state", string(state))
		}
		page.Headers.Link = next("/api/webhooks/"+r.WebhookID.String()+"/deliveries", query)
	}
	return page, nil
}

// Redeliver implements redeliver.
func (a *api) Redeliver(ctx context.Context, r RedeliverRequestObject) (RedeliverResponseObject, error) {
	ctx, owner, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	hooks, request, err := a.keyed(owner, r.Params.IdempotencyKey, "redeliver", r.WebhookID.String(), r.EventID.String())
	if err != nil {
		return nil, err
	}
	if err := hooks.Redeliver(ctx, owner, r.WebhookID, r.EventID); err != nil {
		return nil, err
	}
	return Redeliver202Response{Headers: Redeliver202ResponseHeaders{IdempotencyReplayed: replayed(request)}}, nil
}

// RecoverWebhook implements recoverWebhook.
func (a *api) RecoverWebhook(ctx context.Context, r RecoverWebhookRequestObject) (RecoverWebhookResponseObject, error) {
	ctx, owner, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	since := time.Time(r.Params.Since)
	hooks, request, err := a.keyed(owner, r.Params.IdempotencyKey, "recoverWebhook", r.WebhookID.String(),
		since.UTC().Format(time.RFC3339Nano))
	if err != nil {
		return nil, err
	}
	n, err := hooks.RecoverWebhook(ctx, owner, r.WebhookID, since)
	if err != nil {
		return nil, err
	}
	return RecoverWebhook202JSONResponse{Headers: RecoverWebhook202ResponseHeaders{IdempotencyReplayed: replayed(request)},
		Body: Recovery{Count: n}}, nil
}

func eventTypes(wire *[]EventType) *[]card.EventType {
	if wire == nil {
		return nil
	}
	types := make([]card.EventType, len(*wire))
	for i, t := range *wire {
		types[i] = card.EventType(t)
	}
	return &types
}

func wireWebhook(w *webhook.Webhook) Webhook {
	wire := Webhook{ID: w.ID, URL: w.URL, Description: w.Description, Types: make([]EventType, len(w.Types)),
		Enabled:    w.Enabled,
		DisabledAt: wireTime(w.DisabledAt), FailingSince: wireTime(w.FailingSince), CreatedAt: Time(w.CreatedAt)}
	for i, t := range w.Types {
		wire.Types[i] = EventType(t)
	}
	if !w.Enabled {
		wire.DisabledReason = ptr(string(w.DisabledReason))
	}
	return wire
}

func wireDelivery(d webhook.Delivery) Delivery {
	wire := Delivery{Event: wireEvent(d.Event), State: DeliveryState(d.State),
		Attempts: make([]DeliveryAttempt, len(d.Attempts))}
	for i, a := range d.Attempts {
		wire.Attempts[i] = wireAttempt(a)
	}
	switch {
	case d.State != webhook.DeliveryPending:
	case d.DueAt.Equal(webhook.Immediately()):
		wire.NextAttemptAt = wireTime(&d.Event.CreatedAt)
	default:
		wire.NextAttemptAt = wireTime(&d.DueAt)
	}
	return wire
}

func wireAttempt(a webhook.Attempt) DeliveryAttempt {
	wire := DeliveryAttempt{At: Time(a.At), DurationMs: a.Took.Milliseconds(), Answer: a.Answer}
	if a.Status != 0 {
		wire.Status = ptr(int32(a.Status))
	}
	if a.Error != "" {
		wire.Error = &a.Error
	}
	return wire
}

func wireTime(t *time.Time) *Time {
	if t == nil {
		return nil
	}
	return ptr(Time(*t))
}
