-- +goose Up
-- The transfers of a day.
CREATE INDEX transfers_seen ON transfers (first_seen_at);

-- Programs of before go on.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DROP INDEX transfers_seen;
UPDATE schema_compatibility SET oldest = 6;
