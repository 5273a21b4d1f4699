-- +goose Up
-- What clients store with their cards.
ALTER TABLE cards ADD COLUMN reference TEXT; -- NULL if the order had none
ALTER TABLE cards ADD COLUMN metadata TEXT; -- a JSON object of strings; NULL if the order had none

-- Newest first, with one reference.
CREATE INDEX cards_reference ON cards (account_id, reference, uuid) WHERE reference IS NOT NULL;
-- Likewise, by kinds of cards: what filters combine to is made of these.
CREATE INDEX cards_kind ON cards (account_id, status, payment_state, currency, uuid);
CREATE INDEX cards_reference_kind ON cards (account_id, reference, status, payment_state, currency, uuid) WHERE reference IS NOT NULL;

-- Programs of before go on: they show neither.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP INDEX cards_reference_kind;
DROP INDEX cards_kind;
DROP INDEX cards_reference;
ALTER TABLE cards DROP COLUMN metadata;
ALTER TABLE cards DROP COLUMN reference;
UPDATE schema_compatibility SET oldest = 6;
