-- +goose Up
-- The oldest version of the schema that a program may know and still use this one. Every later migration sets it: to the value that it
-- finds if such programs can go on, otherwise to its own number or to that of the oldest program that can.
CREATE TABLE schema_compatibility (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    oldest BIGINT NOT NULL
);
INSERT INTO schema_compatibility (id, oldest) VALUES (1, 6);

-- +goose Down
DROP TABLE schema_compatibility;
