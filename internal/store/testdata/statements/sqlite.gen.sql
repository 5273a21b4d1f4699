-- Written by go generate ./internal/store; do not edit.

-- Open
INSERT INTO accounts (id, name, created_at)
    VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING;
SELECT COALESCE(MAX(version_id), 0)
    FROM goose_db_version;
SELECT COUNT(*) > 0
    FROM sqlite_master
    WHERE type = 'table' AND name = ?;
SELECT oldest
    FROM schema_compatibility;

-- AcceptedRates
SELECT r.id, r.currency, r.usd, r.source, r.accepted_by, COALESCE(r.note, '') AS note,
    CAST(unixepoch('subsec') * 1000 AS INTEGER) - r.accepted_at AS age
    FROM accepted_rates r
    WHERE r.currency IN (?) AND (r.accepted_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - ? OR
    NOT EXISTS (SELECT 1 FROM accepted_rates n WHERE n.currency = r.currency AND (n.accepted_at,
    n.id) > (r.accepted_at, r.id)))
    ORDER BY r.accepted_at, r.id;

-- AccountByName
SELECT id, name, created_at
    FROM accounts
    WHERE name = ?;

-- AccountIDs
SELECT id
    FROM accounts
    ORDER BY id;

-- Accounts
SELECT id, name, created_at
    FROM accounts
    ORDER BY name;

-- AcquireLease
INSERT INTO leases (name, holder, fence, expires_at, mark)
    VALUES (?, ?, 1, CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?, 1) ON CONFLICT (name) DO
    UPDATE
    SET holder = excluded.holder, expires_at = excluded.expires_at, fence = leases.fence + CASE WHEN
    leases.holder = excluded.holder THEN 0 ELSE 1 END, mark = leases.mark + 1, epoch = CASE WHEN
    leases.epoch = ? AND leases.mark >= ? AND ? = '' THEN leases.epoch END, marked_at = CASE WHEN
    leases.epoch = ? AND leases.mark >= ? AND ? = '' THEN CAST(unixepoch('subsec') * 1000 AS
    INTEGER) ELSE leases.marked_at END, history = CASE WHEN leases.epoch = ? AND leases.mark >= ?
    AND ? = '' THEN '' ELSE leases.history END
    WHERE leases.holder = excluded.holder OR leases.expires_at <= CAST(unixepoch('subsec') * 1000 AS
    INTEGER)
    RETURNING fence, COALESCE(epoch, 0) AS epoch, mark, marked_at, history, CAST(unixepoch('subsec')
    * 1000 AS INTEGER) AS now, '' AS database, '' AS server;

-- AcquireRetention
INSERT INTO leases (name, holder, fence, expires_at)
    VALUES (?, ?, 1, CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?) ON CONFLICT (name) DO UPDATE
    SET holder = excluded.holder, expires_at = excluded.expires_at, fence = leases.fence + CASE WHEN
    leases.holder = excluded.holder THEN 0 ELSE 1 END
    WHERE leases.holder = excluded.holder OR leases.expires_at <= CAST(unixepoch('subsec') * 1000 AS
    INTEGER);

-- AddressPool
SELECT a.position, a.address, p.next_position, p.paced_until, (SELECT COALESCE(MAX(e.epoch), 0) FROM
    epochs e WHERE e.currency = p.currency) AS last_epoch
    FROM address_pools p
    LEFT JOIN addresses a ON a.currency = p.currency AND a.position = (SELECT MAX(b.position) FROM
    addresses b WHERE b.currency = p.currency)
    WHERE p.currency = ?;

-- ArrivalsIn
SELECT t.currency, t.txid, t.output, t.address, t.amount, t.height, t.locked, t.counted,
    t.first_seen_at, c.uuid AS owner_uuid, a.id, COALESCE(a.kind, '') AS kind, a.card_uuid,
    COALESCE(a.note, '') AS note, COALESCE(a.operator, '') AS operator, COALESCE(a.created_at, 0) AS
    decided_at
    FROM transfers t
    LEFT JOIN attributions a ON a.currency = t.currency AND a.txid = t.txid AND a.output = t.output
    LEFT JOIN cards c ON c.currency = t.currency AND c.address = t.address
    WHERE t.currency IN (?) AND t.txid = ?
    ORDER BY t.currency, t.output;

-- AskForRescan
UPDATE address_pools
    SET rescan = ?, rescan_believed = rescan_believed OR ?
    WHERE currency = ?;

-- AwaitLease
INSERT INTO leases (name, holder, fence, expires_at)
    VALUES (?, ?, 1, CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?) ON CONFLICT (name) DO UPDATE
    SET holder = excluded.holder, expires_at = excluded.expires_at;

-- BeginEpoch
INSERT INTO epochs (currency, epoch, started_at, first_position, reason)
    VALUES (?, ?, CAST(unixepoch('subsec') * 1000 AS INTEGER), ?, ?);
SELECT fence
    FROM leases
    WHERE name = ? AND holder = ? AND fence = ? AND expires_at > CAST(unixepoch('subsec') * 1000 AS
    INTEGER) AND (epoch IS NULL OR history = '');
UPDATE leases
    SET epoch = ?, mark = mark + 1, marked_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), history
    = ''
    WHERE name = ?
    RETURNING epoch, mark, marked_at, history, CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now,
    '' AS database;

-- CancelCard
INSERT INTO deliveries (webhook_id, account_id, seq, state, due_at) SELECT w.id, e.account_id,
    e.seq, 'pending', 0
    FROM webhooks w
    JOIN events e ON e.account_id = w.account_id
    WHERE w.account_id = ? AND w.enabled AND e.seq BETWEEN ? AND ? AND (w.types = '' OR ' ' ||
    w.types || ' ' LIKE '% ' || e.type || ' %') AND (e.webhook_id IS NULL OR e.webhook_id <> w.id);
INSERT INTO events (account_id, seq, id, type, card_uuid, status, payment_state, webhook_id, since,
    created_at) SELECT *
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS
    TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT)),
    ...) AS v
    WHERE TRUE;
UPDATE accounts
    SET last_seq = last_seq + ?
    WHERE id = ? AND TRUE
    RETURNING last_seq;
UPDATE cards
    SET payment_state = 'expired', canceled_at = ?, credit_due = 0
    WHERE uuid = ? AND account_id = ? AND status = 'awaiting_payment' AND payment_state = 'unpaid'
    AND received = 0 AND refunded = 0 AND NOT EXISTS (SELECT 1 FROM transfers t WHERE t.currency =
    cards.currency AND t.address = cards.address AND t.counted);
UPDATE stock
    SET state = 'free', card_uuid = NULL, reserved_until = NULL
    WHERE state = 'reserved' AND reserved_until = (SELECT expires_at FROM cards WHERE uuid = ?) AND
    card_uuid = ?;

-- CancelStock
UPDATE stock
    SET state = 'free', card_uuid = NULL, reserved_until = NULL
    WHERE supplier = ? AND card_uuid = ? AND state = 'reserved';

-- CardByUUID
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    c.reference, c.metadata , (c.status <> 'awaiting_payment' OR c.payment_state = 'paid' OR
    c.received > 0 OR c.height > 0 OR c.refunded > 0) AS has_activity
    FROM cards c
    LEFT JOIN chains k ON k.currency = c.currency
    WHERE c.account_id = ? AND c.uuid = ?;

