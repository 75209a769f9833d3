package mps

import (
	"fmt"
	"strconv"
	"strings"
)

// Status is what a server says of itself.
type Status string

// The states of a server. A starting one takes no client yet. A faulted one
// had a client whose kernel failed: it takes no new client until all that it
// has are gone.
const (
	StatusStarting Status = "INITIALIZING"
	StatusActive   Status = "ACTIVE"
	StatusFault    Status = "FAULT"
)

const (
	pidMax   = 1 << 22 // Linux gives no higher PID
	quoteMax = 200     // bytes of an output that an error quotes
	notFound = "Server not found"
	noDaemon = "Cannot find MPS control daemon process"
)

// unknown returns the error for output that is not understood.
func unknown(command, text string) error {
	quoted := text
	if len(quoted) > quoteMax {
		quoted = quoted[:quoteMax]
	}
	return fmt.Errorf("%w: %s printed %q (%d bytes in all): this driver's MPS may be newer than overlapd, or something else runs under its name",
		ErrOutput, command, quoted, len(text))
}

// missing reports whether the control daemon said that there is no server.
func missing(text string) bool {
	return strings.EqualFold(strings.TrimRight(strings.TrimSpace(text), "."), notFound)
}

// parsePIDs reads process numbers between white space.
func parsePIDs(command, text string) ([]int, error) {
	if missing(text) {
		return nil, ErrNoServer
	}
	var pids []int
	for _, field := range strings.Fields(text) {
		pid, err := parsePID(field)
		if err != nil {
			return nil, unknown(command, text)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

func parsePID(field string) (int, error) {
	pid, err := strconv.ParseUint(field, 10, 31)
	if err == nil && (pid == 0 || pid > pidMax) {
		err = strconv.ErrRange
	}
	return int(pid), err
}

func parseStatus(command, text string) (Status, error) {
	if missing(text) {
		return "", ErrNoServer
	}
	switch s := Status(strings.TrimSpace(text)); s {
	case StatusStarting, StatusActive, StatusFault:
		return s, nil
	}
	return "", unknown(command, text)
}
