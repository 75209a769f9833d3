package daemon

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Reloading tells a manager that the configuration is read again, and asks for
// more time until the function that it returns is called, which tells that it
// was. The error of that is of either. It is for a manager that was told
// READY=1 already: another reload than of a daemon that is ready it takes for
// the start.
func (m Manager) Reloading() (ended func() error) {
	err := m.Tell(reloading() + "\n" + extension(extendBy))
	end, done := make(chan struct{}), make(chan error)
	go func() { done <- m.extend(end) }()
	return func() error {
		close(end)
		return errors.Join(err, <-done, m.Tell("READY=1"))
	}
}

// extend asks for more time until it is ended.
func (m Manager) extend(end <-chan struct{}) (err error) {
	tick := time.NewTicker(extendEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			err = m.Tell(extension(extendBy))
		case <-end:
			return err
		}
	}
}

// reloading carries the time by the clock that systemd compares it with.
func reloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "RELOADING=1"
	}
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/int64(time.Microsecond))
}
