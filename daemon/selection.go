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
	"github.com/overlapd/overlapd/selection"
)

// Selectable returns what the policies of a service with variants are for on this host: the
// device, the target, the workers and the variants, all but their latencies. Whoever makes a
// policy file and whoever takes one asks here, so that they agree. The loop, which compares the
// file with the models that its workers have loaded, names both in the same way.
func Selectable(c config.Config, service string, o Options) (w selection.Worker, err error) {
	c = c.Expanded()
	err = o.devices(c, func(p *pool) error {
		w, err = p.selectable(&c, service)
		return err
	})
	return w, err
}

// CheckSelection reads the policy files that a configuration names and compares them with what
// is there, as a daemon does before it follows one. The error is of [config.Faults].
func CheckSelection(c config.Config, o Options) error {
	if c = c.Expanded(); !slices.ContainsFunc(c.Services, func(s config.Service) bool { return s.Selection != "" }) {
		return nil
	}
	return o.devices(c, func(p *pool) error { return p.checkSelection(&c) })
}

// devices calls do with the devices of the pool that a daemon would have, and changes nothing
// but that models of the zoo are built.
func (o *Options) devices(c config.Config, do func(*pool) error) error {
	p := &pool{config: c, log: o.Log}
	one := poolDevice{config: c, log: o.Log, text: o.Device, runtime: o.Runtime, cores: o.Cores, life: context.Background()}
	gpus, err := gpu.Choose(context.Background(), c, o.GPU, o.Log)
	if err != nil {
		return err
	}
	if c.Emulated() {
		p.devices, err = emulate(one, o)
	} else {
		p.devices = pooled(one, gpus)
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
func (p *pool) checkSelection(c *config.Config) error {
	var faults config.Faults
	var checked string
	for i := range c.Services {
		s := &c.Services[i]
		of, _ := s.Of()
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
				"%v, or leave the key out: the daemon then calculates policies itself", err)}}...)
		}
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// selectable is [Selectable] for the devices of a daemon. Of several devices the first counts.
func (p *pool) selectable(c *config.Config, service string) (w selection.Worker, err error) {
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

// measuredOn names the device in what is measured on it, "" if that is not known. An emulated
// device is what it is made after: what was measured there holds here.
func (u *poolDevice) measuredOn() string {
	switch {
	case u.emulation != nil:
		return u.emulation.name
	case u.runtime == "":
		return ""
	}
	return models.MeasuredOn(u.text, u.runtime)
}

// measuredAs names the model of a service in what is measured of it. Nobody has the files of
// an emulated device's models, so they have no name.
func (u *poolDevice) measuredAs(s *config.Service) (name string, err error) {
	if u.emulation != nil {
		return "", nil
	}
	path, err := u.model(s.Model)
	if err != nil {
		return "", err
	}
	hash, err := hashModel(u.life, path, u.config.Worker.LoadTimeout)
	return models.MeasuredAs(hash, u.placeOf(s).Share), err
}
