package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/textfile"
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
		sig, fault, err := checkModel(context.Background(), s, c.Worker.LoadTimeout)
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
// what is wrong with it, or why it cannot be read within limit.
func checkModel(ctx context.Context, s *config.Service, limit time.Duration) (sig *query.Signature, fault, err error) {
	if !config.IsPath(s.Model) {
		return nil, nil, nil
	}
	type checked struct {
		sig   *query.Signature
		fault error
	}
	found, err := readModel(ctx, s.Model, limit, func(f *models.File) (c checked) {
		if c.fault = f.CheckOperators(); c.fault == nil {
			m := f.Ports()
			c.sig, c.fault = query.CheckModel(s.Model, m.Inputs, m.Outputs, s.MaxBatch)
		}
		return c
	})
	if models.Refused(err) {
		return nil, err, nil
	}
	return found.sig, found.fault, err
}

// errModelInMotion is returned when a model file shrinks while it is read.
var errModelInMotion = errors.New("the file changed while it was read: write the new model beside it and rename it")

// hashModel returns the hash of a model file, as [models.File.Hash] does.
func hashModel(ctx context.Context, path string, limit time.Duration) (hash string, err error) {
	return readModel(ctx, path, limit, (*models.File).Hash)
}

// readModel returns what read finds in a model file, within limit, which is
// worker.load_timeout: a worker may not take longer either. The file is mapped. One that is
// cut short meanwhile would end the process; here it is an error.
func readModel[T any](ctx context.Context, path string, limit time.Duration, read func(*models.File) T) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return textfile.Within(ctx, path, func() (found T, err error) {
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
			return found, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		return read(f), nil
	})
}
