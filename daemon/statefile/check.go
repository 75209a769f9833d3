package statefile

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

const (
	// checkTime and checkBytes are what the check of a file may take at most.
	// It needs some 100 bytes for a page, which has 4 KiB.
	checkTime  = time.Minute
	checkBytes = 512 << 20

	// checkedFD is the descriptor by which a child has the file.
	checkedFD = 3
)

// checkFile checks the content of a file by a child with this command line, or
// without one in this process. An empty file is new. All of it is read first:
// what the disk does not give is no damage.
func checkFile(file *os.File, command []string) error {
	size, err := io.Copy(io.Discard, io.NewSectionReader(file, 0, 1<<62))
	if err != nil || size == 0 {
		return err
	}
	if len(command) > 0 {
		return checkByChild(file, command)
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return guarded(func() error { return check(os.NewFile(uintptr(fd), file.Name())) })
}

// checkByChild has a child run RunCheck, and returns what that prints. A child
// that ends otherwise, or does not end, has met damage that bbolt is no match for.
func checkByChild(file *os.File, command []string) error {
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

// check returns the first thing that is wrong with a file, and closes it.
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
		return errors.Join(err, file.Close())
	}
	err = db.View(func(tx *bbolt.Tx) error {
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
		if first != nil {
			return first
		}
		return readAll(tx)
	})
	return errors.Join(err, db.Close())
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

// readAll reads every key and value where it is said to be, which bbolt's check
// does not.
func readAll(tx *bbolt.Tx) error {
	sum := crc32.NewIEEE()
	return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
		if b == nil {
			return nil
		}
		return b.ForEach(func(key, value []byte) error {
			_, err := sum.Write(key)
			_, verr := sum.Write(value)
			return errors.Join(err, verr)
		})
	})
}
