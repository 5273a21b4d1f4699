-- +goose Up
-- Rotation of encryption keys, and the end of credentials.
ALTER TABLE credentials ADD COLUMN last_four TEXT; -- digits of the card number. NULL in rows of programs of before
ALTER TABLE credentials ADD COLUMN issued_at INTEGER; -- by the database's clock. Likewise, until the purge fills it in
ALTER TABLE cards ADD COLUMN credentials_purged_at INTEGER;

-- What operators purged before its time.
CREATE TABLE purges (
    id         TEXT PRIMARY KEY,
    card_uuid  TEXT NOT NULL UNIQUE REFERENCES cards (uuid),
    note       TEXT NOT NULL,
    operator   TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- Every encryption key that a process ever had, without the key. What a key not listed here is said to have sealed is damaged.
CREATE TABLE encryption_keys (
    id          INTEGER PRIMARY KEY,
    known_since INTEGER NOT NULL,
    promoted_at INTEGER, -- the key promoted last is the one that rows are re-encrypted with
    retired_at  INTEGER
) STRICT;
-- Which process has which keys, as it said last.
CREATE TABLE key_holders (
    process       TEXT PRIMARY KEY,
    key_ids       TEXT NOT NULL, -- with spaces between
    primary_key   INTEGER NOT NULL,
    primary_since INTEGER NOT NULL, -- when it was first said
    seen_at       INTEGER NOT NULL
) STRICT;

-- A ciphertext begins with the id of its key.
CREATE INDEX credentials_key ON credentials (SUBSTR(card_number, 1, 5), card_uuid);
CREATE INDEX webhooks_key ON webhooks (SUBSTR(secret, 1, 5), id);
CREATE INDEX webhooks_old_key ON webhooks (SUBSTR(old_secret, 1, 5), id);
CREATE INDEX cards_key ON cards (SUBSTR(refund_address, 1, 5), uuid) WHERE refund_address IS NOT NULL;
CREATE INDEX stock_key ON stock (SUBSTR(card_number, 1, 5), id) WHERE card_number IS NOT NULL;
CREATE INDEX credentials_issued ON credentials (issued_at, card_uuid);

-- The books note that credentials were purged. That they were encrypted again is nothing to them: else a rotation would note every card.
DROP TRIGGER books_cards_update;
-- +goose StatementBegin
CREATE TRIGGER books_cards_update AFTER UPDATE ON cards
    WHEN OLD.uuid < printf('%08x-%04x', (unixepoch() - 86400) * 1000 >> 16, (unixepoch() - 86400) * 1000 & 65535)
    AND (OLD.status, OLD.payment_state, OLD.received, OLD.refunded, OLD.written_off, OLD.credit_paid, OLD.credit_held, OLD.credit_surplus, OLD.credit_refunded, OLD.credit_lost, OLD.credit_written_off, OLD.credentials_purged_at)
    IS NOT (NEW.status, NEW.payment_state, NEW.received, NEW.refunded, NEW.written_off, NEW.credit_paid, NEW.credit_held, NEW.credit_surplus, NEW.credit_refunded, NEW.credit_lost, NEW.credit_written_off, NEW.credentials_purged_at) BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.uuid);
END;
-- +goose StatementEnd
DROP TRIGGER books_credentials_update;
-- +goose StatementBegin
CREATE TRIGGER books_credentials_update AFTER UPDATE OF card_uuid ON credentials BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.card_uuid);
    INSERT INTO books_notes (card_uuid) VALUES (NEW.card_uuid);
END;
-- +goose StatementEnd

-- Programs of before go on: they read a card that was purged as one without credentials, and use the keys of their start.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP TRIGGER books_credentials_update;
-- +goose StatementBegin
CREATE TRIGGER books_credentials_update AFTER UPDATE ON credentials BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.card_uuid);
    INSERT INTO books_notes (card_uuid) VALUES (NEW.card_uuid);
END;
-- +goose StatementEnd
DROP TRIGGER books_cards_update;
-- +goose StatementBegin
CREATE TRIGGER books_cards_update AFTER UPDATE ON cards
    WHEN OLD.uuid < printf('%08x-%04x', (unixepoch() - 86400) * 1000 >> 16, (unixepoch() - 86400) * 1000 & 65535)
    AND (OLD.status, OLD.payment_state, OLD.received, OLD.refunded, OLD.written_off, OLD.credit_paid, OLD.credit_held, OLD.credit_surplus, OLD.credit_refunded, OLD.credit_lost, OLD.credit_written_off)
    IS NOT (NEW.status, NEW.payment_state, NEW.received, NEW.refunded, NEW.written_off, NEW.credit_paid, NEW.credit_held, NEW.credit_surplus, NEW.credit_refunded, NEW.credit_lost, NEW.credit_written_off) BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.uuid);
END;
-- +goose StatementEnd
DROP INDEX credentials_issued;
DROP INDEX stock_key;
DROP INDEX cards_key;
DROP INDEX webhooks_old_key;
DROP INDEX webhooks_key;
DROP INDEX credentials_key;
DROP TABLE key_holders;
DROP TABLE encryption_keys;
DROP TABLE purges;
ALTER TABLE cards DROP COLUMN credentials_purged_at;
ALTER TABLE credentials DROP COLUMN issued_at;
ALTER TABLE credentials DROP COLUMN last_four;
UPDATE schema_compatibility SET oldest = 6;
