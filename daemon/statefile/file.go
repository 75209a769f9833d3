package statefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

var (
	// ErrDamaged is returned when the contents of the file are invalid.
	ErrDamaged = errors.New("the state file is damaged")

	// ErrLost is returned once another program has changed the file while it was open. It
	// is not touched again, because its mapping can no longer be trusted.
	ErrLost = errors.New("the state file was changed by another program while it was in use; " +
		"nothing more is stored until the daemon is restarted, which renames the file if it is damaged")

	// ErrInUse is returned when another overlapd has locked the file.
	ErrInUse = errors.New("another overlapd uses this state folder; stop that daemon, or give each its own state_dir. " +
		"A running daemon measures by itself (profile.on_start)")
)

// File is an open state file. Its methods may be called from any goroutine, but not within
// a transaction.
type File struct {
	db   *bbolt.DB
	path string

	// file is the descriptor that db has open.
	file *os.File

	// access is read-locked by View and locked by Update. It guards left, the state of the
	// file after the last transaction.
	access sync.RWMutex
	left   os.FileInfo
	lost   atomic.Pointer[error]
}

// Open opens the file at path, or creates it. It checks the contents first, so that damage
// is found now and not while serving. check is the command line of a child that calls
// RunCheck; if it is empty the file is not checked. An error other than ErrDamaged and
// ErrInUse means that the file is not accessible.
func Open(path string, check []string) (*File, error) {
	f := &File{path: path}
	open := func(name string, flag int, mode os.FileMode) (file *os.File, err error) {
		if f.file, err = openRegular(name, flag, mode); err == nil {
			err = checkFile(f.file, check)
		}
		return f.file, err
	}
	err := guarded(func() (err error) {
		f.db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, OpenFile: open})
		return err
	})
	if err == nil {
		f.left, err = f.file.Stat()
	}
	if err != nil {
		if f.file != nil {
			f.file.Close() // after a fault bbolt leaves it open and locked
		}
		return nil, sortOpenError(path, err)
	}
	return f, nil
}

// openRegular opens a regular file. It rejects links and pipes, which somebody may have
// placed there.
func openRegular(name string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(name, flag|unix.O_NOFOLLOW, mode)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a link, which is not followed; put the file itself there: %w", name, err)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file (%v); move it away: %w", name, info.Mode().Type(), unix.EINVAL)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// sortOpenError distinguishes damaged files from inaccessible ones: an error with an errno
// comes from the system.
func sortOpenError(path string, err error) error {
	var number unix.Errno
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%s: %w", path, ErrInUse)
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("%s: %w", path, err)
	case errors.As(err, &number):
		return fmt.Errorf("state file: %w", err)
	}
	return fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
}

// View runs a read transaction.
func (f *File) View(read func(*bbolt.Tx) error) error {
	f.access.RLock()
	defer f.access.RUnlock()
	return f.do(func() error { return f.db.View(read) })
}

// Update runs a write transaction. If it returns nil, all of it is on disk; otherwise none
// of it is.
func (f *File) Update(write func(*bbolt.Tx) error) error {
	f.access.Lock()
	defer f.access.Unlock()
	err := f.do(func() error { return f.db.Update(write) })
	if f.lost.Load() != nil {
		return err
	}
	// A failed transaction may still have extended the file.
	left, lerr := f.file.Stat()
	f.left = left
	return errors.Join(err, lerr)
}

// do runs a transaction if the file is as the last one left it. If it is not, or reading it
// faults, the file is lost.
func (f *File) do(transaction func() error) error {
	if f.lost.Load() != nil {
		return ErrLost
	}
	err := f.asLeft()
	if err == nil {
		if err = guarded(transaction); !errors.Is(err, errFault) {
			return err
		}
	}
	err = fmt.Errorf("%w (%w)", ErrLost, err)
	f.lost.Store(&err)
	return err
}

