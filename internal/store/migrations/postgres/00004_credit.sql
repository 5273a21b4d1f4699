-- +goose Up
-- What became of the money that a card received, as it was assessed last: the first four make up what was received.
ALTER TABLE cards ADD COLUMN credit_paid BIGINT NOT NULL DEFAULT 0; -- credited toward the price
ALTER TABLE cards ADD COLUMN credit_held BIGINT NOT NULL DEFAULT 0; -- late or too little: an operator decides
ALTER TABLE cards ADD COLUMN credit_surplus BIGINT NOT NULL DEFAULT 0; -- beyond the price, once it was found paid
ALTER TABLE cards ADD COLUMN credit_refunded BIGINT NOT NULL DEFAULT 0; -- given back, of what is still there
ALTER TABLE cards ADD COLUMN credit_lost BIGINT NOT NULL DEFAULT 0; -- issued or given back for, and no longer in the chain
ALTER TABLE cards ADD COLUMN credit_written_off BIGINT NOT NULL DEFAULT 0; -- of that, what the operator bears
ALTER TABLE cards ADD COLUMN credit_due BIGINT NOT NULL DEFAULT 0; -- still to be paid
UPDATE cards SET
    credit_refunded = CASE WHEN refunded > received THEN received ELSE refunded END,
    credit_surplus = CASE WHEN settled > 0 AND received - refunded > settled THEN received - refunded - settled ELSE 0 END,
    credit_lost = CASE
        WHEN status = 'generated' AND received - refunded < settled THEN settled - (received - refunded)
        WHEN refunded > received THEN refunded - received
        ELSE 0 END,
    credit_due = CASE
        WHEN settled > 0 THEN settled
        WHEN accepted > 0 AND accepted < amount THEN accepted
        ELSE amount END;
UPDATE cards SET
    credit_paid = CASE WHEN status <> 'generated' AND payment_state = 'late' THEN 0 ELSE received - credit_refunded - credit_surplus END,
    credit_held = CASE WHEN status <> 'generated' AND payment_state = 'late' THEN received - credit_refunded - credit_surplus ELSE 0 END,
    credit_written_off = CASE WHEN written_off > credit_lost THEN credit_lost ELSE written_off END,
    credit_due = CASE WHEN credit_due > received - credit_refunded THEN credit_due - (received - credit_refunded) ELSE 0 END;

-- Cards whose money is lost and not written off wait for an operator.
CREATE INDEX cards_lost ON cards (account_id) WHERE credit_lost > credit_written_off;

-- +goose Down
DROP INDEX cards_lost;
ALTER TABLE cards DROP COLUMN credit_due;
ALTER TABLE cards DROP COLUMN credit_written_off;
ALTER TABLE cards DROP COLUMN credit_lost;
ALTER TABLE cards DROP COLUMN credit_refunded;
ALTER TABLE cards DROP COLUMN credit_surplus;
ALTER TABLE cards DROP COLUMN credit_held;
ALTER TABLE cards DROP COLUMN credit_paid;
