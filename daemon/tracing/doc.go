// Package tracing sends OpenTelemetry spans of queries to a collector. A
// [Tracer] decides whether a query is traced, and takes in a [Query], which is
// what was noted of it, once it is answered; from that a goroutine of its own
// makes the spans, which go out by OTLP over HTTP.
//
// Whoever answers queries never waits: what the collector does not take in time
// is left out, a whole query at once, and counted. A nil Tracer traces nothing.
package tracing
