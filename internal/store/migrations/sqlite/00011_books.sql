-- +goose Up
-- The books are kept by the day, so that a reading of them costs what changed since the last one. A card belongs to the day of its uuid,
-- which begins with the time; a transfer to the day on which it was first seen. Days are those of UTC, counted from 1970.
CREATE TABLE books (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    version    INTEGER NOT NULL, -- grows with every reading that is kept
    kept_until INTEGER NOT NULL  -- all days before this one are kept
) STRICT;
INSERT INTO books (id, version, kept_until) VALUES (1, 0, 0);
CREATE TABLE books_days (
    part     TEXT NOT NULL CHECK (part IN ('cards', 'transfers')),
    day      INTEGER NOT NULL,
    currency TEXT NOT NULL,
    rows     INTEGER NOT NULL,
    sums     TEXT NOT NULL,    -- decimal integers of any size, in the order of store/books_days.go
    doubted  INTEGER NOT NULL, -- it is read again rather than believed
    PRIMARY KEY (part, day, currency)
) STRICT;
-- The cards that were doubted, which are looked at again.
CREATE TABLE books_doubts (
    card_uuid TEXT PRIMARY KEY
) STRICT;
-- How far the events of an account have been seen to have no gap.
CREATE TABLE books_feeds (
    account_id TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL
) STRICT;
-- What changed after it was perhaps kept. A row is written in the transaction of the change, by whatever program that is, and deleted
-- once it has been read.
CREATE TABLE books_notes (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    card_uuid  TEXT,   -- of a card that changed, or of which something changed
    seen_at    INTEGER, -- when a transfer that changed was first seen
    account_id TEXT    -- of an account whose events changed
) STRICT;

-- When the card was found paid. Of those that were not issued yet, it is not known: the time of the migration.
ALTER TABLE intents ADD COLUMN decided_at INTEGER;
UPDATE intents SET decided_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) WHERE state IN ('open', 'pending');
-- +goose StatementBegin
CREATE TRIGGER intents_decided AFTER INSERT ON intents WHEN NEW.decided_at IS NULL BEGIN
    UPDATE intents SET decided_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) WHERE card_uuid = NEW.card_uuid;
END;
-- +goose StatementEnd

-- A day is kept no sooner than 30 hours after its end. So a change of what is younger than a day need not be noted.
-- Transfers are unattributed while no card has their address.
-- +goose StatementBegin
CREATE TRIGGER books_cards_insert AFTER INSERT ON cards
    WHEN NEW.uuid < printf('%08x-%04x', (unixepoch() - 86400) * 1000 >> 16, (unixepoch() - 86400) * 1000 & 65535) BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (NEW.uuid);
    INSERT INTO books_notes (seen_at) SELECT t.first_seen_at FROM transfers t WHERE t.currency = NEW.currency AND t.address = NEW.address;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_cards_update AFTER UPDATE ON cards
    WHEN OLD.uuid < printf('%08x-%04x', (unixepoch() - 86400) * 1000 >> 16, (unixepoch() - 86400) * 1000 & 65535)
    AND (OLD.status, OLD.payment_state, OLD.received, OLD.refunded, OLD.written_off, OLD.credit_paid, OLD.credit_held, OLD.credit_surplus, OLD.credit_refunded, OLD.credit_lost, OLD.credit_written_off)
    IS NOT (NEW.status, NEW.payment_state, NEW.received, NEW.refunded, NEW.written_off, NEW.credit_paid, NEW.credit_held, NEW.credit_surplus, NEW.credit_refunded, NEW.credit_lost, NEW.credit_written_off) BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.uuid);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_cards_move AFTER UPDATE OF uuid, currency, address ON cards BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.uuid);
    INSERT INTO books_notes (seen_at) SELECT t.first_seen_at FROM transfers t WHERE t.currency = OLD.currency AND t.address = OLD.address;
    INSERT INTO books_notes (card_uuid) VALUES (NEW.uuid);
    INSERT INTO books_notes (seen_at) SELECT t.first_seen_at FROM transfers t WHERE t.currency = NEW.currency AND t.address = NEW.address;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_cards_delete AFTER DELETE ON cards BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.uuid);
    INSERT INTO books_notes (seen_at) SELECT t.first_seen_at FROM transfers t WHERE t.currency = OLD.currency AND t.address = OLD.address;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_transfers_insert AFTER INSERT ON transfers
    WHEN NEW.first_seen_at < (unixepoch() - 86400) * 1000 BEGIN
    INSERT INTO books_notes (seen_at) VALUES (NEW.first_seen_at);
    INSERT INTO books_notes (card_uuid) SELECT c.uuid FROM cards c WHERE c.currency = NEW.currency AND c.address = NEW.address;
    INSERT INTO books_notes (card_uuid) SELECT a.card_uuid FROM attributions a
        WHERE a.currency = NEW.currency AND a.txid = NEW.txid AND a.output = NEW.output AND a.card_uuid IS NOT NULL;
