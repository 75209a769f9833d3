package statefile

import "errors"

var (
	// ErrDamaged is returned when the content of the file is broken.
	ErrDamaged = errors.New("the state file is damaged")

	// ErrLost is returned once the file was changed behind the back of the
	// process that has it open. It is not touched again.
	ErrLost = errors.New("the state file was changed by another program while it was in use; " +
		"nothing more is stored until the daemon is started again, which sets it aside if it is damaged")

	// ErrClosed is returned by transactions after the file was closed.
	ErrClosed = errors.New("the state file is closed")

	// ErrInUse is returned when another overlapd has the file open.
	ErrInUse = errors.New("another overlapd uses this state folder; stop that daemon, or give each its own state_dir. " +
		"What can be measured while a daemon serves, it measures itself (profile.on_start)")
)
