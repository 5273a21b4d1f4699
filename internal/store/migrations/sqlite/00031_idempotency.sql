-- +goose Up
-- One table for all idempotency keys: a row is the key of a card, or has the
-- reply to another request. Triggers store the keys of cards, so that an order
-- stays one statement.
ALTER TABLE idempotency_keys ADD COLUMN card_uuid TEXT; -- NULL for a reply
ALTER TABLE idempotency_keys ADD COLUMN id TEXT; -- of the reply, which is encrypted for it
ALTER TABLE idempotency_keys ADD COLUMN request_hash BLOB;
ALTER TABLE idempotency_keys ADD COLUMN reply BLOB; -- encrypted
ALTER TABLE idempotency_keys ADD COLUMN created_at INTEGER;

DROP TRIGGER idempotency_cards_insert;
-- +goose StatementBegin
CREATE TRIGGER idempotency_cards_insert AFTER INSERT ON cards WHEN NEW.idempotency_key IS NOT NULL BEGIN
    INSERT INTO idempotency_keys (account_id, idempotency_key, card_uuid) VALUES (NEW.account_id, NEW.idempotency_key, NEW.uuid);
END;
-- +goose StatementEnd
UPDATE idempotency_keys SET card_uuid = c.uuid FROM cards c
    WHERE c.account_id = idempotency_keys.account_id AND c.idempotency_key = idempotency_keys.idempotency_key;

-- Programs of the previous version keep working: they use the view as they used
-- the table. Of a key that a card and a reply shared, the card keeps it.
UPDATE idempotency_keys SET id = r.id, request_hash = r.request_hash, reply = r.reply, created_at = r.created_at FROM replies r
    WHERE card_uuid IS NULL AND r.account_id = idempotency_keys.account_id AND r.idempotency_key = idempotency_keys.idempotency_key;
DROP TRIGGER idempotency_replies_delete;
DROP TABLE replies;
CREATE VIEW replies AS SELECT id, account_id, idempotency_key, request_hash, reply, created_at FROM idempotency_keys WHERE reply IS NOT NULL;
-- +goose StatementBegin
CREATE TRIGGER replies_insert INSTEAD OF INSERT ON replies BEGIN
    INSERT INTO idempotency_keys (account_id, idempotency_key, id, request_hash, reply, created_at)
        VALUES (NEW.account_id, NEW.idempotency_key, NEW.id, NEW.request_hash, NEW.reply, NEW.created_at);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER replies_update INSTEAD OF UPDATE ON replies BEGIN
    UPDATE idempotency_keys SET reply = NEW.reply WHERE account_id = OLD.account_id AND idempotency_key = OLD.idempotency_key;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER replies_delete INSTEAD OF DELETE ON replies BEGIN
    DELETE FROM idempotency_keys WHERE account_id = OLD.account_id AND idempotency_key = OLD.idempotency_key;
END;
-- +goose StatementEnd

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at) WHERE reply IS NOT NULL;
CREATE INDEX idempotency_keys_id ON idempotency_keys (id) WHERE id IS NOT NULL;
-- A ciphertext begins with the id of its key.
CREATE INDEX idempotency_keys_key ON idempotency_keys (SUBSTR(reply, 1, 5), id) WHERE reply IS NOT NULL;

UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP INDEX idempotency_keys_key;
DROP INDEX idempotency_keys_id;
DROP INDEX idempotency_keys_age;
DROP VIEW replies;
CREATE TABLE replies (
    id              TEXT PRIMARY KEY NOT NULL,
    account_id      TEXT NOT NULL REFERENCES accounts (id),
    idempotency_key TEXT NOT NULL,
    request_hash    BLOB NOT NULL,
    reply           BLOB NOT NULL,
    created_at      INTEGER NOT NULL,
    UNIQUE (account_id, idempotency_key)
) STRICT;
INSERT INTO replies SELECT id, account_id, idempotency_key, request_hash, reply, created_at FROM idempotency_keys WHERE reply IS NOT NULL;
CREATE INDEX replies_age ON replies (created_at);
CREATE INDEX replies_key ON replies (SUBSTR(reply, 1, 5), id);
DROP TRIGGER idempotency_cards_insert;
ALTER TABLE idempotency_keys DROP COLUMN created_at;
ALTER TABLE idempotency_keys DROP COLUMN reply;
ALTER TABLE idempotency_keys DROP COLUMN request_hash;
ALTER TABLE idempotency_keys DROP COLUMN id;
ALTER TABLE idempotency_keys DROP COLUMN card_uuid;
-- +goose StatementBegin
CREATE TRIGGER idempotency_cards_insert AFTER INSERT ON cards WHEN NEW.idempotency_key IS NOT NULL BEGIN
    INSERT INTO idempotency_keys (account_id, idempotency_key) VALUES (NEW.account_id, NEW.idempotency_key);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER idempotency_replies_insert AFTER INSERT ON replies BEGIN
    INSERT INTO idempotency_keys (account_id, idempotency_key) VALUES (NEW.account_id, NEW.idempotency_key);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER idempotency_replies_delete AFTER DELETE ON replies BEGIN
    DELETE FROM idempotency_keys WHERE account_id = OLD.account_id AND idempotency_key = OLD.idempotency_key;
END;
-- +goose StatementEnd
UPDATE schema_compatibility SET oldest = 6;
