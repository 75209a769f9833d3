package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/overlapd/overlapd/cuda/mig"
)

// recordName is the file in the state folder that lists the MIG instances which
// the daemon has made.
const recordName = "mig.json"

// ReadRecord returns the record in a state folder, an empty one if there is none.
func ReadRecord(stateDir string) (mig.Record, error) { return recordFile{stateDir}.read() }

// ErrRecordFile is returned when the record of instances cannot be read or written.
var ErrRecordFile = errors.New("record of MIG instances")

// recordFile is the record on disk. A file that is there is complete: it is
// written beside the old one and takes its place.
type recordFile struct{ dir string }

func (f recordFile) path() string { return filepath.Join(f.dir, recordName) }

// read returns the record, an empty one if there is none.
func (f recordFile) read() (mig.Record, error) {
	data, err := os.ReadFile(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return mig.Record{}, nil
	}
	if err != nil {
		return mig.Record{}, fmt.Errorf("%w: %w", ErrRecordFile, err)
	}
	r, err := mig.ParseRecord(data)
	if err != nil {
		return r, fmt.Errorf("%w %s: %w", ErrRecordFile, f.path(), err)
	}
	return r, nil
}

// write makes the record survive a crash of the host. An empty one is
// removed.
func (f recordFile) write(r mig.Record) error {
	err := f.replace(r)
	if err == nil {
		err = syncDir(f.dir)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRecordFile, err)
	}
	return nil
}

func (f recordFile) replace(r mig.Record) error {
	if r.Empty() {
		if err := os.Remove(f.path()); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	next := f.path() + ".new"
	if err := writeSynced(next, append(data, '\n')); err != nil {
		return err
	}
	return os.Rename(next, f.path())
}

// writeSynced writes a new file. What stands in its place goes: it is of a daemon
// that died, or a link which would have another file written.
func writeSynced(path string, data []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
