package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// CheckModels reads the model files of a configuration and returns, as [config.Faults],
// every service that cannot be served with what is there. A file that is not there, or
// that may not be read, is another error, since it may come. What only ONNX Runtime can
// judge is found by the worker that loads the model.
func CheckModels(c *config.Config) error {
	var faults config.Faults
	var absent error
	for i := range c.Services {
		s := &c.Services[i]
		err := checkModel(s)
		if path := (*fs.PathError)(nil); errors.As(err, &path) {
			absent = errors.Join(absent, fmt.Errorf("service %s: %w", s.Name, err))
		} else if err != nil {
			faults = append(faults, config.ModelFault(s.Name, err)...)
		}
	}
	if len(faults) == 0 {
		return absent
	}
	return errors.Join(faults, absent)
}

// checkModel returns what is wrong with the model file of a service, if it has one.
func checkModel(s *config.Service) error {
	if !config.IsPath(s.Model) {
		return nil
	}
	var fault error
	err := readModel(s.Model, func(f *models.File) {
		if fault = f.CheckOperators(); fault == nil {
			m := f.Ports()
			fault = query.CheckModel(s.Model, m.Inputs, m.Outputs, s.MaxBatch)
		}
	})
	return errors.Join(err, fault)
}

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
