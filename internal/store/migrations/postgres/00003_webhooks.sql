-- +goose Up
ALTER TABLE events ALTER COLUMN card_uuid DROP NOT NULL, ALTER COLUMN status DROP NOT NULL, ALTER COLUMN payment_state DROP NOT NULL,
    ADD COLUMN webhook_id UUID; -- of one that was disabled; it may have been deleted since
CREATE INDEX events_card ON events (card_uuid);
CREATE INDEX events_age ON events (account_id, created_at, seq);

CREATE TABLE webhooks (
    id              UUID PRIMARY KEY,
    account_id      UUID NOT NULL REFERENCES accounts (id),
    url             TEXT NOT NULL,
    description     TEXT NOT NULL,
    types           TEXT NOT NULL, -- of the events that are sent, with spaces between; '' for all
    secret          BYTEA NOT NULL,
    old_secret      BYTEA,
    old_until       BIGINT,
    enabled         BOOLEAN NOT NULL,
    disabled_reason TEXT,
    disabled_at     BIGINT,
    created_at      BIGINT NOT NULL,
    version         BIGINT NOT NULL,             -- grows with what a sender has to know of
    failures        INTEGER NOT NULL DEFAULT 0, -- rounds of attempts in a row that found the receiver down
    failing_since   BIGINT,
    paused_until    BIGINT NOT NULL DEFAULT 0,
    fence           BIGINT NOT NULL DEFAULT 0,  -- of the newest claim
    claimed_until   BIGINT NOT NULL DEFAULT 0   -- by the database's clock; also when the last claim ended
);
CREATE INDEX webhooks_account ON webhooks (account_id, id);

-- An event on its way to a webhook.
CREATE TABLE deliveries (
    webhook_id UUID NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    account_id UUID NOT NULL,
    seq        BIGINT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'failed')),
    due_at     BIGINT,                     -- of the next attempt, while it is pending; 0 before the first, whose time no clock decides
    tries      INTEGER NOT NULL DEFAULT 0, -- of the schedule
    attempts   TEXT NOT NULL DEFAULT '[]', -- JSON
    PRIMARY KEY (webhook_id, seq),
    FOREIGN KEY (account_id, seq) REFERENCES events (account_id, seq)
);
CREATE INDEX deliveries_due ON deliveries (webhook_id, due_at, seq) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_failed ON deliveries (webhook_id, seq) WHERE state = 'failed';

-- +goose Down
DROP TABLE deliveries, webhooks;
DROP INDEX events_card;
DROP INDEX events_age;
DELETE FROM events WHERE card_uuid IS NULL;
ALTER TABLE events DROP COLUMN webhook_id, ALTER COLUMN card_uuid SET NOT NULL, ALTER COLUMN status SET NOT NULL, ALTER COLUMN payment_state SET NOT NULL;
