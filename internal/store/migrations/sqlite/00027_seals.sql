-- +goose Up
-- A seal vouches for a token's row with the keys, so that write access to the database gives no token more power. NULL in rows of earlier
-- versions, until 'cardmint token seal'.
ALTER TABLE tokens ADD COLUMN seal BLOB;
CREATE INDEX tokens_key ON tokens (SUBSTR(seal, 1, 5), id) WHERE seal IS NOT NULL;

-- Earlier versions can use the database until a token has a seal: they would accept a row that was changed.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP INDEX tokens_key;
ALTER TABLE tokens DROP COLUMN seal;
UPDATE schema_compatibility SET oldest = 6;
