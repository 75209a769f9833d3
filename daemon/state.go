package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/training"
)

// Limits of the state file.
const (
	stateName = "state.db"

	// asideTime is the form of the time in the name of a file set aside.
	asideTime = "20060102-150405.000000000"

	// maxProfileBytes is the largest solo profile that is stored.
	maxProfileBytes = 16 << 20
)

// ErrNoState is returned when a folder has no state file.
var ErrNoState = errors.New("there is no state file")

var (
	profileBucket     = []byte("solo-profiles")
	calibrationBucket = []byte("calibrations") // learned for predictors, by their identity and the services
)

// state is the file that outlives the daemon: what was measured of each model
// on this device.
type state struct {
	db       *statefile.File
	datasets *training.Store
}

// State is the state file in the hands of a command, while no daemon has it.
type State struct {
	file *state
}

// OpenState opens the state file in dir. If there is none it is made, or with
// mustExist refused with ErrNoState. A damaged one stays as it is: the next
// daemon sets it aside. Check is that of [Options].
func OpenState(dir string, mustExist bool, check []string) (*State, error) {
	path := filepath.Join(dir, stateName)
	if mustExist {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w in %s", ErrNoState, dir)
		}
	}
	if err := makeStateDir(dir); err != nil {
		return nil, err
	}
	file, err := openFile(path, check)
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
func openState(dir string, check []string) (s *state, aside string, err error) {
	if err := makeStateDir(dir); err != nil {
		return nil, "", err
	}
	path := filepath.Join(dir, stateName)
	if s, err = openFile(path, check); !errors.Is(err, statefile.ErrDamaged) {
		return s, "", err
	}
	aside = fmt.Sprintf("%s.damaged-%s", path, time.Now().UTC().Format(asideTime))
	if rerr := os.Rename(path, aside); rerr != nil {
		return nil, "", errors.Join(err, rerr)
	}
	s, err = openFile(path, check)
	return s, aside, err
}

func makeStateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state folder: %w; set state_dir to a folder that can be written", err)
	}
	return nil
}

// openFile opens a state file, or makes it.
func openFile(path string, check []string) (*state, error) {
	db, err := statefile.Open(path, check)
	if err != nil {
		return nil, err
	}
	if err = db.View(func(tx *bbolt.Tx) error { return tx.ForEach(readBucket) }); err == nil {
		err = db.Update(makeBuckets)
	}
	s := &state{db: db}
	if err == nil {
		s.datasets, err = training.NewStore(db)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), db.Close())
	}
	return s, nil
}

// readBucket reads the entries of a bucket. There are no buckets in buckets.
func readBucket(name []byte, b *bbolt.Bucket) error {
	if b == nil {
		return fmt.Errorf("%w: %q is no bucket", statefile.ErrDamaged, name)
	}
	return b.ForEach(func(k, text []byte) error {
		if !json.Valid(text) {
			return fmt.Errorf("%w: the value of %q is not JSON", statefile.ErrDamaged, k)
		}
		return nil
	})
}

func makeBuckets(tx *bbolt.Tx) error {
	for _, name := range [][]byte{profileBucket, calibrationBucket, cutBucket} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
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

func (s *state) close() error { return s.db.Close() }

// cutBucket holds into how many operators models are cut, as was measured.
var cutBucket = []byte("cut-choices")

// saveCut stores a choice.
func (s *state) saveCut(key []byte, c *wire.CutChoice) error { return s.save(cutBucket, key, c) }

// cut returns what was stored under key, nil if nothing was.
func (s *state) cut(key []byte) (*wire.CutChoice, error) {
	c := &wire.CutChoice{}
	if ok, err := s.load(cutBucket, key, c); !ok || err != nil {
		return nil, err
	}
	return c, nil
}
