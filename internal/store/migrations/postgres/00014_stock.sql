-- +goose Up
-- Cards that were bought ahead. A row stays for ever, so that no number is imported twice and no key yields two cards; its credentials are
-- wiped once those of the card are stored.
CREATE TABLE stock (
    id              UUID PRIMARY KEY,
    supplier        TEXT NOT NULL,
    usd_cents       BIGINT NOT NULL CHECK (usd_cents > 0),
    state           TEXT NOT NULL DEFAULT 'free' CHECK (state IN ('free', 'reserved', 'issued', 'held')),
    expires_at      BIGINT NOT NULL,         -- the end of the month that is on the card
    card_uuid       UUID,                    -- for which it is reserved, or to which it was issued; NULL while it is free
    reserved_until  BIGINT,                  -- when that card's quote expires
    imported_at     BIGINT NOT NULL,
    number_hash     BYTEA NOT NULL UNIQUE,   -- keyed
    card_number     BYTEA,                   -- this and what follows: encrypted; NULL once wiped
    expiration_date BYTEA,
    security_code   BYTEA,
    url             BYTEA,
    url_password    BYTEA,
    UNIQUE (supplier, card_uuid),            -- a card gets one item of a supplier, ever
    CHECK (state = 'held' OR (state = 'free') = (card_uuid IS NULL))
);
-- First to expire, first to go.
CREATE INDEX stock_free ON stock (supplier, usd_cents, state, expires_at, id);
CREATE INDEX stock_reserved ON stock (reserved_until) WHERE state = 'reserved';
CREATE INDEX stock_unwiped ON stock (card_uuid) WHERE state = 'issued' AND card_number IS NOT NULL;

-- What can be had of each supplier, as a worker asked last.
CREATE TABLE offers (
    supplier TEXT PRIMARY KEY,
    priority INTEGER NOT NULL, -- its place in the order in which suppliers are asked
    offers   TEXT NOT NULL,    -- JSON: min_cents, max_cents, left (absent if unlimited), life_ms (if orders reserve one)
    at       BIGINT NOT NULL   -- when the supplier answered last
);

-- Programs of before go on: they sell every amount, and reserve nothing.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP TABLE offers;
DROP TABLE stock;
UPDATE schema_compatibility SET oldest = 6;
