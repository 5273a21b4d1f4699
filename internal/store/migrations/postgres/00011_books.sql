-- +goose Up
-- The books are kept by the day, so that a reading of them costs what changed since the last one. A card belongs to the day of its uuid,
-- which begins with the time; a transfer to the day on which it was first seen. Days are those of UTC, counted from 1970.
CREATE TABLE books (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    version    BIGINT NOT NULL, -- grows with every reading that is kept
    kept_until BIGINT NOT NULL  -- all days before this one are kept
);
INSERT INTO books (id, version, kept_until) VALUES (1, 0, 0);
CREATE TABLE books_days (
    part     TEXT NOT NULL CHECK (part IN ('cards', 'transfers')),
    day      BIGINT NOT NULL,
    currency TEXT NOT NULL,
    rows     BIGINT NOT NULL,
    sums     TEXT NOT NULL,    -- decimal integers of any size, in the order of store/books_days.go
    doubted  BOOLEAN NOT NULL, -- it is read again rather than believed
    PRIMARY KEY (part, day, currency)
);
-- The cards that were doubted, which are looked at again.
CREATE TABLE books_doubts (
    card_uuid UUID PRIMARY KEY
);
-- How far the events of an account have been seen to have no gap.
CREATE TABLE books_feeds (
    account_id UUID PRIMARY KEY,
    seq        BIGINT NOT NULL
);
-- What changed after it was perhaps kept. A row is written in the transaction of the change, by whatever program that is, and deleted
-- once it has been read.
CREATE TABLE books_notes (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    card_uuid  UUID,   -- of a card that changed, or of which something changed
    seen_at    BIGINT, -- when a transfer that changed was first seen
    account_id UUID    -- of an account whose events changed
);

-- When the card was found paid. Of those that were not issued yet, it is not known: the time of the migration.
ALTER TABLE intents ADD COLUMN decided_at BIGINT;
ALTER TABLE intents ALTER COLUMN decided_at SET DEFAULT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT);
UPDATE intents SET decided_at = CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) WHERE state IN ('open', 'pending');

-- A day is kept no sooner than 30 hours after its end. So a change of what is younger than a day need not be noted, unless the transaction
-- stays open for six hours.
CREATE FUNCTION books_young() RETURNS BIGINT LANGUAGE sql STABLE AS
    $$ SELECT CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT) - 86400000 $$;
CREATE FUNCTION books_young_card() RETURNS UUID LANGUAGE sql STABLE AS
    $$ SELECT CAST(lpad(to_hex(CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT) - 86400000), 12, '0') || '00000000000000000000' AS UUID) $$;

-- +goose StatementBegin
CREATE FUNCTION books_note_card() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO books_notes (card_uuid) VALUES (OLD.uuid);
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- Transfers are unattributed while no card has their address.
-- +goose StatementBegin
CREATE FUNCTION books_note_moved_card() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO books_notes (card_uuid) VALUES (OLD.uuid);
        INSERT INTO books_notes (seen_at) SELECT t.first_seen_at FROM transfers t WHERE t.currency = OLD.currency AND t.address = OLD.address;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO books_notes (card_uuid) VALUES (NEW.uuid);
        INSERT INTO books_notes (seen_at) SELECT t.first_seen_at FROM transfers t WHERE t.currency = NEW.currency AND t.address = NEW.address;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION books_note_transfer() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO books_notes (seen_at) VALUES (OLD.first_seen_at);
        INSERT INTO books_notes (card_uuid) SELECT c.uuid FROM cards c WHERE c.currency = OLD.currency AND c.address = OLD.address;
        INSERT INTO books_notes (card_uuid) SELECT a.card_uuid FROM attributions a
            WHERE a.currency = OLD.currency AND a.txid = OLD.txid AND a.output = OLD.output AND a.card_uuid IS NOT NULL;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO books_notes (seen_at) VALUES (NEW.first_seen_at);
        INSERT INTO books_notes (card_uuid) SELECT c.uuid FROM cards c WHERE c.currency = NEW.currency AND c.address = NEW.address;
        INSERT INTO books_notes (card_uuid) SELECT a.card_uuid FROM attributions a
            WHERE a.currency = NEW.currency AND a.txid = NEW.txid AND a.output = NEW.output AND a.card_uuid IS NOT NULL;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION books_note_attribution() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO books_notes (card_uuid, seen_at) SELECT c.uuid, t.first_seen_at FROM transfers t LEFT JOIN cards c ON c.currency = t.currency AND c.address = t.address
            WHERE t.currency = OLD.currency AND t.txid = OLD.txid AND t.output = OLD.output;
        INSERT INTO books_notes (card_uuid) SELECT OLD.card_uuid WHERE OLD.card_uuid IS NOT NULL;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO books_notes (card_uuid, seen_at) SELECT c.uuid, t.first_seen_at FROM transfers t LEFT JOIN cards c ON c.currency = t.currency AND c.address = t.address
            WHERE t.currency = NEW.currency AND t.txid = NEW.txid AND t.output = NEW.output;
        INSERT INTO books_notes (card_uuid) SELECT NEW.card_uuid WHERE NEW.card_uuid IS NOT NULL;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION books_note_of_card() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO books_notes (card_uuid) VALUES (OLD.card_uuid);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO books_notes (card_uuid) VALUES (NEW.card_uuid);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION books_note_event() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO books_notes (account_id) VALUES (OLD.account_id);
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO books_notes (account_id) VALUES (NEW.account_id);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER books_cards_insert AFTER INSERT ON cards FOR EACH ROW WHEN (NEW.uuid < books_young_card()) EXECUTE FUNCTION books_note_moved_card();
CREATE TRIGGER books_cards_update AFTER UPDATE ON cards FOR EACH ROW WHEN (OLD.uuid < books_young_card() AND (OLD.status, OLD.payment_state, OLD.received,
    OLD.refunded, OLD.written_off, OLD.credit_paid, OLD.credit_held, OLD.credit_surplus, OLD.credit_refunded, OLD.credit_lost, OLD.credit_written_off)
    IS DISTINCT FROM (NEW.status, NEW.payment_state, NEW.received,
    NEW.refunded, NEW.written_off, NEW.credit_paid, NEW.credit_held, NEW.credit_surplus, NEW.credit_refunded, NEW.credit_lost, NEW.credit_written_off))
    EXECUTE FUNCTION books_note_card();
