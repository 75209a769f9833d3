package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/overlapd/overlapd/predictor"
)

// Limits of the state file.
const (
	stateName = "state.db"

	// stateLock is how long another daemon may hold the file.
	stateLock = time.Second

	// maxProfileBytes is the largest solo profile that is stored.
	maxProfileBytes = 16 << 20
)

// ErrStateInUse is returned when another daemon has the state file open.
var ErrStateInUse = errors.New("another overlapd uses this state folder; give each its own state_dir")

var profileBucket = []byte("solo-profiles")

// state is the file that outlives the daemon: what was measured of each model
// on this device.
type state struct {
	db *bbolt.DB
}

// openState opens the state file in dir. A damaged one is set aside under
// another name, never overwritten, and its new name is returned.
func openState(dir string) (s *state, aside string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", fmt.Errorf("state folder: %w; set state_dir to a folder that can be written", err)
	}
	path := filepath.Join(dir, stateName)
	db, err := openDB(path)
	if err == nil {
		return &state{db}, "", nil
	}
	if errors.Is(err, bbolt.ErrTimeout) {
		return nil, "", fmt.Errorf("%s: %w", path, ErrStateInUse)
	}
	if errors.Is(err, os.ErrPermission) {
		return nil, "", err
	}
	aside = fmt.Sprintf("%s.damaged-%d", path, time.Now().Unix())
	if rerr := os.Rename(path, aside); rerr != nil {
		return nil, "", errors.Join(err, rerr)
	}
	if db, err = openDB(path); err != nil {
		return nil, aside, err
	}
	return &state{db}, aside, nil
}

// openDB opens a bbolt file and reads all of it once: a page that is broken
// must be found now, not while serving.
func openDB(path string) (db *bbolt.DB, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%s: %v", path, fault)
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: stateLock})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for fault := range tx.Check() {
			return fault
		}
		_, err := tx.CreateBucketIfNotExists(profileBucket)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// profileKey names what a solo profile holds for.
func profileKey(device, modelHash, ortVersion string, operators, threads int) []byte {
	return fmt.Appendf(nil, "%s|%s|ort %s|%d operators|%d threads", device, modelHash, ortVersion, operators, threads)
}

// saveProfile stores what was measured of a model.
func (s *state) saveProfile(key []byte, p predictor.Snapshot) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if len(text) > maxProfileBytes {
		return fmt.Errorf("a profile of %d bytes exceeds %d", len(text), maxProfileBytes)
	}
	return s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(profileBucket).Put(key, text) })
}

// profile returns what was stored under key, and false if nothing was.
func (s *state) profile(key []byte) (p predictor.Snapshot, ok bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		text := tx.Bucket(profileBucket).Get(key)
		if text == nil {
			return nil
		}
		ok = true
		return json.Unmarshal(text, &p)
	})
	return p, ok && err == nil, err
}

func (s *state) close() error { return s.db.Close() }
