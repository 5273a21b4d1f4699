package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// about are the fields of event types that are not about a card.
var about = map[string][]string{"webhook.disabled": {"webhook_id"}, "feed.reset": {"since"}}

// aboutCard are the fields of all other event types; reference is absent if the
// card has none.
var aboutCard = []string{"card_uuid", "reference", "status", "payment_state"}

// otherwise matches sentences that explain why a field may be absent. The schema
// of a single event type either has the field or does not.
var otherwise = regexp.MustCompile("(?: Absent if the event is not about a card\\.| Present only with `[^`]*`\\.)")

// addWebhooks adds a webhook and a schema for each event type, derived from the
// callback of createWebhook, which remains.
func addWebhooks(doc *yaml.Node) error {
	schemas := get(doc, "components", "schemas")
	payload, types := get(schemas, "EventPayload"), get(schemas, "EventType", "enum")
	callback := get(doc, "paths", "/api/webhooks", "post", "callbacks", "event", "{$request.body#/url}", "post")
	if payload == nil || types == nil || callback == nil {
		return errors.New("the contract has no EventPayload, no EventType or no callback of createWebhook")
	}
	shareCallback(doc, callback)
	webhooks := object()
	for _, kind := range types.Content {
		meaning, err := meaningOf(kind.Value, get(schemas, "EventType", "description").Value)
		if err != nil {
			return err
		}
		name := pascal(kind.Value)
		schema, err := eventSchema(kind.Value, meaning, payload)
		if err != nil {
			return err
		}
		set(schemas, name+"Event", schema)
		operation := object("operationId", "receive"+name, "tags", clone(get(callback, "tags")),
			"summary", "Receive "+kind.Value, "description", meaning, "security", clone(get(callback, "security")),
			"parameters", clone(get(callback, "parameters")),
			"requestBody", object("required", boolean(true), "content", object("application/json",
				object("schema", ref("#/components/schemas/"+name+"Event"), "example", example(kind.Value, schema, schemas)))),
			"responses", clone(get(callback, "responses")))
		set(webhooks, kind.Value, object("post", operation))
	}
	for i := 0; i < len(doc.Content); i += 2 {
		if doc.Content[i].Value == "components" {
			after := append([]*yaml.Node{text("webhooks"), webhooks}, doc.Content[i:]...)
			doc.Content = append(doc.Content[:i:i], after...)
			return nil
		}
	}
	return errors.New("the contract has no components")
}

// shareCallback moves the parameters and responses of the callback to the
// components, so that webhooks can refer to them.
func shareCallback(doc, callback *yaml.Node) {
	parameters, responses := get(doc, "components", "parameters"), get(doc, "components", "responses")
	list := get(callback, "parameters")
	for i, p := range list.Content {
		name := pascal(get(p, "name").Value)
		set(parameters, name, p)
		list.Content[i] = ref("#/components/parameters/" + name)
	}
	all := get(callback, "responses")
	for i := 0; i < len(all.Content); i += 2 {
		name := "Receiver" + pascal(all.Content[i].Value)
		set(responses, name, all.Content[i+1])
		all.Content[i+1] = ref("#/components/responses/" + name)
	}
}

// meaningOf returns an event type's item in the list of their meanings.
func meaningOf(kind, list string) (string, error) {
	_, rest, found := strings.Cut("\n"+list, "\n- `"+kind+"`: ")
	if !found {
		return "", fmt.Errorf("the description of EventType does not explain %s", kind)
	}
	item, _, _ := strings.Cut(strings.Join(strings.Split(rest, "\n  "), " "), "\n")
	return strings.ToUpper(item[:1]) + item[1:], nil
}

// eventSchema returns the schema of the events of one type.
func eventSchema(kind, meaning string, payload *yaml.Node) (*yaml.Node, error) {
	fields := about[kind]
	if fields == nil {
		fields = aboutCard
	}
	properties := object("type", object("type", "string", "const", kind, "description", "What happened."))
	required := array(text("type"), text("timestamp"), text("seq"))
	required.Style = yaml.FlowStyle
	for _, field := range append([]string{"timestamp", "seq"}, fields...) {
		property := get(payload, "properties", field)
		if property == nil {
			return nil, fmt.Errorf("EventPayload has no %s", field)
		}
		property = clone(property)
		if d := get(property, "description"); d != nil {
			d.Value = otherwise.ReplaceAllString(d.Value, "")
		}
		set(properties, field, property)
		if field != "timestamp" && field != "seq" && field != "reference" {
			required.Content = append(required.Content, text(field))
		}
	}
	return object("type", "object", "title", kind, "description", meaning, "required", required,
		"properties", properties), nil
}

// example returns an event of one type, of the examples of its fields.
func example(kind string, schema, schemas *yaml.Node) *yaml.Node {
	e := object("type", kind)
	each(get(schema, "properties"), func(field string, property *yaml.Node) {
		if value := get(property, "example"); value != nil && field != "reference" {
			set(e, field, clone(value))
		}
	})
	if about[kind] == nil {
		status, state := "awaiting_payment", "paid"
		for _, s := range get(schemas, "PaymentState", "enum").Content {
			if kind == "payment."+s.Value {
				state = s.Value
			}
		}
		if slices.Contains([]string{"card.generated", "payment.reversed", "payment.restored"}, kind) {
			status = "generated"
		}
		set(e, "status", text(status))
		set(e, "payment_state", text(state))
	}
	return e
}

// pascal converts a name to a Go-like one: payment.refund_due to
// PaymentRefundDue.
func pascal(name string) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("._-", r) }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

func boolean(b bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(b)}
}
