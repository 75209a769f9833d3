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

// Client is a process that a server serves: a row of the command ps.
type Client struct {
	PID       int    // in the control daemon's namespace
	ID        uint64 // the server's number for it
	Server    int    // the server's PID
	Device    string // the beginning of the UUID
	Namespace uint64 // of its PID: NVIDIA's text says a PID, its example has the number of a namespace (4026531836)
	Command   string
}

const (
	pidMax    = 1 << 22 // Linux gives no higher PID
	quoteMax  = 200     // bytes of an output that an error quotes
	notFound  = "Server not found"
	noDaemon  = "Cannot find MPS control daemon process"
	psColumns = "PID ID SERVER DEVICE NAMESPACE COMMAND"
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

func parsePercentage(command, text string) (float64, error) {
	p, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(p > 0 && p <= 100) {
		return 0, unknown(command, text)
	}
	return p, nil
}

// parseClients reads the table that ps prints: nothing if there is no client.
func parseClients(command, text string) ([]Client, error) {
	if strings.TrimSpace(text) == "" || missing(text) {
		return nil, nil
	}
	var clients []Client
	header := true
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if header {
			if strings.Join(fields, " ") != psColumns {
				return nil, unknown(command, text)
			}
			header = false
			continue
		}
		c, err := parseClient(fields)
		if err != nil {
			return nil, unknown(command, text)
		}
		clients = append(clients, c)
	}
	return clients, nil
}

// parseClient reads a row. A process without arguments has no command.
func parseClient(fields []string) (c Client, err error) {
	if len(fields) < 5 {
		return c, ErrOutput
	}
	for _, f := range []struct {
		into *int
		text string
	}{{&c.PID, fields[0]}, {&c.Server, fields[2]}} {
		if *f.into, err = parsePID(f.text); err != nil {
			return c, err
		}
	}
	if c.Namespace, err = strconv.ParseUint(fields[4], 10, 64); err != nil {
		return c, err
	}
	c.ID, err = strconv.ParseUint(fields[1], 10, 64)
	c.Device, c.Command = fields[3], strings.Join(fields[5:], " ")
	return c, err
}
