package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
)

// storedOffer is an offer as JSON.
type storedOffer struct {
	Min  int64  `json:"min_cents"`
	Max  int64  `json:"max_cents"`
	Left *int64 `json:"left,omitempty"` // absent if unlimited
	Life int64  `json:"life_ms,omitempty"`

	Total int64 `json:"total_cents,omitempty"` // absent if there is no limit
}

// SaveOffers implements issue.OfferStore.
func (s *Store) SaveOffers(ctx context.Context, o card.SupplierOffers) error {
	stored := make([]storedOffer, len(o.Offers))
	for i, x := range o.Offers {
		stored[i] = storedOffer{Min: int64(x.Min), Max: int64(x.Max), Life: x.Life.Milliseconds(), Total: int64(x.Total)}
		if x.Left != card.Unlimited {
			stored[i].Left = &x.Left
		}
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	now := s.dialect.now
	_, err = s.exec(ctx, s.w, "save offers", `INSERT INTO offers (supplier, priority, offers, at) VALUES (?, ?, ?, `+now+`)
		ON CONFLICT (supplier) DO UPDATE SET priority = excluded.priority, offers = excluded.offers, at = excluded.at`, o.Supplier, o.Priority, string(text))
	return err
}

// KeepOffers implements issue.OfferStore. A supplier without a row gets one,
// because it is known to offer nothing.
func (s *Store) KeepOffers(ctx context.Context, supplier string, priority int) error {
	_, err := s.exec(ctx, s.w, "keep offers", `INSERT INTO offers (supplier, priority, offers, at) VALUES (?, ?, '[]', 0)
		ON CONFLICT (supplier) DO UPDATE SET priority = excluded.priority`, supplier, priority)
	return err
}

// PromisedUSD implements issue.OfferStore. It finds open cards by the index of
// states, and paid ones by the indexes of waiting intents.
func (s *Store) PromisedUSD(ctx context.Context, least, most card.USD) (card.USD, error) {
	const part = ` AND c.usd_cents BETWEEN ? AND ?
		AND c.uuid NOT IN (SELECT q.card_uuid FROM stock q WHERE q.state = 'reserved' AND q.card_uuid IS NOT NULL)`
	var cents int64
	err := s.get(ctx, s.r, &cents, "add up promised cards", `SELECT CAST(COALESCE(SUM(x.usd_cents), 0) AS BIGINT) FROM (
		SELECT c.usd_cents FROM accounts a JOIN cards c ON c.account_id = a.id
			WHERE c.status = 'awaiting_payment' AND c.payment_state IN ('unpaid', 'detected', 'underpaid', 'confirming')`+part+`
		UNION ALL SELECT c.usd_cents FROM intents i JOIN cards c ON c.uuid = i.card_uuid
			WHERE i.state IN ('open', 'pending') AND c.payment_state = 'paid'`+part+`
		UNION ALL SELECT c.usd_cents FROM intents i JOIN cards c ON c.uuid = i.card_uuid
			WHERE i.state IN ('parked', 'refund_due') AND i.state <> 'refund_due' AND c.payment_state = 'paid'`+part+`) x`, least, most, least, most, least, most)
	return card.USD(cents), err
}

// DeleteOffers implements issue.OfferStore.
func (s *Store) DeleteOffers(ctx context.Context, except []string) error {
	query, args, err := sqlx.In("DELETE FROM offers WHERE supplier NOT IN (?)", except)
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, s.w, "delete offers", query, args...)
	return err
}

// Offers implements order.Store.
func (s *Store) Offers(ctx context.Context) ([]card.SupplierOffers, error) {
	var found []struct {
		Supplier string `db:"supplier"`
		Priority int    `db:"priority"`
		Offers   string `db:"offers"`
		Age      int64  `db:"age"`
	}
	err := s.list(ctx, s.r, &found, "select offers",
		"SELECT supplier, priority, offers, "+s.dialect.now+" - at AS age FROM offers")
	if err != nil {
		return nil, err
	}
	all := make([]card.SupplierOffers, len(found))
	for i, f := range found {
		all[i] = card.SupplierOffers{Supplier: f.Supplier, Priority: f.Priority,
			Age: time.Duration(min(f.Age, 1e9)) * time.Millisecond}
		var stored []storedOffer
		if err := json.Unmarshal([]byte(f.Offers), &stored); err != nil {
			return nil, fmt.Errorf("offers of %s: %w", f.Supplier, err)
		}
		for _, x := range stored {
			o := card.Offer{Min: card.USD(x.Min), Max: card.USD(x.Max), Left: card.Unlimited,
				Life:  time.Duration(x.Life) * time.Millisecond,
				Total: card.USD(x.Total)}
			if x.Left != nil {
				o.Left = *x.Left
			}
			all[i].Offers = append(all[i].Offers, o)
		}
	}
	card.SortByPriority(all)
	return all, nil
}
