-- +goose Up
-- The traceparent of the request that ordered the card, so that what follows belongs to the same trace; NULL without traces.
ALTER TABLE cards ADD COLUMN trace_parent TEXT;

-- Programs of before go on: they continue no traces.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
ALTER TABLE cards DROP COLUMN trace_parent;
UPDATE schema_compatibility SET oldest = 6;
