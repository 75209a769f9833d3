package daemon

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// CheckModels reads the model files of a configuration and returns, as [config.Faults],
// every service that cannot be served with what is there. That a file cannot be read, as
// one that is not there, is another error, since that may change. What only ONNX Runtime
// can judge is found by the worker that loads the model.
func CheckModels(c *config.Config) error {
	var faults config.Faults
	var unread error
	first := map[string]*query.Signature{} // of the variants of a service
	all := c.Expanded().Services
	for i := range all {
		s := &all[i]
		sig, fault, err := checkModel(s)
		if err != nil {
			unread = errors.Join(unread, fmt.Errorf("service %s: %w", s.Name, err))
		}
		if of, _ := s.Of(); of != "" && sig != nil && fault == nil {
			if first[of] == nil {
				first[of] = sig
			}
			fault = first[of].Differs(sig)
		}
		if fault != nil {
			faults = append(faults, config.ModelFault(s.Name, fault)...)
		}
	}
	if len(faults) == 0 {
		return unread
	}
	return errors.Join(faults, unread)
}

// checkModel returns what the model file of a service looks like to clients, if it has one,
// what is wrong with it, or why it cannot be read.
func checkModel(s *config.Service) (sig *query.Signature, fault, err error) {
	if !config.IsPath(s.Model) {
		return nil, nil, nil
	}
	err = readModel(s.Model, func(f *models.File) {
		if fault = f.CheckOperators(); fault == nil {
			m := f.Ports()
			sig, fault = query.CheckModel(s.Model, m.Inputs, m.Outputs, s.MaxBatch)
		}
	})
	if models.Refused(err) {
		return nil, err, nil
	}
	return sig, fault, err
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
