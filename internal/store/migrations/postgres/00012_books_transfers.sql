-- +goose NO TRANSACTION
-- As 00010: it can be run again, and nobody waits behind it.
-- +goose Up
SELECT set_config('lock_timeout', COALESCE(current_setting('cardmint.lock_wait', TRUE), '0'), FALSE);

-- The transfers of a day.
DROP INDEX CONCURRENTLY IF EXISTS transfers_seen;
CREATE INDEX CONCURRENTLY transfers_seen ON transfers (first_seen_at);

-- Programs of before go on.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS transfers_seen;
UPDATE schema_compatibility SET oldest = 6;
