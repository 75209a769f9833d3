package mig

import "errors"

// Errors of planning.
var (
	// ErrWant is returned when the configuration asks for what no GPU has.
	ErrWant = errors.New("bad MIG instance in the configuration")
	// ErrIncapable is returned for a GPU without MIG.
	ErrIncapable = errors.New("GPU has no MIG")
	// ErrPending is returned while a change of the MIG mode waits for a reset.
	ErrPending = errors.New("a change of the MIG mode waits for a reset")
	// ErrMissing is returned when instances are missing and the daemon may not
	// create them.
	ErrMissing = errors.New("MIG instances are missing")
	// ErrNoFit is returned when no placement holds what is wanted beside what is
	// there.
	ErrNoFit = errors.New("MIG layout does not fit")
)

// Errors of applying and releasing.
var (
	// ErrBusy is returned when processes run where something is to be changed.
	ErrBusy = errors.New("processes are running")
	// ErrForeign is returned when something that is not ours is in the way.
	ErrForeign = errors.New("not made by overlapd")
	// ErrRecord is returned for a record that cannot be read.
	ErrRecord = errors.New("bad MIG record")
)
