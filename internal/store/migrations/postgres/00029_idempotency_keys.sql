-- +goose NO TRANSACTION
-- Every statement can be run again. In a transaction, the lock for the triggers
-- would stop all orders while the keys are copied.
-- +goose Up
-- The idempotency keys in use: each stands for one card or one reply, whichever
-- program stores it. The keys of two tables can't be kept apart by two indexes.
CREATE TABLE IF NOT EXISTS idempotency_keys (
    account_id      UUID NOT NULL,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (account_id, idempotency_key)
);

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION idempotency_key_claim() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO idempotency_keys (account_id, idempotency_key) VALUES (NEW.account_id, NEW.idempotency_key);
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION idempotency_key_release() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM idempotency_keys k WHERE k.account_id = OLD.account_id AND k.idempotency_key = OLD.idempotency_key;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE TRIGGER idempotency_cards_insert AFTER INSERT ON cards FOR EACH ROW WHEN (NEW.idempotency_key IS NOT NULL)
    EXECUTE FUNCTION idempotency_key_claim();
CREATE OR REPLACE TRIGGER idempotency_cards_delete AFTER DELETE ON cards FOR EACH ROW WHEN (OLD.idempotency_key IS NOT NULL)
    EXECUTE FUNCTION idempotency_key_release();
CREATE OR REPLACE TRIGGER idempotency_replies_insert AFTER INSERT ON replies FOR EACH ROW EXECUTE FUNCTION idempotency_key_claim();
CREATE OR REPLACE TRIGGER idempotency_replies_delete AFTER DELETE ON replies FOR EACH ROW EXECUTE FUNCTION idempotency_key_release();

-- The triggers see every row that these statements do not. A key that both a
-- card and a reply have already is kept once.
INSERT INTO idempotency_keys (account_id, idempotency_key) SELECT account_id, idempotency_key FROM cards WHERE idempotency_key IS NOT NULL
    ON CONFLICT DO NOTHING;
INSERT INTO idempotency_keys (account_id, idempotency_key) SELECT account_id, idempotency_key FROM replies ON CONFLICT DO NOTHING;
-- Rows that were deleted while they were copied.
DELETE FROM idempotency_keys k WHERE NOT EXISTS (SELECT 1 FROM cards c WHERE c.account_id = k.account_id AND c.idempotency_key = k.idempotency_key)
    AND NOT EXISTS (SELECT 1 FROM replies r WHERE r.account_id = k.account_id AND r.idempotency_key = k.idempotency_key);

-- Programs of the previous version keep working: the triggers store their keys.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP TRIGGER IF EXISTS idempotency_replies_delete ON replies;
DROP TRIGGER IF EXISTS idempotency_replies_insert ON replies;
DROP TRIGGER IF EXISTS idempotency_cards_delete ON cards;
DROP TRIGGER IF EXISTS idempotency_cards_insert ON cards;
DROP FUNCTION IF EXISTS idempotency_key_release();
DROP FUNCTION IF EXISTS idempotency_key_claim();
DROP TABLE IF EXISTS idempotency_keys;
UPDATE schema_compatibility SET oldest = 6;