-- CardDetail
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    CASE WHEN c.refunded > 0 THEN (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN
    (SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id
    DESC LIMIT 1) END AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state =
    'paid' OR c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE
    i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number,
    s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS
    last_four
    FROM cards c
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    WHERE c.uuid IN (?)
    ORDER BY c.uuid;
SELECT currency, txid, output, address, amount, height, locked, counted, first_seen_at
    FROM transfers t
    WHERE t.currency = ? AND t.address = ? AND NOT EXISTS (SELECT 1 FROM attributions a WHERE
    a.currency = t.currency AND a.txid = t.txid AND a.output = t.output)
    UNION ALL SELECT t.currency, t.txid, t.output, t.address, t.amount, t.height, t.locked,
    t.counted, t.first_seen_at
    FROM transfers t
    JOIN attributions a ON a.currency = t.currency AND a.txid = t.txid AND a.output = t.output
    WHERE a.card_uuid = ?
    ORDER BY first_seen_at, txid;
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS reference
    FROM events e
    WHERE card_uuid = ?
    ORDER BY seq;
SELECT id, kind, amount, COALESCE(txid, '') AS txid, note, operator, created_at
    FROM resolutions
    WHERE card_uuid = ?
    UNION ALL SELECT id, CAST(? AS TEXT), amount, '', note, operator, created_at
    FROM attributions
    WHERE card_uuid = ?
    UNION ALL SELECT id, CAST(? AS TEXT), 0, '', note, operator, created_at
    FROM purges
    WHERE card_uuid = ?
    ORDER BY id;
SELECT name
    FROM accounts
    WHERE id = ?;
SELECT state, COALESCE(supplier, '') AS supplier, COALESCE(reference, '') AS reference,
    first_asked_at, COALESCE(answer, '') AS answer, attempts, due_at, COALESCE(reason, '') AS
    reason, opened_at, COALESCE(refusals, '') AS refusals, declines
    FROM intents
    WHERE card_uuid = ?;

-- CardEvents
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS reference
    FROM events e
    WHERE card_uuid = ? AND COALESCE(account_id, account_id) = ? AND seq > ?
    ORDER BY seq
    LIMIT ?;

-- CardOfKey
SELECT card_uuid
    FROM idempotency_keys
    WHERE account_id = ? AND idempotency_key = ?;

-- CardTag
SELECT c.account_id, c.uuid, concat_ws(' ', c.uuid, c.status, c.payment_state, c.received,
    c.settled, c.height, 0, c.accepted, c.refunded, c.written_off, COALESCE(c.canceled_at, 0),
    COALESCE(c.credentials_purged_at, 0), 0, 0, '', 0) AS changing, c.status <> 'awaiting_payment'
    OR c.payment_state = 'paid' OR c.received > 0 OR c.height > 0 OR c.refunded > 0 AS has_activity
    FROM cards c
    WHERE c.account_id = ? AND c.uuid = ?;

-- Cards
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, COALESCE(k.height, 0) AS tip_height, CASE WHEN c.refunded > 0 THEN
    (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund'
    AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN (SELECT r.txid FROM
    resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id DESC LIMIT 1) END
    AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state = 'paid' OR
    c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE i.card_uuid = c.uuid
    AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number, s.expiration_date,
    s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS last_four, c.reference,
    c.metadata
    FROM (SELECT c.uuid FROM cards c WHERE TRUE AND c.account_id = ? AND c.status = ? ORDER BY
    c.uuid DESC NULLS LAST LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    ORDER BY c.uuid DESC;
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, COALESCE(k.height, 0) AS tip_height, CASE WHEN c.refunded > 0 THEN
    (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund'
    AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN (SELECT r.txid FROM
    resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id DESC LIMIT 1) END
    AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state = 'paid' OR
    c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE i.card_uuid = c.uuid
    AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number, s.expiration_date,
    s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS last_four, c.reference,
    c.metadata
    FROM (SELECT c.uuid FROM cards c WHERE TRUE AND c.account_id = ? AND c.uuid < ? AND c.status = ?
    ORDER BY c.uuid DESC NULLS LAST LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    ORDER BY c.uuid DESC;
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, COALESCE(k.height, 0) AS tip_height, CASE WHEN c.refunded > 0 THEN
    (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund'
    AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN (SELECT r.txid FROM
    resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id DESC LIMIT 1) END
    AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state = 'paid' OR
    c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE i.card_uuid = c.uuid
    AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number, s.expiration_date,
    s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS last_four, c.reference,
    c.metadata
    FROM (SELECT c.uuid FROM cards c WHERE TRUE AND c.account_id = ? AND c.uuid < ? ORDER BY c.uuid
    DESC NULLS LAST LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    ORDER BY c.uuid DESC;
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, COALESCE(k.height, 0) AS tip_height, CASE WHEN c.refunded > 0 THEN
    (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund'
    AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN (SELECT r.txid FROM
    resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id DESC LIMIT 1) END
    AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state = 'paid' OR
    c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE i.card_uuid = c.uuid
    AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number, s.expiration_date,
    s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS last_four, c.reference,
    c.metadata
    FROM (SELECT c.uuid FROM cards c WHERE TRUE AND c.account_id = ? ORDER BY c.uuid DESC NULLS LAST
    LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    ORDER BY c.uuid DESC;

-- CardsByUUID
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    CASE WHEN c.refunded > 0 THEN (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN
    (SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id
    DESC LIMIT 1) END AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state =
    'paid' OR c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE
    i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number,
    s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS
    last_four
    FROM cards c
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    WHERE c.uuid IN (?, ?)
    ORDER BY c.uuid;

-- ClaimIntents
UPDATE intents
    SET fence = CASE WHEN fence < 9223372036854775807 THEN fence + 1 ELSE 1 END, attempts = CASE
    WHEN attempts BETWEEN 0 AND 1000000000 THEN attempts + 1 ELSE 1 END, due_at = (SELECT
    CAST(unixepoch('subsec') * 1000 AS INTEGER)) + ?, supplier = CASE WHEN supplier IS NULL OR
    first_asked_at IS NULL AND answer IS NULL AND supplier NOT IN (?) THEN CAST(? AS TEXT) ELSE
    supplier END, key = COALESCE(key, CAST(card_uuid AS TEXT)), first_asked_at =
    COALESCE(first_asked_at, (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER))), opened_at =
    COALESCE(opened_at, (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER))), answer = CASE WHEN
    first_asked_at IS NULL THEN answer ELSE COALESCE(answer, 'unknown') END
    WHERE card_uuid IN (SELECT q.card_uuid FROM intents q WHERE q.card_uuid IN (SELECT y.card_uuid
    FROM ( SELECT x.card_uuid, x.due_at, ROW_NUMBER() OVER (PARTITION BY x.account_id ORDER BY
    x.due_at, x.card_uuid) AS turn FROM ( SELECT w.card_uuid, w.due_at, w.account_id FROM ( SELECT
    q.card_uuid, q.due_at, (SELECT c.account_id FROM cards c WHERE c.uuid = q.card_uuid AND
    c.payment_state = 'paid' AND TRUE AND CASE WHEN q.supplier IN (?) THEN q.supplier WHEN
    q.supplier IS NOT NULL AND q.first_asked_at IS NOT NULL AND q.due_at > (SELECT
    CAST(unixepoch('subsec') * 1000 AS INTEGER)) - ? THEN '' WHEN q.supplier IS NULL AND c.usd_cents
    BETWEEN ? AND ? THEN CAST(? AS TEXT) ELSE CAST(? AS TEXT) END = CAST(? AS TEXT) AND NOT EXISTS
    (SELECT 1 FROM address_pools p WHERE p.currency = c.currency AND (p.conflict IS NOT NULL OR
    p.issue_after > (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)))) ) AS account_id FROM
    intents q WHERE q.state IN ('open', 'pending') AND q.due_at <= (SELECT CAST(unixepoch('subsec')
    * 1000 AS INTEGER)) ORDER BY q.due_at, q.card_uuid LIMIT 9223372036854775807) w WHERE
    w.account_id IS NOT NULL ORDER BY w.due_at, w.card_uuid LIMIT ?) x) y ORDER BY y.turn, y.due_at,
    y.card_uuid LIMIT ?) AND CASE WHEN q.state IN ('open', 'pending') THEN q.due_at <= (SELECT
    CAST(unixepoch('subsec') * 1000 AS INTEGER)) ELSE FALSE END)
    RETURNING card_uuid, state, supplier, key, COALESCE(reference, '') AS reference, first_asked_at,
    opened_at, decided_at, due_at, answer, refusals, declines, attempts, fence;

-- ClaimWallet
UPDATE address_pools
    SET conflict = ?
    WHERE currency = ?;

-- ClaimWebhooks
UPDATE webhooks
    SET fence = fence + 1, claimed_until = (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)) + ?
    WHERE id IN (SELECT q.id FROM webhooks q WHERE q.enabled AND q.claimed_until <= (SELECT
    CAST(unixepoch('subsec') * 1000 AS INTEGER)) AND q.paused_until <= ? AND (SELECT d.seq FROM
    deliveries d WHERE d.webhook_id = q.id AND d.due_at <= ? LIMIT 1) IS NOT NULL ORDER BY
    q.failures, q.claimed_until LIMIT ?)
    RETURNING id, account_id, url, description, types, secret, old_secret, old_until, enabled,
    disabled_reason, disabled_at, created_at, failing_since, version, failures, fence;

-- Clock
SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER);

-- Confirmations
INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate,
    rate_at, rate_source, expires_at, confirmations_required, idempotency_key, request_hash,
    credit_due, refund_address, reference, metadata, trace_parent) SELECT CAST(? AS TEXT), CAST(? AS
    TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS
    TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS
    INTEGER), CAST(? AS TEXT), CAST(? AS BLOB), CAST(? AS BIGINT), CAST(? AS BLOB), CAST(? AS TEXT),
    CAST(? AS TEXT), CAST(? AS TEXT)
    WHERE NOT EXISTS (SELECT 1 FROM transfers t WHERE t.currency = ? AND t.address = ?) AND NOT
    EXISTS (SELECT 1 FROM retired_addresses o WHERE o.currency = ? AND o.address = ?) AND NOT EXISTS
    (SELECT 1 FROM idempotency_keys k WHERE k.account_id = CAST(? AS TEXT) AND k.idempotency_key =
    CAST(? AS TEXT)) ON CONFLICT (account_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL DO NOTHING;
SELECT confirmations_required
    FROM (SELECT uuid, currency, confirmations_required FROM cards ORDER BY uuid DESC LIMIT ?) AS
    newest
    WHERE currency = ?
    ORDER BY uuid DESC
    LIMIT 1;

-- CountSealed
SELECT SUBSTR(card_number, 1, 5) AS prefix, COUNT(*) AS n
    FROM credentials
    WHERE card_number IS NOT NULL
    GROUP BY SUBSTR(card_number, 1, 5);
SELECT SUBSTR(card_number, 1, 5) AS prefix, COUNT(*) AS n
    FROM stock
    WHERE card_number IS NOT NULL
    GROUP BY SUBSTR(card_number, 1, 5);
SELECT SUBSTR(old_secret, 1, 5) AS prefix, COUNT(*) AS n
    FROM webhooks
    WHERE old_secret IS NOT NULL
    GROUP BY SUBSTR(old_secret, 1, 5);
SELECT SUBSTR(refund_address, 1, 5) AS prefix, COUNT(*) AS n
    FROM cards
    WHERE refund_address IS NOT NULL
    GROUP BY SUBSTR(refund_address, 1, 5);
SELECT SUBSTR(reply, 1, 5) AS prefix, COUNT(*) AS n
    FROM idempotency_keys
    WHERE reply IS NOT NULL
    GROUP BY SUBSTR(reply, 1, 5);
SELECT SUBSTR(seal, 1, 5) AS prefix, COUNT(*) AS n
    FROM tokens
    WHERE seal IS NOT NULL
    GROUP BY SUBSTR(seal, 1, 5);
SELECT SUBSTR(secret, 1, 5) AS prefix, COUNT(*) AS n
    FROM webhooks
    WHERE secret IS NOT NULL
    GROUP BY SUBSTR(secret, 1, 5);

-- Cursor
SELECT fingerprint, height, hash, time, deep_height, deep_hash, (SELECT COALESCE(MIN(t.height), 0)
    FROM transfers t WHERE t.currency = chains.currency AND t.counted AND t.locked AND t.height > 0
    AND t.height > chains.height - ?) AS lowest_locked, COALESCE(p.rescan, '') AS rescan,
    COALESCE(p.rescan_believed, FALSE) AS believe, COALESCE(p.conflict, '') AS conflict, EXISTS
    (SELECT 1 FROM settings s WHERE s.name = 'restored_at' AND CAST(s.value AS BIGINT) >
    COALESCE((SELECT e.started_at FROM epochs e WHERE e.currency = chains.currency ORDER BY e.epoch
    DESC LIMIT 1), 0)) AS restored, (SELECT COALESCE(MAX(a.position), ?) FROM addresses a WHERE
    a.currency = chains.currency) AS newest
    FROM chains
    LEFT JOIN address_pools p ON p.currency = chains.currency
    WHERE chains.currency = ?;

-- DeleteDeliveries
DELETE
    FROM deliveries
    WHERE webhook_id = ? AND seq IN (SELECT seq FROM deliveries WHERE webhook_id = ? LIMIT ?);

-- DeleteHolder
DELETE
    FROM key_holders
    WHERE process = ?;

-- DeleteOffers
DELETE
    FROM offers
    WHERE supplier NOT IN (?);

-- DeleteUsage
DELETE
    FROM request_usage
    WHERE process = ? OR saved_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?;

-- DeleteWebhook
DELETE
    FROM webhooks
    WHERE account_id = ? AND id = ?;

-- Deliveries
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS
    reference, d.state AS delivery_state, d.due_at, d.tries, d.attempts
    FROM (SELECT d.* FROM deliveries d WHERE d.webhook_id = ? AND d.due_at >= 0 AND d.seq < ? ORDER
    BY d.seq DESC LIMIT ?) AS d
    JOIN events e ON e.account_id = d.account_id AND e.seq = d.seq
    ORDER BY d.seq DESC;
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS
    reference, d.state AS delivery_state, d.due_at, d.tries, d.attempts
    FROM (SELECT d.* FROM deliveries d WHERE d.webhook_id = ? AND d.due_at >= 0 ORDER BY d.seq DESC
    LIMIT ?) AS d
    JOIN events e ON e.account_id = d.account_id AND e.seq = d.seq
    ORDER BY d.seq DESC;
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS
    reference, d.state AS delivery_state, d.due_at, d.tries, d.attempts
    FROM (SELECT d.* FROM deliveries d WHERE d.webhook_id = ? AND d.seq < ? ORDER BY d.seq DESC
    LIMIT ?) AS d
    JOIN events e ON e.account_id = d.account_id AND e.seq = d.seq
    ORDER BY d.seq DESC;
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS
    reference, d.state AS delivery_state, d.due_at, d.tries, d.attempts
    FROM (SELECT d.* FROM deliveries d WHERE d.webhook_id = ? AND d.state = 'delivered' AND d.seq <
    ? ORDER BY d.seq DESC LIMIT ?) AS d
    JOIN events e ON e.account_id = d.account_id AND e.seq = d.seq
    ORDER BY d.seq DESC;
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS
    reference, d.state AS delivery_state, d.due_at, d.tries, d.attempts
    FROM (SELECT d.* FROM deliveries d WHERE d.webhook_id = ? AND d.state = 'delivered' ORDER BY
    d.seq DESC LIMIT ?) AS d
    JOIN events e ON e.account_id = d.account_id AND e.seq = d.seq
    ORDER BY d.seq DESC;
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS
    reference, d.state AS delivery_state, d.due_at, d.tries, d.attempts
    FROM (SELECT d.* FROM deliveries d WHERE d.webhook_id = ? AND d.state = 'failed' AND d.seq < ?
    ORDER BY d.seq DESC LIMIT ?) AS d
    JOIN events e ON e.account_id = d.account_id AND e.seq = d.seq
    ORDER BY d.seq DESC;
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS
    reference, d.state AS delivery_state, d.due_at, d.tries, d.attempts
    FROM (SELECT d.* FROM deliveries d WHERE d.webhook_id = ? AND d.state = 'failed' ORDER BY d.seq
    DESC LIMIT ?) AS d
    JOIN events e ON e.account_id = d.account_id AND e.seq = d.seq
    ORDER BY d.seq DESC;
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS
    reference, d.state AS delivery_state, d.due_at, d.tries, d.attempts
    FROM (SELECT d.* FROM deliveries d WHERE d.webhook_id = ? ORDER BY d.seq DESC LIMIT ?) AS d
    JOIN events e ON e.account_id = d.account_id AND e.seq = d.seq
    ORDER BY d.seq DESC;

-- DistrustPool
UPDATE address_pools
    SET checked_at = 0
    WHERE currency = ?;

-- DoubtfulStock
SELECT id, supplier, usd_cents, state, expires_at, number_hash, card_number, expiration_date,
    security_code, url, url_password, card_uuid
    FROM stock q
    WHERE q.state = 'held' OR CASE WHEN q.state = 'issued' AND q.card_number IS NOT NULL THEN
    COALESCE((SELECT CASE WHEN i.state IN ('open', 'pending') OR i.state = 'done' AND
    i.card_number_hash = q.number_hash THEN 0 ELSE 1 END FROM intents i WHERE i.card_uuid =
    q.card_uuid), 1) ELSE 0 END = 1
    ORDER BY supplier, usd_cents, expires_at, id;

-- DueDeliveries
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS
    reference, d.state AS delivery_state, d.due_at, d.tries, d.attempts
    FROM (SELECT d.* FROM deliveries d WHERE d.webhook_id = ? AND d.due_at <= ? ORDER BY d.due_at,
    d.seq LIMIT ?) AS d
    JOIN events e ON e.account_id = d.account_id AND e.seq = d.seq
    ORDER BY d.due_at, d.seq;

-- DueRetries
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS
    reference, d.state AS delivery_state, d.due_at, d.tries, d.attempts
    FROM (SELECT d.* FROM deliveries d WHERE d.webhook_id = ? AND d.due_at > 0 AND d.due_at <= ?
    ORDER BY d.seq LIMIT ?) AS d
    JOIN events e ON e.account_id = d.account_id AND e.seq = d.seq
    ORDER BY d.seq;

-- Events
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS reference
    FROM events e
    WHERE account_id = ? AND seq > ?
    ORDER BY seq
    LIMIT ?;

-- ExpediteIntents
UPDATE intents
    SET due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
    WHERE card_uuid IN (?) AND supplier = ? AND CASE state WHEN 'pending' THEN TRUE ELSE FALSE END;

-- Exposure
SELECT CAST((SELECT COALESCE(SUM(CASE WHEN o.usd_cents BETWEEN 1 AND 100000000 THEN o.usd_cents
    END), 0) FROM cards o WHERE o.account_id = ? AND o.payment_state IN ('unpaid', 'underpaid')) AS
    BIGINT) AS open, EXISTS (SELECT 1 FROM cards c WHERE COALESCE(c.account_id, c.account_id) = ?
    AND COALESCE(c.payment_state, '') = 'reversed' AND c.credit_lost > c.credit_written_off) AS
    reversed;

-- FindCards
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    CASE WHEN c.refunded > 0 THEN (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN
    (SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id
    DESC LIMIT 1) END AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state =
    'paid' OR c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE
    i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number,
    s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS
    last_four, c.reference, c.metadata
    FROM (SELECT c.uuid FROM cards c WHERE TRUE AND c.account_id = ? AND c.canceled_at IS NOT NULL
    AND COALESCE(c.payment_state, '') = ? ORDER BY c.uuid DESC NULLS LAST LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    ORDER BY c.uuid DESC;
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    CASE WHEN c.refunded > 0 THEN (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN
    (SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id
    DESC LIMIT 1) END AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state =
    'paid' OR c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE
    i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number,
    s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS
    last_four, c.reference, c.metadata
    FROM (SELECT c.uuid FROM cards c WHERE TRUE AND c.account_id = ? AND c.canceled_at IS NULL AND
    c.payment_state = ? ORDER BY c.uuid DESC NULLS LAST LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    ORDER BY c.uuid DESC;
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    CASE WHEN c.refunded > 0 THEN (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN
    (SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id
    DESC LIMIT 1) END AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state =
    'paid' OR c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE
    i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number,
    s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS
    last_four, c.reference, c.metadata
    FROM (SELECT c.uuid FROM cards c WHERE TRUE AND c.account_id = ? AND c.payment_state = ? ORDER
    BY c.uuid DESC NULLS LAST LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    ORDER BY c.uuid DESC;
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    CASE WHEN c.refunded > 0 THEN (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN
    (SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id
    DESC LIMIT 1) END AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state =
    'paid' OR c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE
    i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number,
    s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS
    last_four, c.reference, c.metadata
    FROM (SELECT c.uuid FROM cards c WHERE TRUE AND c.account_id = ? ORDER BY c.uuid DESC NULLS LAST
    LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    ORDER BY c.uuid DESC;
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    CASE WHEN c.refunded > 0 THEN (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN
    (SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id
    DESC LIMIT 1) END AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state =
    'paid' OR c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE
    i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number,
    s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS
    last_four, c.reference, c.metadata
    FROM (SELECT c.uuid FROM cards c WHERE TRUE ORDER BY c.uuid DESC LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    ORDER BY c.uuid DESC;
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    CASE WHEN c.refunded > 0 THEN (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN
    (SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id
    DESC LIMIT 1) END AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state =
    'paid' OR c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE
    i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number,
    s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS
    last_four, c.reference, c.metadata
    FROM (SELECT c.uuid FROM cards c WHERE c.payment_state = 'late' AND COALESCE(c.uuid, c.uuid) > ?
    AND COALESCE(c.account_id, c.account_id) = ? AND COALESCE(c.payment_state, '') = ? UNION SELECT
    c.uuid FROM cards c WHERE c.credit_lost > c.credit_written_off AND COALESCE(c.uuid, c.uuid) > ?
    AND COALESCE(c.account_id, c.account_id) = ? AND COALESCE(c.payment_state, '') = ? UNION SELECT
    c.uuid FROM intents i JOIN cards c ON c.uuid = i.card_uuid WHERE i.state IN ('parked',
    'refund_due') AND COALESCE(c.payment_state, '') = 'paid' AND COALESCE(c.uuid, c.uuid) > ? AND
    COALESCE(c.account_id, c.account_id) = ? AND COALESCE(c.payment_state, '') = ? UNION SELECT
    c.uuid FROM transfers t INDEXED BY transfers_locked JOIN cards c ON c.currency = t.currency AND
    c.address = t.address WHERE t.counted AND t.locked AND t.first_seen_at <
    CAST(unixepoch('subsec') * 1000 AS INTEGER) - 86400000 AND COALESCE(c.payment_state, '') =
    'confirming' AND COALESCE(c.uuid, c.uuid) > ? AND COALESCE(c.account_id, c.account_id) = ? AND
    COALESCE(c.payment_state, '') = ? ORDER BY uuid LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    ORDER BY c.uuid;
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    CASE WHEN c.refunded > 0 THEN (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN
    (SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id
    DESC LIMIT 1) END AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state =
    'paid' OR c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE
    i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number,
    s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS
    last_four, c.reference, c.metadata
    FROM (SELECT c.uuid FROM cards c WHERE c.payment_state = 'late' AND COALESCE(c.uuid, c.uuid) > ?
    AND COALESCE(c.account_id, c.account_id) = ? UNION SELECT c.uuid FROM cards c WHERE
    c.credit_lost > c.credit_written_off AND COALESCE(c.uuid, c.uuid) > ? AND COALESCE(c.account_id,
    c.account_id) = ? UNION SELECT c.uuid FROM intents i JOIN cards c ON c.uuid = i.card_uuid WHERE
    i.state IN ('parked', 'refund_due') AND COALESCE(c.payment_state, '') = 'paid' AND
    COALESCE(c.uuid, c.uuid) > ? AND COALESCE(c.account_id, c.account_id) = ? UNION SELECT c.uuid
    FROM transfers t INDEXED BY transfers_locked JOIN cards c ON c.currency = t.currency AND
    c.address = t.address WHERE t.counted AND t.locked AND t.first_seen_at <
    CAST(unixepoch('subsec') * 1000 AS INTEGER) - 86400000 AND COALESCE(c.payment_state, '') =
    'confirming' AND COALESCE(c.uuid, c.uuid) > ? AND COALESCE(c.account_id, c.account_id) = ? ORDER
    BY uuid LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    ORDER BY c.uuid;
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    CASE WHEN c.refunded > 0 THEN (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN
    (SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id
    DESC LIMIT 1) END AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state =
    'paid' OR c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE
    i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number,
    s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS
    last_four, c.reference, c.metadata
    FROM (SELECT c.uuid FROM cards c WHERE c.payment_state = 'late' AND COALESCE(c.uuid, c.uuid) > ?
    AND COALESCE(c.payment_state, '') = ? UNION SELECT c.uuid FROM cards c WHERE c.credit_lost >
    c.credit_written_off AND COALESCE(c.uuid, c.uuid) > ? AND COALESCE(c.payment_state, '') = ?
    UNION SELECT c.uuid FROM intents i JOIN cards c ON c.uuid = i.card_uuid WHERE i.state IN
    ('parked', 'refund_due') AND COALESCE(c.payment_state, '') = 'paid' AND COALESCE(c.uuid, c.uuid)
    > ? AND COALESCE(c.payment_state, '') = ? UNION SELECT c.uuid FROM transfers t INDEXED BY
    transfers_locked JOIN cards c ON c.currency = t.currency AND c.address = t.address WHERE
    t.counted AND t.locked AND t.first_seen_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) -
    86400000 AND COALESCE(c.payment_state, '') = 'confirming' AND COALESCE(c.uuid, c.uuid) > ? AND
    COALESCE(c.payment_state, '') = ? ORDER BY uuid LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    ORDER BY c.uuid;
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    CASE WHEN c.refunded > 0 THEN (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN
    (SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id
    DESC LIMIT 1) END AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state =
    'paid' OR c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE
    i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number,
    s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS
    last_four, c.reference, c.metadata
    FROM (SELECT c.uuid FROM cards c WHERE c.payment_state = 'late' AND COALESCE(c.uuid, c.uuid) > ?
    UNION SELECT c.uuid FROM cards c WHERE c.credit_lost > c.credit_written_off AND COALESCE(c.uuid,
    c.uuid) > ? UNION SELECT c.uuid FROM intents i JOIN cards c ON c.uuid = i.card_uuid WHERE
    i.state IN ('parked', 'refund_due') AND COALESCE(c.payment_state, '') = 'paid' AND
    COALESCE(c.uuid, c.uuid) > ? UNION SELECT c.uuid FROM transfers t INDEXED BY transfers_locked
    JOIN cards c ON c.currency = t.currency AND c.address = t.address WHERE t.counted AND t.locked
    AND t.first_seen_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - 86400000 AND
    COALESCE(c.payment_state, '') = 'confirming' AND COALESCE(c.uuid, c.uuid) > ? ORDER BY uuid
    LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    ORDER BY c.uuid;
SELECT id
    FROM accounts;

-- FreeStock
WITH RECURSIVE a (cents) AS ( SELECT MIN(usd_cents) FROM stock WHERE supplier = ? UNION ALL SELECT
    (SELECT MIN(s.usd_cents) FROM stock s WHERE s.supplier = ? AND s.usd_cents > a.cents) FROM a
    WHERE a.cents IS NOT NULL) SELECT a.cents, (SELECT COUNT(*) FROM stock f WHERE f.supplier = ?
    AND f.usd_cents = a.cents AND f.state = 'free' AND f.expires_at > ?) AS items
    FROM a
    WHERE a.cents IS NOT NULL
    ORDER BY a.cents;

-- HoldStock
UPDATE stock
    SET state = 'held'
    WHERE state IN ('free', 'reserved') AND supplier = ?;

-- Holders
SELECT process, key_ids, primary_key, CAST(unixepoch('subsec') * 1000 AS INTEGER) - seen_at AS ago,
    CAST(unixepoch('subsec') * 1000 AS INTEGER) - primary_since AS since
    FROM key_holders
    WHERE seen_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?
    ORDER BY process;

-- ImportStock
INSERT INTO stock (id, supplier, usd_cents, expires_at, number_hash, card_number, expiration_date,
    security_code, url, url_password, imported_at) SELECT v.column1, v.column2, v.column3,
    v.column4, v.column5, v.column6, v.column7, v.column8, v.column9, v.column10,
    CAST(unixepoch('subsec') * 1000 AS INTEGER)
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS
    BLOB), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS BLOB)),
    ...) AS v;

-- InsertAcceptedRates
DELETE
    FROM accepted_rates AS r
    WHERE r.currency IN (?) AND r.note IS NULL AND r.accepted_at < CAST(unixepoch('subsec') * 1000
    AS INTEGER) - ? AND EXISTS (SELECT 1 FROM accepted_rates n WHERE n.currency = r.currency AND
    (n.accepted_at, n.id) > (r.accepted_at, r.id));
INSERT INTO accepted_rates (id, currency, usd, source, accepted_at, accepted_by, note)
    VALUES (?, ?, ?, ?, CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?, ?, ?) ON CONFLICT (id) DO
    NOTHING;

-- InsertAccount
INSERT INTO accounts (id, name, created_at)
    VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING;

-- InsertCard
INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate,
    rate_at, rate_source, expires_at, confirmations_required, idempotency_key, request_hash,
    credit_due, refund_address, reference, metadata, trace_parent) SELECT CAST(? AS TEXT), CAST(? AS
    TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS
    TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS
    INTEGER), CAST(? AS TEXT), CAST(? AS BLOB), CAST(? AS BIGINT), CAST(? AS BLOB), CAST(? AS TEXT),
    CAST(? AS TEXT), CAST(? AS TEXT)
    WHERE NOT EXISTS (SELECT 1 FROM transfers t WHERE t.currency = ? AND t.address = ?) AND NOT
    EXISTS (SELECT 1 FROM retired_addresses o WHERE o.currency = ? AND o.address = ?) AND NOT EXISTS
    (SELECT 1 FROM idempotency_keys k WHERE k.account_id = CAST(? AS TEXT) AND k.idempotency_key =
    CAST(? AS TEXT)) AND (SELECT COALESCE(SUM(CASE WHEN o.usd_cents BETWEEN 1 AND 100000000 THEN
    o.usd_cents END), 0) FROM cards o WHERE o.account_id = CAST(? AS TEXT) AND o.payment_state IN
    ('unpaid', 'underpaid')) + CAST(? AS BIGINT) <= CAST(? AS BIGINT) ON CONFLICT (account_id,
    idempotency_key)
    WHERE idempotency_key IS NOT NULL DO NOTHING;
INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate,
    rate_at, rate_source, expires_at, confirmations_required, idempotency_key, request_hash,
    credit_due, refund_address, reference, metadata, trace_parent) SELECT CAST(? AS TEXT), CAST(? AS
    TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS
    TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS
    INTEGER), CAST(? AS TEXT), CAST(? AS BLOB), CAST(? AS BIGINT), CAST(? AS BLOB), CAST(? AS TEXT),
    CAST(? AS TEXT), CAST(? AS TEXT)
    WHERE NOT EXISTS (SELECT 1 FROM transfers t WHERE t.currency = ? AND t.address = ?) AND NOT
    EXISTS (SELECT 1 FROM retired_addresses o WHERE o.currency = ? AND o.address = ?) AND NOT EXISTS
    (SELECT 1 FROM idempotency_keys k WHERE k.account_id = CAST(? AS TEXT) AND k.idempotency_key =
    CAST(? AS TEXT)) ON CONFLICT (account_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL DO NOTHING;
INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate,
    rate_at, rate_source, expires_at, confirmations_required, idempotency_key, request_hash,
    credit_due, refund_address, reference, metadata, trace_parent) SELECT column1, column2, column3,
    column4, column5, column6, column7, column8, column9, column10, column11, column12, column13,
    column14, column15, column16, column17, column18, column19
    FROM (SELECT v.* FROM (VALUES (CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS
    BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS
    BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS INTEGER), CAST(? AS TEXT), CAST(? AS
    BLOB), CAST(? AS BIGINT), CAST(? AS BLOB), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT),
    CAST(? AS BIGINT), CAST(? AS BIGINT)), ...) AS v) AS v
    WHERE (SELECT 1 FROM transfers t WHERE t.currency = v.column5 AND t.address = v.column7 LIMIT 1)
    IS NULL AND (SELECT 1 FROM retired_addresses o WHERE o.currency = v.column5 AND o.address =
    v.column7) IS NULL AND (SELECT 1 FROM idempotency_keys k WHERE k.account_id = v.column2 AND
    k.idempotency_key = v.column13) IS NULL
    ORDER BY v.column21 ON CONFLICT (account_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING uuid;
INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate,
    rate_at, rate_source, expires_at, confirmations_required, idempotency_key, request_hash,
    credit_due, refund_address, reference, metadata, trace_parent) SELECT column1, column2, column3,
    column4, column5, column6, column7, column8, column9, column10, column11, column12, column13,
    column14, column15, column16, column17, column18, column19
    FROM (SELECT v.*, SUM(column4) OVER (PARTITION BY column2 ORDER BY v.column21) AS usd_cents FROM
    (VALUES (CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS
    TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS
    TEXT), CAST(? AS BIGINT), CAST(? AS INTEGER), CAST(? AS TEXT), CAST(? AS BLOB), CAST(? AS
    BIGINT), CAST(? AS BLOB), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT),
    CAST(? AS BIGINT)), ...) AS v) AS v
    WHERE (SELECT 1 FROM transfers t WHERE t.currency = v.column5 AND t.address = v.column7 LIMIT 1)
    IS NULL AND (SELECT 1 FROM retired_addresses o WHERE o.currency = v.column5 AND o.address =
    v.column7) IS NULL AND (SELECT 1 FROM idempotency_keys k WHERE k.account_id = v.column2 AND
    k.idempotency_key = v.column13) IS NULL AND CASE WHEN v.column20 = 0 THEN TRUE ELSE (SELECT
    COALESCE(SUM(CASE WHEN o.usd_cents BETWEEN 1 AND 100000000 THEN o.usd_cents END), 0) FROM cards
    o WHERE o.account_id = v.column2 AND o.payment_state IN ('unpaid', 'underpaid')) + v.usd_cents
    <= v.column20 END
    ORDER BY v.column21 ON CONFLICT (account_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING uuid;

-- InsertCardReserving
INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate,
    rate_at, rate_source, expires_at, confirmations_required, idempotency_key, request_hash,
    credit_due, refund_address, reference, metadata, trace_parent) SELECT CAST(? AS TEXT), CAST(? AS
    TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS
    TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS
    INTEGER), CAST(? AS TEXT), CAST(? AS BLOB), CAST(? AS BIGINT), CAST(? AS BLOB), CAST(? AS TEXT),
    CAST(? AS TEXT), CAST(? AS TEXT)
    WHERE NOT EXISTS (SELECT 1 FROM transfers t WHERE t.currency = ? AND t.address = ?) AND NOT
    EXISTS (SELECT 1 FROM retired_addresses o WHERE o.currency = ? AND o.address = ?) AND NOT EXISTS
    (SELECT 1 FROM idempotency_keys k WHERE k.account_id = CAST(? AS TEXT) AND k.idempotency_key =
    CAST(? AS TEXT)) AND (SELECT COALESCE(SUM(CASE WHEN o.usd_cents BETWEEN 1 AND 100000000 THEN
    o.usd_cents END), 0) FROM cards o WHERE o.account_id = CAST(? AS TEXT) AND o.payment_state IN
    ('unpaid', 'underpaid')) + CAST(? AS BIGINT) <= CAST(? AS BIGINT) ON CONFLICT (account_id,
    idempotency_key)
    WHERE idempotency_key IS NOT NULL DO NOTHING;
SELECT q.id
    FROM stock q
    WHERE q.supplier = ? AND q.usd_cents = ? AND q.state = 'free' AND q.expires_at > ?
    ORDER BY q.expires_at, q.id
    LIMIT 1;
UPDATE stock
    SET state = 'reserved', card_uuid = ?, reserved_until = ?
    WHERE id = ?;

-- InsertToken
INSERT INTO tokens (id, account_id, name, hash, scopes, created_at, expires_at, seal)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING;
UPDATE schema_compatibility
    SET oldest = ?
    WHERE oldest < ?;

-- InvalidateEpochs
UPDATE leases
    SET epoch = NULL;

-- KeepBooks
DELETE
    FROM books_days
    WHERE part = ? AND day = ? AND currency = ?;
DELETE
    FROM books_doubts
    WHERE card_uuid IN (?);
DELETE
    FROM books_notes
    WHERE id IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?);
DELETE
    FROM books_notes
    WHERE id IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
INSERT INTO books_days (part, day, currency, rows, sums, doubted) SELECT *
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS
    TEXT), CAST(? AS BOOLEAN)), ...) AS v
    WHERE TRUE;
INSERT INTO books_doubts (card_uuid) SELECT *
    FROM (VALUES (CAST(? AS TEXT)), ...) AS v
    WHERE TRUE ON CONFLICT DO NOTHING;
INSERT INTO books_feeds (account_id, seq) SELECT *
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BIGINT)), ...) AS v
    WHERE TRUE ON CONFLICT (account_id) DO UPDATE
    SET seq = excluded.seq;
UPDATE books
    SET version = version + 1, kept_until = ?
    WHERE version = ?;

-- KeepOffers
INSERT INTO offers (supplier, priority, offers, at)
    VALUES (?, ?, '[]', 0) ON CONFLICT (supplier) DO UPDATE
    SET priority = excluded.priority;

-- KnownKeys
SELECT id, known_since, promoted_at, retired_at
    FROM encryption_keys
    ORDER BY known_since, id;

-- KnownNumbers
SELECT number_hash
    FROM stock
    WHERE number_hash IN (?, ?)
    UNION SELECT card_number_hash
    FROM intents
    WHERE card_number_hash IN (?, ?);

-- LastSeq
SELECT last_seq
    FROM accounts
    WHERE id = ?;

-- LastSeqs
SELECT id, last_seq
    FROM accounts
    WHERE id IN (?, ?);

-- LastSeqsOfCards
SELECT account_id, card_uuid, MAX(seq) AS seq
    FROM events
    WHERE card_uuid IN (?, ?)
    GROUP BY account_id, card_uuid;

-- LeaseAwaited
SELECT COUNT(*)
    FROM leases
    WHERE name = ? AND holder <> ? AND expires_at > CAST(unixepoch('subsec') * 1000 AS INTEGER);

-- LockedBlocks
SELECT DISTINCT height
    FROM transfers
    WHERE currency = ? AND counted AND locked AND height BETWEEN ? AND ?
    ORDER BY height
    LIMIT ?;

-- MarkRestored
INSERT INTO settings (name, value)
    VALUES ('restored_at', ?) ON CONFLICT (name) DO UPDATE
    SET value = excluded.value;

-- MarkRetired
INSERT INTO encryption_keys (id, known_since, retired_at)
    VALUES (?, CAST(unixepoch('subsec') * 1000 AS INTEGER), CAST(unixepoch('subsec') * 1000 AS
    INTEGER)) ON CONFLICT (id) DO UPDATE
    SET retired_at = COALESCE(encryption_keys.retired_at, excluded.retired_at);

-- NoteConflict
UPDATE address_pools
    SET conflict = COALESCE(conflict, ?)
    WHERE currency = ?;

-- NoteRescan
UPDATE address_pools
    SET rescan = ?
    WHERE currency = ? AND rescan IS NOT NULL;

-- Offers
SELECT supplier, priority, offers, CAST(unixepoch('subsec') * 1000 AS INTEGER) - at AS age
    FROM offers;

-- PageTags
SELECT concat_ws(' ', c.uuid, c.status, c.payment_state, c.received, c.settled, c.height, CASE WHEN
    c.received > 0 OR c.height > 0 THEN COALESCE((SELECT k.height FROM chains k WHERE k.currency =
    c.currency), 0) ELSE 0 END, c.accepted, c.refunded, c.written_off, COALESCE(c.canceled_at, 0),
    COALESCE(c.credentials_purged_at, 0), CASE WHEN c.status = 'generated' AND (SELECT s.card_uuid
    FROM credentials s WHERE s.card_uuid = c.uuid) IS NOT NULL THEN 1 ELSE 0 END, CASE WHEN
    c.refunded > 0 THEN COALESCE((SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0), 0) ELSE 0 END, CASE WHEN c.refunded > 0 THEN
    COALESCE((SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund'
    ORDER BY r.id DESC LIMIT 1), '') ELSE '' END, CASE WHEN c.payment_state = 'paid' THEN CASE WHEN
    c.status = 'awaiting_payment' AND (c.payment_state = 'paid' OR c.settled > 0 OR c.refunded > 0)
    THEN (SELECT COUNT(*) FROM intents i WHERE i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE
    0 END ELSE 0 END)
    FROM (SELECT c.uuid FROM cards c WHERE TRUE AND c.account_id = ? AND c.status = ? ORDER BY
    c.uuid DESC NULLS LAST LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    ORDER BY c.uuid DESC;
SELECT concat_ws(' ', c.uuid, c.status, c.payment_state, c.received, c.settled, c.height, CASE WHEN
    c.received > 0 OR c.height > 0 THEN COALESCE((SELECT k.height FROM chains k WHERE k.currency =
    c.currency), 0) ELSE 0 END, c.accepted, c.refunded, c.written_off, COALESCE(c.canceled_at, 0),
    COALESCE(c.credentials_purged_at, 0), CASE WHEN c.status = 'generated' AND (SELECT s.card_uuid
    FROM credentials s WHERE s.card_uuid = c.uuid) IS NOT NULL THEN 1 ELSE 0 END, CASE WHEN
    c.refunded > 0 THEN COALESCE((SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0), 0) ELSE 0 END, CASE WHEN c.refunded > 0 THEN
    COALESCE((SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund'
    ORDER BY r.id DESC LIMIT 1), '') ELSE '' END, CASE WHEN c.payment_state = 'paid' THEN CASE WHEN
    c.status = 'awaiting_payment' AND (c.payment_state = 'paid' OR c.settled > 0 OR c.refunded > 0)
    THEN (SELECT COUNT(*) FROM intents i WHERE i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE
    0 END ELSE 0 END)
    FROM (SELECT c.uuid FROM cards c WHERE TRUE AND c.account_id = ? AND c.uuid < ? AND c.status = ?
    ORDER BY c.uuid DESC NULLS LAST LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    ORDER BY c.uuid DESC;
SELECT concat_ws(' ', c.uuid, c.status, c.payment_state, c.received, c.settled, c.height, CASE WHEN
    c.received > 0 OR c.height > 0 THEN COALESCE((SELECT k.height FROM chains k WHERE k.currency =
    c.currency), 0) ELSE 0 END, c.accepted, c.refunded, c.written_off, COALESCE(c.canceled_at, 0),
    COALESCE(c.credentials_purged_at, 0), CASE WHEN c.status = 'generated' AND (SELECT s.card_uuid
    FROM credentials s WHERE s.card_uuid = c.uuid) IS NOT NULL THEN 1 ELSE 0 END, CASE WHEN
    c.refunded > 0 THEN COALESCE((SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0), 0) ELSE 0 END, CASE WHEN c.refunded > 0 THEN
    COALESCE((SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund'
    ORDER BY r.id DESC LIMIT 1), '') ELSE '' END, CASE WHEN c.payment_state = 'paid' THEN CASE WHEN
    c.status = 'awaiting_payment' AND (c.payment_state = 'paid' OR c.settled > 0 OR c.refunded > 0)
    THEN (SELECT COUNT(*) FROM intents i WHERE i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE
    0 END ELSE 0 END)
    FROM (SELECT c.uuid FROM cards c WHERE TRUE AND c.account_id = ? AND c.uuid < ? ORDER BY c.uuid
    DESC NULLS LAST LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    ORDER BY c.uuid DESC;
SELECT concat_ws(' ', c.uuid, c.status, c.payment_state, c.received, c.settled, c.height, CASE WHEN
    c.received > 0 OR c.height > 0 THEN COALESCE((SELECT k.height FROM chains k WHERE k.currency =
    c.currency), 0) ELSE 0 END, c.accepted, c.refunded, c.written_off, COALESCE(c.canceled_at, 0),
    COALESCE(c.credentials_purged_at, 0), CASE WHEN c.status = 'generated' AND (SELECT s.card_uuid
    FROM credentials s WHERE s.card_uuid = c.uuid) IS NOT NULL THEN 1 ELSE 0 END, CASE WHEN
    c.refunded > 0 THEN COALESCE((SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0), 0) ELSE 0 END, CASE WHEN c.refunded > 0 THEN
    COALESCE((SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund'
    ORDER BY r.id DESC LIMIT 1), '') ELSE '' END, CASE WHEN c.payment_state = 'paid' THEN CASE WHEN
    c.status = 'awaiting_payment' AND (c.payment_state = 'paid' OR c.settled > 0 OR c.refunded > 0)
    THEN (SELECT COUNT(*) FROM intents i WHERE i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE
    0 END ELSE 0 END)
    FROM (SELECT c.uuid FROM cards c WHERE TRUE AND c.account_id = ? ORDER BY c.uuid DESC NULLS LAST
    LIMIT 10) AS page
    JOIN cards c ON c.uuid = page.uuid
    ORDER BY c.uuid DESC;

-- ParkedRates
SELECT currency, process, usd, source, reason, CAST(unixepoch('subsec') * 1000 AS INTEGER) - since
    AS age, valid_until - CAST(unixepoch('subsec') * 1000 AS INTEGER) AS left_ms
    FROM parked_rates
    WHERE valid_until >= CAST(unixepoch('subsec') * 1000 AS INTEGER)
    ORDER BY valid_until DESC, currency, process;

-- PoolState
SELECT COALESCE(epoch, 0) AS epoch, mark, marked_at, history, CAST(unixepoch('subsec') * 1000 AS
    INTEGER) AS now, '' AS database
    FROM leases
    WHERE name = ?;
SELECT checked_at, conflict
    FROM address_pools
    WHERE currency = ?;

-- ProlongIntents
UPDATE intents
    SET due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BIGINT)), ...) AS v
    WHERE intents.card_uuid = v.column1 AND intents.fence = v.column2 AND CASE WHEN intents.state IN
    ('open', 'pending') THEN TRUE ELSE FALSE END;

-- PromisedUSD
SELECT CAST(COALESCE(SUM(x.usd_cents), 0) AS BIGINT)
    FROM ( SELECT c.usd_cents FROM accounts a JOIN cards c ON c.account_id = a.id WHERE c.status =
    'awaiting_payment' AND c.payment_state IN ('unpaid', 'detected', 'underpaid', 'confirming') AND
    c.usd_cents BETWEEN ? AND ? AND c.uuid NOT IN (SELECT q.card_uuid FROM stock q WHERE q.state =
    'reserved' AND q.card_uuid IS NOT NULL) UNION ALL SELECT c.usd_cents FROM intents i JOIN cards c
    ON c.uuid = i.card_uuid WHERE i.state IN ('open', 'pending') AND c.payment_state = 'paid' AND
    c.usd_cents BETWEEN ? AND ? AND c.uuid NOT IN (SELECT q.card_uuid FROM stock q WHERE q.state =
    'reserved' AND q.card_uuid IS NOT NULL) UNION ALL SELECT c.usd_cents FROM intents i JOIN cards c
    ON c.uuid = i.card_uuid WHERE i.state IN ('parked', 'refund_due') AND i.state <> 'refund_due'
    AND c.payment_state = 'paid' AND c.usd_cents BETWEEN ? AND ? AND c.uuid NOT IN (SELECT
    q.card_uuid FROM stock q WHERE q.state = 'reserved' AND q.card_uuid IS NOT NULL)) x;

-- PromoteKey
INSERT INTO encryption_keys (id, known_since, promoted_at)
    VALUES (?, CAST(unixepoch('subsec') * 1000 AS INTEGER), (SELECT CASE WHEN MAX(k.promoted_at) >=
    CAST(unixepoch('subsec') * 1000 AS INTEGER) THEN MAX(k.promoted_at) + 1 ELSE
    CAST(unixepoch('subsec') * 1000 AS INTEGER) END FROM encryption_keys k)) ON CONFLICT (id) DO
    UPDATE
    SET promoted_at = excluded.promoted_at, retired_at = NULL;

-- PruneDeliveries
DELETE
    FROM deliveries
    WHERE webhook_id = ? AND seq IN (SELECT seq FROM deliveries WHERE webhook_id = ? AND seq <= ?
    AND due_at IS NULL LIMIT ?);
SELECT id, newest
    FROM (SELECT w.id, (SELECT MIN(d.seq) FROM deliveries d WHERE d.webhook_id = w.id) AS oldest,
    (SELECT e.seq FROM events e WHERE e.account_id = w.account_id AND e.created_at < ? ORDER BY
    e.created_at DESC, e.seq DESC LIMIT 1) AS newest FROM webhooks w) AS q
    WHERE oldest <= newest;

-- PruneEvents
DELETE
    FROM books_notes
    WHERE id > ? AND account_id IN (?);
DELETE
    FROM deliveries
    WHERE webhook_id = ? AND seq <= ?;
DELETE
    FROM events
    WHERE account_id = ? AND seq < ?;
SELECT COALESCE(MAX(id), 0)
    FROM books_notes;
SELECT id
    FROM webhooks
    WHERE account_id = ?
    ORDER BY id;
SELECT seq
    FROM deliveries
    WHERE webhook_id = ? AND seq <= ? AND due_at IS NOT NULL
    ORDER BY seq
    LIMIT 1;
SELECT seq, type, created_at <= (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)) - ? AS old
    FROM events
    WHERE account_id = ?
    ORDER BY seq
    LIMIT ?;
UPDATE events
    SET id = ?, type = ?, card_uuid = NULL, status = NULL, payment_state = NULL, webhook_id = NULL,
    since = (SELECT a.created_at FROM accounts a WHERE a.id = events.account_id)
    WHERE account_id = ? AND seq = ?;

-- PruneReplies
DELETE
    FROM idempotency_keys
    WHERE (account_id, idempotency_key) IN ( SELECT account_id, idempotency_key FROM
    idempotency_keys WHERE reply IS NOT NULL AND created_at < ? ORDER BY created_at LIMIT ?);

-- PurgeCard
DELETE
    FROM credentials
    WHERE card_uuid IN (?)
    RETURNING card_uuid;
INSERT INTO purges (id, card_uuid, note, operator, created_at)
    VALUES (?, ?, ?, ?, CAST(unixepoch('subsec') * 1000 AS INTEGER));
SELECT status
    FROM cards
    WHERE uuid = ?;
SELECT uuid
    FROM cards
    WHERE uuid IN (?) AND status = ?
    ORDER BY uuid;
UPDATE cards
    SET credentials_purged_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
    WHERE uuid IN (?) AND credentials_purged_at IS NULL;
UPDATE stock
    SET card_number = NULL, expiration_date = NULL, security_code = NULL, url = NULL, url_password =
    NULL
    WHERE id IN (SELECT q.id FROM stock q WHERE q.state = 'issued' AND q.card_number IS NOT NULL AND
    (SELECT i.state FROM intents i WHERE i.card_uuid = q.card_uuid AND i.card_number_hash =
    q.number_hash) = 'done' AND q.card_uuid IN (?));

-- PurgeCredentials
SELECT card_uuid
    FROM credentials
    WHERE issued_at <= (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)) - ?
    ORDER BY issued_at, card_uuid
    LIMIT ?;
UPDATE credentials
    SET issued_at = COALESCE((SELECT MIN(e.created_at) FROM events e WHERE e.card_uuid =
    credentials.card_uuid AND e.type = ?), CAST(unixepoch('subsec') * 1000 AS INTEGER))
    WHERE card_uuid IN (SELECT card_uuid FROM credentials WHERE issued_at IS NULL ORDER BY
    issued_at, card_uuid LIMIT ?);

-- ReadBooks
SELECT CAST(COALESCE(SUM(CASE WHEN TRUE THEN t.amount >> 32 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN TRUE THEN t.amount & 4294967295 END), 0) AS TEXT)
    FROM transfers t
    WHERE t.currency = ? AND t.counted AND t.height = 0;
SELECT COALESCE(MAX(x.seq), 0) AS newest, COUNT(CASE WHEN x.type <> 'feed.reset' AND x.seq <>
    x.previous + 1 THEN 1 END) AS gaps
    FROM (SELECT e.seq, e.type, LAG(e.seq, 1, CAST(? AS BIGINT)) OVER (ORDER BY e.seq) AS previous
    FROM (SELECT seq, type FROM events WHERE account_id = ? AND seq > ? ORDER BY seq LIMIT ?) e) x;
SELECT a.id, a.last_seq, (SELECT COALESCE(MAX(e.seq), 0) FROM events e WHERE e.account_id = a.id) AS
    newest, COALESCE((SELECT f.seq FROM books_feeds f WHERE f.account_id = a.id), 0) AS checked
    FROM accounts a
    WHERE a.id > ?
    ORDER BY a.id
    LIMIT ?;
SELECT c.uuid
    FROM intents i
    JOIN cards c ON c.uuid = i.card_uuid
    WHERE i.state IN ('open', 'pending') AND i.due_at > (SELECT CAST(unixepoch('subsec') * 1000 AS
    INTEGER)) + ? AND c.payment_state = 'paid'
    ORDER BY i.due_at, i.card_uuid
    LIMIT ?;
SELECT c.uuid, c.currency, c.credit_lost - c.credit_written_off AS amount, (SELECT MAX(e.created_at)
    FROM events e WHERE e.card_uuid = c.uuid AND e.type = 'payment.reversed') AS since
    FROM cards c
    WHERE c.credit_lost > c.credit_written_off AND c.credit_lost <= ? AND c.credit_written_off >= 0
    ORDER BY uuid
    LIMIT ?;
SELECT card_uuid
    FROM books_doubts
    WHERE card_uuid > ?
    ORDER BY card_uuid
    LIMIT ?;
SELECT currency, COUNT(*) AS n, CAST(COALESCE(SUM(CASE WHEN c.status = 'generated' THEN
    c.credit_paid >> 32 END), 0) AS TEXT) || ' ' || CAST(COALESCE(SUM(CASE WHEN c.status =
    'generated' THEN c.credit_paid & 4294967295 END), 0) AS TEXT) || ' ' || CAST(COALESCE(SUM(CASE
    WHEN c.status <> 'generated' THEN c.credit_paid >> 32 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN c.status <> 'generated' THEN c.credit_paid & 4294967295 END), 0) AS
    TEXT) || ' ' || CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_held >> 32 END), 0) AS TEXT) || '
    ' || CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_held & 4294967295 END), 0) AS TEXT) || ' '
    || CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_surplus >> 32 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_surplus & 4294967295 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_refunded >> 32 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_refunded & 4294967295 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_lost >> 32 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_lost & 4294967295 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_written_off >> 32 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_written_off & 4294967295 END), 0) AS TEXT) || ' '
    || CAST(COALESCE(SUM(CASE WHEN c.payment_state IN ('paid', 'reversed') THEN CAST(1 AS BIGINT) >>
    32 END), 0) AS TEXT) || ' ' || CAST(COALESCE(SUM(CASE WHEN c.payment_state IN ('paid',
    'reversed') THEN CAST(1 AS BIGINT) & 4294967295 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN c.status = 'generated' THEN CAST(1 AS BIGINT) >> 32 END), 0) AS
    TEXT) || ' ' || CAST(COALESCE(SUM(CASE WHEN c.status = 'generated' THEN CAST(1 AS BIGINT) &
    4294967295 END), 0) AS TEXT) || ' ' || CAST(COALESCE(SUM(CASE WHEN c.payment_state = 'late' THEN
    CAST(1 AS BIGINT) >> 32 END), 0) AS TEXT) || ' ' || CAST(COALESCE(SUM(CASE WHEN c.payment_state
    = 'late' THEN CAST(1 AS BIGINT) & 4294967295 END), 0) AS TEXT) || ' ' || CAST(COALESCE(SUM(CASE
    WHEN c.status = 'generated' THEN c.usd_cents >> 32 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN c.status = 'generated' THEN c.usd_cents & 4294967295 END), 0) AS
    TEXT) AS sums
    FROM cards c
    WHERE c.uuid >= ? AND c.uuid < ?
    GROUP BY currency;
SELECT currency, COUNT(*) AS n, CAST(COALESCE(SUM(CASE WHEN t.counted THEN t.amount >> 32 END), 0)
    AS TEXT) || ' ' || CAST(COALESCE(SUM(CASE WHEN t.counted THEN t.amount & 4294967295 END), 0) AS
    TEXT) || ' ' || CAST(COALESCE(SUM(CASE WHEN t.counted AND (SELECT c.uuid FROM cards c WHERE
    c.currency = t.currency AND c.address = t.address) IS NULL AND NOT (SELECT a.id FROM
    attributions a WHERE a.currency = t.currency AND a.txid = t.txid AND a.output = t.output) IS NOT
    NULL THEN t.amount >> 32 END), 0) AS TEXT) || ' ' || CAST(COALESCE(SUM(CASE WHEN t.counted AND
    (SELECT c.uuid FROM cards c WHERE c.currency = t.currency AND c.address = t.address) IS NULL AND
    NOT (SELECT a.id FROM attributions a WHERE a.currency = t.currency AND a.txid = t.txid AND
    a.output = t.output) IS NOT NULL THEN t.amount & 4294967295 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN t.counted AND (SELECT a.kind FROM attributions a WHERE a.currency =
    t.currency AND a.txid = t.txid AND a.output = t.output) = 'refund' THEN t.amount >> 32 END), 0)
    AS TEXT) || ' ' || CAST(COALESCE(SUM(CASE WHEN t.counted AND (SELECT a.kind FROM attributions a
    WHERE a.currency = t.currency AND a.txid = t.txid AND a.output = t.output) = 'refund' THEN
    t.amount & 4294967295 END), 0) AS TEXT) || ' ' || CAST(COALESCE(SUM(CASE WHEN NOT t.counted AND
    (SELECT a.kind FROM attributions a WHERE a.currency = t.currency AND a.txid = t.txid AND
    a.output = t.output) = 'refund' THEN t.amount >> 32 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN NOT t.counted AND (SELECT a.kind FROM attributions a WHERE
    a.currency = t.currency AND a.txid = t.txid AND a.output = t.output) = 'refund' THEN t.amount &
    4294967295 END), 0) AS TEXT) AS sums
    FROM transfers t
    WHERE t.first_seen_at >= ? AND t.first_seen_at <= ? AND (t.first_seen_at, t.currency, t.txid,
    t.output) >= (?, ?, ?, ?) AND (t.first_seen_at, t.currency, t.txid, t.output) < (?, ?, ?, ?)
    GROUP BY currency;
SELECT currency, txid, output, address, amount, height, locked, counted, first_seen_at
    FROM transfers t
    WHERE t.counted AND NOT t.attributed AND (SELECT c.uuid FROM cards c WHERE c.currency =
    t.currency AND c.address = t.address) IS NULL AND NOT (SELECT a.id FROM attributions a WHERE
    a.currency = t.currency AND a.txid = t.txid AND a.output = t.output) IS NOT NULL
    ORDER BY t.first_seen_at DESC, t.txid, t.output
    LIMIT ?;
SELECT d.webhook_id, d.seq, d.due_at, d.tries, d.attempts, CASE WHEN d.attempts <> '[]' OR d.tries
    NOT BETWEEN 0 AND ? OR d.due_at NOT BETWEEN 0 AND ? THEN (SELECT e.id FROM events e WHERE
    e.account_id = d.account_id AND e.seq = d.seq) END AS event_id
    FROM deliveries d
    WHERE (d.webhook_id, d.seq) > (?, ?)
    ORDER BY d.webhook_id, d.seq
    LIMIT ?;
SELECT d.webhook_id, d.seq, d.due_at, d.tries, d.attempts, CASE WHEN d.attempts <> '[]' OR d.tries
    NOT BETWEEN 0 AND ? OR d.due_at NOT BETWEEN 0 AND ? THEN (SELECT e.id FROM events e WHERE
    e.account_id = d.account_id AND e.seq = d.seq) END AS event_id
    FROM deliveries d
    WHERE d.due_at IS NOT NULL
    ORDER BY d.webhook_id, d.due_at, d.seq
    LIMIT ?;
SELECT first_seen_at
    FROM transfers
    WHERE first_seen_at >= ?
    ORDER BY first_seen_at
    LIMIT 1;
SELECT first_seen_at, currency, txid, output
    FROM transfers t
    WHERE t.first_seen_at >= ? AND t.first_seen_at <= ? AND (t.first_seen_at, t.currency, t.txid,
    t.output) >= (?, ?, ?, ?) AND (t.first_seen_at, t.currency, t.txid, t.output) < (?, ?, ?, ?)
    ORDER BY first_seen_at, currency, txid, output
    LIMIT 1 OFFSET ?;
SELECT i.card_uuid AS uuid, c.currency, c.credit_paid AS amount, i.decided_at AS since
    FROM intents i
    JOIN cards c ON c.uuid = i.card_uuid
    WHERE c.payment_state = 'paid' AND i.state IN ('open', 'pending') AND (i.attempts >= ? OR
    i.decided_at IS NULL OR i.decided_at <= ?)
    ORDER BY uuid
    LIMIT ?;
SELECT i.card_uuid AS uuid, c.currency, c.credit_paid AS amount, i.decided_at AS since
    FROM intents i
    JOIN cards c ON c.uuid = i.card_uuid
    WHERE c.payment_state = 'paid' AND i.state IN ('parked', 'refund_due') AND i.state = 'parked'
    ORDER BY uuid
    LIMIT ?;
SELECT i.card_uuid AS uuid, c.currency, c.credit_paid AS amount, i.decided_at AS since
    FROM intents i
    JOIN cards c ON c.uuid = i.card_uuid
    WHERE c.payment_state = 'paid' AND i.state IN ('parked', 'refund_due') AND i.state =
    'refund_due'
    ORDER BY uuid
    LIMIT ?;
SELECT id, card_uuid, seen_at, account_id
    FROM books_notes
    WHERE id > ?
    ORDER BY id
    LIMIT ?;
SELECT part, day, currency, rows, sums, doubted
    FROM books_days
    WHERE (part, day, currency) > (?, ?, ?)
    ORDER BY part, day, currency
    LIMIT ?;
SELECT t.first_seen_at
    FROM cards c
    JOIN transfers t ON t.currency = c.currency AND t.address = c.address
    WHERE c.uuid = ?;
SELECT uuid
    FROM cards
    WHERE uuid >= ?
    ORDER BY uuid
    LIMIT 1;
SELECT uuid
    FROM cards c
    WHERE c.uuid >= ? AND c.uuid < ?
    ORDER BY uuid
    LIMIT 1 OFFSET ?;
SELECT version, kept_until, CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now
    FROM books;
SELECT x.uuid, x.currency, x.amount, x.since
    FROM (SELECT c.uuid, c.currency, c.credit_held AS amount, (SELECT MAX(e.created_at) FROM events
    e WHERE e.card_uuid = c.uuid AND e.type = 'payment.late') AS since FROM cards c INDEXED BY
    cards_late WHERE c.payment_state = 'late') x
    WHERE x.since IS NULL OR x.since <= ?
    ORDER BY uuid
    LIMIT ?;
SELECT x.uuid, x.kinds
    FROM (SELECT c.uuid, CASE WHEN (SELECT CAST(COALESCE(SUM(x.amount >> 32), 0) AS BIGINT) +
    (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS BIGINT) >> 32) <> (c.received >> 32) OR
    (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS BIGINT) & 4294967295) <> (c.received &
    4294967295) FROM (SELECT t.amount FROM transfers t WHERE t.currency = c.currency AND t.address =
    c.address AND t.counted AND NOT EXISTS (SELECT 1 FROM attributions a WHERE a.currency =
    t.currency AND a.txid = t.txid AND a.output = t.output) UNION ALL SELECT t.amount FROM transfers
    t JOIN attributions a ON a.currency = t.currency AND a.txid = t.txid AND a.output = t.output
    WHERE a.card_uuid = c.uuid AND t.counted) x) THEN '0 ' ELSE '' END || CASE WHEN (SELECT
    CAST(COALESCE(SUM(x.amount >> 32), 0) AS BIGINT) + (CAST(COALESCE(SUM(x.amount & 4294967295), 0)
    AS BIGINT) >> 32) <> (c.received >> 32) OR (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS
    BIGINT) & 4294967295) <> (c.received & 4294967295) FROM (SELECT c.credit_paid AS amount UNION
    ALL SELECT c.credit_held UNION ALL SELECT c.credit_surplus UNION ALL SELECT c.credit_refunded)
    x) THEN '1 ' ELSE '' END || CASE WHEN (SELECT CAST(COALESCE(SUM(x.amount >> 32), 0) AS BIGINT) +
    (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS BIGINT) >> 32) <> (c.refunded >> 32) OR
    (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS BIGINT) & 4294967295) <> (c.refunded &
    4294967295) FROM (SELECT r.amount FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind =
    'refund') x) THEN '2 ' ELSE '' END || CASE WHEN (SELECT CAST(COALESCE(SUM(x.amount >> 32), 0) AS
    BIGINT) + (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS BIGINT) >> 32) <> (c.written_off >>
    32) OR (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS BIGINT) & 4294967295) <> (c.written_off
    & 4294967295) FROM (SELECT r.amount FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind =
    'write_off') x) THEN '3 ' ELSE '' END || CASE WHEN c.status = 'generated' AND
    c.credentials_purged_at IS NULL AND (SELECT s.card_uuid FROM credentials s WHERE s.card_uuid =
    c.uuid) IS NULL THEN '4 ' ELSE '' END || CASE WHEN c.status <> 'generated' AND (SELECT
    s.card_uuid FROM credentials s WHERE s.card_uuid = c.uuid) IS NOT NULL THEN '5 ' ELSE '' END ||
    CASE WHEN c.credentials_purged_at IS NOT NULL AND (SELECT s.card_uuid FROM credentials s WHERE
    s.card_uuid = c.uuid) IS NOT NULL THEN '6 ' ELSE '' END || CASE WHEN c.status = 'generated' AND
    COALESCE((SELECT i.state FROM intents i WHERE i.card_uuid = c.uuid), '') <> 'done' THEN '7 '
    ELSE '' END || CASE WHEN c.status <> 'generated' AND (SELECT i.state FROM intents i WHERE
    i.card_uuid = c.uuid) = 'done' THEN '8 ' ELSE '' END || CASE WHEN c.payment_state = 'paid' AND
    (SELECT i.state FROM intents i WHERE i.card_uuid = c.uuid) IS NULL THEN '9 ' ELSE '' END || CASE
    WHEN c.created_at NOT BETWEEN -62135596800000 AND 253402300799999 OR c.usd_cents NOT BETWEEN 1
    AND 100000000 OR c.amount NOT BETWEEN 1 AND 4611686018427387903 OR c.rate NOT BETWEEN 0 AND
    9223372036854775807 OR c.rate_at NOT BETWEEN -62135596800000 AND 253402300799999 OR c.expires_at
    NOT BETWEEN -62135596800000 AND 253402300799999 OR c.confirmations_required NOT BETWEEN 1 AND
    2147483647 OR c.received NOT BETWEEN 0 AND 4611686018427387903 OR c.settled NOT BETWEEN 0 AND
    4611686018427387903 OR c.height NOT BETWEEN 0 AND 4611686018427387903 OR c.accepted NOT BETWEEN
    0 AND 4611686018427387903 OR c.refunded NOT BETWEEN 0 AND 4611686018427387903 OR c.written_off
    NOT BETWEEN 0 AND 4611686018427387903 OR c.canceled_at NOT BETWEEN -62135596800000 AND
    253402300799999 OR c.credit_paid NOT BETWEEN 0 AND 4611686018427387903 OR c.credit_held NOT
    BETWEEN 0 AND 4611686018427387903 OR c.credit_surplus NOT BETWEEN 0 AND 4611686018427387903 OR
    c.credit_refunded NOT BETWEEN 0 AND 4611686018427387903 OR c.credit_lost NOT BETWEEN 0 AND
    9223372036854775807 OR c.credit_written_off NOT BETWEEN 0 AND 9223372036854775807 OR
    c.credentials_purged_at NOT BETWEEN -62135596800000 AND 253402300799999 THEN '10 ' ELSE '' END
    || CASE WHEN c.currency NOT IN (?) OR c.payment_state NOT IN (?, ?, ?, ?, ?, ?, ?, ?, ?) THEN
    '11 ' ELSE '' END || CASE WHEN (SELECT COUNT(*) FROM transfers t WHERE t.currency = c.currency
    AND t.address = c.address AND t.first_seen_at < ?) > 0 THEN 'e ' ELSE '' END AS kinds FROM cards
    c WHERE c.uuid >= ? AND c.uuid < ?) x
    WHERE x.kinds <> '';
