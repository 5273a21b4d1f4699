-- +goose Up
-- So that no list reads a whole table.
-- What became of a transfer to no card's address, when it was last written: FALSE if nothing was decided, TRUE if something was. NULL if a
-- card has the address. It narrows a search, and decides nothing: older programs do not write it, and leave the default.
ALTER TABLE transfers ADD COLUMN attributed INTEGER DEFAULT FALSE;
UPDATE transfers SET attributed = CASE
    WHEN EXISTS (SELECT 1 FROM attributions a WHERE a.currency = transfers.currency AND a.txid = transfers.txid AND a.output = transfers.output) THEN TRUE END
    WHERE EXISTS (SELECT 1 FROM cards c WHERE c.currency = transfers.currency AND c.address = transfers.address)
        OR EXISTS (SELECT 1 FROM attributions a WHERE a.currency = transfers.currency AND a.txid = transfers.txid AND a.output = transfers.output);
CREATE INDEX transfers_stray ON transfers (first_seen_at DESC, txid, output) WHERE attributed IS NOT NULL;
CREATE INDEX transfers_unattributed ON transfers (first_seen_at DESC, txid, output) WHERE counted AND NOT attributed;

-- Newest first, with one status.
CREATE INDEX cards_status ON cards (account_id, status, uuid);
-- Likewise with one state of the payment. It also adds up an account's open cards, as cards_open did.
CREATE INDEX cards_state ON cards (account_id, payment_state, uuid, usd_cents);
DROP INDEX cards_open;

-- What waits for an operator, oldest first.
CREATE INDEX cards_late ON cards (uuid) WHERE payment_state = 'late';
CREATE INDEX cards_losses ON cards (uuid) WHERE credit_lost > credit_written_off;
CREATE INDEX intents_waiting ON intents (card_uuid) WHERE state IN ('parked', 'refund_due');

-- Beside deliveries_failed.
CREATE INDEX deliveries_delivered ON deliveries (webhook_id, seq) WHERE state = 'delivered';

-- Programs of before go on.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP INDEX deliveries_delivered;
DROP INDEX intents_waiting;
DROP INDEX cards_losses;
DROP INDEX cards_late;
CREATE INDEX cards_open ON cards (account_id, usd_cents) WHERE payment_state IN ('unpaid', 'underpaid');
DROP INDEX cards_state;
DROP INDEX cards_status;
DROP INDEX transfers_unattributed;
DROP INDEX transfers_stray;
ALTER TABLE transfers DROP COLUMN attributed;
UPDATE schema_compatibility SET oldest = 6;
