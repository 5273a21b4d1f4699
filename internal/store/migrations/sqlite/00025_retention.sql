-- +goose Up
-- The addresses of cards that were deleted because nobody paid. A row stays for ever: the address was given away, and money may still come.
CREATE TABLE retired_addresses (
    currency   TEXT NOT NULL,
    address    TEXT NOT NULL,
    card_uuid  TEXT NOT NULL,
    account_id TEXT NOT NULL,
    usd_cents  INTEGER NOT NULL,
    amount     INTEGER NOT NULL, -- that was asked for
    expires_at INTEGER NOT NULL, -- when the quote was over
    retired_at INTEGER NOT NULL, -- by the database's clock
    PRIMARY KEY (currency, address)
) STRICT, WITHOUT ROWID;

-- Deleting an event would search all deliveries for those of it.
CREATE INDEX deliveries_event ON deliveries (account_id, seq);

-- Programs of before go on: they delete neither cards nor events.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP INDEX deliveries_event;
DROP TABLE retired_addresses;
UPDATE schema_compatibility SET oldest = 6;
