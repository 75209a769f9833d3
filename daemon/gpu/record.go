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

// recordName is the file in the state folder with the MIG instances that the daemon has
// created. It is replaced atomically, so it is always complete.
const recordName = "mig.json"

// errRecordFile is returned when the record of instances cannot be read or written.
var errRecordFile = errors.New("record of MIG instances")

// ReadRecord returns the record in a state folder, or an empty one if there is none.
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

// writeRecord replaces the record in a state folder and syncs it, so that it survives a
// crash of the host. An empty record removes the file.
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

// replaceRecord writes the record to a new file and renames it.
func replaceRecord(path string, r mig.Record) error {
	if r.Empty() {
		return remove(path)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	// A file in its place is left by a daemon that died, or is a link that would redirect
	// the write.
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

// remove removes a file if it exists.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
