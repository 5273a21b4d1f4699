-- +goose Up
-- What operators decided of transfers to addresses of no card, as a database that went back finds them. A transfer with a row here counts
-- toward card_uuid, and no longer toward the card at its address.
CREATE TABLE attributions (
    currency   TEXT NOT NULL,
    txid       TEXT NOT NULL,
    output     BIGINT NOT NULL,
    id         UUID NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('card', 'new', 'refund')),
    card_uuid  UUID REFERENCES cards (uuid), -- NULL if the money was given back
    amount     BIGINT NOT NULL CHECK (amount >= 0), -- of the transfer
    note       TEXT NOT NULL,
    operator   TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (currency, txid, output),
    CHECK ((kind = 'refund') = (card_uuid IS NULL))
);
CREATE INDEX attributions_card ON attributions (card_uuid);

-- Programs of before go on, for as long as nothing was attributed: they would not count it. The first attribution raises this to 8, and
-- whatever a later migration says, it stays there (migrate.go).
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP TABLE attributions;
UPDATE schema_compatibility SET oldest = 6;
