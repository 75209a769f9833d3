package daemon

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// errStateLost is returned once the state file was damaged behind an open
// daemon's back. It is not touched again: bbolt may hold a lock that it never
// gives back.
var errStateLost = errors.New("the state file was damaged while it was in use; nothing more is stored until the daemon is started again, which sets it aside")

// guardedFile is an open state file whose damage is an error. The file is
// mapped into memory: where it was cut, reading is a fault, and where it holds
// something else, bbolt panics.
type guardedFile struct {
	db   *bbolt.DB
	file *os.File // of db

	writing sync.Mutex // what waits for it must see that the file is lost
	lost    atomic.Bool
}

// View reads in a transaction.
func (g *guardedFile) View(f func(*bbolt.Tx) error) error {
	return g.guard(func() error { return g.db.View(f) })
}

// Update writes in a transaction.
func (g *guardedFile) Update(f func(*bbolt.Tx) error) error {
	g.writing.Lock()
	defer g.writing.Unlock()
	return g.guard(func() error { return g.db.Update(f) })
}

func (g *guardedFile) guard(f func() error) error {
	if g.lost.Load() {
		return errStateLost
	}
	err := guarded(f)
	if errors.Is(err, errDamaged) {
		g.lost.Store(true)
		err = fmt.Errorf("%w (%w)", errStateLost, err)
	}
	return err
}

// close gives the file back. Of one that was lost the mapping stays, for fear
// of what bbolt would wait for, and would keep the lock.
func (g *guardedFile) close() error {
	if g.lost.Load() {
		return errors.Join(unix.Flock(int(g.file.Fd()), unix.LOCK_UN), g.file.Close())
	}
	return guarded(g.db.Close)
}
