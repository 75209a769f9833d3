package daemon

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
)

// errModelInMotion is returned when a model file shrinks while it is read.
var errModelInMotion = errors.New("the file changed while it was read: write the new model beside it and rename it")

// rewritten reports whether the file of a model is not the one with this hash,
// which a worker has loaded. A file that cannot be read counts as another one:
// loading it will say why. It reads the whole file.
func rewritten(model, hash string) bool {
	if !config.IsPath(model) {
		return false
	}
	now, err := hashModel(model)
	return err != nil || now != hash
}

// hashModel returns the hash of a model file, as [models.File.Hash] does.
func hashModel(path string) (hash string, err error) {
	err = surviving(path, func() (err error) {
		f, err := models.Open(path, models.DefaultLimits())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		hash, err = f.Hash()
		return err
	})
	return hash, err
}

// surviving reads a file that is mapped. One that is cut short meanwhile would
// end the process; here it is an error.
func surviving(path string, read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		fault := recover()
		if fault == nil {
			return
		}
		if _, ok := fault.(interface{ Addr() uintptr }); !ok {
			panic(fault)
		}
		err = fmt.Errorf("%s: %w", path, errModelInMotion)
	}()
	return read()
}
