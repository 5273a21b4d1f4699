-- Times are Unix milliseconds, amounts atomic units, in every table.
-- +goose Up
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE accounts (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    last_seq   INTEGER NOT NULL DEFAULT 0, -- of the account's events
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE tokens (
    id         TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    name       TEXT NOT NULL,
    hash       BLOB NOT NULL UNIQUE, -- keyed
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT;

-- The wallet's addresses, made ahead. They are handed out in the order of their positions, and never again: those from
-- next_position on are free. What a process took and did not use is lost, which costs nothing but addresses.
CREATE TABLE addresses (
    currency TEXT NOT NULL,
    position INTEGER NOT NULL,
    address  TEXT NOT NULL,
    PRIMARY KEY (currency, position),
    UNIQUE (currency, address)
) STRICT;
CREATE TABLE address_pools (
    currency      TEXT PRIMARY KEY,
    next_position INTEGER NOT NULL,
    checked_at    INTEGER NOT NULL -- when the wallet was last seen to agree; what a backup restores is too old to be used
) STRICT;

CREATE TABLE cards (
    uuid                   TEXT PRIMARY KEY,
    account_id             TEXT NOT NULL REFERENCES accounts (id),
    created_at             INTEGER NOT NULL,
    usd_cents              INTEGER NOT NULL,
    currency               TEXT NOT NULL,
    amount                 INTEGER NOT NULL CHECK (amount > 0),
    address                TEXT NOT NULL,
    rate                   INTEGER NOT NULL, -- US dollars per coin, times 10^8
    rate_at                INTEGER NOT NULL,
    rate_source            TEXT NOT NULL,
    expires_at             INTEGER NOT NULL,
    confirmations_required INTEGER NOT NULL CHECK (confirmations_required > 0),
    idempotency_key        TEXT,
    request_hash           BLOB,
    status                 TEXT NOT NULL DEFAULT 'awaiting_payment' CHECK (status IN ('awaiting_payment', 'generated')),
    payment_state          TEXT NOT NULL DEFAULT 'unpaid',
    received               INTEGER NOT NULL DEFAULT 0, -- the sum of the counted transfers, written whole with each of their changes
    settled                INTEGER NOT NULL DEFAULT 0, -- what the payment must keep once it was found paid; 0 before
    height                 INTEGER NOT NULL DEFAULT 0, -- highest block of the counted transfers; 0 while one is in the mempool
    ready_height           INTEGER,                    -- tip at which the card must be assessed again
    UNIQUE (currency, address)
) STRICT;
CREATE UNIQUE INDEX cards_idempotency ON cards (account_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX cards_list ON cards (account_id, uuid);
CREATE INDEX cards_ready ON cards (currency, ready_height) WHERE ready_height IS NOT NULL;
CREATE INDEX cards_expiry ON cards (currency, expires_at) WHERE payment_state = 'unpaid';

CREATE TABLE credentials (
    card_uuid       TEXT PRIMARY KEY REFERENCES cards (uuid),
    card_number     BLOB NOT NULL,
    expiration_date BLOB NOT NULL,
    security_code   BLOB NOT NULL,
    url             BLOB NOT NULL,
    url_password    BLOB NOT NULL
) STRICT;

-- How far each chain has been applied.
CREATE TABLE chains (
    currency    TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    height      INTEGER NOT NULL,
    hash        TEXT NOT NULL,
    time        INTEGER NOT NULL
) STRICT;

-- Facts: what arrived. A transfer that left the chain is kept, not counted.
CREATE TABLE transfers (
    currency      TEXT NOT NULL,
    txid          TEXT NOT NULL,
    output        INTEGER NOT NULL,
    address       TEXT NOT NULL,
    amount        INTEGER NOT NULL CHECK (amount >= 0),
    height        INTEGER NOT NULL, -- 0 in the mempool
    locked        INTEGER NOT NULL,
    counted       INTEGER NOT NULL,
    first_seen_at INTEGER NOT NULL,
    PRIMARY KEY (currency, txid, output)
) STRICT;
CREATE INDEX transfers_address ON transfers (currency, address);
CREATE INDEX transfers_height ON transfers (currency, height) WHERE counted;
CREATE INDEX transfers_locked ON transfers (currency, height) WHERE counted AND locked;

-- The decision to have a card made, committed before the issuer is asked.
CREATE TABLE intents (
    card_uuid        TEXT PRIMARY KEY REFERENCES cards (uuid),
    state            TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'parked')),
    attempts         INTEGER NOT NULL DEFAULT 0,
    fence            INTEGER NOT NULL DEFAULT 0,
    due_at           INTEGER NOT NULL, -- not before: the next attempt, or the end of the claim
    reason           TEXT,            -- of the last deferral, or of parking
    card_number_hash BLOB UNIQUE     -- keyed: no card is ever given out twice
) STRICT;
CREATE INDEX intents_due ON intents (due_at) WHERE state = 'open';

CREATE TABLE events (
    account_id    TEXT NOT NULL REFERENCES accounts (id),
    seq           INTEGER NOT NULL,
    id            TEXT NOT NULL UNIQUE,
    type          TEXT NOT NULL,
    card_uuid     TEXT NOT NULL REFERENCES cards (uuid),
    status        TEXT NOT NULL,
    payment_state TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    PRIMARY KEY (account_id, seq)
) STRICT;

CREATE TABLE leases (
    name       TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    fence      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

-- The sandbox's chain: its blocks are only counted, its transfers are these.
CREATE TABLE simulated_chains (
    currency   TEXT PRIMARY KEY,
    height     INTEGER NOT NULL,
    reorgs     INTEGER NOT NULL, -- part of the block hashes, so that a reorganised block has another
    next_index INTEGER NOT NULL  -- of the next address
) STRICT;
CREATE TABLE simulated_transfers (
    currency TEXT NOT NULL,
    txid     TEXT NOT NULL,
    address  TEXT NOT NULL,
    amount   INTEGER NOT NULL,
    height   INTEGER NOT NULL, -- 0 in the mempool
    seen_at  INTEGER NOT NULL,
    PRIMARY KEY (currency, txid)
) STRICT;
CREATE INDEX simulated_transfers_height ON simulated_transfers (currency, height);
CREATE INDEX simulated_transfers_address ON simulated_transfers (currency, address);

-- +goose Down
DROP TABLE simulated_transfers;
DROP TABLE simulated_chains;
DROP TABLE leases;
DROP TABLE events;
DROP TABLE intents;
DROP TABLE transfers;
DROP TABLE chains;
DROP TABLE credentials;
DROP TABLE cards;
DROP TABLE address_pools;
DROP TABLE addresses;
DROP TABLE tokens;
DROP TABLE accounts;
DROP TABLE settings;
