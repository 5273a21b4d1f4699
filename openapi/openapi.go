// Package openapi holds the published contract. It imports no other package of cardmint.
package openapi

import _ "embed"

// YAML is the document, as it was written by hand.
//
//go:embed openapi.yaml
var YAML []byte
