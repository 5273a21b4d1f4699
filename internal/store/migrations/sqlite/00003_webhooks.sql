-- +goose Up
-- Nothing refers to events, so the table can be made anew with other constraints.
ALTER TABLE events RENAME TO events_before;
CREATE TABLE events (
    account_id    TEXT NOT NULL REFERENCES accounts (id),
    seq           INTEGER NOT NULL,
    id            TEXT NOT NULL UNIQUE,
    type          TEXT NOT NULL,
    card_uuid     TEXT REFERENCES cards (uuid),
    status        TEXT,
    payment_state TEXT,
    created_at    INTEGER NOT NULL,
    webhook_id    TEXT, -- of one that was disabled; it may have been deleted since
    PRIMARY KEY (account_id, seq)
) STRICT;
INSERT INTO events (account_id, seq, id, type, card_uuid, status, payment_state, created_at)
    SELECT account_id, seq, id, type, card_uuid, status, payment_state, created_at FROM events_before;
DROP TABLE events_before;
CREATE INDEX events_card ON events (card_uuid);
CREATE INDEX events_age ON events (account_id, created_at, seq);

CREATE TABLE webhooks (
    id              TEXT PRIMARY KEY,
    account_id      TEXT NOT NULL REFERENCES accounts (id),
    url             TEXT NOT NULL,
    description     TEXT NOT NULL,
    types           TEXT NOT NULL, -- of the events that are sent, with spaces between; '' for all
    secret          BLOB NOT NULL,
    old_secret      BLOB,
    old_until       INTEGER,
    enabled         INTEGER NOT NULL,
    disabled_reason TEXT,
    disabled_at     INTEGER,
    created_at      INTEGER NOT NULL,
    version         INTEGER NOT NULL,            -- grows with what a sender has to know of
    failures        INTEGER NOT NULL DEFAULT 0, -- rounds of attempts in a row that found the receiver down
    failing_since   INTEGER,
    paused_until    INTEGER NOT NULL DEFAULT 0,
    fence           INTEGER NOT NULL DEFAULT 0, -- of the newest claim
    claimed_until   INTEGER NOT NULL DEFAULT 0  -- by the database's clock; also when the last claim ended
) STRICT;
CREATE INDEX webhooks_account ON webhooks (account_id, id);

-- An event on its way to a webhook.
CREATE TABLE deliveries (
    webhook_id TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    account_id TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'failed')),
    due_at     INTEGER,                     -- of the next attempt, while it is pending; 0 before the first, whose time no clock decides
    tries      INTEGER NOT NULL DEFAULT 0,  -- of the schedule
    attempts   TEXT NOT NULL DEFAULT '[]',  -- JSON
    PRIMARY KEY (webhook_id, seq),
    FOREIGN KEY (account_id, seq) REFERENCES events (account_id, seq)
) STRICT;
CREATE INDEX deliveries_due ON deliveries (webhook_id, due_at, seq) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_failed ON deliveries (webhook_id, seq) WHERE state = 'failed';

-- +goose Down
DROP TABLE deliveries;
DROP TABLE webhooks;
DROP INDEX events_card;
DROP INDEX events_age;
DELETE FROM events WHERE card_uuid IS NULL;
ALTER TABLE events DROP COLUMN webhook_id;
