-- +goose NO TRANSACTION
-- As 00010: it can be run again, and nobody waits behind an index.
-- +goose Up
-- Triggers call these for every row. PostgreSQL would parse and plan a function in SQL anew for each statement.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION books_young() RETURNS BIGINT LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CAST(date_part('epoch', statement_timestamp()) * 1000 AS BIGINT) - 86400000;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION books_young_card() RETURNS UUID LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN lpad(to_hex(CAST(date_part('epoch', statement_timestamp()) * 1000 AS BIGINT) - 86400000), 12, '0') || '00000000000000000000';
END $$;
-- +goose StatementEnd

SELECT set_config('lock_timeout', COALESCE(current_setting('cardmint.lock_wait', TRUE), '0'), FALSE);

-- Each index makes every order dearer. The kinds of cards make up those with one status and those in one state of their payment, and the sum
-- of what is open.
DROP INDEX CONCURRENTLY IF EXISTS cards_kinds;
CREATE INDEX CONCURRENTLY cards_kinds ON cards (account_id, status, payment_state, currency, uuid) INCLUDE (usd_cents);
DROP INDEX CONCURRENTLY IF EXISTS cards_kind;
DROP INDEX CONCURRENTLY IF EXISTS cards_state;
DROP INDEX CONCURRENTLY IF EXISTS cards_status;
-- Of two indexes that it expects to cost the same, PostgreSQL takes the younger. For one reference that must be its own.
DROP INDEX CONCURRENTLY IF EXISTS cards_reference_kind;
CREATE INDEX CONCURRENTLY cards_reference_kind ON cards (account_id, reference, status, payment_state, currency, uuid) WHERE reference IS NOT NULL;

-- The kinds make up those with one reference, too.
DROP INDEX CONCURRENTLY IF EXISTS cards_reference;
-- Beside cards_late and cards_losses, which have few cards.
DROP INDEX CONCURRENTLY IF EXISTS cards_attention;
DROP INDEX CONCURRENTLY IF EXISTS cards_lost;

-- Programs of before go on. Their lists of one status or state, and the limit of what an account may have open, read all cards of the account.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS cards_lost;
CREATE INDEX CONCURRENTLY cards_lost ON cards (account_id) WHERE credit_lost > credit_written_off;
DROP INDEX CONCURRENTLY IF EXISTS cards_attention;
CREATE INDEX CONCURRENTLY cards_attention ON cards (account_id) WHERE payment_state IN ('late', 'reversed');
DROP INDEX CONCURRENTLY IF EXISTS cards_reference;
CREATE INDEX CONCURRENTLY cards_reference ON cards (account_id, reference, uuid) WHERE reference IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS cards_status;
CREATE INDEX CONCURRENTLY cards_status ON cards (account_id, status, uuid);
DROP INDEX CONCURRENTLY IF EXISTS cards_state;
CREATE INDEX CONCURRENTLY cards_state ON cards (account_id, payment_state, uuid) INCLUDE (usd_cents);
DROP INDEX CONCURRENTLY IF EXISTS cards_kind;
CREATE INDEX CONCURRENTLY cards_kind ON cards (account_id, status, payment_state, currency, uuid);
DROP INDEX CONCURRENTLY IF EXISTS cards_kinds;
CREATE OR REPLACE FUNCTION books_young() RETURNS BIGINT LANGUAGE sql STABLE AS
    $$ SELECT CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT) - 86400000 $$;
CREATE OR REPLACE FUNCTION books_young_card() RETURNS UUID LANGUAGE sql STABLE AS
    $$ SELECT CAST(lpad(to_hex(CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT) - 86400000), 12, '0') || '00000000000000000000' AS UUID) $$;
UPDATE schema_compatibility SET oldest = 6;
