// Package openapi holds the contract, and the documents that are derived from
// it. It imports no other package of cardmint.
package openapi

import _ "embed"

// YAML is the contract, as it was written by hand, in OpenAPI 3.0.
//
//go:embed openapi.yaml
var YAML []byte

// Published is YAML with code samples, as the service publishes it.
//
//go:embed openapi.gen.yaml
var Published []byte

// Published31 is Published in OpenAPI 3.1, with a webhook and a schema for each
// type of event.
//
//go:embed openapi-3.1.gen.yaml
var Published31 []byte
