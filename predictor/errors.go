package predictor

import "errors"

var (
	// ErrRange is returned when a service, span, batch size, sequence length
	// or time is not one that the table can hold. Nothing has changed.
	ErrRange = errors.New("out of range")

	// ErrFull is returned when a service has as many cells as it may have.
	ErrFull = errors.New("too many cells")

	// ErrSnapshot is returned when a snapshot is not one of this service or
	// is damaged. The table has not changed.
	ErrSnapshot = errors.New("unusable snapshot of solo times")
)
