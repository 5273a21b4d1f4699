-- +goose Up
-- Each index makes every order dearer. The kinds of cards make up those with one status and those in one state of their payment, and the sum
-- of what is open.
CREATE INDEX cards_kinds ON cards (account_id, status, payment_state, currency, uuid, usd_cents);
DROP INDEX cards_kind;
DROP INDEX cards_state;
DROP INDEX cards_status;
DROP INDEX cards_reference;
-- Beside cards_late and cards_losses, which have few cards.
DROP INDEX cards_attention;
DROP INDEX cards_lost;

-- Programs of before go on. Their lists of one status or state, and the limit of what an account may have open, read all cards of the account.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
CREATE INDEX cards_lost ON cards (account_id) WHERE credit_lost > credit_written_off;
CREATE INDEX cards_attention ON cards (account_id) WHERE payment_state IN ('late', 'reversed');
CREATE INDEX cards_reference ON cards (account_id, reference, uuid) WHERE reference IS NOT NULL;
CREATE INDEX cards_status ON cards (account_id, status, uuid);
CREATE INDEX cards_state ON cards (account_id, payment_state, uuid, usd_cents);
CREATE INDEX cards_kind ON cards (account_id, status, payment_state, currency, uuid);
DROP INDEX cards_kinds;
UPDATE schema_compatibility SET oldest = 6;
