-- +goose Up
-- A database can go back in time. The process that watches a chain attests that it did not: it commits a mark about every second, and
-- begins a new epoch whenever it can't know.
ALTER TABLE leases
    ADD COLUMN epoch     BIGINT,                    -- NULL while nobody attests
    ADD COLUMN mark      BIGINT NOT NULL DEFAULT 0, -- grows with every mark
    ADD COLUMN marked_at BIGINT NOT NULL DEFAULT 0, -- when an epoch was last attested to; 0 if never
    ADD COLUMN history   TEXT NOT NULL DEFAULT ''; -- of the database, when an epoch was last attested to
UPDATE leases SET marked_at = COALESCE((SELECT p.checked_at FROM address_pools p WHERE leases.name = 'watch ' || p.currency), 0);
ALTER TABLE address_pools
    ADD COLUMN paced_until BIGINT NOT NULL DEFAULT 0, -- until when the addresses that were made are enough for the highest rate
    ADD COLUMN issue_after BIGINT NOT NULL DEFAULT 0, -- nothing is issued before
    ADD COLUMN conflict    TEXT;                      -- why nothing is handed out or issued; 'claimed' once an operator decided
CREATE TABLE epochs (
    currency       TEXT NOT NULL,
    epoch          BIGINT NOT NULL,
    started_at     BIGINT NOT NULL,
    first_position BIGINT NOT NULL, -- of the first address that it may hand out
    reason         TEXT NOT NULL,
    PRIMARY KEY (currency, epoch)
);
ALTER TABLE events ADD COLUMN since BIGINT; -- with feed.reset: from when on the feed may have lost events

-- Programs of before go on: they take addresses as they did, and attest to nothing.
UPDATE schema_compatibility SET oldest = 6;

-- +goose Down
DELETE FROM deliveries WHERE EXISTS (SELECT 1 FROM events e WHERE e.account_id = deliveries.account_id AND e.seq = deliveries.seq AND e.type = 'feed.reset');
DELETE FROM events WHERE type = 'feed.reset';
ALTER TABLE events DROP COLUMN since;
DROP TABLE epochs;
ALTER TABLE address_pools DROP COLUMN paced_until, DROP COLUMN issue_after, DROP COLUMN conflict;
ALTER TABLE leases DROP COLUMN epoch, DROP COLUMN mark, DROP COLUMN marked_at, DROP COLUMN history;
UPDATE schema_compatibility SET oldest = 6;
