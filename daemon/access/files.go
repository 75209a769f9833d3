package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/internal/textfile"
)

var (
	// ErrTokens is returned when a token file is invalid. The error names the line but
	// never quotes it.
	ErrTokens = errors.New("access: tokens")

	// ErrCertificates is returned when a certificate, its key or the client CAs are
	// invalid.
	ErrCertificates = errors.New("access: certificates")
)

// Options names the files. An empty path disables a feature. TokenFile has one token a
// line. The others are in PEM form: Cert is the certificate followed by intermediates, Key
// its private key, and CA the authorities that the peer's certificate must come from.
// MinVersion is "1.2" or "1.3" and only applies to the daemon.
type Options struct {
	TokenFile  string
	Cert, Key  string
	CA         string
	MinVersion string

	// Changed is called after a changed file was read, with nil if it is in use now, or
	// with the reason why the previous contents still are. It may be nil.
	Changed func(error)
}

// lookEvery is the minimum interval between two checks for changed files.
const lookEvery = time.Second

// files holds a value read from files and follows them. The files are checked when the
// value is used, at most once every lookEvery, so no goroutine and no inotify is needed. A
// path may be empty.
type files[T any] struct {
	paths []string
	read  func() (*T, error)

	// changed may be nil.
	changed func(error)
	now     atomic.Pointer[T]

	// next is when to check again, in nanoseconds of Unix time.
	next atomic.Int64

	mu struct {
		sync.Mutex

		// seen are the stamps of the files that were read last.
		seen []stamp
	}
}

// inUse returns the current value, after reading the files again if they have changed. At
// most one caller a second waits for that; the others get the previous value.
func (f *files[T]) inUse() *T {
	now := time.Now().UnixNano()
	next := f.next.Load()
	// The second condition covers a clock that was set back.
	if now < next && next-now <= int64(lookEvery) || !f.next.CompareAndSwap(next, now+int64(lookEvery)) {
		return f.now.Load()
	}
	if !f.mu.TryLock() {
		return f.now.Load() // another goroutine is reading them
	}
	defer f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lookEvery)
	defer cancel()
	seen, err := stamps(ctx, f.paths)
	if slices.Equal(seen, f.mu.seen) {
		return f.now.Load()
	}
	// Stored even if reading fails, so that an invalid file is reported once and not every
	// second.
	if f.mu.seen = seen; err == nil {
		err = f.readLocked(seen)
	}
	if f.changed != nil {
		f.changed(err)
	}
	return f.now.Load()
}

// reload reads the files whether or not they have changed. f may be nil.
func (f *files[T]) reload() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lookEvery)
	defer cancel()
	seen, err := stamps(ctx, f.paths)
	if err != nil {
		return err
	}
	return f.readLocked(seen)
}

// readLocked reads the files and remembers their stamps. It keeps the previous value if
// that fails.
func (f *files[T]) readLocked(seen []stamp) error {
	f.mu.seen = seen
	now, err := f.read()
	if err == nil {
		f.now.Store(now)
	}
	return err
}

// stamp identifies a version of a file. It is zero if there is none.
type stamp struct {
	device, inode uint64
	bytes         int64
	modified      unix.Timespec
}

// stamps returns the stamps of all paths. It fails if a file system does not respond before
// ctx is done.
func stamps(ctx context.Context, paths []string) (all []stamp, err error) {
	for _, path := range paths {
		s, err := textfile.Within(ctx, path, func() (s unix.Stat_t, _ error) {
			if unix.Stat(path, &s) != nil {
				return unix.Stat_t{}, nil
			}
			return s, nil
		})
		if err != nil {
			return nil, err
		}
		all = append(all, stamp{s.Dev, s.Ino, s.Size, s.Mtim})
	}
	return all, nil
}

// others is the mode bits of users who are neither the owner nor in the group.
const others = 0o007

// tooOpen warns about a secret that every user of the host can access.
func tooOpen(path string) []string {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&others == 0 {
		return nil
	}
	return []string{fmt.Sprintf("every user of this machine can access %s (mode %04o): chmod o= %s", path, info.Mode().Perm(), path)}
}
