// Package openapi holds the published contract. It imports none of ours.
package openapi

import _ "embed"

// YAML is the document, as it was written by hand.
//
//go:embed openapi.yaml
var YAML []byte
