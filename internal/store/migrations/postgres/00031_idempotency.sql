-- +goose NO TRANSACTION
-- Every statement can be run again, as in 00029.
-- +goose Up
-- One table for all idempotency keys: a row is the key of a card, or has the
-- reply to another request. Triggers store the keys of cards, so that an order
-- stays one statement.
ALTER TABLE idempotency_keys
    ADD COLUMN IF NOT EXISTS card_uuid    UUID, -- NULL for a reply
    ADD COLUMN IF NOT EXISTS id           UUID, -- of the reply, which is encrypted for it
    ADD COLUMN IF NOT EXISTS request_hash BYTEA,
    ADD COLUMN IF NOT EXISTS reply        BYTEA, -- encrypted
    ADD COLUMN IF NOT EXISTS created_at   BIGINT;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION idempotency_card_claim() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO idempotency_keys (account_id, idempotency_key, card_uuid) VALUES (NEW.account_id, NEW.idempotency_key, NEW.uuid);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE OR REPLACE TRIGGER idempotency_cards_insert AFTER INSERT ON cards FOR EACH ROW WHEN (NEW.idempotency_key IS NOT NULL)
    EXECUTE FUNCTION idempotency_card_claim();
UPDATE idempotency_keys k SET card_uuid = c.uuid FROM cards c
    WHERE k.card_uuid IS NULL AND c.account_id = k.account_id AND c.idempotency_key = k.idempotency_key;

-- Programs of the previous version keep working: they use the view as they used
-- the table. Of a key that a card and a reply shared, the card keeps it.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_class WHERE oid = to_regclass('replies') AND relkind = 'r') THEN
        LOCK TABLE replies;
        UPDATE idempotency_keys k SET id = r.id, request_hash = r.request_hash, reply = r.reply, created_at = r.created_at FROM replies r
            WHERE k.card_uuid IS NULL AND r.account_id = k.account_id AND r.idempotency_key = k.idempotency_key;
        DROP TABLE replies;
        CREATE VIEW replies AS SELECT id, account_id, idempotency_key, request_hash, reply, created_at FROM idempotency_keys WHERE reply IS NOT NULL;
    END IF;
END $$;
-- +goose StatementEnd
DROP FUNCTION IF EXISTS idempotency_key_claim();

SELECT set_config('lock_timeout', COALESCE(current_setting('cardmint.lock_wait', TRUE), '0'), FALSE);

DROP INDEX CONCURRENTLY IF EXISTS idempotency_keys_age;
CREATE INDEX CONCURRENTLY idempotency_keys_age ON idempotency_keys (created_at) WHERE reply IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS idempotency_keys_id;
CREATE INDEX CONCURRENTLY idempotency_keys_id ON idempotency_keys (id) WHERE id IS NOT NULL;
-- A ciphertext begins with the id of its key.
DROP INDEX CONCURRENTLY IF EXISTS idempotency_keys_key;
CREATE INDEX CONCURRENTLY idempotency_keys_key ON idempotency_keys (SUBSTR(reply, 1, 5), id) WHERE reply IS NOT NULL;

UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION idempotency_key_claim() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO idempotency_keys (account_id, idempotency_key) VALUES (NEW.account_id, NEW.idempotency_key);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE OR REPLACE TRIGGER idempotency_cards_insert AFTER INSERT ON cards FOR EACH ROW WHEN (NEW.idempotency_key IS NOT NULL)
    EXECUTE FUNCTION idempotency_key_claim();
DROP FUNCTION IF EXISTS idempotency_card_claim();
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_class WHERE oid = to_regclass('replies') AND relkind = 'v') THEN
        DROP VIEW replies;
        CREATE TABLE replies (
            id              UUID PRIMARY KEY,
            account_id      UUID NOT NULL REFERENCES accounts (id),
            idempotency_key TEXT NOT NULL,
            request_hash    BYTEA NOT NULL,
            reply           BYTEA NOT NULL,
            created_at      BIGINT NOT NULL,
            UNIQUE (account_id, idempotency_key)
        );
        INSERT INTO replies SELECT id, account_id, idempotency_key, request_hash, reply, created_at FROM idempotency_keys WHERE reply IS NOT NULL;
        CREATE INDEX replies_age ON replies (created_at);
        CREATE INDEX replies_key ON replies (SUBSTR(reply, 1, 5), id);
        CREATE TRIGGER idempotency_replies_insert AFTER INSERT ON replies FOR EACH ROW EXECUTE FUNCTION idempotency_key_claim();
        CREATE TRIGGER idempotency_replies_delete AFTER DELETE ON replies FOR EACH ROW EXECUTE FUNCTION idempotency_key_release();
    END IF;
END $$;
-- +goose StatementEnd
DROP INDEX IF EXISTS idempotency_keys_key;
DROP INDEX IF EXISTS idempotency_keys_id;
DROP INDEX IF EXISTS idempotency_keys_age;
ALTER TABLE idempotency_keys DROP COLUMN IF EXISTS created_at, DROP COLUMN IF EXISTS reply, DROP COLUMN IF EXISTS request_hash,
    DROP COLUMN IF EXISTS id, DROP COLUMN IF EXISTS card_uuid;
UPDATE schema_compatibility SET oldest = 6;
