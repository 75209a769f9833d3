package mps

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// look asks for all servers and their states.
func (c *Control) look(ctx context.Context) (found look) {
	pids, err := c.console.Servers(ctx)
	if err != nil {
		return look{err: err}
	}
	if len(pids) > serversMax {
		return look{err: fmt.Errorf("%w: %d servers, expected at most %d", ErrOutput, len(pids), serversMax)}
	}
	slices.Sort(pids)
	for _, pid := range slices.Compact(pids) {
		status, err := c.console.Status(ctx, pid)
		if errors.Is(err, ErrNoServer) {
			continue // it ended meanwhile
		}
		if err != nil {
			return look{err: err}
		}
		found.servers = append(found.servers, Server{PID: pid, Status: status, User: userOf(pid)})
	}
	return found
}

// checkServers finds what stands in the way of a client of the user self. A
// server of user 0 may be one for several users.
func checkServers(servers []Server, self int) error {
	var errs []error
	for _, s := range servers {
		if s.User > 0 && s.User != self {
			errs = append(errs, fmt.Errorf("%w: server %d serves user %d, and we are %d: MPS serves one user at a time, and our workers would wait "+
				"until the other's are gone; run overlapd as that user, or set mps mode = \"own\"", ErrUser, s.PID, s.User, self))
		}
	}
	return errors.Join(errs...)
}
