package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/bbolt"

	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// Names and limits of the state file.
const (
	stateName = "state.db"

	// asideTime is the format of the time in the name of a file that was set aside. Its
	// names sort by time.
	asideTime = "20060102-150405.000000000"

	// keptAside is the number of damaged files that are kept for inspection. A disk that
	// damages the file with every start must not be filled by them.
	keptAside = 3
)

// ErrNoState is returned when a folder has no state file.
var ErrNoState = errors.New("there is no state file")

// cutChoices is the bucket of the measured choices of cuts.
const cutChoices = "cut-choices"

// State is the file that outlives the daemon: what was measured of each model on this
// device. Commands may change it while no daemon has it open.
type State struct {
	db       *statefile.File
	datasets *training.Store

	// aside is set if the previous file was damaged and set aside.
	aside bool

	// copied is the folder of a temporary copy, which Close removes.
	copied string
}

// OpenState opens the state file in dir. If there is none, it is created, or the error is
// ErrNoState if mustExist is set. A damaged file is left alone: the next daemon sets it
// aside. check is as in [Options].
func OpenState(dir string, mustExist bool, check []string) (*State, error) {
	path := filepath.Join(dir, stateName)
	if mustExist {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w in %s", ErrNoState, dir)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w; set state_dir to a writable folder", err)
	}
	db, err := statefile.Open(path, check)
	if err != nil {
		return nil, err
	}
	// bbolt's check covers its pages but not the values.
	if err = db.View(func(tx *bbolt.Tx) error { return tx.ForEach(readBucket) }); err == nil {
		err = db.Update(makeBuckets)
	}
	s := &State{db: db}
	if err == nil {
		s.datasets, err = training.NewStore(db)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), db.Close())
	}
	return s, nil
}

// ReadState opens the state file in dir for reading, or a copy of it while a daemon has it
// open. Changes to a copy are lost.
func ReadState(dir string, check []string) (*State, error) {
	s, err := OpenState(dir, true, check)
	if !errors.Is(err, statefile.ErrInUse) {
		return s, err
	}
	copied, err := os.MkdirTemp("", "overlapd-state-")
	if err != nil {
		return nil, err
	}
	if err = statefile.Copy(filepath.Join(dir, stateName), filepath.Join(copied, stateName)); err == nil {
		s, err = OpenState(copied, true, check)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(copied))
	}
	s.copied = copied
	return s, nil
}

// Datasets returns the store of measurements.
func (s *State) Datasets() *training.Store { return s.datasets }

// Close closes the file and removes a copy.
func (s *State) Close() error {
	err := s.db.Close()
	if s.copied != "" {
		err = errors.Join(err, os.RemoveAll(s.copied))
	}
	return err
}

// openState opens the state file in dir. A damaged file is renamed, never overwritten, and
// its new name is returned. Everything in it is measured again.
func openState(dir string, check []string) (s *State, aside string, err error) {
	if s, err = OpenState(dir, false, check); !errors.Is(err, statefile.ErrDamaged) {
		return s, "", err
	}
	path := filepath.Join(dir, stateName)
	// Nanoseconds in the name keep two files apart that were set aside in one second.
	aside = fmt.Sprintf("%s.damaged-%s", path, time.Now().UTC().Format(asideTime))
	if rerr := os.Rename(path, aside); rerr != nil {
		return nil, "", errors.Join(err, rerr)
	}
	if err = forgetAside(path); err != nil {
		return nil, aside, err
	}
	if s, err = OpenState(dir, false, check); err == nil {
		s.aside = true
	}
	return s, aside, err
}

// forgetAside deletes the oldest damaged files beyond keptAside.
func forgetAside(path string) error {
	kept, err := filepath.Glob(path + ".damaged-*") // sorted, so the oldest come first
	for i := range max(0, len(kept)-keptAside) {
		err = errors.Join(err, os.Remove(kept[i]))
	}
	return err
}

// readBucket checks the entries of a bucket. Buckets are not nested.
func readBucket(name []byte, b *bbolt.Bucket) error {
	if b == nil {
		return fmt.Errorf("%w: %q is not a bucket", statefile.ErrDamaged, name)
	}
	return b.ForEach(func(k, text []byte) error {
		if !json.Valid(text) {
			return fmt.Errorf("%w: the value of %q is not JSON", statefile.ErrDamaged, k)
		}
		return nil
	})
}

// makeBuckets creates the buckets that do not exist.
func makeBuckets(tx *bbolt.Tx) error {
	for _, name := range []string{loop.SoloProfiles, loop.Calibrations, cutChoices} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	return nil
}

// saveCalibrations replaces the stored calibrations of predictors. Those of predictors that
// are no longer in use are deleted, because they would never be used again.
func (s *State) saveCalibrations(all map[string]predictor.CalibrationSnapshot) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket([]byte(loop.Calibrations)); err != nil {
			return err
		}
		b, err := tx.CreateBucket([]byte(loop.Calibrations))
		for key, c := range all {
			if err == nil {
				err = store(b, key, c)
			}
		}
		return err
	})
}

// save stores a value under a key.
func (s *State) save(bucket, key string, value any) error {
	return s.db.Update(func(tx *bbolt.Tx) error { return store(tx.Bucket([]byte(bucket)), key, value) })
}

// store writes a value as JSON.
func store(b *bbolt.Bucket, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return b.Put([]byte(key), text)
}

// load reads the value under a key. It returns false if there is none.
func (s *State) load(bucket, key string, value any) (ok bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		text := tx.Bucket([]byte(bucket)).Get([]byte(key))
		if text == nil {
			return nil
		}
		ok = true
		return json.Unmarshal(text, value)
	})
	return ok && err == nil, err
}

// stored is load, but logs an error.
func (s *State) stored(log zerolog.Logger, kind, key string, value any) bool {
	ok, err := s.load(kind, key, value)
	if err != nil {
		log.Warn().Err(err).Str("of", kind).Msg("stored measurements cannot be read; they are measured again")
	}
	return ok
}

// SoloTimes returns the measured isolated latencies of operators. A key consists of the
// device, the hash of the model, the version of ONNX Runtime, the number of operators, and
// the worker's share of the device, separated by "|".
func (s *State) SoloTimes() (known map[string]predictor.Snapshot, err error) {
	known = map[string]predictor.Snapshot{}
	return known, eachStored(s, loop.SoloProfiles, nil, known)
}

// SoloTimesOf returns the isolated latencies of a model on a device, which have the names
// of [models.MeasuredAs] and [models.MeasuredOn]. It returns nothing if the model was never
// measured.
func (s *State) SoloTimesOf(device, model string) (known predictor.Snapshot, err error) {
	all := map[string]predictor.Snapshot{}
	err = eachStored(s, loop.SoloProfiles, func(key string) bool { return loop.ProfileOf(key, device, model) }, all)
	for _, key := range slices.Sorted(maps.Keys(all)) { // one for each cut; their totals are the same
		known = all[key]
	}
	return known, err
}

// eachStored reads those values of a bucket that wanted selects, all if it is nil.
func eachStored[T any](s *State, bucket string, wanted func(key string) bool, into map[string]T) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucket)).ForEach(func(key, text []byte) error {
			if wanted != nil && !wanted(string(key)) {
				return nil
			}
			var value T
			if err := json.Unmarshal(text, &value); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			into[string(key)] = value
			return nil
		})
	})
}
