package sim

import "errors"

// Errors of scenarios and arrivals.
var (
	// ErrUnknownModel is returned when a service has a model that the device
	// does not know.
	ErrUnknownModel = errors.New("unknown model")

	// ErrArrivals is returned when arrivals are contradictory, or a file of
	// them cannot be used. One of a file names it and the line.
	ErrArrivals = errors.New("unusable arrivals")

	// ErrLoad is returned when far more is asked than the devices can do.
	ErrLoad = errors.New("no device can hold the load")

	// ErrInvariant is returned when a run broke a rule that every run must
	// keep. The scenario runs into it again.
	ErrInvariant = errors.New("broken invariant")
)
