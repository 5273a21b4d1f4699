-- +goose NO TRANSACTION
-- So that no list reads a whole table. Every statement can be run again. Until the first index, they wait for a lock no longer than those
-- of other migrations. An index that is built CONCURRENTLY waits for the transactions that are open, but nobody waits behind it: there
-- the patience is that of the whole migration (migrate.go). What an attempt left unfinished is dropped first.
-- +goose Up
-- What became of a transfer to no card's address, when it was last written: FALSE if nothing was decided, TRUE if something was. NULL if a
-- card has the address. It narrows a search, and decides nothing: older programs do not write it, and leave the default.
ALTER TABLE transfers ADD COLUMN IF NOT EXISTS attributed BOOLEAN, ALTER COLUMN attributed SET DEFAULT FALSE;
UPDATE transfers SET attributed = EXISTS (SELECT 1 FROM attributions a WHERE a.currency = transfers.currency AND a.txid = transfers.txid AND a.output = transfers.output)
    WHERE attributed IS NULL AND (NOT EXISTS (SELECT 1 FROM cards c WHERE c.currency = transfers.currency AND c.address = transfers.address)
        OR EXISTS (SELECT 1 FROM attributions a WHERE a.currency = transfers.currency AND a.txid = transfers.txid AND a.output = transfers.output));

SELECT set_config('lock_timeout', COALESCE(current_setting('cardmint.lock_wait', TRUE), '0'), FALSE);

DROP INDEX CONCURRENTLY IF EXISTS transfers_stray;
CREATE INDEX CONCURRENTLY transfers_stray ON transfers (first_seen_at DESC, txid, output) WHERE attributed IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS transfers_unattributed;
CREATE INDEX CONCURRENTLY transfers_unattributed ON transfers (first_seen_at DESC, txid, output) WHERE counted AND NOT attributed;

-- Newest first, with one status.
DROP INDEX CONCURRENTLY IF EXISTS cards_status;
CREATE INDEX CONCURRENTLY cards_status ON cards (account_id, status, uuid);
-- Likewise with one state of the payment. It also adds up an account's open cards, as cards_open did.
DROP INDEX CONCURRENTLY IF EXISTS cards_state;
CREATE INDEX CONCURRENTLY cards_state ON cards (account_id, payment_state, uuid) INCLUDE (usd_cents);
DROP INDEX CONCURRENTLY IF EXISTS cards_open;

-- What waits for an operator, oldest first.
DROP INDEX CONCURRENTLY IF EXISTS cards_late;
CREATE INDEX CONCURRENTLY cards_late ON cards (uuid) WHERE payment_state = 'late';
DROP INDEX CONCURRENTLY IF EXISTS cards_losses;
CREATE INDEX CONCURRENTLY cards_losses ON cards (uuid) WHERE credit_lost > credit_written_off;
DROP INDEX CONCURRENTLY IF EXISTS intents_waiting;
CREATE INDEX CONCURRENTLY intents_waiting ON intents (card_uuid) WHERE state IN ('parked', 'refund_due');

-- Beside deliveries_failed.
DROP INDEX CONCURRENTLY IF EXISTS deliveries_delivered;
CREATE INDEX CONCURRENTLY deliveries_delivered ON deliveries (webhook_id, seq) WHERE state = 'delivered';

-- Programs of before go on.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS deliveries_delivered;
DROP INDEX CONCURRENTLY IF EXISTS cards_open;
CREATE INDEX CONCURRENTLY cards_open ON cards (account_id, usd_cents) WHERE payment_state IN ('unpaid', 'underpaid');
DROP INDEX CONCURRENTLY IF EXISTS intents_waiting;
DROP INDEX CONCURRENTLY IF EXISTS cards_losses;
DROP INDEX CONCURRENTLY IF EXISTS cards_late;
DROP INDEX CONCURRENTLY IF EXISTS cards_state;
DROP INDEX CONCURRENTLY IF EXISTS cards_status;
ALTER TABLE transfers DROP COLUMN IF EXISTS attributed;
UPDATE schema_compatibility SET oldest = 6;
