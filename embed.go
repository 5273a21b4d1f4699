package cardmint

import "embed"

// Docs holds the guides for those who use the service, and the changelog. The
// service shows them below /docs.
//
//go:embed docs/guides CHANGELOG.md
var Docs embed.FS
