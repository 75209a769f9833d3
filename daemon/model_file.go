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
	err = readModel(path, func(f *models.File) { hash = f.Hash() })
	return hash, err
}

// readModel reads a model file, which is mapped. One that is cut short meanwhile
// would end the process; here it is an error.
func readModel(path string, read func(*models.File)) (err error) {
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
	f, err := models.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	read(f)
	return nil
}
