package client_test

import (
	"context"
	"database/sql"
	"log"
	"net/http"

	"github.com/cardmint/cardmint/client"
	"github.com/google/uuid"
)

// inTx is the context key of the transaction.
type inTx struct{}

// postgres is a Deduplicator for any number of processes. It needs a table:
//
//	CREATE TABLE events (id uuid PRIMARY KEY)
type postgres struct{ db *sql.DB }

func (p postgres) Once(ctx context.Context, id uuid.UUID, handle func(context.Context) error) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	// If another process has just inserted the id, this waits until its
	// transaction has ended.
	res, err := tx.ExecContext(ctx, `INSERT INTO events (id) VALUES ($1) ON CONFLICT DO NOTHING`, id)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err // nil: it was handled before
	}
	if err := handle(context.WithValue(ctx, inTx{}, tx)); err != nil {
		return err
	}
	return tx.Commit()
}

// Handle each event once in any number of processes: the changes of handle and
// the event's id are one commit.
func ExampleDeduplicator() {
	db, err := sql.Open("postgres", "dbname=shop") // with the driver imported
	if err != nil {
		log.Fatal(err)
	}
	receiver, err := client.NewWebhookHandler(webhookSecret, func(ctx context.Context, e *client.Event) error {
		tx := ctx.Value(inTx{}).(*sql.Tx)
		_, err := tx.ExecContext(ctx, `UPDATE orders SET card_status = $1 WHERE card = $2`, string(e.Status), e.CardUUID)
		return err
	}, client.WithDeduplicator(postgres{db}))
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/hooks/cardmint", receiver)
}
