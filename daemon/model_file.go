package daemon

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/overlapd/overlapd/models"
)

// errModelInMotion is returned when a model file shrinks while it is read.
var errModelInMotion = errors.New("the file changed while it was read: write the new model beside it and rename it")

// hashModel returns the hash of a model file, as [models.File.Hash] does.
func hashModel(path string) (hash string, err error) {
	err = surviving(path, func() (err error) {
		f, err := models.Open(path)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		hash = f.Hash()
		return nil
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
