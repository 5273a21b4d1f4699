// Command view prints an OpenAPI document as JSON, rewritten so that oasdiff
// finds all changes that break clients.
//
// Oasdiff does not check callbacks, so each becomes an operation whose response
// is the request to the receiver. Enumerations that may grow under the contract
// lose their values. Other enumerations lose values that occur only after the
// client has used a new operation.
package main

import (
	"encoding/json"
	"log"
	"os"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"
)

// growing names the enumerations that may get more values, according to their
// descriptions.
var growing = []string{"EventType", "ProblemCode"}

// asked names the values of other enumerations that occur only after the client
// has used an equally new operation.
var asked = map[string][]string{
	"PaymentState": {"canceled"}, // cancelCard
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: view FILE")
	}
	doc, err := openapi3.NewLoader().LoadFromFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for _, path := range doc.Paths.Map() {
		for _, operation := range path.Operations() {
			for _, callback := range operation.Callbacks {
				for _, sent := range callback.Value.Map() {
					for _, receive := range sent.Operations() {
						doc.Paths.Set("/callbacks/"+receive.OperationID, &openapi3.PathItem{Get: answering(receive)})
					}
				}
			}
		}
	}
	for _, name := range growing {
		if s := doc.Components.Schemas[name]; s != nil {
			s.Value.Enum = nil
		}
	}
	for name, values := range asked {
		if s := doc.Components.Schemas[name]; s != nil {
			s.Value.Enum = slices.DeleteFunc(s.Value.Enum, func(v any) bool {
				text, ok := v.(string)
				return ok && slices.Contains(values, text)
			})
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(doc); err != nil {
		log.Fatal(err)
	}
}

// answering returns an operation whose response has the headers and the body of
// a callback's request.
func answering(receive *openapi3.Operation) *openapi3.Operation {
	response := openapi3.NewResponse().WithDescription("What the receiver is sent.")
	if receive.RequestBody != nil {
		response.Content = receive.RequestBody.Value.Content
	}
	response.Headers = openapi3.Headers{}
	for _, p := range receive.Parameters {
		if p.Value.In == openapi3.ParameterInHeader {
			response.Headers[p.Value.Name] = &openapi3.HeaderRef{Value: &openapi3.Header{Parameter: openapi3.Parameter{
				Description: p.Value.Description, Required: p.Value.Required, Schema: p.Value.Schema,
			}}}
		}
	}
	return &openapi3.Operation{
		OperationID: receive.OperationID,
		Responses:   openapi3.NewResponses(openapi3.WithStatus(200, &openapi3.ResponseRef{Value: response})),
	}
}