SELECT x.uuid, x.kinds
    FROM (SELECT c.uuid, CASE WHEN (SELECT CAST(COALESCE(SUM(x.amount >> 32), 0) AS BIGINT) +
    (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS BIGINT) >> 32) <> (c.received >> 32) OR
    (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS BIGINT) & 4294967295) <> (c.received &
    4294967295) FROM (SELECT t.amount FROM transfers t WHERE t.currency = c.currency AND t.address =
    c.address AND t.counted AND NOT EXISTS (SELECT 1 FROM attributions a WHERE a.currency =
    t.currency AND a.txid = t.txid AND a.output = t.output) UNION ALL SELECT t.amount FROM transfers
    t JOIN attributions a ON a.currency = t.currency AND a.txid = t.txid AND a.output = t.output
    WHERE a.card_uuid = c.uuid AND t.counted) x) THEN '0 ' ELSE '' END || CASE WHEN (SELECT
    CAST(COALESCE(SUM(x.amount >> 32), 0) AS BIGINT) + (CAST(COALESCE(SUM(x.amount & 4294967295), 0)
    AS BIGINT) >> 32) <> (c.received >> 32) OR (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS
    BIGINT) & 4294967295) <> (c.received & 4294967295) FROM (SELECT c.credit_paid AS amount UNION
    ALL SELECT c.credit_held UNION ALL SELECT c.credit_surplus UNION ALL SELECT c.credit_refunded)
    x) THEN '1 ' ELSE '' END || CASE WHEN (SELECT CAST(COALESCE(SUM(x.amount >> 32), 0) AS BIGINT) +
    (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS BIGINT) >> 32) <> (c.refunded >> 32) OR
    (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS BIGINT) & 4294967295) <> (c.refunded &
    4294967295) FROM (SELECT r.amount FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind =
    'refund') x) THEN '2 ' ELSE '' END || CASE WHEN (SELECT CAST(COALESCE(SUM(x.amount >> 32), 0) AS
    BIGINT) + (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS BIGINT) >> 32) <> (c.written_off >>
    32) OR (CAST(COALESCE(SUM(x.amount & 4294967295), 0) AS BIGINT) & 4294967295) <> (c.written_off
    & 4294967295) FROM (SELECT r.amount FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind =
    'write_off') x) THEN '3 ' ELSE '' END || CASE WHEN c.status = 'generated' AND
    c.credentials_purged_at IS NULL AND (SELECT s.card_uuid FROM credentials s WHERE s.card_uuid =
    c.uuid) IS NULL THEN '4 ' ELSE '' END || CASE WHEN c.status <> 'generated' AND (SELECT
    s.card_uuid FROM credentials s WHERE s.card_uuid = c.uuid) IS NOT NULL THEN '5 ' ELSE '' END ||
    CASE WHEN c.credentials_purged_at IS NOT NULL AND (SELECT s.card_uuid FROM credentials s WHERE
    s.card_uuid = c.uuid) IS NOT NULL THEN '6 ' ELSE '' END || CASE WHEN c.status = 'generated' AND
    COALESCE((SELECT i.state FROM intents i WHERE i.card_uuid = c.uuid), '') <> 'done' THEN '7 '
    ELSE '' END || CASE WHEN c.status <> 'generated' AND (SELECT i.state FROM intents i WHERE
    i.card_uuid = c.uuid) = 'done' THEN '8 ' ELSE '' END || CASE WHEN c.payment_state = 'paid' AND
    (SELECT i.state FROM intents i WHERE i.card_uuid = c.uuid) IS NULL THEN '9 ' ELSE '' END || CASE
    WHEN c.created_at NOT BETWEEN -62135596800000 AND 253402300799999 OR c.usd_cents NOT BETWEEN 1
    AND 100000000 OR c.amount NOT BETWEEN 1 AND 4611686018427387903 OR c.rate NOT BETWEEN 0 AND
    9223372036854775807 OR c.rate_at NOT BETWEEN -62135596800000 AND 253402300799999 OR c.expires_at
    NOT BETWEEN -62135596800000 AND 253402300799999 OR c.confirmations_required NOT BETWEEN 1 AND
    2147483647 OR c.received NOT BETWEEN 0 AND 4611686018427387903 OR c.settled NOT BETWEEN 0 AND
    4611686018427387903 OR c.height NOT BETWEEN 0 AND 4611686018427387903 OR c.accepted NOT BETWEEN
    0 AND 4611686018427387903 OR c.refunded NOT BETWEEN 0 AND 4611686018427387903 OR c.written_off
    NOT BETWEEN 0 AND 4611686018427387903 OR c.canceled_at NOT BETWEEN -62135596800000 AND
    253402300799999 OR c.credit_paid NOT BETWEEN 0 AND 4611686018427387903 OR c.credit_held NOT
    BETWEEN 0 AND 4611686018427387903 OR c.credit_surplus NOT BETWEEN 0 AND 4611686018427387903 OR
    c.credit_refunded NOT BETWEEN 0 AND 4611686018427387903 OR c.credit_lost NOT BETWEEN 0 AND
    9223372036854775807 OR c.credit_written_off NOT BETWEEN 0 AND 9223372036854775807 OR
    c.credentials_purged_at NOT BETWEEN -62135596800000 AND 253402300799999 THEN '10 ' ELSE '' END
    || CASE WHEN c.currency NOT IN (?) OR c.payment_state NOT IN (?, ?, ?, ?, ?, ?, ?, ?, ?) THEN
    '11 ' ELSE '' END || CASE WHEN FALSE THEN 'e ' ELSE '' END AS kinds FROM cards c WHERE c.uuid >=
    ? AND c.uuid < ?) x
    WHERE x.kinds <> '';

