// Package cardmint is a service that sells prepaid cards for cryptocurrency, and a client for it.
//
// The service is the command cmd/cardmint, its contract is openapi/openapi.yaml, Go programs use package client.
// The code that the contract drives is generated here, by a generator pinned in tools/oapi-codegen.
package cardmint

//go:generate go tool -modfile=tools/oapi-codegen/go.mod oapi-codegen -config openapi/server.cfg.yaml openapi/openapi.yaml
//go:generate go tool -modfile=tools/oapi-codegen/go.mod oapi-codegen -config openapi/client.cfg.yaml openapi/openapi.yaml
//go:generate go tool -modfile=tools/oapi-codegen/go.mod oapi-codegen -config openapi/supplier-client.cfg.yaml openapi/supplier.yaml
//go:generate go tool -modfile=tools/oapi-codegen/go.mod oapi-codegen -config openapi/supplier-server.cfg.yaml openapi/supplier.yaml
