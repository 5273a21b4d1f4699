package settle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// ErrDatabaseBehind means that the wallet's beacon is ahead of the database:
// the database was restored, or another one uses the wallet.
var ErrDatabaseBehind = errors.New("the wallet has a later state than this database")

// behindTimeout is how long a wallet may stay ahead of its database: a worker
// stores a new state in the wallet first.
const behindTimeout = 10 * time.Second

// Wallet is the part of a node and its wallet that CompareWallet reads.
type Wallet interface {
	// Identify returns the fingerprint that Scan returns in its view.
	Identify(ctx context.Context) (string, error)
	Holds(ctx context.Context, newest Address) error
	Beacon(ctx context.Context) (Beacon, error)
}

// WalletRecord is the part of a database that CompareWallet reads.
type WalletRecord interface {
	Cursor(ctx context.Context, coin card.Currency) (Cursor, error)
	AddressPool(ctx context.Context, currency string) (Pool, error)
}

// Comparison is the data that CompareWallet read before its first error.
type Comparison struct {
	Fingerprint string // of the node and the wallet
	Beacon      Beacon
	Cursor      Cursor
	Pool        Pool
}

// IsNew reports whether the database has never used a wallet of the coin.
func (c Comparison) IsNew() bool { return c.Cursor.Fingerprint == "" }

// CompareWallet checks that a database was used with this node and this wallet,
// and changes neither. The error is card.ErrWrongChain if it was not,
// card.ErrWalletLost if the wallet lacks addresses, and card.ErrWalletShared or
// ErrDatabaseBehind if another database may use the wallet.
func CompareWallet(ctx context.Context, w Wallet, db WalletRecord, coin card.Currency) (Comparison, error) {
	for start := time.Now(); ; {
		c, err := compareWallet(ctx, w, db, coin)
		if !errors.Is(err, ErrDatabaseBehind) || time.Since(start) >= behindTimeout {
			return c, err
		}
		select {
		case <-time.After(behindTimeout / 20):
		case <-ctx.Done():
			return c, ctx.Err()
		}
	}
}

func compareWallet(ctx context.Context, w Wallet, db WalletRecord, coin card.Currency) (c Comparison, err error) {
	if c.Fingerprint, err = w.Identify(ctx); err != nil {
		return c, err
	}
	if c.Beacon, err = w.Beacon(ctx); err != nil {
		return c, fmt.Errorf("read beacon: %w", err)
	}
	if c.Cursor, err = db.Cursor(ctx, coin); err != nil {
		return c, err
	}
	if c.Pool, err = db.AddressPool(ctx, coin.Code); err != nil {
		return c, err
	}
	switch {
	case c.IsNew():
		return c, nil
	case c.Fingerprint != c.Cursor.Fingerprint:
		return c, fmt.Errorf("%w: the node and the wallet are %s; the database was used with %s", card.ErrWrongChain,
			shorten(c.Fingerprint), shorten(c.Cursor.Fingerprint))
	}
	if err := c.Cursor.shared(); err != nil {
		return c, err
	}
	if c.Pool.Newest != nil {
		if err := w.Holds(ctx, *c.Pool.Newest); err != nil {
			return c, err
		}
	}
	if b := c.Beacon; b.Epoch > c.Pool.LastEpoch || b.Epoch == c.Pool.LastEpoch && b.Epoch > 0 &&
		b.Position > c.Pool.last() {
		return c, fmt.Errorf(
			"%w: the wallet is in epoch %d and has handed out addresses up to %d; the database is in epoch %d and has them up to %d",
			ErrDatabaseBehind, b.Epoch, b.Position, c.Pool.LastEpoch, c.Pool.last())
	}
	return c, nil
}

// shorten shortens the hashes and addresses in a fingerprint.
func shorten(fingerprint string) string {
	words := strings.Fields(fingerprint)
	for i, w := range words {
		if len(w) > 20 {
			words[i] = w[:8] + "..." + w[len(w)-6:]
		}
	}
	return strings.Join(words, " ")
}
