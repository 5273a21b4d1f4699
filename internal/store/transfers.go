package store

import (
	"context"
	"errors"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

type transferRow struct {
	Currency    string `db:"currency"`
	TxID        string `db:"txid"`
	Output      int64  `db:"output"`
	Address     string `db:"address"`
	Amount      int64  `db:"amount"`
	Height      int64  `db:"height"`
	Locked      bool   `db:"locked"`
	Counted     bool   `db:"counted"`
	FirstSeenAt int64  `db:"first_seen_at"`
}

func (r *transferRow) transfer() card.Transfer {
	return card.Transfer{Currency: r.Currency, TxID: r.TxID, Output: r.Output, Address: r.Address,
		Amount: card.Amount(r.Amount),
		Height: r.Height, Locked: r.Locked, Counted: r.Counted, FirstSeenAt: fromMillis(r.FirstSeenAt)}
}

const selectTransfers = "SELECT currency, txid, output, address, amount, height, locked, counted, first_seen_at FROM transfers"

// TransfersIn implements settle.Tx.
func (t *tx) TransfersIn(ctx context.Context, currency string, since int64, again []settle.Blocks) ([]card.Transfer,
	error) {
	// With OR, SQLite would read all transfers.
	query, args := selectTransfers+" WHERE currency = ? AND counted AND height = 0", []any{currency}
	query, args = query+" UNION ALL "+selectTransfers+" WHERE currency = ? AND counted AND height > ?",
		append(args, currency, max(0, since))
	for _, b := range again {
		query += " UNION ALL " + selectTransfers + " WHERE currency = ? AND counted AND height BETWEEN ? AND ?"
		args = append(args, currency, max(1, b.First), min(b.Last, since))
	}
	return t.transfers(ctx, query, args...)
}

// TransfersOf implements settle.Tx.
func (t *tx) TransfersOf(ctx context.Context, currency string, txids []string) ([]card.Transfer, error) {
	var all []card.Transfer
	err := inChunks(txids, func(some []string) error {
		these, args := in(t.s.dialect, "txid", "TEXT", some)
		found, err := t.transfers(ctx, selectTransfers+" WHERE currency = ? AND "+these+" AND counted",
			append([]any{currency}, args...)...)
		all = append(all, found...)
		return err
	})
	return all, err
}

// TransfersTo implements settle.Tx and operator.Tx.
func (t *tx) TransfersTo(ctx context.Context, currency string, addresses []string) ([]card.Transfer, error) {
	var all []card.Transfer
	err := inChunks(addresses, func(some []string) error {
		// SQLite reads the tables of a CROSS JOIN in the written order, and
		// would begin with all attributions.
		const attributed = `cards c CROSS JOIN attributions a CROSS JOIN transfers t`
		to, args := in(t.s.dialect, "t.address", "TEXT", some)
		of, _ := in(t.s.dialect, "c.address", "TEXT", some)
		args = append([]any{currency}, args...)
		found, err := t.transfers(ctx,
			"SELECT t.currency, t.txid, t.output, t.address, t.amount, t.height, t.locked, t.counted, t.first_seen_at FROM transfers t WHERE t.currency = ? AND t.counted AND "+to+" AND "+notAttributed+
				" UNION ALL SELECT t.currency, t.txid, t.output, c.address, t.amount, t.height, t.locked, t.counted, t.first_seen_at FROM "+attributed+
				" WHERE c.currency = ? AND "+of+
				" AND a.card_uuid = c.uuid AND t.currency = a.currency AND t.txid = a.txid AND t.output = a.output AND t.counted",
			append(args, args...)...)
		all = append(all, found...)
		return err
	})
	return all, err
}

func (t *tx) transfers(ctx context.Context, query string, args ...any) ([]card.Transfer, error) {
	return t.s.transfers(ctx, t.t, query, args...)
}

func (s *Store) transfers(ctx context.Context, on runner, query string, args ...any) ([]card.Transfer, error) {
	var found []transferRow
	if err := s.list(ctx, on, &found, "select transfers", query, args...); err != nil {
		return nil, err
	}
	ts := make([]card.Transfer, len(found))
	for i := range found {
		ts[i] = found[i].transfer()
	}
	return ts, nil
}

// UpsertTransfers implements settle.Tx. A stored transfer keeps its
// first_seen_at.
func (t *tx) UpsertTransfers(ctx context.Context, ts []card.Transfer) error {
	return inChunks(ts, func(some []card.Transfer) error {
		values := make([][]any, len(some))
		for i, x := range some {
			values[i] = []any{x.Currency, x.TxID, x.Output, x.Address, int64(x.Amount), x.Height, x.Locked, x.Counted,
				x.FirstSeenAt.UnixMilli()}
		}
		table, args := t.s.dialect.table(values, "TEXT", "TEXT", "BIGINT", "TEXT", "BIGINT", "BIGINT", "BOOLEAN", "BOOLEAN",
			"BIGINT")
		_, err := t.s.exec(ctx, t.t, "upsert transfers", upsertTransfers(table), args...)
		return err
	})
}

// upsertTransfers returns a statement that stores transfers from a table. The
// stored column attributed only narrows searches, which check again (isStray):
// cards and attributions may be inserted later.
func upsertTransfers(table string) string {
	return `INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at, attributed)
		SELECT v.column1, v.column2, v.column3, v.column4, v.column5, v.column6, v.column7, v.column8, v.column9, CASE
			WHEN (SELECT a.id FROM attributions a WHERE a.currency = v.column1 AND a.txid = v.column2 AND a.output = v.column3) IS NOT NULL THEN TRUE
			WHEN (SELECT c.uuid FROM cards c WHERE c.currency = v.column1 AND c.address = v.column4) IS NULL THEN FALSE END
		FROM ` + table + ` WHERE TRUE ON CONFLICT (currency, txid, output) DO UPDATE SET address = excluded.address, amount = excluded.amount,
			height = excluded.height, locked = excluded.locked, counted = excluded.counted, attributed = excluded.attributed`
}

// Cursor implements settle.Store.
func (s *Store) Cursor(ctx context.Context, coin card.Currency) (settle.Cursor, error) {
	var row struct {
		Fingerprint  string `db:"fingerprint"`
		Height       int64  `db:"height"`
		Hash         string `db:"hash"`
		Time         int64  `db:"time"`
		DeepHeight   int64  `db:"deep_height"`
		DeepHash     string `db:"deep_hash"`
		LowestLocked int64  `db:"lowest_locked"`
		Rescan       string `db:"rescan"`
		Believe      bool   `db:"believe"`
		Conflict     string `db:"conflict"`
		Restored     bool   `db:"restored"`
		Newest       int64  `db:"newest"`
	}
	err := s.get(ctx, prepared{s.r}, &row, "select cursor", `SELECT fingerprint, height, hash, time, deep_height, deep_hash, (SELECT COALESCE(MIN(t.height), 0) FROM transfers t
		WHERE t.currency = chains.currency AND t.counted AND t.locked AND t.height > 0 AND t.height > chains.height - ?) AS lowest_locked,
		COALESCE(p.rescan, '') AS rescan, COALESCE(p.rescan_believed, FALSE) AS believe, COALESCE(p.conflict, '') AS conflict,
		EXISTS (SELECT 1 FROM settings s WHERE s.name = 'restored_at' AND CAST(s.value AS BIGINT) >
			COALESCE((SELECT e.started_at FROM epochs e WHERE e.currency = chains.currency ORDER BY e.epoch DESC LIMIT 1), 0)) AS restored,
		(SELECT COALESCE(MAX(a.position), ?) FROM addresses a WHERE a.currency = chains.currency) AS newest
		FROM chains LEFT JOIN address_pools p ON p.currency = chains.currency WHERE chains.currency = ?`, coin.LockHorizonBlocks(), settle.NoPosition, coin.Code)
	if errors.Is(err, card.ErrNoRow) {
		return settle.Cursor{Newest: settle.NoPosition}, nil
	}
	return settle.Cursor{Fingerprint: row.Fingerprint, LowestLocked: row.LowestLocked, Rescan: row.Rescan,
		Believe: row.Believe, Newest: row.Newest, Conflict: row.Conflict, Restored: row.Restored,
		Tip:  card.Tip{Height: row.Height, Hash: row.Hash, Time: fromMillis(row.Time)},
		Deep: card.Tip{Height: row.DeepHeight, Hash: row.DeepHash}}, err
}

// LockedBlocks implements settle.Store.
func (s *Store) LockedBlocks(ctx context.Context, currency string, in settle.Blocks, n int) ([]int64, error) {
	var heights []int64
	err := s.list(ctx, s.r, &heights, "select locked blocks", `SELECT DISTINCT height FROM transfers
		WHERE currency = ? AND counted AND locked AND height BETWEEN ? AND ? ORDER BY height LIMIT ?`, currency, in.First, in.Last, n)
	return heights, err
}

// SaveCursor implements settle.Tx.
func (t *tx) SaveCursor(ctx context.Context, currency string, c settle.Cursor) error {
	_, err := t.s.exec(ctx, t.t, "save cursor", `INSERT INTO chains (currency, fingerprint, height, hash, time, deep_height, deep_hash) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (currency) DO UPDATE SET fingerprint = excluded.fingerprint, height = excluded.height, hash = excluded.hash, time = excluded.time,
		deep_height = excluded.deep_height, deep_hash = excluded.deep_hash`,
		currency, c.Fingerprint, c.Tip.Height, c.Tip.Hash, c.Tip.Time.UnixMilli(), c.Deep.Height, c.Deep.Hash)
	return err
}

// Tip implements operator.Tx.
func (t *tx) Tip(ctx context.Context, currency string) (card.Tip, error) {
	var row struct {
		Height int64  `db:"height"`
		Hash   string `db:"hash"`
		Time   int64  `db:"time"`
	}
	err := t.s.get(ctx, t.t, &row, "select tip", "SELECT height, hash, time FROM chains WHERE currency = ?", currency)
	if errors.Is(err, card.ErrNoRow) {
		return card.Tip{}, nil
	}
	return card.Tip{Height: row.Height, Hash: row.Hash, Time: fromMillis(row.Time)}, err
}
