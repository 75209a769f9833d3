package mig

import (
	"errors"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/cuda"
)

// Apply carries out a layout. It reads the device again, plans again, and creates what is
// missing; applying a layout twice thus changes nothing the second time. It passes the
// record to save before and after every step, and stops if save fails.
//
// After an error Apply undoes what it created. The error names what could not be undone,
// which stays in the record. Leftovers of earlier runs that it destroyed are not restored.
// The returned Layout has a UUID in each slot.
func Apply(h *cuda.Host, l Layout, save func(Record) error) (Layout, Record, error) {
	record, err := l.options.Record.on(l.Device.UUID, l.options.Boot)
	if err != nil {
		return l, l.options.Record, err
	}
	w := &work{host: h, gpu: l.Device.UUID, record: record, save: save, earlier: len(record.Entries)}
	done, err := w.apply(l)
	if err != nil {
		err = errors.Join(err, w.undo())
	}
	return done, w.record.clone(), err
}

// work is a record that is being changed together with its GPU.
type work struct {
	host   *cuda.Host
	gpu    string
	record Record
	save   func(Record) error

	// earlier is the number of entries at the front that earlier calls created.
	earlier int

	// enabled is set if this call turned the MIG mode on.
	enabled bool
}

// apply performs the steps of a layout. The order matters: leftovers are removed first,
// because they occupy slices, and the profiles are known for certain only once the MIG mode
// is on.
func (w *work) apply(l Layout) (Layout, error) {
	l, err := w.plan(l)
	if err != nil {
		return l, err
	}
	// Drop entries whose instance no longer exists.
	w.record.Entries = slices.DeleteFunc(w.record.Entries, func(e entry) bool { return e.find(l.Device) == nil })
	w.earlier = len(w.record.Entries)
	for _, e := range l.Remove {
		if err := w.remove(e); err != nil {
			return l, fmt.Errorf("removing what an earlier run left: %w", err)
		}
	}
	if l.EnableMode {
		w.record.EnabledMode, w.enabled = true, true
		if err := w.keep(); err != nil {
			return l, err
		}
		if err := w.host.SetMIGMode(w.gpu, true); err != nil {
			return l, fmt.Errorf("enabling MIG mode: %w", err)
		}
		if l, err = w.plan(l); err != nil { // the mode may change the profiles
			return l, err
		}
	}
	for _, s := range l.Slots {
		if s.State == Create {
			if err := w.create(l, s); err != nil {
				return l, err
			}
		}
	}
	l, err = w.plan(l) // verify that no step is left
	if steps := l.Steps(); err == nil && len(steps) > 0 {
		err = fmt.Errorf("%w: somebody changes the instances of %s at the same time (%s); stop that and start again", ErrForeign, l.Device, steps[0])
	}
	return l, err
}

// plan plans again for the current state of the device.
func (w *work) plan(l Layout) (Layout, error) {
	d, err := w.host.Device(w.gpu)
	if err != nil {
		return l, err
	}
	o := l.options
	o.Record = w.record
	return Plan(d, l.wants, o)
}

// create creates the instances of a slot. It records each step before it takes it, so that
// a crash leaves no instance behind that the record does not know.
func (w *work) create(l Layout, s slot) error {
	p, ok := l.Device.MIG.Profile(s.Profile)
	if !ok {
		return fmt.Errorf("%w: %s", ErrWant, s.Profile)
	}
	w.record.Entries = append(w.record.Entries, entry{State: Creating, Profile: s.Profile, Placement: s.Placement})
	e := &w.record.Entries[len(w.record.Entries)-1]
	if err := w.keep(); err != nil {
		return err
	}
	id, err := w.host.CreateGPUInstance(w.gpu, p, s.Placement)
	if err != nil {
		return err
	}
	e.State, e.Instance = Bare, id
	if err := w.keep(); err != nil {
		return err
	}
	if e.Compute, err = w.host.CreateComputeInstance(w.gpu, id); err != nil {
		return err
	}
	d, err := w.host.Device(w.gpu) // to learn the UUID
	if err != nil {
		return err
	}
	have := e.find(d)
	if have == nil || have.UUID == "" {
		return fmt.Errorf("%s was created and is not there, or has no MIG device: %w", e, cuda.ErrNotFound)
	}
	e.State, e.UUID = Ready, have.UUID
	return w.keep()
}

