package predictor

import (
	"fmt"

	"github.com/overlapd/overlapd/models"
)

// binding is which model of the file a service has, or -1, as long as it is the
// model that it was bound to.
type binding struct{ file, model int }

// Use begins to use a network. bind gives for each service of the table of solo
// times, those that were dropped among them, the position of its model in the
// file, or -1; see [File.Match]. The file must not change from then on. If it is
// the one in use, what was learned of groups whose models stay the same is kept.
// On an error nothing has changed.
//
// A service that is added later, or has another model since its Reset, is not
// known to the network until Use is called again; the others stay bound.
func (p *Predictor) Use(f *File, bind []int) error {
	if len(bind) != len(p.solo.services) {
		return fmt.Errorf("%w: models of %d services, there are %d", ErrRange, len(bind), len(p.solo.services))
	}
	for service, model := range bind {
		if model < -1 || model >= len(f.Features.Models) {
			return fmt.Errorf("%w: service %d has model %d of %d", ErrRange, service, model, len(f.Features.Models))
		}
	}
	if f == p.file {
		p.rebind(bind)
		return nil
	}
	m, err := NewModel(f)
	if err != nil {
		return err
	}
	p.model, p.file, p.bind = m, f, p.bindings(bind)
	p.calibration.restart(SourceNetwork, f.Test.Quantiles)
	return nil
}

// rebind binds services to the file in use, and forgets what was learned of
// groups with those that had another model.
func (p *Predictor) rebind(bind []int) {
	before := p.bind
	p.bind = p.bindings(bind)
	for i := range p.bind {
		if i >= len(before) || p.bind[i] != before[i] {
			p.calibration.forget(models.ServiceID(i))
		}
	}
}

func (p *Predictor) bindings(bind []int) []binding {
	list := make([]binding, len(bind))
	for i, model := range bind {
		list[i] = binding{file: model, model: p.solo.services[i].model}
	}
	return list
}

// bound returns the model in the file of a service that the table of solo times
// has, or -1.
func (p *Predictor) bound(service models.ServiceID) int {
	if int(service) >= len(p.bind) || p.bind[service].model != p.solo.services[service].model {
		return -1
	}
	return p.bind[service].file
}

// Reset is [Solo.Reset] for a service that may have run before: what was learned
// of groups with its last model is not believed of the next one.
func (p *Predictor) Reset(service models.ServiceID, operators int) error {
	if err := p.solo.Reset(service, operators); err != nil {
		return err
	}
	p.calibration.forget(service)
	return nil
}

// Drop forgets a service: its solo times, and what was learned of groups with
// it. Its ID may be given to another one by Reset of the table.
func (p *Predictor) Drop(service models.ServiceID) error {
	if err := p.solo.Drop(service); err != nil {
		return err
	}
	p.calibration.forget(service)
	return nil
}

// Forget stops using the network.
func (p *Predictor) Forget() {
	p.model, p.file, p.bind = nil, nil, nil
	p.calibration.restart(SourceNetwork, exact)
}
