-- Times are Unix milliseconds, amounts atomic units, in every table.
-- +goose Up
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE accounts (
    id         UUID PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    last_seq   BIGINT NOT NULL DEFAULT 0, -- of the account's events
    created_at BIGINT NOT NULL
);

CREATE TABLE tokens (
    id         UUID PRIMARY KEY,
    account_id UUID NOT NULL REFERENCES accounts (id),
    name       TEXT NOT NULL,
    hash       BYTEA NOT NULL UNIQUE, -- keyed
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);

-- The wallet's addresses, made ahead. They are handed out in the order of their positions, and never again: those from
-- next_position on are free. What a process took and did not use is lost, which costs nothing but addresses.
CREATE TABLE addresses (
    currency TEXT NOT NULL,
    position BIGINT NOT NULL,
    address  TEXT NOT NULL,
    PRIMARY KEY (currency, position),
    UNIQUE (currency, address)
);
CREATE TABLE address_pools (
    currency      TEXT PRIMARY KEY,
    next_position BIGINT NOT NULL,
    checked_at    BIGINT NOT NULL -- when the wallet was last seen to agree; what a backup restores is too old to be used
);

CREATE TABLE cards (
    uuid                   UUID PRIMARY KEY,
    account_id             UUID NOT NULL REFERENCES accounts (id),
    created_at             BIGINT NOT NULL,
    usd_cents              BIGINT NOT NULL,
    currency               TEXT NOT NULL,
    amount                 BIGINT NOT NULL CHECK (amount > 0),
    address                TEXT NOT NULL,
    rate                   BIGINT NOT NULL, -- US dollars per coin, times 10^8
    rate_at                BIGINT NOT NULL,
    rate_source            TEXT NOT NULL,
    expires_at             BIGINT NOT NULL,
    confirmations_required INTEGER NOT NULL CHECK (confirmations_required > 0),
    idempotency_key        TEXT,
    request_hash           BYTEA,
    status                 TEXT NOT NULL DEFAULT 'awaiting_payment' CHECK (status IN ('awaiting_payment', 'generated')),
    payment_state          TEXT NOT NULL DEFAULT 'unpaid',
    received               BIGINT NOT NULL DEFAULT 0, -- the sum of the counted transfers, written whole with each of their changes
    settled                BIGINT NOT NULL DEFAULT 0, -- what the payment must keep once it was found paid; 0 before
    height                 BIGINT NOT NULL DEFAULT 0, -- highest block of the counted transfers; 0 while one is in the mempool
    ready_height           BIGINT,                    -- tip at which the card must be assessed again
    UNIQUE (currency, address)
);
CREATE UNIQUE INDEX cards_idempotency ON cards (account_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX cards_list ON cards (account_id, uuid);
CREATE INDEX cards_ready ON cards (currency, ready_height) WHERE ready_height IS NOT NULL;
CREATE INDEX cards_expiry ON cards (currency, expires_at) WHERE payment_state = 'unpaid';

CREATE TABLE credentials (
    card_uuid       UUID PRIMARY KEY REFERENCES cards (uuid),
    card_number     BYTEA NOT NULL,
    expiration_date BYTEA NOT NULL,
    security_code   BYTEA NOT NULL,
    url             BYTEA NOT NULL,
    url_password    BYTEA NOT NULL
);

-- How far each chain has been applied.
CREATE TABLE chains (
    currency    TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    height      BIGINT NOT NULL,
    hash        TEXT NOT NULL,
    time        BIGINT NOT NULL
);

-- Facts: what arrived. A transfer that left the chain is kept, not counted.
CREATE TABLE transfers (
    currency      TEXT NOT NULL,
    txid          TEXT NOT NULL,
    output        BIGINT NOT NULL,
    address       TEXT NOT NULL,
    amount        BIGINT NOT NULL CHECK (amount >= 0),
    height        BIGINT NOT NULL, -- 0 in the mempool
    locked        BOOLEAN NOT NULL,
    counted       BOOLEAN NOT NULL,
    first_seen_at BIGINT NOT NULL,
    PRIMARY KEY (currency, txid, output)
);
CREATE INDEX transfers_address ON transfers (currency, address);
CREATE INDEX transfers_height ON transfers (currency, height) WHERE counted;
CREATE INDEX transfers_locked ON transfers (currency, height) WHERE counted AND locked;

-- The decision to have a card made, committed before the issuer is asked.
CREATE TABLE intents (
    card_uuid        UUID PRIMARY KEY REFERENCES cards (uuid),
    state            TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'parked')),
    attempts         INTEGER NOT NULL DEFAULT 0,
    fence            BIGINT NOT NULL DEFAULT 0,
    due_at           BIGINT NOT NULL, -- not before: the next attempt, or the end of the claim
    reason           TEXT,            -- of the last deferral, or of parking
    card_number_hash BYTEA UNIQUE     -- keyed: no card is ever given out twice
);
CREATE INDEX intents_due ON intents (due_at) WHERE state = 'open';

CREATE TABLE events (
    account_id    UUID NOT NULL REFERENCES accounts (id),
    seq           BIGINT NOT NULL,
    id            UUID NOT NULL UNIQUE,
    type          TEXT NOT NULL,
    card_uuid     UUID NOT NULL REFERENCES cards (uuid),
    status        TEXT NOT NULL,
    payment_state TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    PRIMARY KEY (account_id, seq)
);

CREATE TABLE leases (
    name       TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    fence      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

-- The sandbox's chain: its blocks are only counted, its transfers are these.
CREATE TABLE simulated_chains (
    currency   TEXT PRIMARY KEY,
    height     BIGINT NOT NULL,
    reorgs     BIGINT NOT NULL, -- part of the block hashes, so that a reorganised block has another
    next_index BIGINT NOT NULL  -- of the next address
);
CREATE TABLE simulated_transfers (
    currency TEXT NOT NULL,
    txid     TEXT NOT NULL,
    address  TEXT NOT NULL,
    amount   BIGINT NOT NULL,
    height   BIGINT NOT NULL, -- 0 in the mempool
    seen_at  BIGINT NOT NULL,
    PRIMARY KEY (currency, txid)
);
CREATE INDEX simulated_transfers_height ON simulated_transfers (currency, height);
CREATE INDEX simulated_transfers_address ON simulated_transfers (currency, address);

-- +goose Down
DROP TABLE simulated_transfers, simulated_chains, leases, events, intents, transfers, chains, credentials, cards, address_pools, addresses, tokens, accounts, settings;
