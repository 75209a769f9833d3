package emulated

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes one goroutine at a time that others may change. Go's own timers
// are late by up to a millisecond where nothing else goes on; this is late by
// what it takes to wake a thread.
type alarm struct {
	fd   int
	file *os.File // the same, for Go's poller
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &alarm{fd, os.NewFile(uintptr(fd), "alarm")}, nil
}

// set makes the alarm ring after d, and not when it was to ring before. It may
// not be called after close.
func (a *alarm) set(d time.Duration) {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}
	_ = unix.TimerfdSettime(a.fd, 0, &at, nil) // fails for a bad descriptor or time only
}

// wait returns when the alarm rings. It reports false once it is closed.
func (a *alarm) wait() bool {
	var rings [8]byte
	_, err := a.file.Read(rings[:])
	return err == nil
}

func (a *alarm) close() error { return a.file.Close() }
