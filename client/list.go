package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
)

// ListCardsOptions narrows and divides the list of cards.
type ListCardsOptions struct {
	Status   CardStatus // only cards with this status. Defaults to every status.
	PageSize int        // the most cards that one request fetches, 1 to 1000. Defaults to 500.
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
// The list is fetched page by page as the loop goes on, and each page is there in full before the loop sees its first card.
// So memory is bounded by a page however long the list is, a loop that takes its time holds no connection open, and a page that
// breaks off is fetched again as a whole: no card is left out or comes twice. If it can't be fetched the last step of the loop
// has the error and no card; a loop that ends without an error has seen the whole list. Cards created meanwhile are not in it.
func (c *Client) ListCards(ctx context.Context, opts ListCardsOptions) iter.Seq2[*Card, error] {
	return func(yield func(*Card, error) bool) {
		if opts.PageSize == 0 {
			opts.PageSize = 500
		}
		query := url.Values{"limit": {strconv.Itoa(opts.PageSize)}}
		if opts.Status != "" {
			query.Set("status", string(opts.Status))
		}
		r := request{operation: opListCards(), query: query.Encode()}
		for {
			var page []Card
			header, err := c.do(ctx, r, &page)
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
			for _, card := range page {
				if !yield(&card, nil) {
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

// nextPage is the query of the next page, empty after the last. Only the query is taken from the link: the list stays where it
// is, whatever host or path the link names, and so does the token.
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
