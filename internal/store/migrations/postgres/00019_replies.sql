-- +goose Up
-- What was replied to requests with an idempotency key, for some time; orders of cards keep their keys themselves.
CREATE TABLE replies (
    id              UUID PRIMARY KEY,
    account_id      UUID NOT NULL REFERENCES accounts (id),
    idempotency_key TEXT NOT NULL,
    request_hash    BYTEA NOT NULL,
    reply           BYTEA NOT NULL, -- encrypted
    created_at      BIGINT NOT NULL,
    UNIQUE (account_id, idempotency_key)
);
CREATE INDEX replies_age ON replies (created_at);
-- A ciphertext begins with the id of its key.
CREATE INDEX replies_key ON replies (SUBSTR(reply, 1, 5), id);

-- Programs of before go on: they ignore the keys of these requests, and re-encrypt no replies.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP TABLE replies;
UPDATE schema_compatibility SET oldest = 6;