END;
-- +goose StatementEnd
-- One that moves to another card or day is noted whatever its age: nothing else leads to the card or the day that it leaves.
-- +goose StatementBegin
CREATE TRIGGER books_transfers_update AFTER UPDATE ON transfers
    WHEN (OLD.currency, OLD.txid, OLD.output, OLD.address, OLD.first_seen_at) IS NOT (NEW.currency, NEW.txid, NEW.output, NEW.address, NEW.first_seen_at)
    OR (OLD.amount, OLD.counted) IS NOT (NEW.amount, NEW.counted) AND OLD.first_seen_at < (unixepoch() - 86400) * 1000 BEGIN
    INSERT INTO books_notes (seen_at) VALUES (OLD.first_seen_at);
    INSERT INTO books_notes (card_uuid) SELECT c.uuid FROM cards c WHERE c.currency = OLD.currency AND c.address = OLD.address;
    INSERT INTO books_notes (card_uuid) SELECT a.card_uuid FROM attributions a
        WHERE a.currency = OLD.currency AND a.txid = OLD.txid AND a.output = OLD.output AND a.card_uuid IS NOT NULL;
    INSERT INTO books_notes (seen_at) VALUES (NEW.first_seen_at);
    INSERT INTO books_notes (card_uuid) SELECT c.uuid FROM cards c WHERE c.currency = NEW.currency AND c.address = NEW.address;
    INSERT INTO books_notes (card_uuid) SELECT a.card_uuid FROM attributions a
        WHERE a.currency = NEW.currency AND a.txid = NEW.txid AND a.output = NEW.output AND a.card_uuid IS NOT NULL;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_transfers_delete AFTER DELETE ON transfers BEGIN
    INSERT INTO books_notes (seen_at) VALUES (OLD.first_seen_at);
    INSERT INTO books_notes (card_uuid) SELECT c.uuid FROM cards c WHERE c.currency = OLD.currency AND c.address = OLD.address;
    INSERT INTO books_notes (card_uuid) SELECT a.card_uuid FROM attributions a
        WHERE a.currency = OLD.currency AND a.txid = OLD.txid AND a.output = OLD.output AND a.card_uuid IS NOT NULL;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_attributions_insert AFTER INSERT ON attributions BEGIN
    INSERT INTO books_notes (card_uuid, seen_at) SELECT c.uuid, t.first_seen_at FROM transfers t LEFT JOIN cards c ON c.currency = t.currency AND c.address = t.address
        WHERE t.currency = NEW.currency AND t.txid = NEW.txid AND t.output = NEW.output;
    INSERT INTO books_notes (card_uuid) SELECT NEW.card_uuid WHERE NEW.card_uuid IS NOT NULL;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_attributions_update AFTER UPDATE ON attributions BEGIN
    INSERT INTO books_notes (card_uuid, seen_at) SELECT c.uuid, t.first_seen_at FROM transfers t LEFT JOIN cards c ON c.currency = t.currency AND c.address = t.address
        WHERE t.currency = OLD.currency AND t.txid = OLD.txid AND t.output = OLD.output;
    INSERT INTO books_notes (card_uuid) SELECT OLD.card_uuid WHERE OLD.card_uuid IS NOT NULL;
    INSERT INTO books_notes (card_uuid, seen_at) SELECT c.uuid, t.first_seen_at FROM transfers t LEFT JOIN cards c ON c.currency = t.currency AND c.address = t.address
        WHERE t.currency = NEW.currency AND t.txid = NEW.txid AND t.output = NEW.output;
    INSERT INTO books_notes (card_uuid) SELECT NEW.card_uuid WHERE NEW.card_uuid IS NOT NULL;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_attributions_delete AFTER DELETE ON attributions BEGIN
    INSERT INTO books_notes (card_uuid, seen_at) SELECT c.uuid, t.first_seen_at FROM transfers t LEFT JOIN cards c ON c.currency = t.currency AND c.address = t.address
        WHERE t.currency = OLD.currency AND t.txid = OLD.txid AND t.output = OLD.output;
    INSERT INTO books_notes (card_uuid) SELECT OLD.card_uuid WHERE OLD.card_uuid IS NOT NULL;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_resolutions_insert AFTER INSERT ON resolutions BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (NEW.card_uuid);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_resolutions_update AFTER UPDATE ON resolutions BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.card_uuid);
    INSERT INTO books_notes (card_uuid) VALUES (NEW.card_uuid);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_resolutions_delete AFTER DELETE ON resolutions BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.card_uuid);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_credentials_insert AFTER INSERT ON credentials
    WHEN NEW.card_uuid < printf('%08x-%04x', (unixepoch() - 86400) * 1000 >> 16, (unixepoch() - 86400) * 1000 & 65535) BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (NEW.card_uuid);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_credentials_update AFTER UPDATE ON credentials BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.card_uuid);
    INSERT INTO books_notes (card_uuid) VALUES (NEW.card_uuid);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_credentials_delete AFTER DELETE ON credentials BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.card_uuid);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_intents_insert AFTER INSERT ON intents
    WHEN NEW.card_uuid < printf('%08x-%04x', (unixepoch() - 86400) * 1000 >> 16, (unixepoch() - 86400) * 1000 & 65535) BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (NEW.card_uuid);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_intents_update AFTER UPDATE ON intents
    WHEN OLD.card_uuid < printf('%08x-%04x', (unixepoch() - 86400) * 1000 >> 16, (unixepoch() - 86400) * 1000 & 65535) AND (OLD.card_uuid, OLD.state) IS NOT (NEW.card_uuid, NEW.state) BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.card_uuid);
    INSERT INTO books_notes (card_uuid) VALUES (NEW.card_uuid);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_intents_delete AFTER DELETE ON intents BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.card_uuid);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_events_update AFTER UPDATE OF account_id, seq, type ON events BEGIN
    INSERT INTO books_notes (account_id) VALUES (OLD.account_id);
    INSERT INTO books_notes (account_id) VALUES (NEW.account_id);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER books_events_delete AFTER DELETE ON events BEGIN
    INSERT INTO books_notes (account_id) VALUES (OLD.account_id);