-- ReleaseLease
UPDATE leases
    SET expires_at = 0
    WHERE name = ? AND holder = ? AND fence = ?;

-- ReleaseRetention
UPDATE leases
    SET expires_at = 0
    WHERE name = ? AND holder = ?;

-- ReleaseStock
UPDATE stock
    SET state = CASE WHEN card_uuid IS NULL THEN 'free' ELSE 'reserved' END
    WHERE supplier = ? AND state = 'held' AND id NOT IN (?);

-- ReleaseWebhook
SELECT e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id,
    e.since, e.created_at, (SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS
    reference, d.state AS delivery_state, d.due_at, d.tries, d.attempts
    FROM (SELECT d.* FROM deliveries d WHERE d.webhook_id = ? AND d.due_at <= ? ORDER BY d.due_at,
    d.seq LIMIT ?) AS d
    JOIN events e ON e.account_id = d.account_id AND e.seq = d.seq
    ORDER BY d.due_at, d.seq;
UPDATE webhooks
    SET claimed_until = CAST(unixepoch('subsec') * 1000 AS INTEGER)
    WHERE id = ? AND fence = ?;

-- ReplaceSealed
SELECT card_uuid
    FROM credentials
    WHERE card_uuid IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ORDER BY card_uuid;
SELECT id
    FROM stock
    WHERE id IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ORDER BY id;
SELECT uuid
    FROM cards
    WHERE uuid IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ORDER BY uuid;
UPDATE cards
    SET refund_address = v.column3
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BLOB), CAST(? AS BLOB)), ...) AS v
    WHERE cards.uuid = v.column1 AND cards.refund_address = v.column2;
