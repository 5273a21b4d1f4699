-- +goose Up
-- What was replied to requests with an idempotency key, for some time; orders of cards keep their keys themselves.
CREATE TABLE replies (
    id              TEXT PRIMARY KEY NOT NULL,
    account_id      TEXT NOT NULL REFERENCES accounts (id),
    idempotency_key TEXT NOT NULL,
    request_hash    BLOB NOT NULL,
    reply           BLOB NOT NULL, -- encrypted
    created_at      INTEGER NOT NULL,
    UNIQUE (account_id, idempotency_key)
) STRICT;
CREATE INDEX replies_age ON replies (created_at);
-- A ciphertext begins with the id of its key.
CREATE INDEX replies_key ON replies (SUBSTR(reply, 1, 5), id);

-- Programs of before go on: they ignore the keys of these requests, and re-encrypt no replies.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP TABLE replies;
UPDATE schema_compatibility SET oldest = 6;
