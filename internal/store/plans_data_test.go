package store_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/rig"
)

// The accounts of most cards, by the parity of a card's number. In each, the
// newer half of the cards differs from the older half, so that a scan from
// either end passes half of them before it finds a match.
var (
	// an old card has expired, a new one is issued; deliveries have arrived,
	// and failed since
	even     = numbered("acc0", 0)
	odd      = numbered("acc0", 1) // the reverse
	old      = numbered("acc0", 2) // has the oldest cards of all
	evenHook = numbered("4001", 0)
	oddHook  = numbered("4001", 1)
)

// numbered returns the uuid of the row with a number. Each is a second younger
// than the previous one. All are old.
func numbered(kind string, i int) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("%08x-%04x-7000-%s-%012x", i*1000>>16, i*1000&0xffff, kind, i))
}

// Parts of uuids, by kind of row.
const (
	cardKind  = "8000"
	eventKind = "8001"
)

// fillPlans fills a database with n cards and their rows in all other tables,
// and collects statistics.
func fillPlans(t testing.TB, url string, n int) {
	t.Helper()
	db := rig.OpenSQL(t, url)
	db.SetMaxOpenConns(1)
	lite := strings.HasPrefix(url, "sqlite:")
	hex, uuidType, blob, bytes, nothing := "lpad(to_hex(%s), %d, '0')", "UUID", "BYTEA",
		"convert_to(CAST(i AS TEXT), 'UTF8')", "CAST('' AS BYTEA)"
	sealed := `CAST(CASE WHEN i <= {n} / 2 THEN '\x0100000001' ELSE '\x0100000002' END AS BYTEA) || `
	if lite {
		hex, uuidType, blob, bytes, nothing = "printf('%%0%[2]dx', %[1]s)", "TEXT", "BLOB", "CAST(CAST(i AS TEXT) AS BLOB)",
			"CAST('' AS BLOB)"
		sealed = "CASE WHEN i <= {n} / 2 THEN x'0100000001' ELSE x'0100000002' END || "
	}
	id := func(kind string) string {
		digits := func(of string, n int) string { return fmt.Sprintf(hex, of, n) }
		return "CAST(" + digits("CAST(i AS BIGINT) * 1000 >> 16", 8) + " || '-' || " +
			digits("CAST(i AS BIGINT) * 1000 & 65535", 4) + " || '-7000-" + kind + "-' || " + digits("i", 12) + " AS " +
			uuidType + ")"
	}
	replace := strings.NewReplacer("{n}", fmt.Sprint(n), "{card}", id(cardKind), "{event}", id(eventKind), "{resolution}",
		id("8002"), "{attribution}", id("8003"), "{token}", id("8004"),
		"{even}", "CAST('"+even.String()+"' AS "+uuidType+")", "{odd}", "CAST('"+odd.String()+"' AS "+uuidType+")",
		"{evenHook}", "CAST('"+evenHook.String()+"' AS "+uuidType+")", "{oddHook}",
		"CAST('"+oddHook.String()+"' AS "+uuidType+")",
		"{sealed}", "CAST("+strings.ReplaceAll(sealed, "{n}", fmt.Sprint(n))+bytes+" AS "+blob+")",
		"{bytes}", bytes, "{nothing}", nothing, "{at}",
		fmt.Sprintf("(%d + i * CAST(1000 AS BIGINT))",
			time.Now().Add(-time.Duration(n)*time.Second-72*time.Hour).UnixMilli()),
		"{account}", "CASE WHEN i <= {n} / 8 THEN {old} WHEN i % 2 = 0 THEN {even} ELSE {odd} END", "{old}",
		"CAST('"+old.String()+"' AS "+uuidType+")", "{sold}", "((i > {n} / 2) = (i % 2 = 0))", "{parked}",
		"(i > {n} / 2 AND i % ({n} / 40) < 2)", "{lost}", "({issued} AND i % ({n} / 20) < 2)", "{late}",
		"(i % ({n} / 80) < 2)", "{pending}", "(i % ({n} / 50) < 2)",
		"{attributed}", "CASE WHEN i > 30 AND i <= {n} / 4 AND i % 2 = 1 THEN 1000 ELSE 0 END", "{unwiped}",
		"(i > {n} - 110)", "{issued}", "({sold} AND NOT {parked} AND i <= {n} - 20)")
	before, after := []string{"SET session_replication_role = replica", "SET synchronous_commit = off"},
		// VACUUM marks pages as all-visible only if their commits are flushed.
		[]string{"SET synchronous_commit = on", "UPDATE accounts SET name = name", "VACUUM ANALYZE"}
	if lite {
		before, after = []string{"PRAGMA synchronous = OFF"}, []string{"ANALYZE"}
	}
	for _, statement := range before {
		execPlans(t, db, statement)
	}
	fill := func() { fillRows(t, db, n, replace) }
	if n >= manyCards && !lite {
		withoutIndexes(t, db, fill)
	} else {
		fill()
	}
	for _, statement := range after {
		execPlans(t, db, statement)
	}
}

