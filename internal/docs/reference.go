package docs

import (
	"bytes"
	"cmp"
	"html/template"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/cardmint/cardmint/openapi"
)

// operation is an operation of the contract, as the reference shows it to
// readers without JavaScript.
type operation struct {
	ID, Tag, Method, Path, Summary string

	Description template.HTML
	Samples     []sample
	text        string // of the description, for the search
}

// sample is an example of a call.
type sample struct {
	Label string
	Code  template.HTML
}

// Anchor returns where the operation is on the reference page. The script
// generates the same one.
func (o operation) Anchor() string { return "tag/" + o.Tag + "/" + o.ID }

// tag is a group of operations.
type tag struct {
	Name, Description string
	Operations        []operation
}

// contractTags returns the operations of a contract by tag, in the order of the
// document.
func contractTags(contract *openapi3.T) ([]tag, error) {
	all := map[string][]operation{}
	for path, item := range contract.Paths.Map() {
		for method, o := range item.Operations() {
			op := operation{ID: o.OperationID, Tag: o.Tags[0], Method: method, Path: path, Summary: o.Summary,
				text: o.Description}
			var html bytes.Buffer
			if err := markdown().Convert([]byte(o.Description), &html); err != nil {
				return nil, err
			}
			op.Description = template.HTML(html.String()) //nolint:gosec // the contract is our own
			var err error
			if op.Samples, err = samples(o); err != nil {
				return nil, err
			}
			all[op.Tag] = append(all[op.Tag], op)
		}
	}
	var tags []tag
	for _, t := range contract.Tags {
		slices.SortFunc(all[t.Name], func(a, b operation) int { return cmp.Compare(position(a.ID), position(b.ID)) })
		tags = append(tags, tag{t.Name, t.Description, all[t.Name]})
	}
	return tags, nil
}

// position returns where the contract describes an operation. The document in
// memory does not have the order of the file.
func position(id string) int { return bytes.Index(openapi.YAML, []byte("operationId: "+id+"\n")) }

// samples returns the examples of an operation, if the contract has any.
func samples(o *openapi3.Operation) ([]sample, error) {
	list, _ := o.Extensions["x-codeSamples"].([]any)
	var all []sample
	for _, item := range list {
		fields, _ := item.(map[string]any)
		language, _ := fields["lang"].(string)
		source, _ := fields["source"].(string)
		label, _ := fields["label"].(string)
		code, err := highlight(language, source)
		if err != nil {
			return nil, err
		}
		all = append(all, sample{cmp.Or(label, tabNames[language], language), code})
	}
	return all, nil
}
