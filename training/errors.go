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

// CSVError tells where in a file ErrFormat or ErrLimit was found.
type CSVError struct {
	File   string
	Line   int    // from 1, 0 if it concerns the whole file
	Column int    // from 1, 0 if it concerns the whole line
	Name   string // of the column, "" if it has none
	Err    error
}

func (e *CSVError) Error() string {
	at := e.File
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", at, e.Line)
	}
	if e.Column > 0 {
		at = fmt.Sprintf("%s: column %d", at, e.Column)
	}
	if e.Name != "" {
		at = fmt.Sprintf("%s (%s)", at, e.Name)
	}
	return fmt.Sprintf("%s: %v", at, e.Err)
}

func (e *CSVError) Unwrap() error { return e.Err }