// fillRows runs plansData for n cards.
func fillRows(t testing.TB, db *sql.DB, n int, replace *strings.Replacer) {
	t.Helper()
	for _, statement := range plansData {
		for strings.Contains(statement, "{") {
			statement = replace.Replace(statement)
		}
		statement = strings.Join(strings.Fields(statement), " ")
		if into, values, found := strings.Cut(statement, " EACH "); found {
			limit := fmt.Sprint(n)
			if of, rest, part := strings.Cut(values, " OF "); part {
				limit, values = of, rest
			}
			statement = into + " WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " + limit + ") " +
				values
		}
		execPlans(t, db, statement)
	}
}

func execPlans(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

var plansData = []string{
	"INSERT INTO accounts (id, name, last_seq, created_at) VALUES ({even}, 'even', {n} / 2, 0), ({odd}, 'odd', {n} / 2, 0), ({old}, 'old', {n}, 0)",
	"INSERT INTO tokens (id, account_id, name, hash, created_at) EACH 50 OF SELECT {token}, {even}, 'x', {bytes}, 0 FROM n",
	`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at, confirmations_required,
		idempotency_key, status, payment_state, received, settled, credit_paid, credit_surplus, credit_due, credit_lost, refund_address, reference)
	EACH SELECT {card}, {account}, {at}, 15050, 'monero', 1000, 'address ' || i, 1, {at}, 'fixed', {at} + 3600000, 10, 'key ' || i,
		CASE WHEN {issued} THEN 'generated' ELSE 'awaiting_payment' END,
		CASE WHEN {lost} THEN 'reversed' WHEN {sold} THEN 'paid' WHEN {late} THEN 'late'
			WHEN i > {n} - {n} / 50 THEN 'unpaid' WHEN i > {n} - {n} / 40 THEN 'confirming' ELSE 'expired' END,
		1000 + {attributed}, 0, 1000, {attributed}, 0, CASE WHEN {lost} THEN 1 ELSE 0 END, CASE WHEN i % 2 = 0 THEN {sealed} END,
		CASE WHEN i % 4 < 2 THEN 'shop' ELSE 'order ' || i END FROM n`,
	"INSERT INTO credentials (card_uuid, card_number, expiration_date, security_code, url, url_password) EACH SELECT {card}, {sealed}, {bytes}, {bytes}, {bytes}, {bytes} FROM n WHERE {issued}",
	`INSERT INTO intents (card_uuid, state, attempts, due_at, supplier, key, card_number_hash)
	EACH SELECT {card}, CASE WHEN {parked} THEN 'parked' WHEN i > {n} - 20 THEN 'open' ELSE 'done' END, 1, 0, 'sandbox', 'key ' || i, {bytes} FROM n WHERE {sold}`,
	`INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at, attributed)
	EACH SELECT 'monero', 'tx ' || i, 0, 'address ' || i, 1000, i / 10 + 1, i > {n} - 30, TRUE, {at}, NULL FROM n`,
	`INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at, attributed)
	EACH {n} / 4 OF SELECT 'monero', 'stray ' || i, 0, 'nobody ' || i, 1000, i / 10 + 1, FALSE, TRUE, {at}, i > 30 FROM n`,
	`INSERT INTO attributions (currency, txid, output, id, kind, card_uuid, amount, note, operator, created_at)
	EACH {n} / 4 OF SELECT 'monero', 'stray ' || i, 0, {attribution}, CASE i % 2 WHEN 0 THEN 'refund' ELSE 'card' END, CASE i % 2 WHEN 1 THEN {card} END,
		1000, 'a note', 'somebody', {at} FROM n WHERE i > 30`,
	`INSERT INTO resolutions (id, card_uuid, kind, amount, note, operator, created_at)
	EACH {n} / 4 OF SELECT {resolution}, {card}, 'retry', 0, 'a note', 'somebody', {at} FROM n`,
	`INSERT INTO events (account_id, seq, id, type, card_uuid, status, payment_state, created_at)
	EACH SELECT CASE i % 2 WHEN 0 THEN {even} ELSE {odd} END, (i + 1) / 2, {event}, 'card.payment_detected', {card}, 'awaiting_payment', 'detected', {at} FROM n`,
	`INSERT INTO webhooks (id, account_id, url, description, types, secret, enabled, created_at, version, failures)
	VALUES ({evenHook}, {even}, 'https://example.com', '', '', {nothing}, TRUE, 0, 1, 1), ({oddHook}, {odd}, 'https://example.com', '', '', {nothing}, TRUE, 0, 1, 0)`,
	`INSERT INTO deliveries (webhook_id, account_id, seq, state, due_at, tries)
	EACH SELECT CASE i % 2 WHEN 0 THEN {evenHook} ELSE {oddHook} END, CASE i % 2 WHEN 0 THEN {even} ELSE {odd} END, (i + 1) / 2,
		CASE WHEN {pending} THEN 'pending' WHEN {sold} THEN 'failed' ELSE 'delivered' END, CASE WHEN {pending} THEN i / ({n} / 50) % 2 END, 1 FROM n`,
	`INSERT INTO stock (id, supplier, usd_cents, state, expires_at, card_uuid, reserved_until, imported_at, number_hash, card_number, expiration_date, security_code, url, url_password)
	EACH SELECT {card}, CASE i % 2 WHEN 0 THEN 'shelf' ELSE 'another' END, 15050 - i % 5, CASE WHEN i > {n} - 100 THEN 'free' WHEN i > {n} - 110 THEN 'reserved' ELSE 'issued' END,
		{at} + 4000000000, CASE WHEN i <= {n} - 100 THEN {card} END, {at} + 3600000, 0, {bytes},
		CASE WHEN {unwiped} THEN {sealed} END, CASE WHEN {unwiped} THEN {bytes} END, CASE WHEN {unwiped} THEN {bytes} END, CASE WHEN {unwiped} THEN {bytes} END, CASE WHEN {unwiped} THEN {bytes} END FROM n`,
	"INSERT INTO addresses (currency, position, address) EACH SELECT 'monero', i, 'address ' || i FROM n",
	"INSERT INTO address_pools (currency, next_position, checked_at) VALUES ('monero', {n} - 100, 0)",
	"INSERT INTO chains (currency, fingerprint, height, hash, time) VALUES ('monero', 'x', {n} / 10, 'x', 0)",
	"INSERT INTO epochs (currency, epoch, started_at, first_position, reason) EACH SELECT 'monero', i, {at}, 1, 'x' FROM n WHERE i <= {n} / 4",
	"INSERT INTO simulated_chains (currency, height, reorgs, next_index) VALUES ('monero', {n}, 0, 1)",
	"INSERT INTO simulated_transfers (currency, txid, address, amount, height, seen_at) EACH SELECT 'monero', 'tx ' || i, 'address ' || i, 1000, i, {at} FROM n",
}
