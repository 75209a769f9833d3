package fit

import "errors"

var (
	// ErrOptions is returned when options are unknown or absurd.
	ErrOptions = errors.New("unusable options")

	// ErrRows is returned when there are too few rows to fit or to test a
	// predictor, or none in which models share the device.
	ErrRows = errors.New("not enough rows")

	// ErrDiverged is returned when training leaves the finite numbers.
	ErrDiverged = errors.New("training diverged")
)
