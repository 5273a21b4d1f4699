// Package oasdiff_test proves that tools/compat can fail.
package oasdiff_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

func TestCompat_BreakingChange_Fails(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*openapi3.T)
		found  string
	}{
		"operation removed": {func(d *openapi3.T) {
			d.Paths.Find("/api/cards").Get = nil
		}, "api-removed-without-deprecation"},
		"operation renamed": {func(d *openapi3.T) {
			d.Paths.Find("/api/cards").Get.OperationID = "cards"
		}, "api-operation-id-removed"},
		"answered property removed": {func(d *openapi3.T) {
			remove(d, "Card", "payment")
		}, "response-required-property-removed"},
		"answered property null": {func(d *openapi3.T) {
			property(d, "Payment", "amount").Nullable = true
		}, "response-property-became-nullable"},
		"answered type": {func(d *openapi3.T) {
			property(d, "Payment", "amount").Type = &openapi3.Types{"number"}
		}, "response-property-type-changed"},
		"another state of payments": {func(d *openapi3.T) { grow(d, "PaymentState") }, "response-property-enum-value-added"},
		"another answered value":    {func(d *openapi3.T) { grow(d, "CardStatus") }, "response-property-enum-value-added"},
		"header removed": {func(d *openapi3.T) {
			delete(d.Paths.Find("/api/cards").Post.Responses.Status(201).Value.Headers, "Location")
		}, "optional-response-header-removed"},
		"requested property needed": {func(d *openapi3.T) {
			need(d, "SimulatePaymentRequest", "amount")
		}, "request-property-became-required"},
		"requested property removed": {func(d *openapi3.T) {
			remove(d, "SimulatePaymentRequest", "amount")
		}, "request-property-removed"},
		"event property removed": {func(d *openapi3.T) {
			remove(d, "EventPayload", "seq")
		}, "response-required-property-removed"},
		"event header removed": {func(d *openapi3.T) {
			for _, sent := range d.Paths.Find("/api/webhooks").Post.Callbacks["event"].Value.Map() {
				sent.Post.Parameters = sent.Post.Parameters[1:]
			}
		}, "required-response-header-removed"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, tc.change)
			if err == nil || !strings.Contains(out, "["+tc.found+"]") {
				t.Errorf("error %v, want %s:\n%s", err, tc.found, out)
			}
		})
	}
}

func TestCompat_CompatibleChange_Passes(t *testing.T) {
	out, err := run(t, func(d *openapi3.T) {
		d.Info.Description = "another"
		d.Components.Schemas["Card"].Value.Properties["color"] = openapi3.NewSchemaRef("", openapi3.NewStringSchema())
		d.Components.Schemas["CreateCardRequest"].Value.Properties["color"] = openapi3.NewSchemaRef("",
			openapi3.NewStringSchema())
		grow(d, "EventType")
	})
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// run runs tools/compat on a changed copy of the released contract.
func run(t *testing.T, change func(*openapi3.T)) (string, error) {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("../../openapi/released.yaml")
	if err != nil {
		t.Fatal(err)
	}
	change(doc)
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "contract.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("../compat", "../../openapi/released.yaml", path).CombinedOutput()
	return string(out), err
}

func property(d *openapi3.T, schema, name string) *openapi3.Schema {
	return d.Components.Schemas[schema].Value.Properties[name].Value
}

func remove(d *openapi3.T, schema, name string) {
	s := d.Components.Schemas[schema].Value
	delete(s.Properties, name)
	for i, required := range s.Required {
		if required == name {
			s.Required = append(s.Required[:i], s.Required[i+1:]...)
			return
		}
	}
}

func need(d *openapi3.T, schema, name string) {
	s := d.Components.Schemas[schema].Value
	s.Required = append(s.Required, name)
}

func grow(d *openapi3.T, schema string) {
	s := d.Components.Schemas[schema].Value
	s.Enum = append(s.Enum, "another")
}
