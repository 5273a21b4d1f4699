-- +goose NO TRANSACTION
-- Rotation of encryption keys, and the end of credentials. Every statement can be run again, as in 00010.
-- +goose Up
ALTER TABLE credentials ADD COLUMN IF NOT EXISTS last_four TEXT; -- digits of the card number. NULL in rows of programs of before
ALTER TABLE credentials ADD COLUMN IF NOT EXISTS issued_at BIGINT; -- by the database's clock. Likewise, until the purge fills it in
ALTER TABLE cards ADD COLUMN IF NOT EXISTS credentials_purged_at BIGINT;

-- What operators purged before its time.
CREATE TABLE IF NOT EXISTS purges (
    id         UUID PRIMARY KEY,
    card_uuid  UUID NOT NULL UNIQUE REFERENCES cards (uuid),
    note       TEXT NOT NULL,
    operator   TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- Every encryption key that a process ever had, without the key. What a key not listed here is said to have sealed is damaged.
CREATE TABLE IF NOT EXISTS encryption_keys (
    id          BIGINT PRIMARY KEY,
    known_since BIGINT NOT NULL,
    promoted_at BIGINT, -- the key promoted last is the one that rows are re-encrypted with
    retired_at  BIGINT
);
-- Which process has which keys, as it said last.
CREATE TABLE IF NOT EXISTS key_holders (
    process       TEXT PRIMARY KEY,
    key_ids       TEXT NOT NULL, -- with spaces between
    primary_key   BIGINT NOT NULL,
    primary_since BIGINT NOT NULL, -- when it was first said
    seen_at       BIGINT NOT NULL
);

-- The books note that credentials were purged. That they were encrypted again is nothing to them: else a rotation would note every card.
-- +goose StatementBegin
DO $$ BEGIN
    DROP TRIGGER IF EXISTS books_cards_update ON cards;
    CREATE TRIGGER books_cards_update AFTER UPDATE ON cards FOR EACH ROW WHEN (OLD.uuid < books_young_card() AND (OLD.status, OLD.payment_state, OLD.received,
        OLD.refunded, OLD.written_off, OLD.credit_paid, OLD.credit_held, OLD.credit_surplus, OLD.credit_refunded, OLD.credit_lost, OLD.credit_written_off, OLD.credentials_purged_at)
        IS DISTINCT FROM (NEW.status, NEW.payment_state, NEW.received,
        NEW.refunded, NEW.written_off, NEW.credit_paid, NEW.credit_held, NEW.credit_surplus, NEW.credit_refunded, NEW.credit_lost, NEW.credit_written_off, NEW.credentials_purged_at))
        EXECUTE FUNCTION books_note_card();
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
DO $$ BEGIN
    DROP TRIGGER IF EXISTS books_credentials_change ON credentials;
    CREATE TRIGGER books_credentials_change AFTER UPDATE OF card_uuid OR DELETE ON credentials FOR EACH ROW EXECUTE FUNCTION books_note_of_card();
END $$;
-- +goose StatementEnd

SELECT set_config('lock_timeout', COALESCE(current_setting('cardmint.lock_wait', TRUE), '0'), FALSE);

-- A ciphertext begins with the id of its key.
DROP INDEX CONCURRENTLY IF EXISTS credentials_key;
CREATE INDEX CONCURRENTLY credentials_key ON credentials (SUBSTR(card_number, 1, 5), card_uuid);
DROP INDEX CONCURRENTLY IF EXISTS webhooks_key;
CREATE INDEX CONCURRENTLY webhooks_key ON webhooks (SUBSTR(secret, 1, 5), id);
DROP INDEX CONCURRENTLY IF EXISTS webhooks_old_key;
CREATE INDEX CONCURRENTLY webhooks_old_key ON webhooks (SUBSTR(old_secret, 1, 5), id);
DROP INDEX CONCURRENTLY IF EXISTS cards_key;
CREATE INDEX CONCURRENTLY cards_key ON cards (SUBSTR(refund_address, 1, 5), uuid) WHERE refund_address IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS stock_key;
CREATE INDEX CONCURRENTLY stock_key ON stock (SUBSTR(card_number, 1, 5), id) WHERE card_number IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS credentials_issued;
CREATE INDEX CONCURRENTLY credentials_issued ON credentials (issued_at, card_uuid);

-- Programs of before go on: they read a card that was purged as one without credentials, and use the keys of their start.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
-- +goose StatementBegin
DO $$ BEGIN
    DROP TRIGGER IF EXISTS books_credentials_change ON credentials;
    CREATE TRIGGER books_credentials_change AFTER UPDATE OR DELETE ON credentials FOR EACH ROW EXECUTE FUNCTION books_note_of_card();
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
DO $$ BEGIN
    DROP TRIGGER IF EXISTS books_cards_update ON cards;
    CREATE TRIGGER books_cards_update AFTER UPDATE ON cards FOR EACH ROW WHEN (OLD.uuid < books_young_card() AND (OLD.status, OLD.payment_state, OLD.received,
        OLD.refunded, OLD.written_off, OLD.credit_paid, OLD.credit_held, OLD.credit_surplus, OLD.credit_refunded, OLD.credit_lost, OLD.credit_written_off)
        IS DISTINCT FROM (NEW.status, NEW.payment_state, NEW.received,
        NEW.refunded, NEW.written_off, NEW.credit_paid, NEW.credit_held, NEW.credit_surplus, NEW.credit_refunded, NEW.credit_lost, NEW.credit_written_off))
        EXECUTE FUNCTION books_note_card();
END $$;
-- +goose StatementEnd
DROP INDEX CONCURRENTLY IF EXISTS credentials_issued;
DROP INDEX CONCURRENTLY IF EXISTS stock_key;
DROP INDEX CONCURRENTLY IF EXISTS cards_key;
DROP INDEX CONCURRENTLY IF EXISTS webhooks_old_key;
DROP INDEX CONCURRENTLY IF EXISTS webhooks_key;
DROP INDEX CONCURRENTLY IF EXISTS credentials_key;
DROP TABLE IF EXISTS key_holders, encryption_keys, purges;
ALTER TABLE cards DROP COLUMN IF EXISTS credentials_purged_at;
ALTER TABLE credentials DROP COLUMN IF EXISTS issued_at;
ALTER TABLE credentials DROP COLUMN IF EXISTS last_four;
UPDATE schema_compatibility SET oldest = 6;
