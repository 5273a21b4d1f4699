-- +goose Up
-- Several suppliers: who refused to make a card, and since when it waits. opened_at is filled in by the first claim, because programs of
-- before do not write it.
ALTER TABLE intents ADD COLUMN refusals TEXT; -- JSON, of this round: supplier, reason, temporary. NULL if nobody refused
ALTER TABLE intents ADD COLUMN declines INTEGER NOT NULL DEFAULT 0; -- clear refusals ever
ALTER TABLE intents ADD COLUMN opened_at BIGINT; -- since when the suppliers are asked

-- Programs of before go on: they ask the one supplier that they know.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
ALTER TABLE intents DROP COLUMN opened_at;
ALTER TABLE intents DROP COLUMN declines;
ALTER TABLE intents DROP COLUMN refusals;
UPDATE schema_compatibility SET oldest = 6;