UPDATE credentials
    SET card_number = v.column3, expiration_date = v.column5, security_code = v.column7, url =
    v.column9, url_password = v.column11
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS
    BLOB), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS BLOB),
    CAST(? AS BLOB)), ...) AS v
    WHERE credentials.card_uuid = v.column1 AND credentials.card_number = v.column2 AND
    credentials.expiration_date = v.column4 AND credentials.security_code = v.column6 AND
    credentials.url = v.column8 AND credentials.url_password = v.column10;
UPDATE stock
    SET card_number = v.column3, expiration_date = v.column5, security_code = v.column7, url =
    v.column9, url_password = v.column11
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS
    BLOB), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS BLOB),
    CAST(? AS BLOB)), ...) AS v
    WHERE stock.id = v.column1 AND stock.card_number = v.column2 AND stock.expiration_date =
    v.column4 AND stock.security_code = v.column6 AND stock.url = v.column8 AND stock.url_password =
    v.column10;

-- RequestRescan
UPDATE address_pools
    SET rescan = COALESCE(rescan, ?)
    WHERE currency = ?;

-- ResetFeeds
INSERT INTO deliveries (webhook_id, account_id, seq, state, due_at) SELECT w.id, e.account_id,
    e.seq, 'pending', 0
    FROM webhooks w
    JOIN events e ON e.account_id = w.account_id
    WHERE w.account_id = ? AND w.enabled AND e.seq BETWEEN ? AND ? AND (w.types = '' OR ' ' ||
    w.types || ' ' LIKE '% ' || e.type || ' %') AND (e.webhook_id IS NULL OR e.webhook_id <> w.id);
