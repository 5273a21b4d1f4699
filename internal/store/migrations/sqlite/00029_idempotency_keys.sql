-- +goose Up
-- The idempotency keys in use: each stands for one card or one reply, whichever
-- program stores it. The keys of two tables can't be kept apart by two indexes.
CREATE TABLE idempotency_keys (
    account_id      TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    PRIMARY KEY (account_id, idempotency_key)
) STRICT, WITHOUT ROWID;

-- +goose StatementBegin
CREATE TRIGGER idempotency_cards_insert AFTER INSERT ON cards WHEN NEW.idempotency_key IS NOT NULL BEGIN
    INSERT INTO idempotency_keys (account_id, idempotency_key) VALUES (NEW.account_id, NEW.idempotency_key);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER idempotency_cards_delete AFTER DELETE ON cards WHEN OLD.idempotency_key IS NOT NULL BEGIN
    DELETE FROM idempotency_keys WHERE account_id = OLD.account_id AND idempotency_key = OLD.idempotency_key;
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

-- A key that both a card and a reply have already is kept once.
INSERT INTO idempotency_keys (account_id, idempotency_key) SELECT account_id, idempotency_key FROM cards WHERE idempotency_key IS NOT NULL
    UNION SELECT account_id, idempotency_key FROM replies;

-- Programs of the previous version keep working: the triggers store their keys.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP TRIGGER idempotency_replies_delete;
DROP TRIGGER idempotency_replies_insert;
DROP TRIGGER idempotency_cards_delete;
DROP TRIGGER idempotency_cards_insert;
DROP TABLE idempotency_keys;
UPDATE schema_compatibility SET oldest = 6;
