-- +goose Up
-- What operators decided. Amounts are atomic units.
ALTER TABLE cards ADD COLUMN accepted BIGINT NOT NULL DEFAULT 0;    -- so much is enough, whatever was asked for
ALTER TABLE cards ADD COLUMN refunded BIGINT NOT NULL DEFAULT 0;    -- the sum of the card's resolutions of kind refund
ALTER TABLE cards ADD COLUMN written_off BIGINT NOT NULL DEFAULT 0; -- is missing, and is not waited for
CREATE TABLE resolutions (
    id         UUID PRIMARY KEY,
    card_uuid  UUID NOT NULL REFERENCES cards (uuid),
    kind       TEXT NOT NULL CHECK (kind IN ('accept', 'refund', 'write_off', 'retry')),
    amount     BIGINT NOT NULL CHECK (amount >= 0),
    note       TEXT NOT NULL,
    operator   TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX resolutions_card ON resolutions (card_uuid);

-- Why the wallet has to look through its whole chain again, and how far it is; nothing if it has not.
ALTER TABLE address_pools ADD COLUMN rescan TEXT;
ALTER TABLE address_pools ADD COLUMN rescan_believed BOOLEAN NOT NULL DEFAULT FALSE; -- whatever it then no longer shows

-- The block below which the wallet can't follow a reorganisation.
ALTER TABLE chains ADD COLUMN deep_height BIGINT NOT NULL DEFAULT 0;
ALTER TABLE chains ADD COLUMN deep_hash TEXT NOT NULL DEFAULT '';

DROP INDEX cards_expiry;
CREATE INDEX cards_expiry ON cards (currency, expires_at) WHERE payment_state IN ('unpaid', 'underpaid');
CREATE INDEX cards_open ON cards (account_id, usd_cents) WHERE payment_state IN ('unpaid', 'underpaid');
CREATE INDEX cards_attention ON cards (account_id) WHERE payment_state IN ('late', 'reversed');

-- In the order in which they are claimed, so that a claim reads what it takes and no more.
DROP INDEX intents_due;
CREATE INDEX intents_due ON intents (due_at, card_uuid) WHERE state = 'open';

-- +goose Down
DROP INDEX intents_due;
CREATE INDEX intents_due ON intents (due_at) WHERE state = 'open';
DROP INDEX cards_attention;
DROP INDEX cards_open;
DROP INDEX cards_expiry;
CREATE INDEX cards_expiry ON cards (currency, expires_at) WHERE payment_state = 'unpaid';
ALTER TABLE chains DROP COLUMN deep_hash;
ALTER TABLE chains DROP COLUMN deep_height;
ALTER TABLE address_pools DROP COLUMN rescan_believed;
ALTER TABLE address_pools DROP COLUMN rescan;
DROP TABLE resolutions;
ALTER TABLE cards DROP COLUMN written_off;
ALTER TABLE cards DROP COLUMN refunded;
ALTER TABLE cards DROP COLUMN accepted;
