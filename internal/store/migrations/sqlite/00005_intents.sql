-- +goose Up
-- Nothing refers to intents, so the table can be made anew with another constraint.
ALTER TABLE intents RENAME TO intents_before;
CREATE TABLE intents (
    card_uuid        TEXT PRIMARY KEY REFERENCES cards (uuid),
    state            TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'pending', 'parked', 'done', 'refund_due')),
    attempts         INTEGER NOT NULL DEFAULT 0,
    fence            INTEGER NOT NULL DEFAULT 0,
    due_at           INTEGER NOT NULL, -- not before: the next attempt, or the end of the claim
    reason           TEXT,             -- why the card is not issued yet
    card_number_hash BLOB UNIQUE,      -- keyed: no card is ever given out twice
    supplier         TEXT,             -- who is asked; this and key are written by the first claim, before the first call
    key              TEXT,             -- by which the supplier knows the request
    reference        TEXT,             -- by which the supplier calls it
    first_asked_at   INTEGER,          -- since when the supplier may know the key; NULL before, and after an operator's retry
    answer           TEXT CHECK (answer IN ('issued', 'pending', 'declined', 'unknown')) -- the last one; NULL if nobody was asked
) STRICT;

-- When a supplier was first asked was not kept. The end of the last claim, or the time of the next attempt, is the best that is known.
INSERT INTO intents (card_uuid, state, attempts, fence, due_at, reason, card_number_hash, supplier, key, first_asked_at, answer)
    SELECT card_uuid, state, attempts, fence, due_at, reason, card_number_hash, 'sandbox', card_uuid, CASE WHEN attempts > 0 THEN due_at END,
        CASE WHEN attempts = 0 THEN NULL WHEN state = 'done' THEN 'issued'
            WHEN state = 'parked' AND reason = 'declined by the issuer' THEN 'declined' ELSE 'unknown' END
    FROM intents_before;
DROP TABLE intents_before;
CREATE INDEX intents_due ON intents (due_at, card_uuid) WHERE state IN ('open', 'pending');

-- +goose Down
ALTER TABLE intents RENAME TO intents_before;
CREATE TABLE intents (
    card_uuid        TEXT PRIMARY KEY REFERENCES cards (uuid),
    state            TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'parked')),
    attempts         INTEGER NOT NULL DEFAULT 0,
    fence            INTEGER NOT NULL DEFAULT 0,
    due_at           INTEGER NOT NULL, -- not before: the next attempt, or the end of the claim
    reason           TEXT,             -- of the last deferral, or of parking
    card_number_hash BLOB UNIQUE       -- keyed: no card is ever given out twice
) STRICT;
INSERT INTO intents (card_uuid, state, attempts, fence, due_at, reason, card_number_hash)
    SELECT card_uuid, CASE state WHEN 'pending' THEN 'open' WHEN 'refund_due' THEN 'parked' ELSE state END, attempts, fence, due_at,
        CASE state WHEN 'refund_due' THEN 'declined by the issuer' ELSE reason END, card_number_hash
    FROM intents_before;
DROP TABLE intents_before;
CREATE INDEX intents_due ON intents (due_at, card_uuid) WHERE state = 'open';
