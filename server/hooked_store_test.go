package server_test

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/store"
)

// hooked is a store whose methods a test can replace.
type hooked struct {
	*store.Store
	cardByUUID    func(ctx context.Context, id uuid.UUID) (*card.Card, error)
	cards         func(ctx context.Context, filter order.Filter) ([]*card.Card, error)
	takeAddresses func() ([]string, error)
	beforeToken   func()
	beforeInsert  func()
	beforeCard    func()
	lastSeqs      func(accounts []uuid.UUID)
	beforeRecover func()
}

func (h hooked) SeqBefore(ctx context.Context, account uuid.UUID, since time.Time) (int64, error) {
	if h.beforeRecover != nil {
		h.beforeRecover()
	}
	return h.Store.SeqBefore(ctx, account, since)
}

func (h hooked) LastSeqs(ctx context.Context, accounts []uuid.UUID) (map[uuid.UUID]int64, error) {
	if h.lastSeqs != nil {
		h.lastSeqs(accounts)
	}
	return h.Store.LastSeqs(ctx, accounts)
}

func (h hooked) CardByUUID(ctx context.Context, account, id uuid.UUID) (*card.Card, error) {
	if h.beforeCard != nil {
		h.beforeCard()
	}
	if h.cardByUUID != nil {
		return h.cardByUUID(ctx, id)
	}
	return h.Store.CardByUUID(ctx, account, id)
}

func (h hooked) Cards(ctx context.Context, filter order.Filter) ([]*card.Card, error) {
	if h.cards != nil {
		return h.cards(ctx, filter)
	}
	return h.Store.Cards(ctx, filter)
}

func (h hooked) InsertCard(ctx context.Context, c *card.Card, limit card.USD) (bool, error) {
	if h.beforeInsert != nil {
		h.beforeInsert()
	}
	return h.Store.InsertCard(ctx, c, limit)
}

func (h hooked) TakeAddresses(ctx context.Context, currency string, n int) ([]string, error) {
	if h.takeAddresses != nil {
		return h.takeAddresses()
	}
	return h.Store.TakeAddresses(ctx, currency, n)
}

func (h hooked) TokenByHash(ctx context.Context, hash []byte) (account.Token, error) {
	if h.beforeToken != nil {
		h.beforeToken()
	}
	return h.Store.TokenByHash(ctx, hash)
}
