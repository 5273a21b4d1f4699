package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// ListCardsOptions filters the list of cards and sets its page size.
type ListCardsOptions struct {
	Status        CardStatus   // only cards with this status. Defaults to all.
	PaymentState  PaymentState // only cards whose payment is in this state. Defaults to all.
	Currency      string       // only cards that are paid with this cryptocurrency. Defaults to all.
	Reference     string       // only cards with exactly this reference. Defaults to all.
	CreatedAfter  time.Time    // only cards created then or later. Defaults to no limit.
	CreatedBefore time.Time    // only cards created before then. Defaults to no limit.
	PageSize      int          // cards per request, 1 to 1000. Defaults to 500.
}

// ListCards iterates over the account's cards, newest first:
//
//	for card, err := range c.ListCards(ctx, client.ListCardsOptions{}) {
//		if err != nil {
//			return err
//		}
//		// use the card
//	}
//
// Pages are fetched as the loop proceeds, and each page is complete before the
// loop sees its first card. Memory is therefore bounded by a page, a slow loop
// holds no connection open, and an interrupted page is fetched again as a
// whole: no card is skipped or repeated. If a page can't be fetched, the last
// iteration has the error and no card; a loop without an error has seen the
// whole list. Cards created during the loop are not in it.
func (c *Client) ListCards(ctx context.Context, in ListCardsOptions, opts ...CallOption) iter.Seq2[*Card, error] {
	query := url.Values{"limit": {strconv.Itoa(cmp.Or(in.PageSize, 500))}}
	for name, value := range map[string]string{"status": string(in.Status), "payment_state": string(in.PaymentState),
		"currency":  in.Currency,
		"reference": in.Reference} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, at := range map[string]time.Time{"created_after": in.CreatedAfter, "created_before": in.CreatedBefore} {
		if !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return list[Card](ctx, c, request{operation: opListCards(), query: query.Encode()}, opts)
}

// ListDeliveriesOptions filters the list of deliveries and sets its page size.
type ListDeliveriesOptions struct {
	State DeliveryState // only deliveries in this state. Defaults to all.
	// deliveries per request, 1 to 100, each with up to 20 attempts. Defaults
	// to 100.
	PageSize int
}

// ListDeliveries iterates over the sent and pending deliveries of a webhook,
// newest event first. It pages like [Client.ListCards].
func (c *Client) ListDeliveries(ctx context.Context, id uuid.UUID, in ListDeliveriesOptions,
	opts ...CallOption) iter.Seq2[*Delivery, error] {
	query := url.Values{"limit": {strconv.Itoa(cmp.Or(in.PageSize, 100))}}
	if in.State != "" {
		query.Set("state", string(in.State))
	}
	return list[Delivery](ctx, c, request{operation: opListDeliveries(id.String()), query: query.Encode()}, opts)
}

// Events iterates over the account's events after the one with this Seq, or
// over all if it is 0, in order and without gaps, up to the newest. It pages
// like [Client.ListCards]:
//
//	for e, err := range c.Events(ctx, last) {
//		if err != nil {
//			return err
//		}
//		// handle the event
//		last = e.Seq // store it permanently
//	}
//
// A program that does so regularly misses no event, even if webhooks fail.
func (c *Client) Events(ctx context.Context, after int64, opts ...CallOption) iter.Seq2[*Event, error] {
	query := url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {"1000"}}
	return list[Event](ctx, c, request{operation: opListEvents(), query: query.Encode()}, opts)
}

// list iterates over a list whose first page is r's response.
func list[T any](ctx context.Context, c *Client, r request, opts []CallOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		r := r // so that each loop starts from the beginning
		for {
			var page []T
			header, err := c.do(ctx, r, &page, opts)
			next := ""
			if err == nil {
				next, err = nextPage(header)
			}
			if err == nil && next == r.query {
				err = errors.New("the next page is the same page")
			}
			if err != nil {
				yield(nil, fmt.Errorf("%s: %w", r.name, err))
				return
			}
			for _, item := range page {
				if !yield(&item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			r.query = next
		}
	}
}

// nextLink matches a link with the relation next (RFC 8288).
var nextLink = regexp.MustCompile(`(?i)<([^<>]*)>[^<>]*;\s*rel="?next"?\s*(?:[;,]|$)`)

// nextPage returns the query of the next page, empty after the last. It ignores
// the link's host and path, so that the token is never sent elsewhere.
func nextPage(h http.Header) (string, error) {
	for _, header := range h.Values("Link") {
		link := nextLink.FindStringSubmatch(header)
		if link == nil {
			continue
		}
		u, err := url.Parse(link[1])
		if err != nil || u.RawQuery == "" {
			return "", errors.New("the link to the next page can't be read")
		}
		return u.RawQuery, nil
	}
	return "", nil
}
