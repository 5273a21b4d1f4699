// Package cardmint is the root of a service that sells prepaid cards for
// cryptocurrency.
//
// The service is the command cmd/cardmint, its contract is
// openapi/openapi.yaml, and Go programs use package client. The directives in
// this file generate code from the contract, with a generator pinned in
// tools/oapi-codegen, and the published documents, with tools/publish.
package cardmint

//go:generate go tool -modfile=tools/oapi-codegen/go.mod oapi-codegen -config openapi/server.cfg.yaml openapi/openapi.yaml
//go:generate go tool -modfile=tools/oapi-codegen/go.mod oapi-codegen -config openapi/client.cfg.yaml openapi/openapi.yaml
//go:generate go tool -modfile=tools/oapi-codegen/go.mod oapi-codegen -config openapi/supplier-client.cfg.yaml openapi/supplier.yaml
//go:generate go tool -modfile=tools/oapi-codegen/go.mod oapi-codegen -config openapi/supplier-server.cfg.yaml openapi/supplier.yaml
//go:generate go run -C tools/publish . ../..
