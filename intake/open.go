package intake

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Open opens a file to read it. Its errors name the path.
func Open(path string) (*os.File, error) {
	file, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w; let this user read it", err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w; check the path", err)
	case err != nil:
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = &Fault{File: path, Err: ErrFolder}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
