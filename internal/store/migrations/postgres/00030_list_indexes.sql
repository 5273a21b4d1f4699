-- +goose NO TRANSACTION
-- As 00010: it can be run again, and nobody waits behind an index.
-- +goose Up
-- A list of cards reads the index of its rarest filter, newest first, and finds
-- the values of the other filters in that index.
-- A uuid is never NULL. But NULLS FIRST makes the order another than that of the
-- primary key, so that PostgreSQL does not walk that through the cards of all
-- accounts to find those of one.
SELECT set_config('lock_timeout', COALESCE(current_setting('cardmint.lock_wait', TRUE), '0'), FALSE);

DROP INDEX CONCURRENTLY IF EXISTS cards_account;
CREATE INDEX CONCURRENTLY cards_account ON cards (account_id, uuid NULLS FIRST) INCLUDE (status, currency);
DROP INDEX CONCURRENTLY IF EXISTS cards_state;
CREATE INDEX CONCURRENTLY cards_state ON cards (payment_state, account_id, uuid NULLS FIRST) INCLUDE (status, currency, canceled_at, usd_cents);
DROP INDEX CONCURRENTLY IF EXISTS cards_reference;
CREATE INDEX CONCURRENTLY cards_reference ON cards (account_id, reference, uuid NULLS FIRST) INCLUDE (status, payment_state, currency, canceled_at) WHERE reference IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS cards_list;
DROP INDEX CONCURRENTLY IF EXISTS cards_kinds;
DROP INDEX CONCURRENTLY IF EXISTS cards_reference_kind;
DROP INDEX CONCURRENTLY IF EXISTS cards_canceled;
CREATE INDEX CONCURRENTLY cards_canceled ON cards (account_id, uuid NULLS FIRST) WHERE canceled_at IS NOT NULL;

-- Programs of the previous version keep working. Their lists sort all cards of the account.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS cards_list;
CREATE INDEX CONCURRENTLY cards_list ON cards (account_id, uuid);
DROP INDEX CONCURRENTLY IF EXISTS cards_kinds;
CREATE INDEX CONCURRENTLY cards_kinds ON cards (account_id, status, payment_state, currency, uuid) INCLUDE (usd_cents);
DROP INDEX CONCURRENTLY IF EXISTS cards_reference_kind;
CREATE INDEX CONCURRENTLY cards_reference_kind ON cards (account_id, reference, status, payment_state, currency, uuid) WHERE reference IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS cards_canceled;
CREATE INDEX CONCURRENTLY cards_canceled ON cards (account_id, uuid) WHERE canceled_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS cards_account;
DROP INDEX CONCURRENTLY IF EXISTS cards_state;
DROP INDEX CONCURRENTLY IF EXISTS cards_reference;
UPDATE schema_compatibility SET oldest = 6;
