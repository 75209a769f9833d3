package journal

import (
	"errors"
	"strconv"
)

// Errors of recording.
var (
	// ErrInUse is returned when a Writer is given to a second Scheduler.
	ErrInUse = errors.New("the decision log is in use: a log is of one scheduler; open one in another folder for the next")

	// ErrOptions is returned when an option is out of its range.
	ErrOptions = errors.New("bad option of the decision log")
)

// Errors of reading. All arrive inside a [FormatError].
var (
	// ErrFormat is returned when the file is no decision log.
	ErrFormat = errors.New("not a decision log")

	// ErrVersion is returned when the file is a decision log of a version that
	// is not read.
	ErrVersion = errors.New("unknown version of the decision log")

	// ErrRecord is returned when a line is not a record, or a number in it is
	// out of range.
	ErrRecord = errors.New("bad record")

	// ErrCheckpoint is returned when there is no checkpoint where the log
	// begins or goes on after a gap, or one that cannot be.
	ErrCheckpoint = errors.New("no good checkpoint")

	// ErrLimit is returned when a line is longer than MaxLineBytes.
	ErrLimit = errors.New("line is too long")
)

// ErrPolicy is returned when a log is to be replayed with another policy than
// it was recorded with.
var ErrPolicy = errors.New("another policy makes other decisions, and what would have followed from them is not in the log; " +
	"replay it with its own, or try the other one with overlapd simulate")

// remedies say what to do about the errors of reading.
var remedies = []struct {
	err    error
	remedy string
}{
	{ErrFormat, "give a file that a daemon with decisions.log = true has written, such as " + FileName + " or " + FileName + ".1 of its state folder"},
	{ErrVersion, "replay it with the overlapd that wrote it, which its first line names"},
	{ErrRecord, "the file was changed or is damaged: replay another file of the log, of which each stands for itself"},
	{ErrCheckpoint, "the file is cut or was changed: replay it as it was written, or another file of the log, of which each stands for itself"},
	{ErrLimit, "no overlapd writes such a line: look whether this is a decision log"},
}

// FormatError says where a log is at fault, and what to do.
type FormatError struct {
	Name   string // of the file
	Line   int    // counts from 1
	Reason string
	Err    error // one of the errors of reading
}

func (e *FormatError) Error() string {
	s := e.Name + ":" + strconv.Itoa(e.Line) + ": " + e.Err.Error()
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	for _, r := range remedies {
		if errors.Is(e.Err, r.err) {
			s += "; " + r.remedy
		}
	}
	return s
}

func (e *FormatError) Unwrap() error { return e.Err }
