package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/models"
)

// CheckModels reads the model files of a configuration. Services that cannot be served with
// these files are returned as [config.Faults]. A file that cannot be read, such as a
// missing one, is a different error, because that may change. What only ONNX Runtime can
// detect is reported by the worker that loads the model.
func CheckModels(c *config.Config) error {
	var faults config.Faults
	var unread error
	// Signature of the first variant of each service.
	first := map[string]*query.Signature{}
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

// checkModel returns the signature of a service's model file, or what is wrong with the
// file, or why it cannot be read within limit. A model without a file has none of these.
func checkModel(ctx context.Context, s *config.Service, limit time.Duration) (sig *query.Signature, fault, err error) {
	for _, path := range s.OpLibraries {
		if fault, err = checkOpLibrary(ctx, path, limit); fault != nil || err != nil {
			return nil, fault, err
		}
	}
	if !config.IsPath(s.Model) {
		return nil, nil, nil
	}
	type checked struct {
		sig   *query.Signature
		fault error
	}
	found, err := readModel(ctx, s.Model, limit, func(f *models.File) (c checked) {
		if len(s.OpLibraries) == 0 { // otherwise only a worker can know
			c.fault = f.CheckOperators()
		}
		if c.fault == nil {
			m := f.Ports()
			c.sig, c.fault = query.CheckModel(s.Model, m.Inputs, m.Outputs, s.MaxBatch)
		}
		return c
	})
	// The file was read but is invalid, which is a fault of the configuration.
	if models.Refused(err) {
		return nil, err, nil
	}
	return found.sig, found.fault, err
}

// errModelInMotion is returned when a model file shrinks while it is read.
var errModelInMotion = errors.New("the file changed while it was read: write a new model to another file and rename it into place")

// hashModel returns the hash of a model file, see [models.File.Hash], with the libraries of
// its custom operators.
func hashModel(ctx context.Context, path string, limit time.Duration, libraries ...string) (hash string, err error) {
	if hash, err = readModel(ctx, path, limit, (*models.File).Hash); err != nil || len(libraries) == 0 {
		return hash, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	with, err := textfile.Within(ctx, libraries[0], func() (string, error) { return models.HashFiles(libraries) })
	return models.HashWith(hash, with), err
}

// readModel calls read with a model file and returns its result. limit is
// worker.load_timeout, which also limits the worker. The file is mapped: if it is truncated
// meanwhile, reading faults, which would end the process. Here the fault becomes an error.
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
			// Any other panic is a defect and not a fault of the mapping.
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