END;
-- +goose StatementEnd

-- Programs of before go on: what they write is noted.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP TRIGGER books_events_delete;
DROP TRIGGER books_events_update;
DROP TRIGGER books_intents_delete;
DROP TRIGGER books_intents_update;
DROP TRIGGER books_intents_insert;
DROP TRIGGER books_credentials_delete;
DROP TRIGGER books_credentials_update;
DROP TRIGGER books_credentials_insert;
DROP TRIGGER books_resolutions_delete;
DROP TRIGGER books_resolutions_update;
DROP TRIGGER books_resolutions_insert;
DROP TRIGGER books_attributions_delete;
DROP TRIGGER books_attributions_update;
DROP TRIGGER books_attributions_insert;
DROP TRIGGER books_transfers_delete;
DROP TRIGGER books_transfers_update;
DROP TRIGGER books_transfers_insert;
DROP TRIGGER books_cards_delete;
DROP TRIGGER books_cards_move;
DROP TRIGGER books_cards_update;
DROP TRIGGER books_cards_insert;
DROP TRIGGER intents_decided;
ALTER TABLE intents DROP COLUMN decided_at;
DROP TABLE books_notes;
DROP TABLE books_feeds;
DROP TABLE books_doubts;
DROP TABLE books_days;
DROP TABLE books;
UPDATE schema_compatibility SET oldest = 6;
