package segments

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// incomingGrace is for how long a file that is being made is left alone although
// nobody holds it: its maker may be about to.
const incomingGrace = time.Minute

// newIncoming makes a file that is to become part of the cache. It stays locked
// until it is closed, so that others see that somebody is at it. Those of makers
// who were killed are removed first: they are as large as models.
func newIncoming(dir string) (*os.File, error) {
	forgetKilled(dir)
	f, err := os.CreateTemp(dir, ".incoming-*.onnx")
	if err != nil {
		return nil, fmt.Errorf("cache of optimized models: %w", err)
	}
	// Where files cannot be locked, nobody takes one for abandoned either.
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	return f, nil
}

// forgetKilled removes what nobody is at any more.
func forgetKilled(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, ".incoming-*")) // the pattern is good
	for _, path := range left {
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		info, err := f.Stat()
		if err == nil && time.Since(info.ModTime()) > incomingGrace && unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.Remove(path) // the next one tries again
		}
		f.Close()
	}
}