INSERT INTO events (account_id, seq, id, type, card_uuid, status, payment_state, webhook_id, since,
    created_at) SELECT *
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS
    TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT)),
    ...) AS v
    WHERE TRUE;
SELECT fence
    FROM leases
    WHERE name = ? AND holder = ? AND fence = ? AND expires_at > CAST(unixepoch('subsec') * 1000 AS
    INTEGER) AND (epoch IS NULL OR history = '');
UPDATE accounts
    SET last_seq = CASE WHEN last_seq < ? THEN ? ELSE last_seq END
    RETURNING id;
UPDATE accounts
    SET last_seq = last_seq + ?
    WHERE id = ? AND TRUE
    RETURNING last_seq;

-- RetireCards
SELECT CASE WHEN k.time < x.now THEN k.time ELSE x.now END - ?
    FROM chains k, (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now) x
    WHERE k.currency = ?;
SELECT c.uuid
    FROM cards c
    WHERE c.uuid IN (?) AND c.expires_at <= ? AND c.status = 'awaiting_payment' AND c.payment_state
    = 'expired' AND c.received = 0 AND c.settled = 0 AND c.accepted = 0 AND c.refunded = 0 AND
    c.written_off = 0 AND c.credit_paid = 0 AND c.credit_held = 0 AND c.credit_surplus = 0 AND
    c.credit_refunded = 0 AND c.credit_lost = 0 AND (SELECT t.txid FROM transfers t WHERE t.currency
    = c.currency AND t.address = c.address LIMIT 1) IS NULL AND (SELECT a.id FROM attributions a
    WHERE a.card_uuid = c.uuid LIMIT 1) IS NULL AND (SELECT r.id FROM resolutions r WHERE
    r.card_uuid = c.uuid LIMIT 1) IS NULL AND (SELECT i.state FROM intents i WHERE i.card_uuid =
    c.uuid) IS NULL AND (SELECT s.card_uuid FROM credentials s WHERE s.card_uuid = c.uuid) IS NULL
    AND (SELECT p.id FROM purges p WHERE p.card_uuid = c.uuid) IS NULL AND (SELECT e.seq FROM events
    e WHERE e.card_uuid = c.uuid LIMIT 1) IS NULL
    ORDER BY c.uuid;
SELECT c.uuid
    FROM cards c
    WHERE c.uuid IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) AND c.expires_at <= ? AND c.status =
    'awaiting_payment' AND c.payment_state = 'expired' AND c.received = 0 AND c.settled = 0 AND
    c.accepted = 0 AND c.refunded = 0 AND c.written_off = 0 AND c.credit_paid = 0 AND c.credit_held
    = 0 AND c.credit_surplus = 0 AND c.credit_refunded = 0 AND c.credit_lost = 0 AND (SELECT t.txid
    FROM transfers t WHERE t.currency = c.currency AND t.address = c.address LIMIT 1) IS NULL AND
    (SELECT a.id FROM attributions a WHERE a.card_uuid = c.uuid LIMIT 1) IS NULL AND (SELECT r.id
    FROM resolutions r WHERE r.card_uuid = c.uuid LIMIT 1) IS NULL AND (SELECT i.state FROM intents
    i WHERE i.card_uuid = c.uuid) IS NULL AND (SELECT s.card_uuid FROM credentials s WHERE
    s.card_uuid = c.uuid) IS NULL AND (SELECT p.id FROM purges p WHERE p.card_uuid = c.uuid) IS NULL
    AND (SELECT e.seq FROM events e WHERE e.card_uuid = c.uuid LIMIT 1) IS NULL
    ORDER BY c.uuid;
SELECT uuid
    FROM cards
    WHERE account_id = ? AND payment_state = 'expired' AND status = 'awaiting_payment' AND currency
    = ? AND uuid > ? AND uuid < ?
    ORDER BY uuid NULLS FIRST
    LIMIT 10;

-- RetiredCards
SELECT r.card_uuid AS uuid, r.account_id, a.name AS account, r.currency, r.address, r.usd_cents,
    r.amount, r.expires_at, r.retired_at
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS TEXT)), ...) AS v
    JOIN retired_addresses r ON r.currency = v.column1 AND r.address = v.column2
    JOIN accounts a ON a.id = r.account_id;

-- RevokeToken
UPDATE tokens
    SET revoked_at = ?, expires_at = ?, replaced_by = ?, seal = ?
    WHERE id = ?;

-- RotateToken
INSERT INTO tokens (id, account_id, name, hash, scopes, created_at, expires_at, seal)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING;
UPDATE tokens
    SET replaced_by = ?, expires_at = ?, seal = ?
    WHERE id = ? AND (replaced_by IS NULL OR replaced_by = ?) AND revoked_at IS NULL AND (expires_at
    IS NULL OR expires_at > ?);

-- SaveHolder
DELETE
    FROM key_holders
    WHERE seen_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?;
INSERT INTO encryption_keys (id, known_since)
    VALUES (?, CAST(unixepoch('subsec') * 1000 AS INTEGER)) ON CONFLICT (id) DO NOTHING;
INSERT INTO key_holders (process, key_ids, primary_key, primary_since, seen_at)
    VALUES (?, ?, ?, CAST(unixepoch('subsec') * 1000 AS INTEGER), CAST(unixepoch('subsec') * 1000 AS
    INTEGER)) ON CONFLICT (process) DO UPDATE
    SET key_ids = excluded.key_ids, primary_key = excluded.primary_key, seen_at = excluded.seen_at,
    primary_since = CASE WHEN key_holders.primary_key = excluded.primary_key THEN
    key_holders.primary_since ELSE excluded.primary_since END;

-- SaveIntents
UPDATE intents
    SET state = v.column3, reference = v.column4, first_asked_at = v.column5, answer = v.column6,
    reason = v.column7, due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + v.column8, supplier =
    v.column9, refusals = v.column10, declines = v.column11
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS
    BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT),
    CAST(? AS BIGINT)), ...) AS v
    WHERE intents.card_uuid = v.column1 AND intents.fence = v.column2 AND CASE WHEN intents.state IN
    ('open', 'pending') THEN TRUE ELSE FALSE END;

-- SaveOffers
INSERT INTO offers (supplier, priority, offers, at)
    VALUES (?, ?, ?, CAST(unixepoch('subsec') * 1000 AS INTEGER)) ON CONFLICT (supplier) DO UPDATE
    SET priority = excluded.priority, offers = excluded.offers, at = excluded.at;

-- SaveParkedRates
DELETE
    FROM parked_rates
    WHERE process = ? OR valid_until < CAST(unixepoch('subsec') * 1000 AS INTEGER);
INSERT INTO parked_rates (currency, process, usd, source, reason, since, valid_until) SELECT
    column1, column2, column3, column4, column5, CAST(unixepoch('subsec') * 1000 AS INTEGER) -
    column6, CAST(unixepoch('subsec') * 1000 AS INTEGER) + column7
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS
    TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT)), ...) AS v
    WHERE TRUE;

-- SaveUsage
INSERT INTO request_usage (process, usage, saved_at)
    VALUES (?, ?, CAST(unixepoch('subsec') * 1000 AS INTEGER)) ON CONFLICT (process) DO UPDATE
    SET usage = excluded.usage, saved_at = excluded.saved_at;

-- SaveUses
INSERT INTO token_uses (token_id, used_at)
    VALUES (?, ?), (?, ?) ON CONFLICT (token_id) DO UPDATE
    SET used_at = excluded.used_at
    WHERE token_uses.used_at < excluded.used_at;

-- SealTokens
INSERT INTO settings (name, value)
    VALUES (?, ?) ON CONFLICT (name) DO NOTHING;
SELECT value
    FROM settings
    WHERE name = ?;
UPDATE schema_compatibility
    SET oldest = ?
    WHERE oldest < ?;
UPDATE settings
    SET value = ?
    WHERE name = 'key_check' AND value = ?;
UPDATE tokens
    SET seal = ?
    WHERE id = ? AND seal IS NULL;

-- SealedBy
SELECT x.card_uuid, (SELECT c.account_id FROM cards c WHERE c.uuid = x.card_uuid), x.card_number,
    x.expiration_date, x.security_code, x.url, x.url_password
    FROM credentials x
    WHERE x.card_number IS NOT NULL AND SUBSTR(x.card_number, 1, 5) >= ? AND SUBSTR(x.card_number,
    1, 5) <= ? AND (SUBSTR(x.card_number, 1, 5), x.card_uuid) > (?, ?)
    ORDER BY SUBSTR(x.card_number, 1, 5), x.card_uuid
    LIMIT ?;
SELECT x.id, NULL, x.card_number, x.expiration_date, x.security_code, x.url, x.url_password
    FROM stock x
    WHERE x.card_number IS NOT NULL AND SUBSTR(x.card_number, 1, 5) >= ? AND SUBSTR(x.card_number,
    1, 5) <= ? AND (SUBSTR(x.card_number, 1, 5), x.id) > (?, ?)
    ORDER BY SUBSTR(x.card_number, 1, 5), x.id
    LIMIT ?;
SELECT x.id, x.account_id, x.old_secret
    FROM webhooks x
    WHERE x.old_secret IS NOT NULL AND SUBSTR(x.old_secret, 1, 5) >= ? AND SUBSTR(x.old_secret, 1,
    5) <= ? AND (SUBSTR(x.old_secret, 1, 5), x.id) > (?, ?)
    ORDER BY SUBSTR(x.old_secret, 1, 5), x.id
    LIMIT ?;
SELECT x.id, x.account_id, x.reply
    FROM idempotency_keys x
    WHERE x.reply IS NOT NULL AND SUBSTR(x.reply, 1, 5) >= ? AND SUBSTR(x.reply, 1, 5) <= ? AND
    (SUBSTR(x.reply, 1, 5), x.id) > (?, ?)
    ORDER BY SUBSTR(x.reply, 1, 5), x.id
    LIMIT ?;
SELECT x.id, x.account_id, x.seal
    FROM tokens x
    WHERE x.seal IS NOT NULL AND SUBSTR(x.seal, 1, 5) >= ? AND SUBSTR(x.seal, 1, 5) <= ? AND
    (SUBSTR(x.seal, 1, 5), x.id) > (?, ?)
    ORDER BY SUBSTR(x.seal, 1, 5), x.id
    LIMIT ?;
SELECT x.id, x.account_id, x.secret
    FROM webhooks x
    WHERE x.secret IS NOT NULL AND SUBSTR(x.secret, 1, 5) >= ? AND SUBSTR(x.secret, 1, 5) <= ? AND
    (SUBSTR(x.secret, 1, 5), x.id) > (?, ?)
    ORDER BY SUBSTR(x.secret, 1, 5), x.id
    LIMIT ?;
SELECT x.uuid, x.account_id, x.refund_address
    FROM cards x
    WHERE x.refund_address IS NOT NULL AND SUBSTR(x.refund_address, 1, 5) >= ? AND
    SUBSTR(x.refund_address, 1, 5) <= ? AND (SUBSTR(x.refund_address, 1, 5), x.uuid) > (?, ?)
    ORDER BY SUBSTR(x.refund_address, 1, 5), x.uuid
    LIMIT ?;

-- SealedCards
SELECT c.uuid, c.account_id, c.refund_address, s.card_number, s.expiration_date, s.security_code,
    s.url, s.url_password
    FROM cards c
    LEFT JOIN credentials s ON s.card_uuid = c.uuid AND s.card_uuid >= ?
    WHERE c.uuid >= ? AND (s.card_uuid IS NOT NULL OR c.refund_address IS NOT NULL)
    ORDER BY c.uuid
    LIMIT ?;

-- SealedCardsOf
SELECT c.uuid, c.account_id, c.refund_address, s.card_number, s.expiration_date, s.security_code,
    s.url, s.url_password
    FROM cards c
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    WHERE c.uuid IN (?, ?) AND (s.card_uuid IS NOT NULL OR c.refund_address IS NOT NULL)
    ORDER BY c.uuid;

