-- +goose Up
-- What tokens may do, and which token replaces another.
ALTER TABLE tokens ADD COLUMN scopes TEXT; -- with commas between; NULL for all, also those of later versions
ALTER TABLE tokens ADD COLUMN replaced_by TEXT;

-- When tokens were used last. Apart from the tokens, so that nobody who reads or revokes one waits for it.
CREATE TABLE token_uses (
    token_id TEXT PRIMARY KEY,
    used_at  INTEGER NOT NULL
) STRICT;

-- Programs of before go on until there is a token with less than all scopes: they would let it do everything.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP TABLE token_uses;
ALTER TABLE tokens DROP COLUMN replaced_by;
ALTER TABLE tokens DROP COLUMN scopes;
UPDATE schema_compatibility SET oldest = 6;