// keep passes the record to the caller.
func (w *work) keep() error {
	if err := w.save(w.record.clone()); err != nil {
		return fmt.Errorf("keeping the MIG record: %w", err)
	}
	return nil
}

// undo destroys what this call created, and turns the mode off if this call turned it on.
func (w *work) undo() error {
	made := w.record.Entries[min(w.earlier, len(w.record.Entries)):]
	err := w.removeAll(made, "undoing")
	if w.enabled && err == nil {
		if err = w.disable(); err != nil {
			err = fmt.Errorf("undoing MIG mode: %w", err)
		}
	}
	return err
}

// removeAll removes entries, last first. It continues after errors and returns all of them.
func (w *work) removeAll(entries []entry, doing string) error {
	var errs []error
	for _, e := range slices.Backward(slices.Clone(entries)) {
		if err := w.remove(e); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", doing, e, err))
		}
	}
	return errors.Join(errs...)
}

// Release destroys what a record lists, last first, and compute instances before their GPU
// instances. It turns the MIG mode off if overlapd turned it on and no other instances
// exist. It skips what no longer exists.
//
// An instance with running processes stays, with an ErrBusy that names them. So does one
// in which somebody else created a compute instance, with an ErrForeign. The returned
// Record has what is left; save receives it after every step.
func Release(h *cuda.Host, r Record, boot string, save func(Record) error) (Record, error) {
	record, err := r.on(r.GPU, boot)
	if err != nil {
		return r, err
	}
	w := &work{host: h, gpu: r.GPU, record: record, save: save}
	if record.Empty() {
		if r.Empty() {
			return record, nil
		}
		return record, w.keep() // the record is from another boot, so nothing in it exists
	}
	err = w.removeAll(record.Entries, "releasing")
	if w.record.EnabledMode && err == nil {
		err = w.disable()
	}
	return w.record.clone(), err
}

// remove destroys the instance of an entry, if it exists, and drops the entry.
func (w *work) remove(e entry) error {
	d, err := w.host.Device(w.gpu)
	if err != nil {
		return err
	}
	if have := e.find(d); have != nil {
		if err := w.destroy(e, have); err != nil {
			return err
		}
	} else if d.MIG.Enabled && !d.MIG.Listed {
		return fmt.Errorf("the instances of %s cannot be listed: %w", d, unlisted(d))
	}
	i := slices.Index(w.record.Entries, e)
	w.record.Entries = slices.Delete(w.record.Entries, i, i+1)
	if i < w.earlier {
		w.earlier--
	}
	return w.keep()
}

// destroy destroys an instance and its compute instances, unless they are in use or not
// ours.
func (w *work) destroy(e entry, have *cuda.Instance) error {
	if running := have.Processes(); len(running) > 0 {
		return fmt.Errorf("%w: %s in GPU instance %d; stop them first", ErrBusy, pids(running), have.ID)
	}
	if i := e.stranger(have); i >= 0 {
		c := have.Compute[i]
		return fmt.Errorf("%w: compute instance %d (%s) in GPU instance %d; destroy it with nvidia-smi mig -dci first", ErrForeign, c.ID, c.UUID, have.ID)
	}
	for _, c := range have.Compute {
		if err := gone(w.host.DestroyComputeInstance(w.gpu, have.ID, c.ID)); err != nil {
			return err
		}
	}
	return gone(w.host.DestroyGPUInstance(w.gpu, have.ID))
}

// gone treats an instance that no longer exists as destroyed.
func gone(err error) error {
	if errors.Is(err, cuda.ErrNotFound) {
		return nil
	}
	return err
}

// disable turns the mode off unless there are instances.
func (w *work) disable() error {
	d, err := w.host.Device(w.gpu)
	if err != nil {
		return err
	}
	if len(d.Instances) > 0 {
		return fmt.Errorf("%w: MIG mode of %s stays on, for GPU instance %d is in it; turn it off with nvidia-smi -i %d -mig 0 when it is empty",
			ErrForeign, d, d.Instances[0].ID, d.Index)
	}
	if d.MIG.Enabled != d.MIG.Pending { // enabled, or enabled after the next reset
		if err := w.host.SetMIGMode(w.gpu, false); err != nil {
			return err
		}
	}
	w.record.EnabledMode = false
	return w.keep()
}
