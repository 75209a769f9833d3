package device

import "errors"

// These errors may be returned when a profile is read, or put to use.
var (
	// ErrFormat is returned when a file is no device profile, or one of
	// another version.
	ErrFormat = errors.New("not a device profile")

	// ErrDamaged is returned when a profile is truncated, too large, or holds
	// what none can: unknown fields, numbers that are none, parts that do not
	// fit each other.
	ErrDamaged = errors.New("damaged device profile")
)
