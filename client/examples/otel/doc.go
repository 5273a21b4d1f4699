// Package otel shows how calls of the service are traced by OpenTelemetry. It
// is a module of its own, so that the client requires nothing of it: its
// transport is a middleware like any other.
package otel
