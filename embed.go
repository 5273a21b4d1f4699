package cardmint

import "embed"

// Docs contains the pages that the service shows under /docs: the guides for
// integrators, the changelog, and the pages for operators with their files.
//
//go:embed docs/guides docs/operate docs/design docs/*.md CHANGELOG.md openapi/supplier.yaml
var Docs embed.FS
