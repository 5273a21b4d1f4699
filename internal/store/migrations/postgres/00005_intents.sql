-- +goose Up
ALTER TABLE intents
    ADD COLUMN supplier       TEXT,   -- who is asked; this and key are written by the first claim, before the first call
    ADD COLUMN key            TEXT,   -- by which the supplier knows the request
    ADD COLUMN reference      TEXT,   -- by which the supplier calls it
    ADD COLUMN first_asked_at BIGINT, -- since when the supplier may know the key; NULL before, and after an operator's retry
    ADD COLUMN answer         TEXT CHECK (answer IN ('issued', 'pending', 'declined', 'unknown')); -- the last one; NULL if nobody was asked
ALTER TABLE intents DROP CONSTRAINT intents_state_check;
ALTER TABLE intents ADD CONSTRAINT intents_state_check CHECK (state IN ('open', 'pending', 'parked', 'done', 'refund_due'));

-- When a supplier was first asked was not kept. The end of the last claim, or the time of the next attempt, is the best that is known.
UPDATE intents SET supplier = 'sandbox', key = CAST(card_uuid AS TEXT), first_asked_at = CASE WHEN attempts > 0 THEN due_at END,
    answer = CASE WHEN attempts = 0 THEN NULL WHEN state = 'done' THEN 'issued'
        WHEN state = 'parked' AND reason = 'declined by the issuer' THEN 'declined' ELSE 'unknown' END;

DROP INDEX intents_due;
CREATE INDEX intents_due ON intents (due_at, card_uuid) WHERE state IN ('open', 'pending');

-- +goose Down
DROP INDEX intents_due;
UPDATE intents SET reason = 'declined by the issuer' WHERE state = 'refund_due';
UPDATE intents SET state = CASE state WHEN 'pending' THEN 'open' ELSE 'parked' END WHERE state IN ('pending', 'refund_due');
ALTER TABLE intents DROP CONSTRAINT intents_state_check;
ALTER TABLE intents ADD CONSTRAINT intents_state_check CHECK (state IN ('open', 'done', 'parked'));
ALTER TABLE intents DROP COLUMN supplier, DROP COLUMN key, DROP COLUMN reference, DROP COLUMN first_asked_at, DROP COLUMN answer;
CREATE INDEX intents_due ON intents (due_at, card_uuid) WHERE state = 'open';
