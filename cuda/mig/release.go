package mig

import (
	"errors"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/cuda"
)

// Release destroys what a record lists, the last first, compute instances before
// their GPU instances, and turns the MIG mode off if we turned it on and nobody
// else has instances. What is gone already is skipped. What processes run in
// stays, with an ErrBusy that names them, and so does what somebody else put
// into an instance of ours, with an ErrForeign. The Record returned has what is
// left; save gets it after every step.
func Release(h Host, r Record, boot string, save func(Record) error) (Record, error) {
	record, err := r.on(r.GPU, boot)
	if err != nil {
		return r, err
	}
	w := &work{host: h, gpu: r.GPU, record: record, save: save}
	if record.Empty() {
		if r.Empty() {
			return record, nil
		}
		return record, w.keep() // of another boot: nothing of it exists
	}
	var errs []error
	for _, e := range slices.Backward(slices.Clone(record.Entries)) {
		if err := w.remove(e); err != nil {
			errs = append(errs, fmt.Errorf("releasing %s: %w", e, err))
		}
	}
	if w.record.EnabledMode && len(errs) == 0 {
		errs = append(errs, w.disable())
	}
	return w.record.clone(), errors.Join(errs...)
}

// remove destroys the instance of an entry, if it exists, and drops the entry.
func (w *work) remove(e Entry) error {
	d, err := w.host.Device(w.gpu)
	if err != nil {
		return err
	}
	if have := e.find(d); have != nil {
		if err := w.destroy(e, have); err != nil {
			return err
		}
	} else if d.MIG.Enabled && !d.MIG.Listed {
		return fmt.Errorf("the instances of %s cannot be listed: %w", d, errors.Join(d.MIG.Why, permissionIfNone(d)))
	}
	i := slices.Index(w.record.Entries, e)
	w.record.Entries = slices.Delete(w.record.Entries, i, i+1)
	if i < w.earlier {
		w.earlier--
	}
	return w.keep()
}

func (w *work) destroy(e Entry, have *cuda.Instance) error {
	if running := have.Processes(); len(running) > 0 {
		return fmt.Errorf("%w: %s in GPU instance %d; stop them first", ErrBusy, pids(running), have.ID)
	}
	if c, strange := e.stranger(have); strange {
		return fmt.Errorf("%w: compute instance %d (%s) in GPU instance %d; destroy it with nvidia-smi mig -dci first", ErrForeign, c.ID, c.UUID, have.ID)
	}
	for _, c := range have.Compute {
		if err := gone(w.host.DestroyComputeInstance(w.gpu, have.ID, c.ID)); err != nil {
			return err
		}
	}
	return gone(w.host.DestroyGPUInstance(w.gpu, have.ID))
}

// gone takes it for success that there is nothing to destroy.
func gone(err error) error {
	if errors.Is(err, cuda.ErrNotFound) {
		return nil
	}
	return err
}

// disable turns the mode off unless somebody has instances.
func (w *work) disable() error {
	d, err := w.host.Device(w.gpu)
	if err != nil {
		return err
	}
	if len(d.Instances) > 0 {
		return fmt.Errorf("%w: MIG mode of %s stays on, for GPU instance %d is in it; turn it off with nvidia-smi -i %d -mig 0 when it is empty",
			ErrForeign, d, d.Instances[0].ID, d.Index)
	}
	if d.MIG.Enabled != d.MIG.Pending { // on, or about to be
		if err := w.host.SetMIGMode(w.gpu, false); err != nil {
			return err
		}
	}
	w.record.EnabledMode = false
	return w.keep()
}
