package zoo

import "errors"

// ErrUnknown is returned when the zoo has no model of the given name.
var ErrUnknown = errors.New("no such model in the zoo")
