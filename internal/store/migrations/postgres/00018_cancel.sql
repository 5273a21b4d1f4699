-- +goose NO TRANSACTION
-- As 00010: it can be run again, and nobody waits behind the index.
-- +goose Up
-- When the client canceled the card. Its payment_state is then 'expired' where others are told 'canceled', so that programs of before can
-- read it: they take it for a card whose quote is over.
ALTER TABLE cards ADD COLUMN IF NOT EXISTS canceled_at BIGINT;

SELECT set_config('lock_timeout', COALESCE(current_setting('cardmint.lock_wait', TRUE), '0'), FALSE);

DROP INDEX CONCURRENTLY IF EXISTS cards_canceled;
CREATE INDEX CONCURRENTLY cards_canceled ON cards (account_id, uuid) WHERE canceled_at IS NOT NULL;

-- Programs of before go on. Money that comes before expires_at they honour as if the card had not been canceled.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS cards_canceled;
ALTER TABLE cards DROP COLUMN IF EXISTS canceled_at;
UPDATE schema_compatibility SET oldest = 6;