-- SeqBefore
SELECT COALESCE((SELECT seq FROM events WHERE account_id = a.id AND created_at < ? ORDER BY
    created_at DESC, seq DESC LIMIT 1), 0)
    FROM accounts a
    WHERE a.id = ?;

-- Setting
INSERT INTO settings (name, value)
    VALUES (?, ?) ON CONFLICT (name) DO NOTHING;
SELECT value
    FROM settings
    WHERE name = ?;

-- SimulatedAddresses
INSERT INTO simulated_chains (currency, height, reorgs, next_index)
    VALUES (?, ?, 0, 1) ON CONFLICT (currency) DO NOTHING;
SELECT height
    FROM simulated_chains
    WHERE currency = ?;
UPDATE simulated_chains
    SET next_index = next_index + ?
    WHERE currency = ?
    RETURNING next_index - ?;

-- SimulatedMine
INSERT INTO simulated_chains (currency, height, reorgs, next_index)
    VALUES (?, ?, 0, 1) ON CONFLICT (currency) DO NOTHING;
SELECT height
    FROM simulated_chains
    WHERE currency = ?;
UPDATE simulated_chains
    SET height = ?
    WHERE currency = ?;

-- SimulatedPay
INSERT INTO simulated_chains (currency, height, reorgs, next_index)
    VALUES (?, ?, 0, 1) ON CONFLICT (currency) DO NOTHING;
INSERT INTO simulated_transfers (currency, txid, address, amount, height, seen_at)
    VALUES (?, ?, ?, ?, 0, ?) ON CONFLICT DO NOTHING;
SELECT COALESCE(MAX(height), 0)
    FROM simulated_transfers
    WHERE currency = ? AND address = ?;
SELECT amount
    FROM simulated_transfers
    WHERE currency = ? AND address = ?;
SELECT height
    FROM simulated_chains
    WHERE currency = ?;
UPDATE simulated_chains
    SET height = ?
    WHERE currency = ?;
UPDATE simulated_transfers
    SET height = ?
    WHERE currency = ? AND address = ? AND height = 0;

-- SimulatedReorg
DELETE
    FROM simulated_transfers
    WHERE currency = ? AND height > ?;
INSERT INTO simulated_chains (currency, height, reorgs, next_index)
    VALUES (?, ?, 0, 1) ON CONFLICT (currency) DO NOTHING;
SELECT height
    FROM simulated_chains
    WHERE currency = ?;
UPDATE simulated_chains
    SET height = height + 1, reorgs = reorgs + 1
    WHERE currency = ?;
UPDATE simulated_transfers
    SET height = 0
    WHERE currency = ? AND height > ?;

-- SimulatedScan
SELECT c.height AS tip, c.reorgs, c.currency, COALESCE(t.txid, '') AS txid, COALESCE(t.address, '')
    AS address, COALESCE(t.amount, 0) AS amount, COALESCE(t.height, 0) AS height,
    COALESCE(t.seen_at, 0) AS first_seen_at
    FROM simulated_chains c
    LEFT JOIN simulated_transfers t ON t.currency = c.currency AND (t.height = 0 OR t.height > ? OR
    t.height BETWEEN ? AND ? OR t.height BETWEEN ? AND ?)
    WHERE c.currency = ?;

-- SimulatedTransfer
SELECT address, amount
    FROM simulated_transfers
    WHERE currency = ? AND txid = ?;

-- Stats
SELECT (SELECT COUNT(*) FROM webhooks w JOIN deliveries d ON d.webhook_id = w.id WHERE w.enabled AND
    d.due_at IS NOT NULL) AS backlog, (SELECT MIN(x.since) FROM ( SELECT (SELECT MIN(d.due_at) FROM
    deliveries d WHERE d.webhook_id = w.id AND d.due_at > 0) AS since FROM webhooks w WHERE
    w.enabled UNION ALL SELECT (SELECT e.created_at FROM deliveries d JOIN events e ON e.account_id
    = d.account_id AND e.seq = d.seq WHERE d.webhook_id = w.id AND d.due_at = 0 ORDER BY d.seq LIMIT
    1) AS since FROM webhooks w WHERE w.enabled) x WHERE x.since <= (SELECT CAST(unixepoch('subsec')
    * 1000 AS INTEGER))) AS oldest, CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now;
SELECT CAST(COALESCE(SUM(CASE WHEN usd_cents BETWEEN 1 AND 100000000 THEN usd_cents END), 0) AS
    BIGINT) AS cents, COUNT(*) AS n
    FROM cards
    WHERE payment_state IN ('unpaid', 'underpaid');
SELECT c.currency, CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_held >> 32 END), 0) AS TEXT) || '
    ' || CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_held & 4294967295 END), 0) AS TEXT) AS sum,
    COUNT(*) AS n
    FROM cards c
    WHERE c.payment_state = 'late'
    GROUP BY c.currency;
SELECT c.currency, CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_lost >> 32 END), 0) AS TEXT) || '
    ' || CAST(COALESCE(SUM(CASE WHEN TRUE THEN c.credit_lost & 4294967295 END), 0) AS TEXT) AS sum,
    COUNT(*) AS n
    FROM cards c
    WHERE c.credit_lost > c.credit_written_off
    GROUP BY c.currency;
SELECT p.currency, COALESCE((SELECT MAX(a.position) FROM addresses a WHERE a.currency = p.currency)
    + 1, p.next_position) - p.next_position AS free, COALESCE((SELECT l.epoch FROM leases l WHERE
    l.name = 'watch ' || p.currency), 0) AS epoch
    FROM address_pools p
    ORDER BY p.currency;
SELECT state, COUNT(*) AS n, COALESCE((SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)) -
    MIN(CASE WHEN decided_at BETWEEN 0 AND (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)) THEN
    decided_at END), 0) AS age
    FROM intents
    WHERE state IN ('open', 'pending')
    GROUP BY state
    UNION ALL SELECT state, COUNT(*) AS n, 0 AS age
    FROM intents
    WHERE state IN ('parked', 'refund_due')
    GROUP BY state;
SELECT supplier, priority, offers, CAST(unixepoch('subsec') * 1000 AS INTEGER) - at AS age
    FROM offers;
SELECT t.currency, CAST(COALESCE(SUM(CASE WHEN TRUE THEN t.amount >> 32 END), 0) AS TEXT) || ' ' ||
    CAST(COALESCE(SUM(CASE WHEN TRUE THEN t.amount & 4294967295 END), 0) AS TEXT) AS sum, COUNT(*)
    AS n
    FROM transfers t
    WHERE t.counted AND NOT t.attributed AND (SELECT c.uuid FROM cards c WHERE c.currency =
    t.currency AND c.address = t.address) IS NULL AND NOT (SELECT a.id FROM attributions a WHERE
    a.currency = t.currency AND a.txid = t.txid AND a.output = t.output) IS NOT NULL
    GROUP BY t.currency;

-- StockCounts
SELECT supplier, usd_cents, state, expires_at, COUNT(*) AS items
    FROM stock
    GROUP BY supplier, usd_cents, state, expires_at
    ORDER BY supplier, usd_cents, state, expires_at;

-- StockItem
SELECT id, supplier, usd_cents, state, expires_at, number_hash, card_number, expiration_date,
    security_code, url, url_password
    FROM stock
    WHERE supplier = ? AND card_uuid = ?;

-- Strays
SELECT t.currency, t.txid, t.output, t.address, t.amount, t.height, t.locked, t.counted,
    t.first_seen_at, c.uuid AS owner_uuid, a.id, COALESCE(a.kind, '') AS kind, a.card_uuid,
    COALESCE(a.note, '') AS note, COALESCE(a.operator, '') AS operator, COALESCE(a.created_at, 0) AS
    decided_at
    FROM (SELECT * FROM transfers t WHERE t.attributed IS NOT NULL AND ((SELECT c.uuid FROM cards c
    WHERE c.currency = t.currency AND c.address = t.address) IS NULL OR (SELECT a.id FROM
    attributions a WHERE a.currency = t.currency AND a.txid = t.txid AND a.output = t.output) IS NOT
    NULL) ORDER BY t.first_seen_at DESC, t.txid, t.output LIMIT ?) AS t
    LEFT JOIN attributions a ON a.currency = t.currency AND a.txid = t.txid AND a.output = t.output
    LEFT JOIN cards c ON c.currency = t.currency AND c.address = t.address
    ORDER BY t.first_seen_at DESC, t.txid, t.output;

-- TakeAddresses
SELECT a.position, a.address, (SELECT t.txid FROM transfers t WHERE t.currency = a.currency AND
    t.address = a.address LIMIT 1) IS NOT NULL AS paid
    FROM addresses a
    WHERE a.currency = ? AND a.position >= ?
    ORDER BY a.position
    LIMIT ?;
SELECT next_position
    FROM address_pools
    WHERE currency = ? AND checked_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) - 60000 AND
    conflict IS NULL AND EXISTS (SELECT 1 FROM leases l WHERE l.name = ? AND l.epoch = ? AND l.mark
    >= ? AND l.marked_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) - 10000 AND ? = '');
UPDATE address_pools
    SET next_position = ?
    WHERE currency = ? AND next_position < ?;

-- TakeStock
SELECT EXISTS (SELECT 1 FROM stock WHERE supplier = ? AND usd_cents = ? AND state = 'held');
SELECT id, supplier, usd_cents, state, expires_at, number_hash, card_number, expiration_date,
    security_code, url, url_password
    FROM stock
    WHERE supplier = ? AND card_uuid = ?;
UPDATE stock
    SET state = 'issued', card_uuid = ?
    WHERE id = (SELECT q.id FROM stock q WHERE q.supplier = ? AND q.usd_cents = ? AND q.state =
    'free' AND q.expires_at > ? ORDER BY q.expires_at, q.id LIMIT 1)
    RETURNING id, supplier, usd_cents, state, expires_at, number_hash, card_number, expiration_date,
    security_code, url, url_password;

-- TidyStock
UPDATE stock
    SET card_number = NULL, expiration_date = NULL, security_code = NULL, url = NULL, url_password =
    NULL
    WHERE id IN (SELECT q.id FROM stock q WHERE q.state = 'issued' AND q.card_number IS NOT NULL AND
    (SELECT i.state FROM intents i WHERE i.card_uuid = q.card_uuid AND i.card_number_hash =
    q.number_hash) = 'done');
UPDATE stock
    SET state = 'free', card_uuid = NULL, reserved_until = NULL
    WHERE id IN (SELECT q.id FROM stock q JOIN cards c ON c.uuid = q.card_uuid WHERE q.state =
    'reserved' AND q.reserved_until <= (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)) AND
    (c.status = 'generated' OR c.payment_state IN ('expired', 'late')));

-- TokenByHash
SELECT t.id, t.account_id, a.name AS account, t.name, t.hash, t.scopes, t.created_at, t.expires_at,
    t.revoked_at, t.replaced_by, t.seal
    FROM tokens t
    JOIN accounts a ON a.id = t.account_id
    WHERE t.hash = ?;

-- TokenByID
SELECT t.id, t.account_id, a.name AS account, t.name, t.hash, t.scopes, t.created_at, t.expires_at,
    t.revoked_at, t.replaced_by, t.seal
    FROM tokens t
    JOIN accounts a ON a.id = t.account_id
    WHERE t.id = ?;

-- TokenUses
SELECT token_id, used_at
    FROM token_uses;

-- Tokens
SELECT t.id, t.account_id, a.name AS account, t.name, t.hash, t.scopes, t.created_at, t.expires_at,
    t.revoked_at, t.replaced_by, t.seal
    FROM tokens t
    JOIN accounts a ON a.id = t.account_id
    ORDER BY t.id;

-- TraceParents
SELECT uuid, trace_parent
    FROM cards
    WHERE uuid IN (?, ?) AND trace_parent IS NOT NULL;

-- Unattributed
SELECT currency, txid, output, address, amount, height, locked, counted, first_seen_at
    FROM transfers t
    WHERE t.counted AND NOT t.attributed AND (SELECT c.uuid FROM cards c WHERE c.currency =
    t.currency AND c.address = t.address) IS NULL AND NOT (SELECT a.id FROM attributions a WHERE
    a.currency = t.currency AND a.txid = t.txid AND a.output = t.output) IS NOT NULL
    ORDER BY t.first_seen_at DESC, t.txid, t.output
    LIMIT ?;

-- UsageOfOthers
SELECT process, usage
    FROM request_usage
    WHERE process <> ? AND saved_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?;

-- UsersOf
SELECT x.card_uuid AS id, CASE WHEN x.card_number IS NOT NULL AND SUBSTR(x.card_number, 1, 5) = ? OR
    x.expiration_date IS NOT NULL AND SUBSTR(x.expiration_date, 1, 5) = ? OR x.security_code IS NOT
    NULL AND SUBSTR(x.security_code, 1, 5) = ? OR x.url IS NOT NULL AND SUBSTR(x.url, 1, 5) = ? OR
    x.url_password IS NOT NULL AND SUBSTR(x.url_password, 1, 5) = ? THEN 1 ELSE 0 END AS uses
    FROM credentials x
    WHERE x.card_uuid > ?
    ORDER BY x.card_uuid
    LIMIT ?;
SELECT x.id AS id, CASE WHEN x.card_number IS NOT NULL AND SUBSTR(x.card_number, 1, 5) = ? OR
    x.expiration_date IS NOT NULL AND SUBSTR(x.expiration_date, 1, 5) = ? OR x.security_code IS NOT
    NULL AND SUBSTR(x.security_code, 1, 5) = ? OR x.url IS NOT NULL AND SUBSTR(x.url, 1, 5) = ? OR
    x.url_password IS NOT NULL AND SUBSTR(x.url_password, 1, 5) = ? THEN 1 ELSE 0 END AS uses
    FROM stock x
    WHERE x.id > ?
    ORDER BY x.id
    LIMIT ?;
SELECT x.id AS id, CASE WHEN x.old_secret IS NOT NULL AND SUBSTR(x.old_secret, 1, 5) = ? THEN 1 ELSE
    0 END AS uses
    FROM webhooks x
    WHERE x.id > ?
    ORDER BY x.id
    LIMIT ?;
SELECT x.id AS id, CASE WHEN x.reply IS NOT NULL AND SUBSTR(x.reply, 1, 5) = ? THEN 1 ELSE 0 END AS
    uses
    FROM idempotency_keys x
    WHERE x.id > ?
    ORDER BY x.id
    LIMIT ?;
SELECT x.id AS id, CASE WHEN x.seal IS NOT NULL AND SUBSTR(x.seal, 1, 5) = ? THEN 1 ELSE 0 END AS
    uses
    FROM tokens x
    WHERE x.id > ?
    ORDER BY x.id
    LIMIT ?;
SELECT x.id AS id, CASE WHEN x.secret IS NOT NULL AND SUBSTR(x.secret, 1, 5) = ? THEN 1 ELSE 0 END
    AS uses
    FROM webhooks x
    WHERE x.id > ?
    ORDER BY x.id
    LIMIT ?;
SELECT x.uuid AS id, CASE WHEN x.refund_address IS NOT NULL AND SUBSTR(x.refund_address, 1, 5) = ?
    THEN 1 ELSE 0 END AS uses
    FROM cards x
    WHERE x.uuid > ?
    ORDER BY x.uuid
    LIMIT ?;

-- WebhookByID
SELECT id, account_id, url, description, types, secret, old_secret, old_until, enabled,
    disabled_reason, disabled_at, created_at, failing_since, version
    FROM webhooks
    WHERE account_id = ? AND id = ?;

-- Webhooks
SELECT id, account_id, url, description, types, secret, old_secret, old_until, enabled,
    disabled_reason, disabled_at, created_at, failing_since, version
    FROM webhooks
    WHERE account_id = ?
    ORDER BY id;

-- tx.Arrival
SELECT t.currency, t.txid, t.output, t.address, t.amount, t.height, t.locked, t.counted,
    t.first_seen_at, c.uuid AS owner_uuid, a.id, COALESCE(a.kind, '') AS kind, a.card_uuid,
    COALESCE(a.note, '') AS note, COALESCE(a.operator, '') AS operator, COALESCE(a.created_at, 0) AS
    decided_at
    FROM transfers t
    LEFT JOIN attributions a ON a.currency = t.currency AND a.txid = t.txid AND a.output = t.output
    LEFT JOIN cards c ON c.currency = t.currency AND c.address = t.address
    WHERE t.currency = ? AND t.txid = ? AND t.output = ?;

