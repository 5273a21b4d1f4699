package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rig"
)

const ifNoneMatch = "If-None-Match"

// unchanged fails the test unless the response is 304.
func (d *deployment) unchanged(t testing.TB, path, token, etag string) {
	t.Helper()
	a := d.send(t, http.MethodGet, path, token, "", ifNoneMatch, etag).want(t, http.StatusNotModified)
	equal(t, "answer",
		[]string{a.body, a.header.Get("ETag"), a.header.Get("Content-Type"), a.header.Get("Cache-Control")},
		[]string{"", etag, "", "no-store"})
}

// follows fails the test unless the tag of a resource changes with its content.
func (d *deployment) follows(t testing.TB, path, token string, change func()) (changed bool) {
	t.Helper()
	before := d.send(t, http.MethodGet, path, token, "").want(t, http.StatusOK)
	d.unchanged(t, path, token, before.header.Get("ETag"))
	change()
	after := d.send(t, http.MethodGet, path, token, "").want(t, http.StatusOK)
	if after.body != before.body {
		equal(t, "the tag stays the same", after.header.Get("ETag") == before.header.Get("ETag"), false)
		equal(t, "what is sent",
			d.send(t, http.MethodGet, path, token, "", ifNoneMatch, before.header.Get("ETag")).want(t, http.StatusOK).body,
			after.body)
	}
	d.unchanged(t, path, token, after.header.Get("ETag"))
	return after.body != before.body
}

// A change in the database that a client can see changes the tag.
func TestETag_ChangesWithResponse(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token := d.token(t)
		path := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t,
			http.StatusCreated).header.Get("Location")
		id := strings.TrimPrefix(path, "/api/cards/")
		pay := func(body string) func() {
			return func() {
				d.send(t, http.MethodPost, "/api/sandbox/cards/"+id+"/payments", token, body).want(t, http.StatusOK)
			}
		}
		db := rig.OpenSQL(t, d.database)
		sql := func(text string) func() {
			return func() {
				_, err := db.Exec(
					strings.NewReplacer("UUID", "'"+id+"'", "NEW", "'"+uuid.Must(uuid.NewV7()).String()+"'").Replace(text))
				need(t, err)
			}
		}
		const one, two = 1, 2 // visible in the card only, or also in a page of the list
		const resolution = "INSERT INTO resolutions (id, card_uuid, kind, amount, txid, note, operator, created_at) VALUES (NEW, UUID, 'refund', "
		for _, x := range []struct {
			what   string
			change func()
			shows  int
		}{
			{"nothing", func() {}, 0},
			{"a block, while nothing was paid", sql("UPDATE chains SET height = height + 1"), 0},
			{"the block was none", sql("UPDATE chains SET height = height - 1"), 0},
			{"a part of the payment", pay(`{"amount": "0.1", "confirmations": 0}`), two},
			{"another part", pay(`{"amount": "0.01", "confirmations": 1}`), two},
			{"all of it", pay(``), two},
			{"a block", sql("UPDATE chains SET height = height + 1"), two},
			{"the height of a transfer", sql("UPDATE transfers SET height = height - 1"), one},
			{"a lock", sql("UPDATE transfers SET locked = TRUE"), one},
			{"when a transfer was seen", sql("UPDATE transfers SET first_seen_at = first_seen_at - 1"), one},
			{"the amount of a transfer", sql("UPDATE transfers SET amount = amount + 1"), one},
			{"a transaction in place of another",
				sql("UPDATE transfers SET txid = 'ff' WHERE txid = (SELECT MIN(txid) FROM transfers)"), one},
			{"a transfer that left the chain", sql("UPDATE transfers SET counted = FALSE WHERE txid = 'ff'"), one},
			{"a transfer that came back", sql("UPDATE transfers SET counted = TRUE WHERE txid = 'ff'"), one},
			{"a transfer that counts elsewhere", sql(`INSERT INTO attributions (currency, txid, output, id, kind, amount, note, operator, created_at)
				SELECT currency, txid, output, NEW, 'refund', amount, '', '', 1 FROM transfers WHERE txid = 'ff'`), one},
			{"one from elsewhere", sql(`UPDATE attributions SET kind = 'card', card_uuid = UUID`), one},
			{"what was received", sql("UPDATE cards SET received = received + 1"), two},
			{"the block that is waited for", sql("UPDATE cards SET height = height - 1"), two},
			{"the state of the payment", sql("UPDATE cards SET payment_state = 'reversed'"), two},
			{"when credentials were purged", sql("UPDATE cards SET credentials_purged_at = 1"), two},
			{"the credentials", sql("DELETE FROM credentials"), two},
			{"the status", sql("UPDATE cards SET status = 'awaiting_payment'"), two},
			{"what it was settled for", sql("UPDATE cards SET settled = settled + 1000000000000"), two},
			{"what was accepted", sql("UPDATE cards SET settled = 0, accepted = received + 1"), two},
			{"what is held of it", sql("UPDATE cards SET credit_held = 5, credit_paid = 5, ready_height = 7"), 0},
			{"what was given back", sql("UPDATE cards SET refunded = 1"), two},
			{"when it was given back", sql(resolution + "1, NULL, '', '', 1700000000000)"), two},
			{"the transaction", sql(resolution + "0, 'abc', '', '', 1700000000001)"), two},
			{"the next transaction", sql(resolution + "0, 'def', '', '', 1700000000002)"), two},
			{"that it is paid after all", sql("UPDATE cards SET payment_state = 'paid'"), two},
			{"that no supplier makes it", sql("UPDATE intents SET state = 'refund_due' WHERE card_uuid = UUID"), two},
			{"that they are asked again", sql("UPDATE intents SET state = 'open' WHERE card_uuid = UUID"), two},
		} {
			var inPage, shows int
			if d.follows(t, path, token, func() {
				if d.follows(t, "/api/cards?limit=9", token, x.change) {
					inPage = 1
				}
			}) {
				shows = 1 + inPage
			}
			if shows != x.shows {
				t.Errorf("%s: visible in %d of card and list, want %d", x.what, shows, x.shows)
			}
			if t.Failed() {
				t.Fatalf("after %s", x.what)
			}
		}
	})
}

