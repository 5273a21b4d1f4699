package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

const selectTokens = `SELECT t.id, t.account_id, a.name AS account, t.name, t.hash, t.scopes, t.created_at, t.expires_at, t.revoked_at, t.replaced_by, t.seal
	FROM tokens t JOIN accounts a ON a.id = t.account_id`

type tokenRow struct {
	ID         uuid.UUID     `db:"id"`
	AccountID  uuid.UUID     `db:"account_id"`
	Account    string        `db:"account"`
	Name       string        `db:"name"`
	Hash       []byte        `db:"hash"`
	Scopes     *string       `db:"scopes"` // nil for all
	CreatedAt  int64         `db:"created_at"`
	ExpiresAt  *int64        `db:"expires_at"`
	RevokedAt  *int64        `db:"revoked_at"`
	ReplacedBy uuid.NullUUID `db:"replaced_by"`
	Seal       []byte        `db:"seal"`
}

func (r *tokenRow) token() account.Token {
	scopes := account.AllScopes
	if r.Scopes != nil {
		scopes = account.ReadScopes(*r.Scopes)
	}
	return account.Token{ID: r.ID, AccountID: r.AccountID, Account: r.Account, Name: r.Name, Hash: r.Hash, Scopes: scopes,
		CreatedAt: fromMillis(r.CreatedAt), ExpiresAt: fromNullMillis(r.ExpiresAt), RevokedAt: fromNullMillis(r.RevokedAt),
		ReplacedBy: r.ReplacedBy.UUID, Seal: r.Seal}
}

func fromNullMillis(ms *int64) *time.Time {
	if ms == nil {
		return nil
	}
	t := fromMillis(*ms)
	return &t
}

func nullMillis(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UnixMilli()
}

// InsertAccount implements account.Store. Inserting the same account again is a
// no-op.
func (s *Store) InsertAccount(ctx context.Context, a account.Account) error {
	_, err := s.exec(ctx, s.w, "insert account",
		"INSERT INTO accounts (id, name, created_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING", a.ID, a.Name,
		a.CreatedAt.UnixMilli())
	return err
}

type accountRow struct {
	ID        uuid.UUID `db:"id"`
	Name      string    `db:"name"`
	CreatedAt int64     `db:"created_at"`
}

func (r *accountRow) account() account.Account {
	return account.Account{ID: r.ID, Name: r.Name, CreatedAt: fromMillis(r.CreatedAt)}
}

// AccountByName implements account.Store.
func (s *Store) AccountByName(ctx context.Context, name string) (account.Account, error) {
	var row accountRow
	err := s.get(ctx, s.r, &row, "select account", "SELECT id, name, created_at FROM accounts WHERE name = ?", name)
	return row.account(), err
}

// Accounts returns all accounts, by name.
func (s *Store) Accounts(ctx context.Context) ([]account.Account, error) {
	var found []accountRow
	err := s.list(ctx, s.r, &found, "select accounts", "SELECT id, name, created_at FROM accounts ORDER BY name")
	accounts := make([]account.Account, len(found))
	for i := range found {
		accounts[i] = found[i].account()
	}
	return accounts, err
}

// Exposure implements order.Store. COALESCE keeps the databases on the small
// index of cards that lost money.
func (s *Store) Exposure(ctx context.Context, account uuid.UUID, open bool) (order.Exposure, error) {
	var row struct {
		Open     int64 `db:"open"`
		Reversed bool  `db:"reversed"`
	}
	sum, args := "0", []any{account}
	if open {
		sum = "CAST(" + openUSD("?") + " AS BIGINT)"
		args = append(args, account)
	}
	err := s.get(ctx, s.r, &row, "select exposure",
		"SELECT "+sum+
			" AS open, EXISTS (SELECT 1 FROM cards c WHERE COALESCE(c.account_id, c.account_id) = ? AND COALESCE(c.payment_state, '') = 'reversed' AND "+isLost+") AS reversed", args...)
	return order.Exposure{OpenUSD: card.USD(row.Open), Reversed: row.Reversed}, err
}

// Tokens implements account.Store.
func (s *Store) Tokens(ctx context.Context) ([]account.Token, error) {
	var found []tokenRow
	if err := s.list(ctx, s.r, &found, "select tokens", selectTokens+" ORDER BY t.id"); err != nil {
		return nil, err
	}
	tokens := make([]account.Token, len(found))
	for i := range found {
		tokens[i] = found[i].token()
	}
	return tokens, nil
}

// TokenByHash implements account.Store. It is one round trip.
func (s *Store) TokenByHash(ctx context.Context, hash []byte) (account.Token, error) {
	var row tokenRow
	if err := s.statements.tokenByHash.get(ctx, &row, hash); err != nil {
		return account.Token{}, s.fail("select token", err)
	}
	return row.token(), nil
}

// Setting implements account.Store.
func (s *Store) Setting(ctx context.Context, name, proposed string) (string, error) {
	_, err := s.exec(ctx, s.w, "insert setting",
		"INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", name, proposed)
	if err != nil {
		return "", err
	}
	var value string
	err = s.get(ctx, s.w, &value, "select setting", "SELECT value FROM settings WHERE name = ?", name)
	return value, err
}
