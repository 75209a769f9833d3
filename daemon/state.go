package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// Limits of the state file.
const (
	stateName = "state.db"

	// stateLock is how long another daemon may hold the file.
	stateLock = time.Second

	// asideTime is the form of the time in the name of a file set aside.
	asideTime = "20060102-150405.000000000"

	// maxProfileBytes is the largest solo profile that is stored.
	maxProfileBytes = 16 << 20
)

// errDamaged is returned when the content of the state file is broken.
var errDamaged = errors.New("the state file is damaged")

var (
	// ErrStateInUse is returned when another overlapd has the state file open.
	ErrStateInUse = errors.New("another overlapd uses this state folder; stop that daemon, or give each its own state_dir. " +
		"What can be measured while a daemon serves, it measures itself (profile.on_start)")

	// ErrNoState is returned when a folder has no state file.
	ErrNoState = errors.New("there is no state file")
)

var (
	profileBucket     = []byte("solo-profiles")
	calibrationBucket = []byte("calibrations") // of predictors, by their identity and the services
)

// state is the file that outlives the daemon: what was measured of each model
// on this device.
type state struct {
	db       *guardedFile
	datasets *training.Store
}

// State is the state file in the hands of a command, while no daemon has it.
type State struct {
	file *state
}

// OpenState opens the state file in dir. If there is none it is made, or with
// mustExist refused with ErrNoState. A damaged one stays as it is: the next
// daemon sets it aside.
func OpenState(dir string, mustExist bool) (*State, error) {
	path := filepath.Join(dir, stateName)
	if mustExist {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w in %s", ErrNoState, dir)
		}
	}
	if err := makeStateDir(dir); err != nil {
		return nil, err
	}
	file, err := openFile(path)
	if err != nil {
		return nil, err
	}
	return &State{file}, nil
}

// Datasets returns what was measured.
func (s *State) Datasets() *training.Store { return s.file.datasets }

// Close gives the file back.
func (s *State) Close() error { return s.file.close() }

// openState opens the state file in dir. A damaged one is set aside under
// another name, never overwritten, and its new name is returned.
func openState(dir string) (s *state, aside string, err error) {
	if err := makeStateDir(dir); err != nil {
		return nil, "", err
	}
	path := filepath.Join(dir, stateName)
	if s, err = openFile(path); !errors.Is(err, errDamaged) {
		return s, "", err
	}
	aside = fmt.Sprintf("%s.damaged-%s", path, time.Now().UTC().Format(asideTime))
	if rerr := os.Rename(path, aside); rerr != nil {
		return nil, "", errors.Join(err, rerr)
	}
	s, err = openFile(path)
	return s, aside, err
}

func makeStateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state folder: %w; set state_dir to a folder that can be written", err)
	}
	return nil
}

// openFile opens a state file, or makes it.
func openFile(path string) (*state, error) {
	db, err := openDB(path)
	if err != nil {
		return nil, err
	}
	datasets, err := training.NewStore(db)
	if err != nil {
		return nil, errors.Join(err, db.close())
	}
	return &state{db, datasets}, nil
}

// openDB opens a bbolt file and reads all of it once: a page that is broken
// must be found now, not while serving. The error is errDamaged if the content
// of the file is at fault.
func openDB(path string) (g *guardedFile, err error) {
	var db *bbolt.DB
	var file *os.File
	open := func(name string, flag int, mode os.FileMode) (*os.File, error) {
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	err = guarded(func() error {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: stateLock, OpenFile: open})
		return err
	})
	if err != nil {
		if file != nil {
			file.Close() // a fault leaves it open, and locked
		}
		return nil, sortOpenError(path, err)
	}
	if err = guarded(func() error { return verify(db) }); err == nil {
		err = db.Update(func(tx *bbolt.Tx) error {
			for _, name := range [][]byte{profileBucket, calibrationBucket, cutBucket} {
				if _, err := tx.CreateBucketIfNotExists(name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return nil, errors.Join(sortOpenError(path, err), db.Close())
	}
	return &guardedFile{db: db, file: file}, nil
}

// guarded runs f and returns a panic as errDamaged. A file that is shorter
// than it says makes reading its mapping a fault, which panics here only.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w: %v", errDamaged, fault)
		}
	}()
	return f()
}

// sortOpenError tells a damaged file from one that cannot be had: only the
// former is set aside.
func sortOpenError(path string, err error) error {
	var number syscall.Errno
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%s: %w", path, ErrStateInUse)
	case errors.Is(err, errDamaged):
		return fmt.Errorf("%s: %w", path, err)
	case errors.As(err, &number):
		return fmt.Errorf("state file: %w", err)
	}
	return fmt.Errorf("%s: %w: %w", path, errDamaged, err)
}

// verify reads every page of the file. It walks all entries itself before the
// check of bbolt, which runs in a goroutine where a fault would end the
// process.
func verify(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		info, err := os.Stat(db.Path())
		if err != nil {
			return err
		}
		if tx.Size() > info.Size() {
			return fmt.Errorf("%w: it has %d bytes of %d", errDamaged, info.Size(), tx.Size())
		}
		if err := tx.ForEach(readBucket); err != nil {
			return err
		}
		for fault := range tx.Check() {
			err = errors.Join(err, fault)
		}
		return err
	})
}

// readBucket reads the entries of a bucket. There are no buckets in buckets.
func readBucket(name []byte, b *bbolt.Bucket) error {
	if b == nil {
		return fmt.Errorf("%w: %q is no bucket", errDamaged, name)
	}
	return b.ForEach(func(k, text []byte) error {
		if !json.Valid(text) {
			return fmt.Errorf("%w: the value of %q is not JSON", errDamaged, k)
		}
		return nil
	})
}

// profileKey names what a solo profile holds for.
func profileKey(device, modelHash, ortVersion string, operators int, share string) []byte {
	return fmt.Appendf(nil, "%s|%s|ort %s|%d operators|%s", device, modelHash, ortVersion, operators, share)
}

// saveProfile stores what was measured of a model.
func (s *state) saveProfile(key []byte, p predictor.Snapshot) error {
	return s.save(profileBucket, key, p)
}

// profile returns what was stored under key, and false if nothing was.
func (s *state) profile(key []byte) (p predictor.Snapshot, ok bool, err error) {
	ok, err = s.load(profileBucket, key, &p)
	return p, ok, err
}

// saveCalibration stores how well a predictor did. Those of other predictors
// are forgotten: there is no way back to them.
func (s *state) saveCalibration(key []byte, c predictor.CalibrationSnapshot) error {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket(calibrationBucket); err != nil {
			return err
		}
		_, err := tx.CreateBucket(calibrationBucket)
		return err
	})
	if err != nil {
		return err
	}
	return s.save(calibrationBucket, key, c)
}

// calibration returns what was stored under key, and false if nothing was.
func (s *state) calibration(key []byte) (c predictor.CalibrationSnapshot, ok bool, err error) {
	ok, err = s.load(calibrationBucket, key, &c)
	return c, ok, err
}

func (s *state) save(bucket, key []byte, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if len(text) > maxProfileBytes {
		return fmt.Errorf("a profile of %d bytes exceeds %d", len(text), maxProfileBytes)
	}
	return s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put(key, text) })
}

func (s *state) load(bucket, key []byte, value any) (ok bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		text := tx.Bucket(bucket).Get(key)
		if text == nil {
			return nil
		}
		ok = true
		return json.Unmarshal(text, value)
	})
	return ok && err == nil, err
}

func (s *state) close() error { return s.db.close() }
