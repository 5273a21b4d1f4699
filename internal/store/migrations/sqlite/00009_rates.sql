-- +goose Up
-- What coins were last taken to be worth. Nothing is quoted from it: rates are compared with it, also by other processes and after a
-- restart. Kept are the last hour, the last rate of each currency, and what operators accepted.
CREATE TABLE accepted_rates (
    id          TEXT PRIMARY KEY,
    currency    TEXT NOT NULL,
    usd         INTEGER NOT NULL CHECK (usd > 0), -- for one coin, in units of 10^-8 US dollars
    source      TEXT NOT NULL,
    accepted_at INTEGER NOT NULL,
    accepted_by TEXT NOT NULL, -- the process, or the operator
    note        TEXT -- why an operator accepted it; NULL if a process did, by the rules
) STRICT;
CREATE INDEX accepted_rates_newest ON accepted_rates (currency, accepted_at);

-- Rates that only an operator can accept, as each process sees them.
CREATE TABLE parked_rates (
    currency    TEXT NOT NULL,
    process     TEXT NOT NULL,
    usd         INTEGER NOT NULL CHECK (usd > 0),
    source      TEXT NOT NULL,
    reason      TEXT NOT NULL,
    since       INTEGER NOT NULL,
    valid_until INTEGER NOT NULL,
    PRIMARY KEY (currency, process)
) STRICT;

-- Programs of before go on: they compare rates with those in their memory.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP TABLE parked_rates;
DROP TABLE accepted_rates;
UPDATE schema_compatibility SET oldest = 6;
