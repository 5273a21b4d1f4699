-- +goose Up
-- The addresses of cards that were deleted because nobody paid. A row stays for ever: the address was given away, and money may still come.
CREATE TABLE retired_addresses (
    currency   TEXT NOT NULL,
    address    TEXT NOT NULL,
    card_uuid  UUID NOT NULL,
    account_id UUID NOT NULL,
    usd_cents  BIGINT NOT NULL,
    amount     BIGINT NOT NULL, -- that was asked for
    expires_at BIGINT NOT NULL, -- when the quote was over
    retired_at BIGINT NOT NULL, -- by the database's clock
    PRIMARY KEY (currency, address)
);

-- Deleting an event would search all deliveries for those of it. Whoever deletes events deletes their deliveries before, with the webhooks
-- locked (retain.go).
ALTER TABLE deliveries DROP CONSTRAINT deliveries_account_id_seq_fkey;

-- Programs of before go on: they delete neither cards nor events.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
ALTER TABLE deliveries ADD FOREIGN KEY (account_id, seq) REFERENCES events (account_id, seq);
DROP TABLE retired_addresses;
UPDATE schema_compatibility SET oldest = 6;