func TestETag_Pages(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token := d.token(t)
		add := func() { d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated) }
		for _, path := range []string{"/api/cards?limit=2", "/api/cards?limit=2&status=awaiting_payment"} {
			equal(t, "the first page changes", d.follows(t, path, token, add), true)
		}
		add()
		first := d.send(t, http.MethodGet, "/api/cards?limit=1", token, "").want(t, http.StatusOK)
		rest := strings.TrimPrefix(strings.TrimSuffix(first.header.Get("Link"), `>; rel="next"`), "<")
		equal(t, "later pages change", d.follows(t, rest, token, add), false)
		equal(t, "other statuses change", d.follows(t, "/api/cards?limit=2&status=generated", token, add), false)
		whole := d.send(t, http.MethodGet, "/api/cards", token, "", ifNoneMatch, "*").want(t, http.StatusOK)
		equal(t, "tag of the whole list", whole.header.Get("ETag"), "")
		last := d.send(t, http.MethodGet, "/api/cards?limit=5", token, "").want(t, http.StatusOK) // the last page
		add()
		d.send(t, http.MethodGet, "/api/cards?limit=5", token, "", ifNoneMatch, last.header.Get("ETag")).want(t,
			http.StatusOK)
	})
}

// Corrupt cards are omitted from a list. Its tag must differ from the complete
// list's tag.
func TestETag_PageWithCorruptCard(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	for range 3 {
		d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated)
	}
	all := d.send(t, http.MethodGet, "/api/cards?limit=2", token, "").want(t, http.StatusOK)
	_, err := rig.OpenSQL(t,
		d.database).Exec("UPDATE cards SET payment_state = 'unheard of' WHERE uuid = (SELECT MAX(uuid) FROM cards)")
	need(t, err)
	left := d.send(t, http.MethodGet, "/api/cards?limit=2", token, "", ifNoneMatch, all.header.Get("ETag")).want(t,
		http.StatusOK)
	again := d.send(t, http.MethodGet, "/api/cards?limit=2", token, "", ifNoneMatch, left.header.Get("ETag")).want(t,
		http.StatusOK)
	equal(t, "body", again.body, left.body)
}

