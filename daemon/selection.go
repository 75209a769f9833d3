package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/planning/selection"
)

// Selectable returns what the selection policies of a service with variants are for on this
// host: the device, the target, the number of workers and the variants, without their
// latencies. Both creating and reading a policy file use it, so that they agree. The loop,
// which compares the file with the loaded models, uses the same names.
func Selectable(c config.Config, service string, o Options) (w selection.Worker, err error) {
	c = c.Expanded()
	err = o.devices(c, func(p pool) error {
		w, err = p.selectable(&c, service)
		return err
	})
	return w, err
}

// CheckSelection reads the policy files of a configuration and compares them with the host,
// like a daemon that is about to use them. The error is a [config.Faults].
func CheckSelection(c config.Config, o Options) error {
	if c = c.Expanded(); !slices.ContainsFunc(c.Services, func(s config.Service) bool { return s.Selection != "" }) {
		return nil
	}
	return o.devices(c, func(p pool) error { return p.checkSelection(&c) })
}

// devices calls do with the devices of the pool that a daemon would have. It changes
// nothing, except that it builds models of the zoo.
func (o *Options) devices(c config.Config, do func(pool) error) error {
	one := poolDevice{config: c, log: o.Log, text: o.Device, runtime: o.Runtime, cores: o.cores(), life: context.Background()}
	gpus, err := gpu.Choose(context.Background(), c, o.GPU, o.Log)
	if err != nil {
		return err
	}
	p := pooled(one, gpus)
	if c.Emulated() {
		p, err = emulate(one, o)
	}
	if err == nil {
		err = do(p)
	}
	for _, g := range gpus {
		err = errors.Join(err, g.Give())
	}
	return err
}

// checkSelection is [CheckSelection] for the devices of a daemon.
func (p pool) checkSelection(c *config.Config) error {
	var faults config.Faults
	var checked string
	for i := range c.Services {
		s := &c.Services[i]
		of, _ := s.Of()
		// Variants of a service share the file and are neighbours, so it is checked once.
		if s.Selection == "" || of == checked {
			continue
		}
		checked = of
		w, err := p.selectable(c, of)
		if err == nil {
			_, err = selection.ReadSet(s.Selection, &w)
		}
		if err != nil {
			faults = append(faults, config.Faults{{Key: "service " + of + ": selection", Message: fmt.Sprintf(
				"%v, or leave selection out: the daemon then computes policies itself", err)}}...)
		}
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// selectable is [Selectable] for the devices of a daemon. The first device of a service
// determines its latencies.
func (p pool) selectable(c *config.Config, service string) (w selection.Worker, err error) {
	for i := range c.Services {
		s := &c.Services[i]
		of, variant := s.Of()
		if of != service {
			continue
		}
		on := p.on(c, s.Name)
		if len(on) == 0 {
			return w, fmt.Errorf("service %s is on no device", service)
		}
		v := selection.Variant{Name: variant.Name, Accuracy: variant.Accuracy}
		if v.Hash, err = on[0].measuredAs(s); err != nil {
			return w, fmt.Errorf("variant %s: %w", v.Name, err)
		}
		w.Device, w.Workers, w.Target = on[0].measuredOn(), len(on), float64(s.Target)/float64(time.Millisecond)
		w.Variants = append(w.Variants, v)
	}
	if len(w.Variants) == 0 {
		return w, fmt.Errorf("there is no service %q with variants; name one that has", service)
	}
	return w, nil
}

// measuredOn returns the name of the device in measurements, or "" if it is not known. An
// emulated device has the name of the device behind its profile, whose measurements apply
// to it.
func (u *poolDevice) measuredOn() string {
	switch {
	case u.emulation != nil:
		return u.emulation.name
	case u.runtime == "":
		return ""
	}
	return models.MeasuredOn(u.text, u.runtime)
}

// measuredAs returns the name of a service's model in measurements. Models of an emulated
// device have no file, and so no name.
func (u *poolDevice) measuredAs(s *config.Service) (name string, err error) {
	if u.emulation != nil {
		return "", nil
	}
	path, err := u.model(s.Model)
	if err != nil {
		return "", err
	}
	hash, err := hashModel(u.life, path, u.config.Worker.LoadTimeout, s.OpLibraries...)
	return models.MeasuredAs(hash, u.placeOf(s).Share), err
}
