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
	// ErrDamaged is returned when the content of the file is broken.
	ErrDamaged = errors.New("the state file is damaged")

	// ErrLost is returned once the file was changed behind the back of the
	// process that has it open. It is not touched again.
	ErrLost = errors.New("the state file was changed by another program while it was in use; " +
		"nothing more is stored until the daemon is started again, which sets it aside if it is damaged")

	// ErrInUse is returned when another overlapd has the file open.
	ErrInUse = errors.New("another overlapd uses this state folder; stop that daemon, or give each its own state_dir. " +
		"What can be measured while a daemon serves, it measures itself (profile.on_start)")
)

// File is an open state file. Its methods may be called from any goroutine, but
// not from within a transaction.
type File struct {
	db   *bbolt.DB
	path string
	file *os.File // the one that db has open

	// access is held for reading by whoever reads the file, and for writing by
	// whoever changes it. It guards left, which is how the file was when the last
	// transaction had ended.
	access sync.RWMutex
	left   os.FileInfo
	lost   atomic.Pointer[error]
}

// Open opens the file at path, or makes it, once its content was checked: damage
// must be found now and not while serving. Check is the command line of a child
// that runs RunCheck; without one the file is believed. An error that is neither
// ErrDamaged nor ErrInUse means that the file cannot be had.
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
			f.file.Close() // a fault leaves it open, and locked
		}
		return nil, sortOpenError(path, err)
	}
	return f, nil
}

// openRegular opens what is a file, and neither a link nor a pipe that somebody
// put there.
func openRegular(name string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(name, flag|unix.O_NOFOLLOW, mode)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a link, and not followed; put the file itself there: %w", name, err)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file (%v); move it away: %w", name, info.Mode().Type(), unix.EINVAL)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// sortOpenError separates damaged files from those that cannot be had.
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

// View reads in a transaction.
func (f *File) View(read func(*bbolt.Tx) error) error {
	f.access.RLock()
	defer f.access.RUnlock()
	return f.do(func() error { return f.db.View(read) })
}

// Update writes in a transaction. When it returns nil, all of it is on disk,
// otherwise nothing.
func (f *File) Update(write func(*bbolt.Tx) error) error {
	f.access.Lock()
	defer f.access.Unlock()
	err := f.do(func() error { return f.db.Update(write) })
	if f.lost.Load() != nil {
		return err
	}
	left, lerr := f.file.Stat() // one that failed may have made it longer
	f.left = left
	return errors.Join(err, lerr)
}

// do runs a transaction on the file if it is as it was left.
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

// Lost returns ErrLost, with what was found, if the file is not used any more.
func (f *File) Lost() error {
	if err := f.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// asLeft returns an error if the file is not as the last transaction left it,
// or no more where it was.
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
		return errors.New("another file is in its place")
	case info.Size() != f.left.Size():
		return fmt.Errorf("it had %d bytes and has %d", f.left.Size(), info.Size())
	case !info.ModTime().Equal(f.left.ModTime()):
		return fmt.Errorf("it was written to at %s", info.ModTime().UTC().Format(time.RFC3339))
	}
	return nil
}

// Close gives the file back after the transactions that run. Of one that was
// lost the mapping stays, for fear of what bbolt would wait for, and would keep
// the lock.
func (f *File) Close() error {
	f.access.Lock()
	defer f.access.Unlock()
	if f.Lost() != nil {
		return errors.Join(unix.Flock(int(f.file.Fd()), unix.LOCK_UN), f.file.Close())
	}
	return guarded(f.db.Close)
}

const (
	// lockWait is how long another process may hold the file.
	lockWait = time.Second

	// checkTime and checkBytes are what the check of a file may take at most.
	// It needs some 100 bytes for a page, which has 4 KiB.
	checkTime  = time.Minute
	checkBytes = 512 << 20

	// checkedFD is the descriptor by which a child has the file.
	checkedFD = 3
)

// checkFile has a child run RunCheck on the file, and returns what that prints. An
// empty file is new. All of it is read first: what the disk does not give is no
// damage. A child that ends otherwise, or does not end, has met damage that bbolt is
// no match for.
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
		return damaged("checking it takes longer than %v", checkTime)
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

// errFault is within what guarded makes of a panic.
var errFault = errors.New("reading it failed")

// guarded runs f and returns a panic as ErrDamaged. A file that is shorter than
// it says makes reading its mapping a fault, which panics here only.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w: %w: %v", ErrDamaged, errFault, fault)
		}
	}()
	return f()
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// RunCheck is the child's part: it checks the file that it was given within
// limits, and writes what is wrong to standard output. A limit that cannot be set,
// as where a lower one holds already, is no reason to take the file for damaged.
func RunCheck() {
	_ = limit()
	if err := check(os.NewFile(checkedFD, "state file")); err != nil {
		fmt.Print(err)
	}
}

// limit bounds the memory that this process may take besides what it has, and
// its time.
func limit() error {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	var pages [6]uint64 // the last one is of data and stack
	if _, err := fmt.Sscan(string(text), &pages[0], &pages[1], &pages[2], &pages[3], &pages[4], &pages[5]); err != nil {
		return err
	}
	most := pages[5]*uint64(os.Getpagesize()) + checkBytes
	seconds := uint64(checkTime / time.Second)
	return errors.Join(unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: most, Max: most}),
		unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds}))
}

// check returns the first thing that is wrong with a file.
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
	defer db.Close() // else the lock stays with whoever has the file
	return db.View(func(tx *bbolt.Tx) error {
		if info.Size() < tx.Size() {
			return damaged("it has %d bytes and should have %d", info.Size(), tx.Size())
		}
		if err := checkLengths(tx); err != nil {
			return err
		}
		var first error
		for fault := range tx.Check() { // to the end, for bbolt waits
			if first == nil {
				first = damaged("%v", fault)
			}
		}
		return first
	})
}

// checkLengths looks for a page that goes over others that are not there, which
// bbolt's check would follow.
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
			return damaged("page %d goes over pages that do not exist", p.ID)
		}
	}
	return nil
}
