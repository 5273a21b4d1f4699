-- +goose NO TRANSACTION
-- What clients store with their cards. Every statement can be run again, as in 00010.
-- +goose Up
ALTER TABLE cards ADD COLUMN IF NOT EXISTS reference TEXT COLLATE "C", -- NULL if the order had none
    ADD COLUMN IF NOT EXISTS metadata TEXT; -- a JSON object of strings; NULL if the order had none

SELECT set_config('lock_timeout', COALESCE(current_setting('cardmint.lock_wait', TRUE), '0'), FALSE);

-- Newest first, with one reference.
DROP INDEX CONCURRENTLY IF EXISTS cards_reference;
CREATE INDEX CONCURRENTLY cards_reference ON cards (account_id, reference, uuid) WHERE reference IS NOT NULL;
-- Likewise, by kinds of cards: what filters combine to is made of these.
DROP INDEX CONCURRENTLY IF EXISTS cards_kind;
CREATE INDEX CONCURRENTLY cards_kind ON cards (account_id, status, payment_state, currency, uuid);
DROP INDEX CONCURRENTLY IF EXISTS cards_reference_kind;
CREATE INDEX CONCURRENTLY cards_reference_kind ON cards (account_id, reference, status, payment_state, currency, uuid) WHERE reference IS NOT NULL;

-- Programs of before go on: they show neither.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS cards_reference_kind;
DROP INDEX CONCURRENTLY IF EXISTS cards_kind;
DROP INDEX CONCURRENTLY IF EXISTS cards_reference;
ALTER TABLE cards DROP COLUMN IF EXISTS metadata, DROP COLUMN IF EXISTS reference;
UPDATE schema_compatibility SET oldest = 6;
