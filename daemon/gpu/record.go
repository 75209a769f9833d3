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
// the daemon has made. A file that is there is complete: it is written beside the
// old one and takes its place.
const recordName = "mig.json"

// errRecordFile is returned when the record of instances cannot be read or written.
var errRecordFile = errors.New("record of MIG instances")

// ReadRecord returns the record in a state folder, an empty one if there is none.
func ReadRecord(stateDir string) (mig.Record, error) {
	path := filepath.Join(stateDir, recordName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return mig.Record{}, nil
	}
	if err != nil {
		return mig.Record{}, fmt.Errorf("%w: %w", errRecordFile, err)
	}
	r, err := mig.ParseRecord(data)
	if err != nil {
		return r, fmt.Errorf("%w %s: %w", errRecordFile, path, err)
	}
	return r, nil
}

// writeRecord makes the record in a state folder survive a crash of the host. An
// empty one is removed.
func writeRecord(stateDir string, r mig.Record) error {
	folder, err := os.Open(stateDir)
	if err == nil {
		err = errors.Join(replaceRecord(filepath.Join(stateDir, recordName), r), folder.Sync(), folder.Close())
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errRecordFile, err)
	}
	return nil
}

func replaceRecord(path string, r mig.Record) error {
	if r.Empty() {
		return remove(path)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	// What stands in its place is of a daemon that died, or a link which would have
	// another file written.
	next := path + ".new"
	if err := remove(next); err != nil {
		return err
	}
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(data, '\n'))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// remove removes a file that may not be there.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
