package wire

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func socketPair(t *testing.T) (a, b int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(pair[0])
		unix.Close(pair[1])
	})
	return pair[0], pair[1]
}

func TestPollTakesWhatIsThere(t *testing.T) {
	a, b := socketPair(t)
	if _, err := unix.Write(b, []byte("frame")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	// No time at all is enough for one look.
	if n, ok := (&Socket{fd: a}).poll(buf); !ok || string(buf[:n]) != "frame" {
		t.Fatalf("got %q, %v; want the frame", buf[:n], ok)
	}
}

func TestPollGivesUp(t *testing.T) {
	a, b := socketPair(t)
	buf := make([]byte, 16)
	if _, ok := (&Socket{fd: a, Poll: time.Millisecond}).poll(buf); ok {
		t.Fatal("something was read where nothing was sent")
	}
	// Polling must not take the end of the stream for a message: the read
	// that waits reports it.
	if err := unix.Shutdown(b, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if _, ok := (&Socket{fd: a, Poll: time.Hour}).poll(buf); ok {
		t.Fatal("the end of the stream was taken for a message")
	}
	if _, ok := (&Socket{fd: -1, Poll: time.Hour}).poll(buf); ok {
		t.Fatal("an error was taken for a message")
	}
}
