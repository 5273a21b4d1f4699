// Package otel shows how to trace calls of the service with OpenTelemetry. It is a separate module, so that the client does not depend on OpenTelemetry: the tracing transport is an ordinary middleware.
package otel
