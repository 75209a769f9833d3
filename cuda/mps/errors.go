package mps

import "errors"

// Errors of starting and attaching.
var (
	// ErrNoProgram is returned when there is no nvidia-cuda-mps-control.
	ErrNoProgram = errors.New("mps: no MPS control program")

	// ErrDirectory is returned when the directory cannot be made private.
	ErrDirectory = errors.New("mps: unusable directory")

	// ErrInUse is returned by Start when another control has the directory.
	ErrInUse = errors.New("mps: directory is in use")

	// ErrNotReady is returned by Start when the control daemon ended early or
	// did not answer in time.
	ErrNotReady = errors.New("mps: control daemon did not get ready")
)

// Errors of commands.
var (
	// ErrNoDaemon is returned when no control daemon serves the directory.
	ErrNoDaemon = errors.New("mps: no control daemon")

	// ErrNoAnswer is returned when the control daemon took too long.
	ErrNoAnswer = errors.New("mps: control daemon does not answer")

	// ErrCommand is returned when the control program failed otherwise.
	ErrCommand = errors.New("mps: command failed")

	// ErrOutput is returned when the control program printed what is not
	// known, or too much. The error quotes it.
	ErrOutput = errors.New("mps: output is not understood")

	// ErrNoServer is returned when there is no server, or not the one named.
	ErrNoServer = errors.New("mps: no such server")
)

// Errors of a control's life.
var (
	// ErrExited is the reason when the control daemon ended by itself or was
	// killed from outside.
	ErrExited = errors.New("mps: control daemon exited")

	// ErrUser is returned by Existing when a server serves another
	// user.
	ErrUser = errors.New("mps: server serves another user")

	// ErrRestartLimit is the reason when the daemon was given up.
	ErrRestartLimit = errors.New("mps: control daemon died too often")

	// ErrKilled is returned by Stop when the daemon had to be killed.
	ErrKilled = errors.New("mps: control daemon was killed")
)
