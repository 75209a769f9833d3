// Package tracing is what is recorded of a query that is traced: the codecs and the
// scheduler goroutine write a [Query] in turn, as the query goes through their
// hands. What becomes of it is the business of package otlp; nothing here knows of
// OpenTelemetry, so that the scheduler goroutine does not.
package tracing
