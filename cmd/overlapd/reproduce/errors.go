package reproduce

import (
	"errors"
	"fmt"
)

// What makes a reproduction impossible.
var (
	// ErrOptions is returned when the options cannot be met.
	ErrOptions = errors.New("cannot be reproduced")

	// ErrData is returned when a folder or file does not hold what a figure
	// needs.
	ErrData = errors.New("unusable data")
)

// lineError tells where in a file a fault is.
func lineError(file string, line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w: %w", file, line, ErrData, fmt.Errorf(format, args...))
}
