-- +goose Up
-- When the client canceled the card. Its payment_state is then 'expired' where others are told 'canceled', so that programs of before can
-- read it: they take it for a card whose quote is over.
ALTER TABLE cards ADD COLUMN canceled_at INTEGER;
CREATE INDEX cards_canceled ON cards (account_id, uuid) WHERE canceled_at IS NOT NULL;

-- Programs of before go on. Money that comes before expires_at they honour as if the card had not been canceled.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP INDEX cards_canceled;
ALTER TABLE cards DROP COLUMN canceled_at;
UPDATE schema_compatibility SET oldest = 6;
