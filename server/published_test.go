package server_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/openapi"
)

// Names of things in the contract's examples and samples.
const (
	exampleCardUUID  = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
	exampleWebhookID = "019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17"
	exampleEventID   = "019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11"
)

// withRealNames replaces the names in a text by those of new things.
func (h *hooks) withRealNames(t *testing.T, text string) string {
	t.Helper()
	if strings.Contains(text, exampleCardUUID) {
		text = strings.ReplaceAll(text, exampleCardUUID, open(t, h.deployment, h.token, `"150.50"`))
	}
	if strings.Contains(text, exampleWebhookID) {
		path, made := h.register(t, hookURL)
		text = strings.ReplaceAll(text, exampleWebhookID, made.Webhook.ID.String())
		h.happen(t, h.account, card.EventGenerated)
		deliveries := bodyOf[[]struct{ Event struct{ ID string } }](t,
			h.ask(t, http.StatusOK, http.MethodGet, path+"/deliveries", ""))
		text = strings.ReplaceAll(text, exampleEventID, deliveries[0].Event.ID)
	}
	return text
}

// operationIDs returns the operations of a document's paths, sorted.
func operationIDs(doc *openapi3.T) (ids []string) {
	for _, item := range doc.Paths.Map() {
		for _, o := range item.Operations() {
			ids = append(ids, o.OperationID)
		}
	}
	slices.Sort(ids)
	return ids
}

// The curl samples of the published contract are commands that work.
func TestSamples_Curl_Succeed(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: starts curl for each operation")
	}
	t.Parallel()
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	h := deployHooks(t, setup{clock: &clock{}})
	h.happen(t, h.account, slices.Repeat([]card.EventType{card.EventGenerated}, 50)...) // listEvents starts after 41
	home := t.TempDir()
	need(t, os.WriteFile(filepath.Join(home, ".curlrc"), []byte("fail-with-body\n"), 0o600))
	for _, id := range operationIDs(contract()) {
		t.Run(id, func(t *testing.T) {
			sample, err := os.ReadFile(filepath.Join("../openapi/samples", id+".sh"))
			need(t, err)
			cmd := exec.CommandContext(t.Context(), "bash", "-euc", h.withRealNames(t, string(sample)))
			cmd.Env = append(os.Environ(), "CURL_HOME="+home, "CARDMINT_URL="+h.web.URL, "CARDMINT_TOKEN="+h.token)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("error %v\n%s\n%s", err, sample, out)
			}
		})
	}
	files, err := filepath.Glob("../openapi/samples/*")
	need(t, err)
	equal(t, "samples", len(files), len(operationIDs(contract())))
}

// Each example of a request's body is a request that the service accepts.
func TestExamples_OfRequests_AreAccepted(t *testing.T) {
	t.Parallel()
	h := deployHooks(t, setup{clock: &clock{}})
	for path, item := range contract().Paths.Map() {
		for method, o := range item.Operations() {
			if o.RequestBody == nil {
				continue
			}
			examples := o.RequestBody.Value.Content["application/json"].Examples
			if len(examples) == 0 {
				t.Errorf("%s has no example of its body", o.OperationID)
			}
			for name, example := range examples {
				body, err := json.Marshal(example.Value.Value)
				need(t, err)
				target := h.withRealNames(t, strings.NewReplacer("{uuid}", exampleCardUUID, "{webhook_id}",
					exampleWebhookID).Replace(path))
				if a := h.send(t, method, target, h.token, string(body)); a.status >= 300 {
					t.Errorf("%s, %s: %d %s", o.OperationID, name, a.status, a.body)
				}
			}
		}
	}
}

func TestPublished_SamplesForEachOperation(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Published)
	need(t, err)
	equal(t, "operations", operationIDs(doc), operationIDs(contract()))
	for _, item := range doc.Paths.Map() {
		for _, o := range item.Operations() {
			samples, _ := o.Extensions["x-codeSamples"].([]any)
			var languages []string
			for _, s := range samples {
				sample := s.(map[string]any)
				languages = append(languages, sample["lang"].(string))
				if source := sample["source"].(string); len(source) < 50 || strings.Contains(source, "Output:") {
					t.Errorf("%s: %s", o.OperationID, source)
				}
			}
			equal(t, o.OperationID, languages, []string{"bash", "go", "typescript"})
		}
	}
}

func TestPublished_NamesPublicURL(t *testing.T) {
	t.Parallel()
	for public, want := range map[string]string{"": "http://127.0.0.1:8080", "https://cards.example": "https://cards.example"} {
		d := deploy(t, setup{publicURL: public})
		for _, path := range []string{"/openapi.yaml", "/openapi.json", "/openapi-3.1.yaml"} {
			doc, err := openapi3.NewLoader().LoadFromData([]byte(d.send(t, http.MethodGet, path, "", "").body))
			need(t, err)
			equal(t, path, doc.Servers[0].URL, want)
		}
	}
}

// published31 returns the OpenAPI 3.1 document.
func published31(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Published31)
	need(t, err)
	need(t, doc.Validate(t.Context()))
	return doc
}

func TestPublished31_HasSameOperations(t *testing.T) {
	t.Parallel()
	doc := published31(t)
	equal(t, "version", doc.OpenAPI, "3.1.0")
	equal(t, "operations", operationIDs(doc), operationIDs(contract()))
	for name := range contract().Components.Schemas {
		if doc.Components.Schemas[name] == nil {
			t.Errorf("the schema %s is missing", name)
		}
	}
}

// The webhooks are the types of events, and their schemas fit what is sent.
func TestPublished31_WebhooksFitEvents(t *testing.T) {
	t.Parallel()
	doc := published31(t)
	var types []string
	for _, kind := range card.EventTypes() {
		types = append(types, string(kind))
	}
	slices.Sort(types)
	equal(t, "types", slices.Sorted(maps.Keys(doc.Webhooks)), types)
	for _, kind := range card.EventTypes() {
		media := doc.Webhooks[string(kind)].Post.RequestBody.Value.Content["application/json"]
		e := card.ExampleEvent(uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), kind)
		var sent map[string]any
		need(t, json.Unmarshal(e.Payload(), &sent))
		for name, value := range map[string]any{"event": sent, "example": plain(t, media.Example)} {
			if err := media.Schema.Value.VisitJSON(value, openapi3.EnableJSONSchema2020()); err != nil {
				t.Errorf("%s of %s: %v", name, kind, err)
			}
		}
		equal(t, string(kind), shape("", plain(t, media.Example)), shape("", any(sent)))
		fields := slices.Sorted(maps.Keys(media.Schema.Value.Properties))
		fields = slices.DeleteFunc(fields, func(f string) bool { return f == "reference" })
		equal(t, string(kind), fields, slices.Sorted(maps.Keys(sent)))
		for _, other := range card.EventTypes() {
			schema := doc.Webhooks[string(other)].Post.RequestBody.Value.Content["application/json"].Schema.Value
			if err := schema.VisitJSON(any(sent), openapi3.EnableJSONSchema2020()); (err == nil) != (other == kind) {
				t.Errorf("%s as %s: %v", kind, other, err)
			}
		}
	}
}
