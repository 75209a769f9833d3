package predictor

import (
	"errors"
	"fmt"
)

var (
	// ErrRange is returned when a service, span, batch size, sequence length
	// or time is not one that the table can hold. Nothing has changed.
	ErrRange = errors.New("out of range")

	errDropped = fmt.Errorf("the service was dropped: %w", ErrRange) // made once: a scheduler may ask often

	// ErrSnapshot is returned when a snapshot is not one of this service or
	// is damaged. The table has not changed.
	ErrSnapshot = errors.New("unusable snapshot of solo times")
)

// These errors may be returned when a predictor file is read, or put to use.
var (
	// ErrFormat is returned when a file is no predictor file, or one of
	// another version.
	ErrFormat = errors.New("not a predictor file")

	// ErrDamaged is returned when a predictor file is truncated, too large,
	// or holds what no predictor can: unknown fields, numbers that are none,
	// layers that do not fit each other.
	ErrDamaged = errors.New("damaged predictor file")

	// ErrDevice is returned when a predictor was trained on another device.
	ErrDevice = errors.New("predictor of another device")

	// ErrModels is returned when the models of the services are not those
	// that the predictor was trained on, or fewer than two of them are.
	ErrModels = errors.New("predictor of other models")
)
