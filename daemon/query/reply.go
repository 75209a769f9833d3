package query

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// Output is an output that a request asks for. Port is its index in the model. Binary asks
// for raw bytes, otherwise for JSON text or the protocol's other form.
type Output struct {
	Port   int
	Binary bool
}

// Reply is the answer to a call. Err is set if the query was dropped or failed. Otherwise
// Outputs holds all outputs in the order of the model, valid until Release, and Variant
// names the variant that answered ("" if the service has none).
//
// Deadly is set if the query killed a worker. Queue is the time before its first round.
// Compute is the time from its first operator range to its last, pauses included.
type Reply struct {
	Outputs []models.Tensor
	Variant string
	Err     *Error
	Deadly  bool
	Queue   time.Duration
	Compute time.Duration
}
