-- +goose Up
-- Where customers want their money back, and the transactions by which operators gave it.
ALTER TABLE cards ADD COLUMN refund_address BLOB; -- encrypted; NULL if the order named none
ALTER TABLE resolutions ADD COLUMN txid TEXT; -- of a refund; NULL if the operator gave none. A refund of 0 only adds one to the refund before

-- Programs of before go on: they show neither.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
ALTER TABLE resolutions DROP COLUMN txid;
ALTER TABLE cards DROP COLUMN refund_address;
UPDATE schema_compatibility SET oldest = 6;
