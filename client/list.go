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

// ListCardsOptions narrows and divides the list of cards.
type ListCardsOptions struct {
	Status        CardStatus   // only cards with this status. Defaults to every status.
	PaymentState  PaymentState // only cards whose payment is in this state. Defaults to every state.
	Currency      string       // only cards that are paid with this cryptocurrency. Defaults to every one.
	Reference     string       // only cards with exactly this reference. Defaults to any.
	CreatedAfter  time.Time    // only cards that were created then or later. The zero time is for no limit.
	CreatedBefore time.Time    // only cards that were created before then. The zero time is for no limit.
	PageSize      int          // the most cards that one request fetches, 1 to 1000. Defaults to 500.
}

// ListCards goes through the account's cards, newest first:
//
//	for card, err := range c.ListCards(ctx, client.ListCardsOptions{}) {
//		if err != nil {
//			return err
//		}
//		// use the card
//	}
//
// The list is fetched page by page as the loop goes on, and each page is there
// in full before the loop sees its first card. So memory is bounded by a page
// however long the list is, a loop that takes its time holds no connection
// open, and a page that breaks off is fetched again as a whole: no card is left
// out or comes twice. If it can't be fetched the last step of the loop has the
// error and no card; a loop that ends without an error has seen the whole list.
// Cards created meanwhile are not in it.
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

// ListDeliveriesOptions narrows and divides the list of deliveries.
type ListDeliveriesOptions struct {
	State DeliveryState // only deliveries in this state. Defaults to every state.
	// the most deliveries that one request fetches, 1 to 100. Defaults to 100;
	// each may have 20 attempts.
	PageSize int
}

// ListDeliveries goes through what was sent to a webhook or is to be sent,
// newest event first. It is read as [Client.ListCards] is.
func (c *Client) ListDeliveries(ctx context.Context, id uuid.UUID, in ListDeliveriesOptions,
	opts ...CallOption) iter.Seq2[*Delivery, error] {
	query := url.Values{"limit": {strconv.Itoa(cmp.Or(in.PageSize, 100))}}
	if in.State != "" {
		query.Set("state", string(in.State))
	}
	return list[Delivery](ctx, c, request{operation: opListDeliveries(id.String()), query: query.Encode()}, opts)
}

// Events goes through the account's events after the one with this Seq, 0 for
// all, in order and without gaps to the last there is. It is read as
// [Client.ListCards] is:
//
//	for e, err := range c.Events(ctx, last) {
//		if err != nil {
//			return err
//		}
//		// deal with the event
//		last = e.Seq // kept where it outlives the program
//	}
//
// Whoever does so from time to time misses nothing, whatever happened to the
// account's webhooks.
func (c *Client) Events(ctx context.Context, after int64, opts ...CallOption) iter.Seq2[*Event, error] {
	query := url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {"1000"}}
	return list[Event](ctx, c, request{operation: opListEvents(), query: query.Encode()}, opts)
}

// list goes through a list whose first page is r's answer.
func list[T any](ctx context.Context, c *Client, r request, opts []CallOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		r := r // so that each loop starts afresh
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

// nextLink finds a link whose relation is next (RFC 8288).
var nextLink = regexp.MustCompile(`(?i)<([^<>]*)>[^<>]*;\s*rel="?next"?\s*(?:[;,]|$)`)

// nextPage is the query of the next page, empty after the last. Only the query
// is taken from the link: the list stays where it is, whatever host or path the
// link names, and so does the token.
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
