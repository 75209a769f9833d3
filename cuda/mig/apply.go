package mig

import (
	"errors"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/cuda"
)

// Host is what changes a GPU: a *cuda.Host.
type Host interface {
	Device(uuid string) (cuda.Device, error)
	SetMIGMode(gpu string, on bool) error
	CreateGPUInstance(gpu string, p cuda.Profile, at cuda.Placement) (uint32, error)
	CreateComputeInstance(gpu string, instance uint32) (uint32, error)
	DestroyComputeInstance(gpu string, instance, compute uint32) error
	DestroyGPUInstance(gpu string, instance uint32) error
}

var _ Host = (*cuda.Host)(nil)

// Apply carries out a layout: it reads the device anew, plans again and makes
// what is missing, so to apply twice does nothing the second time. The record is
// handed to save before and after every step; a save that fails ends the work.
//
// After an error what this call made is undone, and the error tells what could
// not be undone, which stays in the record. Leftovers of earlier runs that were
// destroyed do not come back. The Layout returned has a UUID in each slot.
func Apply(h Host, l Layout, save func(Record) error) (Layout, Record, error) {
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
	host    Host
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
	w.prune(l.Device)
	for _, e := range l.Remove {
		if err := w.remove(e); err != nil {
			return l, fmt.Errorf("removing what an earlier run left: %w", err)
		}
	}
	if l.EnableMode {
		if l, err = w.enable(l); err != nil {
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
	return w.verify(l)
}

// prune forgets what does not exist any more.
func (w *work) prune(d cuda.Device) {
	w.record.Entries = slices.DeleteFunc(w.record.Entries, func(e Entry) bool { return e.find(d) == nil })
	w.earlier = len(w.record.Entries)
}

// verify plans for the last time: nothing may be left to do.
func (w *work) verify(l Layout) (Layout, error) {
	l, err := w.plan(l)
	if err == nil && l.Changes() {
		err = fmt.Errorf("%w: somebody changes the instances of %s at the same time (%s); stop that and start again", ErrForeign, l.Device, l.Steps()[0])
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

// enable turns the mode on. Profiles may be others then.
func (w *work) enable(l Layout) (Layout, error) {
	w.record.EnabledMode, w.enabled = true, true
	if err := w.keep(); err != nil {
		return l, err
	}
	if err := w.host.SetMIGMode(w.gpu, true); err != nil {
		return l, fmt.Errorf("enabling MIG mode: %w", err)
	}
	return w.plan(l)
}

// create makes the instances of a slot, saying before each what it is about to
// do.
func (w *work) create(l Layout, s Slot) error {
	p, ok := l.Device.MIG.Profile(s.Profile)
	if !ok {
		return fmt.Errorf("%w: %s", ErrWant, s.Profile)
	}
	w.record.Entries = append(w.record.Entries, Entry{State: Creating, Profile: s.Profile, Placement: s.Placement})
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
	return w.finish(e)
}

// finish learns the UUID of a new instance.
func (w *work) finish(e *Entry) error {
	d, err := w.host.Device(w.gpu)
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

// keep hands the record over.
func (w *work) keep() error {
	if err := w.save(w.record.clone()); err != nil {
		return fmt.Errorf("keeping the MIG record: %w", err)
	}
	return nil
}

// undo destroys what this call made, the last first, and turns the mode off if
// it turned it on. It goes on after errors and returns all.
func (w *work) undo() error {
	var errs []error
	for _, e := range slices.Backward(slices.Clone(w.record.Entries[min(w.earlier, len(w.record.Entries)):])) {
		if err := w.remove(e); err != nil {
			errs = append(errs, fmt.Errorf("undoing %s: %w", e, err))
		}
	}
	if w.enabled && len(errs) == 0 {
		if err := w.disable(); err != nil {
			errs = append(errs, fmt.Errorf("undoing MIG mode: %w", err))
		}
	}
	return errors.Join(errs...)
}