-- tx.CheckClaim
SELECT fence
    FROM webhooks
    WHERE id = ? AND fence = ?;

-- tx.CheckLease
SELECT fence
    FROM leases
    WHERE name = ? AND holder = ? AND fence = ? AND expires_at > CAST(unixepoch('subsec') * 1000 AS
    INTEGER) AND (epoch IS NULL OR history = '');

-- tx.CheckedPool
UPDATE address_pools
    SET checked_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
    WHERE currency = ?;

-- tx.CountWebhooks
SELECT COUNT(*)
    FROM webhooks
    WHERE account_id = ?;

-- tx.EndRescan
UPDATE address_pools
    SET rescan = NULL, rescan_believed = FALSE
    WHERE currency = ?;

-- tx.HasEvent
SELECT EXISTS (SELECT 1 FROM events WHERE card_uuid = ? AND type = ?);

-- tx.InsertAddresses
INSERT INTO address_pools (currency, next_position, checked_at, paced_until)
    VALUES (?, ?, CAST(unixepoch('subsec') * 1000 AS INTEGER), ?) ON CONFLICT (currency) DO UPDATE
    SET paced_until = excluded.paced_until;
INSERT INTO addresses (currency, address, position) SELECT *
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT)), ...) AS v
    WHERE TRUE;

-- tx.InsertAttributions
INSERT INTO attributions (currency, txid, output, id, kind, card_uuid, amount, note, operator,
    created_at) SELECT *
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS
    TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT)),
    ...) AS v
    WHERE TRUE;
UPDATE schema_compatibility
    SET oldest = ?
    WHERE oldest < ? AND EXISTS (SELECT 1 FROM attributions);
UPDATE transfers
    SET attributed = TRUE
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT)), ...) AS v
    WHERE transfers.currency = v.column1 AND transfers.txid = v.column2 AND transfers.output =
    v.column3;

-- tx.InsertCard
INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate,
    rate_at, rate_source, expires_at, confirmations_required, idempotency_key, request_hash,
    credit_due, refund_address, reference, metadata, trace_parent)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- tx.InsertEvents
INSERT INTO deliveries (webhook_id, account_id, seq, state, due_at) SELECT w.id, e.account_id,
    e.seq, 'pending', 0
    FROM webhooks w
    JOIN events e ON e.account_id = w.account_id
    WHERE w.account_id = ? AND w.enabled AND e.seq BETWEEN ? AND ? AND (w.types = '' OR ' ' ||
    w.types || ' ' LIKE '% ' || e.type || ' %') AND (e.webhook_id IS NULL OR e.webhook_id <> w.id);
INSERT INTO events (account_id, seq, id, type, card_uuid, status, payment_state, webhook_id, since,
    created_at) SELECT *
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS
    TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT)),
    ...) AS v
    WHERE TRUE;
UPDATE accounts
    SET last_seq = last_seq + ?
    WHERE id = ? AND TRUE
    RETURNING last_seq;

-- tx.InsertReply
INSERT INTO idempotency_keys (account_id, idempotency_key, id, request_hash, reply, created_at)
    VALUES (?, ?, ?, ?, ?, ?);

-- tx.InsertResolution
INSERT INTO resolutions (id, card_uuid, kind, amount, txid, note, operator, created_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?);
UPDATE cards
    SET accepted = ?, refunded = ?, written_off = ?, settled = ?
    WHERE uuid = ?;

-- tx.InsertWebhook
INSERT INTO webhooks (id, account_id, url, description, types, secret, version, enabled, created_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- tx.Intent
SELECT state, COALESCE(supplier, '') AS supplier, COALESCE(reference, '') AS reference,
    first_asked_at, COALESCE(answer, '') AS answer, attempts, due_at, COALESCE(reason, '') AS
    reason, opened_at, COALESCE(refusals, '') AS refusals, declines
    FROM intents
    WHERE card_uuid = ?;

-- tx.LockAccount
SELECT id
    FROM accounts
    WHERE id = ?;

-- tx.LockCards
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    CASE WHEN c.refunded > 0 THEN (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN
    (SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id
    DESC LIMIT 1) END AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state =
    'paid' OR c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE
    i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number,
    s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS
    last_four
    FROM cards c
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    WHERE c.uuid IN (?, ?)
    ORDER BY c.uuid;
SELECT uuid
    FROM cards
    WHERE currency = ? AND address IN (?, ?, ?)
    UNION SELECT a.card_uuid
    FROM transfers t
    JOIN attributions a ON a.currency = t.currency AND a.txid = t.txid AND a.output = t.output
    WHERE t.currency = ? AND t.address IN (?, ?, ?) AND a.card_uuid IS NOT NULL;
SELECT uuid
    FROM cards
    WHERE currency = ? AND payment_state IN ('unpaid', 'underpaid') AND expires_at <= ?
    ORDER BY expires_at
    LIMIT ?;
SELECT uuid
    FROM cards
    WHERE currency = ? AND ready_height <= ?
    ORDER BY ready_height
    LIMIT ?;

-- tx.LockCardsByUUID
SELECT c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate,
    c.expires_at, c.confirmations_required, c.status, c.payment_state, c.received, c.settled,
    c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address,
    c.credentials_purged_at, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS
    idempotency_key, c.request_hash, c.credit_paid, c.credit_held, c.credit_surplus,
    c.credit_refunded, c.credit_lost, c.credit_written_off, COALESCE(k.height, 0) AS tip_height,
    CASE WHEN c.refunded > 0 THEN (SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid =
    c.uuid AND r.kind = 'refund' AND r.amount > 0) END AS refunded_at, CASE WHEN c.refunded > 0 THEN
    (SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id
    DESC LIMIT 1) END AS refund_txid, CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state =
    'paid' OR c.settled > 0 OR c.refunded > 0) THEN (SELECT COUNT(*) FROM intents i WHERE
    i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END AS refused, s.card_number,
    s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS
    last_four
    FROM cards c
    LEFT JOIN chains k ON k.currency = c.currency
    LEFT JOIN credentials s ON s.card_uuid = c.uuid
    WHERE c.uuid IN (?, ?)
    ORDER BY c.uuid;

-- tx.LockChain
SELECT fence
    FROM leases
    WHERE name = ?;

-- tx.LockWebhook
SELECT id, account_id, url, description, types, secret, old_secret, old_until, enabled,
    disabled_reason, disabled_at, created_at, failing_since, version
    FROM webhooks
    WHERE account_id = ? AND id = ?;

-- tx.RecoverDeliveries
INSERT INTO deliveries (webhook_id, account_id, seq, state, due_at) SELECT w.id, e.account_id,
    e.seq, 'pending', CAST(? AS BIGINT)
    FROM webhooks w
    JOIN events e ON e.account_id = w.account_id
    WHERE w.id = ? AND w.enabled AND e.seq > ? AND e.seq <= ? AND e.created_at >= ? AND (w.types =
    '' OR ' ' || w.types || ' ' LIKE '% ' || e.type || ' %') AND (e.webhook_id IS NULL OR
    e.webhook_id <> w.id) ON CONFLICT (webhook_id, seq) DO UPDATE
    SET state = 'pending', due_at = excluded.due_at, tries = 0
    WHERE deliveries.state = 'failed' OR deliveries.due_at > excluded.due_at;
SELECT COALESCE(MAX(seq), ?)
    FROM (SELECT seq FROM events WHERE account_id = ? AND seq > ? AND created_at >= ? ORDER BY seq
    LIMIT ?) AS page;

-- tx.Redeliver
UPDATE deliveries
    SET state = 'pending', due_at = ?, tries = 0
    WHERE webhook_id = ? AND account_id = ? AND seq = (SELECT seq FROM events WHERE id = ? AND
    account_id = ?);

-- tx.ReopenIntent
UPDATE intents
    SET state = 'open', due_at = 0, refusals = NULL, opened_at = NULL, first_asked_at = CASE state
    WHEN 'refund_due' THEN NULL ELSE first_asked_at END, supplier = CASE state WHEN 'refund_due'
    THEN NULL ELSE supplier END, reference = CASE state WHEN 'refund_due' THEN NULL ELSE reference
    END
    WHERE card_uuid = ? AND state IN ('parked', 'refund_due');

-- tx.Reply
SELECT id, request_hash, reply, COALESCE(created_at, 0) AS created_at
    FROM idempotency_keys
    WHERE account_id = ? AND idempotency_key = ?;

-- tx.Resolutions
SELECT id, kind, amount, COALESCE(txid, '') AS txid, note, operator, created_at
    FROM resolutions
    WHERE card_uuid = ?
    UNION ALL SELECT id, CAST(? AS TEXT), amount, '', note, operator, created_at
    FROM attributions
    WHERE card_uuid = ?
    UNION ALL SELECT id, CAST(? AS TEXT), 0, '', note, operator, created_at
    FROM purges
    WHERE card_uuid = ?
    ORDER BY id;

-- tx.SaveCursor
INSERT INTO chains (currency, fingerprint, height, hash, time, deep_height, deep_hash)
    VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (currency) DO UPDATE
    SET fingerprint = excluded.fingerprint, height = excluded.height, hash = excluded.hash, time =
    excluded.time, deep_height = excluded.deep_height, deep_hash = excluded.deep_hash;

-- tx.SaveDeliveries
UPDATE deliveries
    SET attempts = v.column3, (state, tries, due_at) = (v.column4, v.column5, v.column6)
    FROM (VALUES (CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS
    INTEGER), CAST(? AS BIGINT)), ...) AS v
    WHERE deliveries.seq = v.column1 AND deliveries.due_at = v.column2 AND deliveries.webhook_id = ?;

-- tx.SaveIntents
UPDATE intents
    SET state = v.column3, reference = v.column4, first_asked_at = v.column5, answer = v.column6,
    reason = v.column7, due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + v.column8, supplier =
    v.column9, refusals = v.column10, declines = v.column11
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS
    BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT),
    CAST(? AS BIGINT)), ...) AS v
    WHERE intents.card_uuid = v.column1 AND intents.fence = v.column2 AND CASE WHEN intents.state IN
    ('open', 'pending') THEN TRUE ELSE FALSE END;

-- tx.SaveIssued
INSERT INTO credentials (card_uuid, card_number, expiration_date, security_code, url, url_password,
    last_four, issued_at) SELECT v.*, CAST(unixepoch('subsec') * 1000 AS INTEGER)
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS BLOB), CAST(? AS
    BLOB), CAST(? AS BLOB), CAST(? AS TEXT)), ...) AS v
    WHERE TRUE;
UPDATE cards
    SET status = ?
    WHERE uuid IN (?);
UPDATE intents
    SET state = 'done', answer = 'issued', reason = NULL, card_number_hash = v.column3, reference =
    v.column4
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BLOB), CAST(? AS TEXT)), ...) AS v
    WHERE intents.card_uuid = v.column1 AND intents.fence = v.column2 AND CASE WHEN intents.state IN
    ('open', 'pending') THEN TRUE ELSE FALSE END;

-- tx.SaveVerdicts
INSERT INTO deliveries (webhook_id, account_id, seq, state, due_at) SELECT w.id, e.account_id,
    e.seq, 'pending', 0
    FROM webhooks w
    JOIN events e ON e.account_id = w.account_id
    WHERE w.account_id = ? AND w.enabled AND e.seq BETWEEN ? AND ? AND (w.types = '' OR ' ' ||
    w.types || ' ' LIKE '% ' || e.type || ' %') AND (e.webhook_id IS NULL OR e.webhook_id <> w.id);
INSERT INTO events (account_id, seq, id, type, card_uuid, status, payment_state, webhook_id, since,
    created_at) SELECT *
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS
    TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT)),
    ...) AS v
    WHERE TRUE;
INSERT INTO intents (card_uuid, due_at) SELECT column1, 0
    FROM (VALUES (CAST(? AS TEXT)), ...) AS v
    WHERE TRUE ON CONFLICT (card_uuid) DO NOTHING;
UPDATE accounts
    SET last_seq = last_seq + ?
    WHERE id = ? AND TRUE
    RETURNING last_seq;
UPDATE cards
    SET payment_state = v.column2, received = v.column3, settled = v.column4, height = v.column5,
    ready_height = v.column6, credit_paid = v.column7, credit_held = v.column8, credit_surplus =
    v.column9, credit_refunded = v.column10, credit_lost = v.column11, credit_written_off =
    v.column12, credit_due = v.column13
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS
    BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS
    BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT)), ...) AS v
    WHERE cards.uuid = v.column1;

-- tx.SaveWebhook
UPDATE webhooks
    SET url = ?, description = ?, types = ?, secret = ?, old_secret = ?, old_until = ?, enabled = ?,
    disabled_reason = ?, disabled_at = ?, failing_since = ?, failures = CASE WHEN version = ? THEN
    failures ELSE 0 END, paused_until = CASE WHEN version = ? THEN paused_until ELSE 0 END, version
    = ?
    WHERE id = ?;

-- tx.SaveWebhookState
UPDATE webhooks
    SET failures = ?, failing_since = ?, paused_until = ?, claimed_until = CAST(unixepoch('subsec')
    * 1000 AS INTEGER) + ?
    WHERE id = ? AND fence = ? AND version = ? AND enabled;

-- tx.Tip
SELECT height, hash, time
    FROM chains
    WHERE currency = ?;

-- tx.TransfersIn
SELECT currency, txid, output, address, amount, height, locked, counted, first_seen_at
    FROM transfers
    WHERE currency = ? AND counted AND height = 0
    UNION ALL SELECT currency, txid, output, address, amount, height, locked, counted, first_seen_at
    FROM transfers
    WHERE currency = ? AND counted AND height > ?
    UNION ALL SELECT currency, txid, output, address, amount, height, locked, counted, first_seen_at
    FROM transfers
    WHERE currency = ? AND counted AND height BETWEEN ? AND ?
    UNION ALL SELECT currency, txid, output, address, amount, height, locked, counted, first_seen_at
    FROM transfers
    WHERE currency = ? AND counted AND height BETWEEN ? AND ?;

-- tx.TransfersOf
SELECT currency, txid, output, address, amount, height, locked, counted, first_seen_at
    FROM transfers
    WHERE currency = ? AND txid IN (?, ?, ?) AND counted;

-- tx.TransfersTo
SELECT t.currency, t.txid, t.output, t.address, t.amount, t.height, t.locked, t.counted,
    t.first_seen_at
    FROM transfers t
    WHERE t.currency = ? AND t.counted AND t.address IN (?, ?, ?) AND NOT EXISTS (SELECT 1 FROM
    attributions a WHERE a.currency = t.currency AND a.txid = t.txid AND a.output = t.output)
    UNION ALL SELECT t.currency, t.txid, t.output, c.address, t.amount, t.height, t.locked,
    t.counted, t.first_seen_at
    FROM cards c CROSS
    JOIN attributions a CROSS
    JOIN transfers t
    WHERE c.currency = ? AND c.address IN (?, ?, ?) AND a.card_uuid = c.uuid AND t.currency =
    a.currency AND t.txid = a.txid AND t.output = a.output AND t.counted;

-- tx.UpsertTransfers
INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted,
    first_seen_at, attributed) SELECT v.column1, v.column2, v.column3, v.column4, v.column5,
    v.column6, v.column7, v.column8, v.column9, CASE WHEN (SELECT a.id FROM attributions a WHERE
    a.currency = v.column1 AND a.txid = v.column2 AND a.output = v.column3) IS NOT NULL THEN TRUE
    WHEN (SELECT c.uuid FROM cards c WHERE c.currency = v.column1 AND c.address = v.column4) IS NULL
    THEN FALSE END
    FROM (VALUES (CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS
    BIGINT), CAST(? AS BIGINT), CAST(? AS BOOLEAN), CAST(? AS BOOLEAN), CAST(? AS BIGINT)), ...) AS
    v
    WHERE TRUE ON CONFLICT (currency, txid, output) DO UPDATE
    SET address = excluded.address, amount = excluded.amount, height = excluded.height, locked =
    excluded.locked, counted = excluded.counted, attributed = excluded.attributed;
