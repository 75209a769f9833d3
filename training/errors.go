package training

import (
	"errors"
	"fmt"
)

// What is wrong with measurements.
var (
	// ErrFormat is returned when a file does not hold measurements in the
	// form that ReadCSV takes.
	ErrFormat = errors.New("unusable measurements")

	// ErrLimit is returned when there are more measurements, models or bytes
	// than one dataset may have.
	ErrLimit = errors.New("too many measurements")

	// ErrMixed is returned when measurements do not belong together: of
	// different devices, or of models that share a name and nothing else.
	ErrMixed = errors.New("measurements do not belong together")
)

// What is wrong with a plan to measure.
var (
	// ErrPlan is returned when what shall be measured, or how, is not
	// possible.
	ErrPlan = errors.New("cannot be measured")
)

// inFile adds to an error where in a file it was found; line 0 is the whole file.
func inFile(file string, line int, err error) error {
	if line == 0 {
		return fmt.Errorf("%s: %w", file, err)
	}
	return fmt.Errorf("%s:%d: %w", file, line, err)
}