func TestETag_DependsOnDisclosure(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token := d.token(t)
		path := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t,
			http.StatusCreated).header.Get("Location")
		d.send(t, http.MethodPost, "/api/sandbox"+strings.TrimPrefix(path, "/api")+"/payments", token, "").want(t,
			http.StatusOK)
		clear := d.send(t, http.MethodGet, path, token, "").want(t, http.StatusOK)
		page := d.send(t, http.MethodGet, "/api/cards?limit=1", token, "").want(t, http.StatusOK)
		d.stop()
		s := d.setup
		s.sandbox, s.limits = nil, func(c *order.Config) { c.MaskCredentials = true }
		masking := deploy(t, s)
		masked := masking.send(t, http.MethodGet, path, token, "", ifNoneMatch, clear.header.Get("ETag")).want(t,
			http.StatusOK)
		masking.send(t, http.MethodGet, "/api/cards?limit=1", token, "", ifNoneMatch, page.header.Get("ETag")).want(t,
			http.StatusOK)
		masking.unchanged(t, path, token, masked.header.Get("ETag"))
	})
}

func TestIfNoneMatch_ParsesLists(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	path := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t,
		http.StatusCreated).header.Get("Location")
	etag := d.send(t, http.MethodGet, path, token, "").want(t, http.StatusOK).header.Get("ETag")
	for header, want := range map[string]int{
		etag: 304, strings.TrimPrefix(etag, "W/"): 304, `"a", ` + etag: 304, etag + `,"a"`: 304, "*": 304,
		`"a"`: 200, `W/"a", "b"`: 200, strings.Trim(etag, `W/"`): 200, etag + "x": 200, ",": 200,
	} {
		d.send(t, http.MethodGet, path, token, "", ifNoneMatch, header).want(t, want)
	}
	d.send(t, http.MethodGet, path, token, "", ifNoneMatch, `"a"`, ifNoneMatch, etag).want(t, 304) // in two lines
	for _, header := range []string{etag, "*"} {
		d.send(t, http.MethodGet, path, d.token(t), "", ifNoneMatch, header).refused(t, http.StatusNotFound, "not_found")
		d.send(t, http.MethodGet, path, "", "", ifNoneMatch, header).refused(t, http.StatusUnauthorized, "unauthorized")
		d.send(t, http.MethodGet, "/api/cards/"+uuid.Must(uuid.NewV7()).String(), token, "", ifNoneMatch, header).refused(t,
			http.StatusNotFound, "not_found")
	}
	d.send(t, http.MethodGet, path, token, "", ifNoneMatch, "").invalid(t, "header/If-None-Match")
	d.send(t, http.MethodGet, path, token, "", ifNoneMatch, strings.Repeat("a", 1001)).invalid(t, "header/If-None-Match")
	need(t, d.store.Close())
	for _, path := range []string{path, "/api/cards?limit=1"} {
		d.send(t, http.MethodGet, path, token, "", ifNoneMatch, etag).refused(t, http.StatusServiceUnavailable, "unavailable")
	}
}

// A 304 discloses no credentials.
func TestIfNoneMatch_NotModified_IsNotAudited(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	path := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t,
		http.StatusCreated).header.Get("Location")
	d.send(t, http.MethodPost, "/api/sandbox"+strings.TrimPrefix(path, "/api")+"/payments", token, "").want(t,
		http.StatusOK)
	etag := d.send(t, http.MethodGet, path, token, "").want(t, http.StatusOK).header.Get("ETag")
	shown := strings.Count(d.log.String(), "credentials_shown")
	d.unchanged(t, path, token, etag)
	equal(t, "lines of the audit log", strings.Count(d.log.String(), "credentials_shown"), shown)
}
