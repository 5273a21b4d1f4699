-- +goose Up
-- A list of cards reads the index of its rarest filter, newest first, and finds
-- the values of the other filters in that index.
CREATE INDEX cards_account ON cards (account_id, uuid, status, currency);
CREATE INDEX cards_state ON cards (payment_state, account_id, uuid, status, currency, canceled_at, usd_cents);
CREATE INDEX cards_reference ON cards (account_id, reference, uuid, status, payment_state, currency, canceled_at) WHERE reference IS NOT NULL;
DROP INDEX cards_list;
DROP INDEX cards_kinds;
DROP INDEX cards_reference_kind;

-- Programs of the previous version keep working. Their lists of one kind of cards read more.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
CREATE INDEX cards_list ON cards (account_id, uuid);
CREATE INDEX cards_kinds ON cards (account_id, status, payment_state, currency, uuid, usd_cents);
CREATE INDEX cards_reference_kind ON cards (account_id, reference, status, payment_state, currency, uuid) WHERE reference IS NOT NULL;
DROP INDEX cards_account;
DROP INDEX cards_state;
DROP INDEX cards_reference;
UPDATE schema_compatibility SET oldest = 6;
