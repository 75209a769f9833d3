package load

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// waker lets one goroutine sleep until a time and wake some microseconds after
// it. The timers of Go wake up to a millisecond late when the process is idle,
// because they wait in epoll, whose timeout is in milliseconds; a timerfd is an
// event like any other and holds no thread while it waits.
type waker struct {
	file *os.File
	fd   int
}

func newWaker() (*waker, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("load: timer: %w", err)
	}
	return &waker{file: os.NewFile(uintptr(fd), "timer"), fd: fd}, nil
}

// sleep returns after d, or earlier with an error once abort was called.
func (w *waker) sleep(d time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(d), 1))}
	if err := unix.TimerfdSettime(w.fd, 0, &spec, nil); err != nil {
		return fmt.Errorf("load: timer: %w", err)
	}
	var expirations [8]byte
	_, err := w.file.Read(expirations[:])
	return err
}

func (w *waker) abort() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) }

func (w *waker) close() { w.file.Close() }
