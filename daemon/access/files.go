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

	"github.com/overlapd/overlapd/textfile"
)

var (
	// ErrTokens is returned when a file of tokens cannot be used. The error
	// names the line, never what stands on it.
	ErrTokens = errors.New("access: tokens")

	// ErrCertificates is returned when a certificate, its key, or the
	// authorities of clients cannot be used.
	ErrCertificates = errors.New("access: certificates")
)

// Options is where the files are that say who may ask, and what a client brings. A
// file of tokens has one a line. The others are in PEM form: a certificate before
// those of its authorities, its key, and the authorities that the other side must
// have its certificate of. Empty paths ask for nothing. Only the daemon sets
// MinVersion, the least version of TLS, which is "1.2" or "1.3".
type Options struct {
	TokenFile  string
	Cert, Key  string
	CA         string
	MinVersion string

	// Changed is called when a file was read anew because it had changed, with nil
	// if that is in use now, and else with why the one before still is. It may be nil.
	Changed func(error)
}

// lookEvery is the least time between two looks at whether files have changed.
const lookEvery = time.Second

// files hold a T and are followed: they are read again when one of them has
// changed. Whoever uses what they hold looks first, so that nothing runs in
// between. A path may be empty.
type files[T any] struct {
	paths   []string
	read    func() (*T, error)
	changed func(error) // may be nil
	now     atomic.Pointer[T]
	next    atomic.Int64 // when to look again, in nanoseconds of the clock

	mu struct {
		sync.Mutex
		seen []stamp
	}
}

// inUse returns what the files hold, read again if they have changed. At most one
// caller a second waits for that.
func (f *files[T]) inUse() *T {
	now := time.Now().UnixNano()
	next := f.next.Load()
	if now < next && next-now <= int64(lookEvery) || !f.next.CompareAndSwap(next, now+int64(lookEvery)) {
		return f.now.Load()
	}
	if !f.mu.TryLock() {
		return f.now.Load() // somebody reads them already
	}
	defer f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lookEvery)
	defer cancel()
	seen, err := stamps(ctx, f.paths)
	if slices.Equal(seen, f.mu.seen) {
		return f.now.Load()
	}
	if f.mu.seen = seen; err == nil {
		err = f.readLocked(seen)
	}
	if f.changed != nil {
		f.changed(err)
	}
	return f.now.Load()
}

// reload takes the files into use whether or not they have changed.
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

func (f *files[T]) readLocked(seen []stamp) error {
	f.mu.seen = seen
	now, err := f.read()
	if err == nil {
		f.now.Store(now)
	}
	return err
}

// stamp is by what another file is noticed, zero where there is none.
type stamp struct {
	device, inode uint64
	bytes         int64
	modified      unix.Timespec
}

// stamps returns those of all paths, or an error if a file system does not answer.
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

// others are the rights of every user of the machine.
const others = 0o007

// tooOpen warns of a secret that every user of the machine can get at.
func tooOpen(path string) []string {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&others == 0 {
		return nil
	}
	return []string{fmt.Sprintf("every user of this machine can get at %s (mode %04o): chmod o= %s", path, info.Mode().Perm(), path)}
}
