package emulated

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm is a sleep of one goroutine, locked to its thread, that others may cut
// short. Go's own timers are late by up to a millisecond where nothing else goes
// on; this is late by what it takes to wake a thread.
type alarm struct{ fd int }

func newAlarm() (alarm, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	return alarm{fd}, os.NewSyscallError("eventfd", err)
}

// sleep returns after d, or when the alarm has rung since the last sleep.
func (a alarm) sleep(d time.Duration) {
	limit := unix.NsecToTimespec(int64(max(d, 0)))
	if n, _ := unix.Ppoll([]unix.PollFd{{Fd: int32(a.fd), Events: unix.POLLIN}}, &limit, nil); n > 0 {
		var rings [8]byte
		_, _ = unix.Read(a.fd, rings[:]) // somebody rang, or else nobody did
	}
}

func (a alarm) ring() { _, _ = unix.Write(a.fd, []byte{7: 1}) } // any number but 0, in either byte order

func (a alarm) close() { _ = unix.Close(a.fd) }
