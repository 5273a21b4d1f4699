-- +goose Up
-- How many requests each process has let pass of the accounts and tokens that use much of their limits.
CREATE TABLE request_usage (
    process  TEXT PRIMARY KEY,
    usage    TEXT NOT NULL, -- JSON
    saved_at INTEGER NOT NULL
) STRICT;

-- Programs of before go on: they limit no requests.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP TABLE request_usage;
UPDATE schema_compatibility SET oldest = 6;