// Lost returns ErrLost with the cause if the file is no longer used, otherwise nil.
func (f *File) Lost() error {
	if err := f.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// asLeft returns an error if the file was changed since the last transaction, or was
// replaced.
func (f *File) asLeft() error {
	at, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	info, err := f.file.Stat()
	switch {
	case err != nil:
		return err
	case !os.SameFile(info, at):
		return errors.New("another file has replaced it")
	case info.Size() != f.left.Size():
		return fmt.Errorf("it had %d bytes and has %d", f.left.Size(), info.Size())
	case !info.ModTime().Equal(f.left.ModTime()):
		return fmt.Errorf("it was written to at %s", info.ModTime().UTC().Format(time.RFC3339))
	}
	return nil
}

// Close waits for running transactions and closes the file. If the file is lost, it only
// unlocks and closes the descriptor: bbolt's own Close could block or fault, and keep the
// lock.
func (f *File) Close() error {
	f.access.Lock()
	defer f.access.Unlock()
	if f.Lost() != nil {
		return errors.Join(unix.Flock(int(f.file.Fd()), unix.LOCK_UN), f.file.Close())
	}
	return guarded(f.db.Close)
}

const (
	// lockWait is how long to wait for a lock that another process holds.
	lockWait = time.Second

	// checkTime and checkBytes limit the check of a file. It needs about 100 bytes for each
	// page of 4 KiB, so they suffice for a file of 20 GiB.
	checkTime  = time.Minute
	checkBytes = 512 << 20

	// checkedFD is the number of the file's descriptor in the child.
	checkedFD = 3
)

// checkFile runs RunCheck on the file in a child process and returns what it reports. An
// empty file is new and valid. The whole file is read first, so that an error of the disk
// is not mistaken for damage. A child that crashes or does not finish in time has met
// damage that bbolt cannot handle.
func checkFile(file *os.File, command []string) error {
	size, err := io.Copy(io.Discard, io.NewSectionReader(file, 0, 1<<62))
	if err != nil || size == 0 || len(command) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.ExtraFiles = []*os.File{file}
	said, err := cmd.Output()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return damaged("checking it took longer than %v", checkTime)
	case errors.As(err, &ended):
		first, _, _ := strings.Cut(strings.TrimSpace(string(ended.Stderr)), "\n")
		return damaged("checking it failed: %v: %s", ended, first)
	case err != nil:
		return fmt.Errorf("checking the state file: %w", err)
	case strings.Contains(string(said), berrors.ErrTimeout.Error()):
		return berrors.ErrTimeout
	case len(said) > 0:
		return damaged("%s", said)
	}
	return nil
}

// errFault is wrapped by errors that guarded makes of a panic.
var errFault = errors.New("reading it failed")

// guarded calls f and converts a panic to ErrDamaged. Reading the mapping of a truncated
// file faults; SetPanicOnFault turns that into a panic, for this goroutine only.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w: %w: %v", ErrDamaged, errFault, fault)
		}
	}()
	return f()
}

// damaged returns an ErrDamaged with details.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// RunCheck is the main function of the child. It checks the inherited file within limits
// and prints what is wrong to standard output. A limit that cannot be set, for example
// because a lower one applies, is ignored: the file must not be considered damaged for
// that.
func RunCheck() {
	_ = limit()
	if err := check(os.NewFile(checkedFD, "state file")); err != nil {
		fmt.Print(err)
	}
}

// limit limits the memory and CPU time of this process. The memory limit is in addition to
// what it has now.
func limit() error {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	// The last field is data and stack.
	var pages [6]uint64
	if _, err := fmt.Sscan(string(text), &pages[0], &pages[1], &pages[2], &pages[3], &pages[4], &pages[5]); err != nil {
		return err
	}
	most := pages[5]*uint64(os.Getpagesize()) + checkBytes
	seconds := uint64(checkTime / time.Second)
	return errors.Join(unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: most, Max: most}),
		unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds}))
}

// check returns the first fault of a file.
func check(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	db, err := bbolt.Open(file.Name(), 0, &bbolt.Options{
		ReadOnly: true, PreLoadFreelist: true, Timeout: lockWait,
		OpenFile: func(string, int, os.FileMode) (*os.File, error) { return file, nil },
	})
	if err != nil {
		return err
	}
	defer db.Close() // otherwise the parent's descriptor keeps the lock
	return db.View(func(tx *bbolt.Tx) error {
		if info.Size() < tx.Size() {
			return damaged("it has %d bytes instead of %d", info.Size(), tx.Size())
		}
		if err := checkLengths(tx); err != nil {
			return err
		}
		var first error
		for fault := range tx.Check() { // bbolt blocks unless the channel is drained
			if first == nil {
				first = damaged("%v", fault)
			}
		}
		return first
	})
}

// checkLengths returns an error if a page claims to extend beyond the end of the file.
// bbolt's check would follow it.
func checkLengths(tx *bbolt.Tx) error {
	pages := int(tx.Size() / int64(tx.DB().Info().PageSize))
	for id := 0; id < pages; id++ {
		p, err := tx.Page(id)
		if err != nil {
			return err
		}
		if p.Type == "free" {
			continue
		}
		if id += p.OverflowCount; id >= pages {
			return damaged("page %d refers to pages that do not exist", p.ID)
		}
	}
	return nil
}
