package acceptance_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// openCluster gives the host a PostgreSQL server that requires a password from
// the role cardmint.
func (h *host) openCluster(password string) *rig.Cluster {
	h.Helper()
	c := rig.NewCluster(h)
	c.Exec(h, "CREATE ROLE cardmint LOGIN PASSWORD '"+password+"'")
	c.Exec(h, "CREATE DATABASE cardmint OWNER cardmint")
	c.RequirePasswords(h, "scram-sha-256")
	h.setVariable("CARDMINT_DATABASE_URL", strings.ReplaceAll(c.URL("cardmint"), "postgres@", "cardmint:"+password+"@"))
	host, port, _ := strings.Cut(c.Host(), ":")
	h.env = append(h.env, "PGHOST="+host, "PGPORT="+port, "PGUSER=postgres")
	return c
}

func (h *host) secrets() {
	h.setVariable("CARDMINT_WEBHOOK_INSECURE", "true")
	h.openCluster("first")
	h.start()
	card := sellCard(h.T, h.client())
	h.leakedToken()
	h.leakedWebhook()
	h.leakedKey()
	h.lostKey()
	h.leakedPassword()
	h.runUntil(`"status":"ready"`, "The secret of a supplier")
	if got, err := h.client().GetCard(h.Context(), card.UUID); err != nil || got.Credentials != card.Credentials {
		h.Errorf("%+v, %v", got, err)
	}
}

func (h *host) leakedToken() {
	const heading = "An API token"
	leaked := h.token
	id := regexp.MustCompile(`[0-9a-f-]{36}`).FindString(h.run(heading))
	h.run(heading)
	h.run(heading, "ID", id)
	h.awaitOutput("401",
		"curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer "+leaked+"' http://127.0.0.1:8080/api/cards")
	wantOutput(h.T, h.run(heading, "ID", id), "credentials_shown") // sellCard has shown them
	token, _ := h.shell("cm token create shop 2>/dev/null")
	h.token = strings.TrimSpace(token)
	list, _ := h.shell("cm token list --json")
	found := regexp.MustCompile(`"id":"([0-9a-f-]{36})"[^}]*"revoked_at":null`).FindAllStringSubmatch(list, -1)
	if len(found) == 0 {
		h.Fatalf("no token:\n%s", list)
	}
	rotated := h.run(heading, "ID", found[len(found)-1][1])
	h.token = regexp.MustCompile(`cm_test_\w+`).FindString(rotated)
	h.order(50)
}

func (h *host) leakedWebhook() {
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	h.Cleanup(receiver.Close)
	made, err := h.client().CreateWebhook(h.Context(), client.CreateWebhookRequest{URL: receiver.URL})
	must(h, err)
	printed := h.run("The secret of a webhook", "$TOKEN", h.token, "ID", made.Webhook.ID.String())
	if !strings.Contains(printed, "whsec_") || strings.Contains(printed, made.Secret.Reveal()) {
		h.Errorf("no new secret: %s", printed)
	}
}

func (h *host) leakedKey() {
	const heading = "The key file has leaked"
	printed := h.run(heading)
	added := regexp.MustCompile(`added key ([0-9a-f]{8})`).FindStringSubmatch(printed)[1]
	old := regexp.MustCompile(`(?m)^([0-9a-f]{8}) .* primary `).FindStringSubmatch(printed)[1]
	h.awaitOutput("every process has key "+added+": cardmint keys promote", "cm keys list")
	h.run(heading, "NEW", added)
	h.runUntil("nothing is encrypted with key "+old+" any more", heading)
	retire := h.script(heading, "OLD", old)
	h.awaitOutput("run this command again in 6 minutes", retire)            // when the process encrypts with the new key
	h.exec("UPDATE key_holders SET primary_since = primary_since - 361000") // skips the wait
	h.awaitOutput("retired key "+old, retire)
}

func (h *host) lostKey() {
	path := filepath.Join(h.dir, "var/lib/cardmint/cardmint.keys")
	must(h, os.Rename(path, filepath.Join(h.dir, "var/backups/cardmint.keys")))
	h.order(50) // a running process keeps the keys in memory
	wantOutput(h.T, h.run("The key file is lost"), "1 of 1")
}

func (h *host) leakedPassword() {
	const heading = "The password of the database"
	h.run(heading, "OLDPASSWORD", "first")
	h.awaitReady()
	if strings.Contains(h.service().setting("CARDMINT_DATABASE_URL"), "first") {
		h.Error("the password is still in the configuration")
	}
	h.run(heading)
	h.order(50)
	wantOutput(h.T, h.run(heading), "t")
	h.awaitReady()
	h.order(50)
	h.runExit(0, heading)
}
