package textfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A file under a lease that its holder does not give up hangs whoever opens it, as a file
// system that does not answer does. The read is abandoned with an error that names the file,
// which is not tried again until the first attempt has returned.
func TestReadThatHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leased")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("no lease on this file system: %v", err)
	}
	read := func(limit time.Duration) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return Within(ctx, path, func() (string, error) {
			file, err := Open(path)
			if err != nil {
				return "", err
			}
			return "read", file.Close()
		})
	}
	for _, says := range []string{"does not answer within ", "an earlier attempt to read it has not returned"} {
		got, err := read(50 * time.Millisecond)
		if got != "" || !errors.Is(err, errHangs) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %q, %v; want an error with %q", got, err, says)
		}
	}
	if _, err := unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		if got, err := read(10 * time.Second); err == nil && got == "read" {
			break
		} else if time.Since(begin) > 10*time.Second {
			t.Fatalf("after the file system has answered: %q, %v", got, err)
		}
	}
}

// Only so many reads may hang. Whoever stops waits for none.
func TestReadsThatHangAreBounded(t *testing.T) {
	release := make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	defer close(release)
	stopped := errors.New("stopped")
	for i := range maxHanging + 3 {
		ctx, stop := context.WithCancelCause(t.Context())
		began := make(chan struct{})
		go func() {
			<-began
			stop(stopped)
		}()
		_, err := Within(ctx, filepath.Join("/", strings.Repeat("x", i+1)), func() (int, error) {
			all.Add(1)
			defer all.Done()
			close(began)
			<-release
			return 0, nil
		})
		if i < maxHanging && !errors.Is(err, stopped) || i >= maxHanging && !strings.Contains(err.Error(), "attempts to read 64 other files have not returned") {
			t.Fatalf("read %d: %v", i, err)
		}
		if i >= maxHanging {
			close(began)
		}
	}
}
