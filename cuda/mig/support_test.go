package mig_test

import (
	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

const boot = "boot-1"

// failer is a test or a rapid property.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// fixture is a host with one GPU in MIG mode.
type fixture struct {
	failer
	*fakegpu.Server
	host  *cuda.Host
	saved []mig.Record
}

func open(t failer, model fakegpu.Model) *fixture {
	t.Helper()
	s := fakegpu.New(model)
	s.SetMIG(0, true)
	host, err := cuda.Open(s)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{failer: t, Server: s, host: host}
}

func (f *fixture) gpu() string { return f.Devices[0].UUID }

func (f *fixture) device() cuda.Device {
	f.Helper()
	d, err := f.host.Device(f.gpu())
	if err != nil {
		f.Fatal(err)
	}
	return d
}

// save keeps every record.
func (f *fixture) save(r mig.Record) error {
	f.saved = append(f.saved, r)
	return nil
}

func (f *fixture) last() mig.Record {
	if len(f.saved) == 0 {
		return mig.Record{}
	}
	return f.saved[len(f.saved)-1]
}

func wants(profiles ...string) (all []mig.Want) {
	for _, p := range profiles {
		all = append(all, mig.Want{Profile: p})
	}
	return all
}

func owner(r mig.Record) mig.Options { return mig.Options{Owner: true, Record: r, Boot: boot} }

// plan plans as the owner, with the last record.
func (f *fixture) plan(profiles ...string) (mig.Layout, error) {
	f.Helper()
	return mig.Plan(f.device(), wants(profiles...), owner(f.last()))
}

// apply plans and applies what must go well.
func (f *fixture) apply(profiles ...string) mig.Layout {
	f.Helper()
	l, err := f.plan(profiles...)
	if err != nil {
		f.Fatal(err)
	}
	done, _, err := mig.Apply(f.host, l, f.save)
	if err != nil {
		f.Fatal(err)
	}
	return done
}

func (f *fixture) release() error {
	_, err := mig.Release(f.host, f.last(), boot, f.save)
	return err
}

func (f *fixture) place(profile, start, slices uint32) {
	f.Helper()
	if err := f.Place(0, profile, start, slices); err != nil {
		f.Fatal(err)
	}
}

// names of the profiles of the models that tests use, by ID.
func names(d cuda.Device) (all []string) {
	for _, p := range d.MIG.Profiles {
		all = append(all, p.Name)
	}
	return all
}
