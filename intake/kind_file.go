package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// fileMode is that of a new file: whoever may look at the host may read it.
const fileMode = 0o644

// ReadFile reads the file of a path into what a pointer points to. Errors name
// the path; those of Read may be among them.
func (k *Kind) ReadFile(path string, into any) error {
	file, err := Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return k.Read(file, path, into)
}

// WriteFile writes a value as a file of this kind. Whoever reads the path finds
// the old file or the whole new one, also after a crash.
func (k *Kind) WriteFile(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if len(data) >= k.MaxBytes {
		return fmt.Errorf("%w: larger than %d bytes", k.Damaged, k.MaxBytes)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = temp.Write(append(data, '\n'))
	if err = errors.Join(err, temp.Chmod(fileMode), temp.Sync(), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes a rename last.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
