package mig

import (
	"errors"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/cuda"
)

// Apply carries out a layout: it reads the device anew, plans again and makes
// what is missing, so to apply twice does nothing the second time. The record is
// handed to save before and after every step; a save that fails ends the work.
//
// After an error what this call made is undone, and the error names what could
// not be undone, which stays in the record. Leftovers of earlier runs that were
// destroyed do not come back. The Layout returned has a UUID in each slot.
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

// work is a record being changed together with its GPU.
type work struct {
	host    *cuda.Host
	gpu     string
	record  Record
	save    func(Record) error
	earlier int  // entries at the front that this call did not make
	enabled bool // this call turned the mode on
}

func (w *work) apply(l Layout) (Layout, error) {
	l, err := w.plan(l)
	if err != nil {
		return l, err
	}
	// What does not exist any more is forgotten.
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
		if l, err = w.plan(l); err != nil { // profiles may be others now
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
	l, err = w.plan(l) // for the last time: nothing may be left to do
	if steps := l.Steps(); err == nil && len(steps) > 0 {
		err = fmt.Errorf("%w: somebody changes the instances of %s at the same time (%s); stop that and start again", ErrForeign, l.Device, steps[0])
	}
	return l, err
}

// plan plans again for the device as it is now.
func (w *work) plan(l Layout) (Layout, error) {
	d, err := w.host.Device(w.gpu)
	if err != nil {
		return l, err
	}
	o := l.options
	o.Record = w.record
	return Plan(d, l.wants, o)
}

// create makes the instances of a slot. Before each the record has what is about to be
// made, so that a crash leaves nothing that nobody knows of.
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
	d, err := w.host.Device(w.gpu) // which has the UUID
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

func (w *work) keep() error {
	if err := w.save(w.record.clone()); err != nil {
		return fmt.Errorf("keeping the MIG record: %w", err)
	}
	return nil
}

// undo destroys what this call made, and turns the mode off if it turned it on.
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

// removeAll removes entries, the last first. It goes on after errors and returns all.
func (w *work) removeAll(entries []entry, doing string) error {
	var errs []error
	for _, e := range slices.Backward(slices.Clone(entries)) {
		if err := w.remove(e); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", doing, e, err))
		}
	}
	return errors.Join(errs...)
}

// Release destroys what a record lists, the last first, compute instances before
// their GPU instances, and turns the MIG mode off if we turned it on and nobody
// else has instances. What is gone already is skipped. What processes run in
// stays, with an ErrBusy that names them, and so does what somebody else put
// into an instance of ours, with an ErrForeign. The Record returned has what is
// left; save gets it after every step.
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
		return record, w.keep() // of another boot: nothing of it exists
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
