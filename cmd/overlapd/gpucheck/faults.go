package gpucheck

import (
	"errors"
	"fmt"
)

// faults are what went wrong in a step, each reason once: a device that is missing
// is missing in every measurement.
type faults struct {
	reasons []string
	of      map[string][]string // what failed, by reason
}

// add takes in a fault of what was measured.
func (f *faults) add(what string, err error) {
	if f.of == nil {
		f.of = map[string][]string{}
	}
	reason := err.Error()
	if f.of[reason] == nil {
		f.reasons = append(f.reasons, reason)
	}
	f.of[reason] = append(f.of[reason], what)
}

// err returns all faults as one error, nil if there are none.
func (f *faults) err() error {
	var list []error
	for _, reason := range f.reasons {
		what := f.of[reason][0]
		if more := len(f.of[reason]) - 1; more > 0 {
			what += fmt.Sprintf(" and %d more", more)
		}
		list = append(list, fmt.Errorf("%s: %s", what, reason))
	}
	return errors.Join(list...)
}