CREATE TRIGGER books_cards_move AFTER UPDATE OF uuid, currency, address ON cards FOR EACH ROW EXECUTE FUNCTION books_note_moved_card();
CREATE TRIGGER books_cards_delete AFTER DELETE ON cards FOR EACH ROW EXECUTE FUNCTION books_note_moved_card();

CREATE TRIGGER books_transfers_insert AFTER INSERT ON transfers FOR EACH ROW WHEN (NEW.first_seen_at < books_young()) EXECUTE FUNCTION books_note_transfer();
-- One that moves to another card or day is noted whatever its age: nothing else leads to the card or the day that it leaves.
CREATE TRIGGER books_transfers_update AFTER UPDATE ON transfers FOR EACH ROW
    WHEN ((OLD.currency, OLD.txid, OLD.output, OLD.address, OLD.first_seen_at) IS DISTINCT FROM (NEW.currency, NEW.txid, NEW.output, NEW.address, NEW.first_seen_at)
        OR (OLD.amount, OLD.counted) IS DISTINCT FROM (NEW.amount, NEW.counted) AND OLD.first_seen_at < books_young())
    EXECUTE FUNCTION books_note_transfer();
CREATE TRIGGER books_transfers_delete AFTER DELETE ON transfers FOR EACH ROW EXECUTE FUNCTION books_note_transfer();

CREATE TRIGGER books_attributions AFTER INSERT OR UPDATE OR DELETE ON attributions FOR EACH ROW EXECUTE FUNCTION books_note_attribution();
CREATE TRIGGER books_resolutions AFTER INSERT OR UPDATE OR DELETE ON resolutions FOR EACH ROW EXECUTE FUNCTION books_note_of_card();
CREATE TRIGGER books_credentials_insert AFTER INSERT ON credentials FOR EACH ROW WHEN (NEW.card_uuid < books_young_card()) EXECUTE FUNCTION books_note_of_card();
CREATE TRIGGER books_credentials_change AFTER UPDATE OR DELETE ON credentials FOR EACH ROW EXECUTE FUNCTION books_note_of_card();
CREATE TRIGGER books_intents_insert AFTER INSERT ON intents FOR EACH ROW WHEN (NEW.card_uuid < books_young_card()) EXECUTE FUNCTION books_note_of_card();
CREATE TRIGGER books_intents_update AFTER UPDATE ON intents FOR EACH ROW
    WHEN (OLD.card_uuid < books_young_card() AND (OLD.card_uuid, OLD.state) IS DISTINCT FROM (NEW.card_uuid, NEW.state)) EXECUTE FUNCTION books_note_of_card();
CREATE TRIGGER books_intents_delete AFTER DELETE ON intents FOR EACH ROW EXECUTE FUNCTION books_note_of_card();
CREATE TRIGGER books_events AFTER UPDATE OF account_id, seq, type OR DELETE ON events FOR EACH ROW EXECUTE FUNCTION books_note_event();

-- Programs of before go on: what they write is noted.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP TRIGGER books_events ON events;
DROP TRIGGER books_intents_delete ON intents;
DROP TRIGGER books_intents_update ON intents;
DROP TRIGGER books_intents_insert ON intents;
DROP TRIGGER books_credentials_change ON credentials;
DROP TRIGGER books_credentials_insert ON credentials;
DROP TRIGGER books_resolutions ON resolutions;
DROP TRIGGER books_attributions ON attributions;
DROP TRIGGER books_transfers_delete ON transfers;
DROP TRIGGER books_transfers_update ON transfers;
DROP TRIGGER books_transfers_insert ON transfers;
DROP TRIGGER books_cards_delete ON cards;
DROP TRIGGER books_cards_move ON cards;
DROP TRIGGER books_cards_update ON cards;
DROP TRIGGER books_cards_insert ON cards;
DROP FUNCTION books_note_event, books_note_of_card, books_note_attribution, books_note_transfer, books_note_moved_card, books_note_card, books_young_card, books_young;
ALTER TABLE intents DROP COLUMN decided_at;
DROP TABLE books_notes, books_feeds, books_doubts, books_days, books;
UPDATE schema_compatibility SET oldest = 6;
