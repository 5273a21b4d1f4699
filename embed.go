package cardmint

import "embed"

// Docs contains the guides for integrators and the changelog, which the service
// shows under /docs.
//
//go:embed docs/guides CHANGELOG.md
var Docs embed.FS
