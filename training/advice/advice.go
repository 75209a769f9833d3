// Package advice finds which services should share a device: what overlapping
// gains each pair, from measured groups and the costs that package fit infers
// from them, a division of the services that gains most, and what to measure next
// (Abacus, section 7.8). [Advise] makes an [Advice], which has a form as JSON and
// a [report.Document] for people. It is for the command advise; nothing that
// serves imports it.
package advice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/training"
)

// Limits of advice.
const (
	maxShare    = training.MaxSpans // services of a device
	maxServices = training.MaxModels

	defaultShare   = 2
	defaultRepeats = 100  // runs a group, for a dataset without counts
	defaultGroups  = 2000 // groups a pair, for a dataset without pairs
	moreDevices    = 8    // tried beyond those given, to keep bad pairs apart
)

// errAdvice is returned when advice is asked for that cannot be given.
var errAdvice = errors.New("no advice")

// Options are what advice is wanted.
type Options struct {
	Services []Service           // all models of the dataset if empty
	Size     int                 // most services of a device, 0 for two
	Devices  int                 // 0 for as few as hold all services
	Solo     []training.SoloTime // whole models; they go before what groups show

	// Pools is how many pools the services are divided into, 0 for none, whose devices have
	// Memory each, in MiB, 0 for no limit.
	Pools  int
	Memory float64

	// Operators are what the operators of models take alone, by model. They give
	// how the time of a model spreads, and all of it where groups do not.
	Operators map[string][]training.OperatorTimes
}

// Service is a service that gets a device.
type Service struct {
	Name  string
	Model string  // the name in the dataset; a model that is not there may be measured yet
	QPS   float64 // queries per second, 0 if unknown

	Target time.Duration // 0 if unknown

	MaxBatch int     // the largest batch, 0 for no limit
	Memory   float64 // of a device, in MiB, 0 if unknown
}

// Advice is which services gain by sharing a device.
type Advice struct {
	Device   string       `json:"device,omitempty"`
	Rows     int          `json:"rows"`
	Solo     []soloTime   `json:"solo"` // what gains are made of
	Sets     []setGain    `json:"sets"` // measured together: pairs first, the largest gain first
	Services []string     `json:"services"`
	Pairs    [][]pairGain `json:"pairs"` // every two services, in the order of Services
	Off      float64      `json:"off"`   // how far estimates of gains are off where there are measurements, relative
	Division division     `json:"division"`
	Next     []nextPair   `json:"next"`

	// Splits are the best static splits of the devices whose loads and targets are known.
	Splits []*staticSplit `json:"splits,omitempty"`
	Cost   cost           `json:"cost"`

	Pools *poolPlan `json:"pools,omitempty"` // if they were asked for
}

// pairGain is what two services gain on one device.
type pairGain struct {
	Gain     float64 `json:"gain"`
	Measured bool    `json:"measured"` // else estimated from what their models gain with others
	Bad      bool    `json:"bad"`      // they should not share a device

	log float64 // to base 2: the compatibility of the two
}

// Division is which services share a device.
type division struct {
	Size    int           `json:"size"` // most services of a device
	Devices []deviceShare `json:"devices"`
	Exact   bool          `json:"exact"`            // no division is better; else none was found
	Bad     [][2]string   `json:"bad"`              // pairs that share a device all the same
	Enough  int           `json:"enough,omitempty"` // devices that would keep these apart, 0 if not found
}

// deviceShare is the services of one device.
type deviceShare struct {
	Services []string `json:"services"`
	Gain     float64  `json:"gain"` // expected of a group that holds all of them
	Basis    string   `json:"basis"`
	Busy     float64  `json:"busy,omitempty"` // share of the device's time, if loads are known
}

// What an expected gain rests on, the firmest first.
const (
	basisMeasured  = "measured"  // groups of these models
	basisPairs     = "pairs"     // groups of each two of them
	basisEstimated = "estimated" // what models gain with others, for some pairs
)

// Advise finds which services gain by sharing a device, how to divide them
// among devices, and what to measure next.
func Advise(ctx context.Context, d *training.Dataset, o Options) (*Advice, error) {
	p, err := newPanel(ctx, d, o)
	if err != nil {
		return nil, err
	}
	v := &divider{size: p.options.Size, devices: p.options.Devices, pairs: p.Pairs, set: p.set}
	for i, s := range p.services {
		p.Services = append(p.Services, s.Name)
		v.busy = append(v.busy, s.QPS*p.query(i)/1e6)
	}
	devices, exact := v.divide()
	p.Division = p.division(v, devices, exact)
	for _, members := range devices {
		if s := p.split(p.times, members); s != nil {
			p.Splits = append(p.Splits, s)
		}
	}
	if o.Pools > 0 {
		if p.Pools, devices, err = p.pools(o.Pools); err != nil {
			return nil, err
		}
	}
	p.Next = p.next(devices)
	p.Cost = p.cost(d, devices)
	return p.Advice, nil
}

// panel makes advice.
type panel struct {
	*Advice
	services []Service
	model    []int // position in the dataset of each service, -1 if absent
	fit      *compatibility
	times    *soloTimes
	options  Options
}

func newPanel(ctx context.Context, d *training.Dataset, o Options) (*panel, error) {
	p := &panel{Advice: &Advice{Device: d.Device, Rows: len(d.Rows)}, services: slices.Clone(o.Services), options: o}
	if len(p.services) == 0 {
		for _, m := range d.Models {
			p.services = append(p.services, Service{Name: m.Name, Model: m.Name})
		}
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	for _, s := range p.services {
		p.model = append(p.model, d.Model(s.Model))
	}
	t, err := newSoloTimes(ctx, d, &o)
	if err != nil {
		return nil, err
	}
	p.times, p.Solo, p.Sets = t, t.list(), t.gains(d)
	p.fit = newCompatibility(len(d.Models), p.Sets)
	p.Off = math.Pow(2, p.fit.off) - 1
	p.Pairs = make([][]pairGain, len(p.services))
	for i := range p.Pairs {
		p.Pairs[i] = make([]pairGain, len(p.services))
		for j := range p.Pairs[i] {
			if i != j {
				p.Pairs[i][j] = p.pair(i, j)
			}
		}
	}
	return p, nil
}

func (p *panel) check() error {
	o := &p.options
	o.Size = cmp.Or(o.Size, defaultShare)
	n := len(p.services)
	switch {
	case n == 0:
		return fmt.Errorf("%w: no services", errAdvice)
	case n > maxServices:
		return fmt.Errorf("%w: %d services, the limit is %d", errAdvice, n, maxServices)
	case o.Size < 1 || o.Size > maxShare:
		return fmt.Errorf("%w: %d services to a device, not 1 to %d", errAdvice, o.Size, maxShare)
	}
	o.Devices = cmp.Or(o.Devices, (n+o.Size-1)/o.Size)
	if o.Devices < 0 || o.Devices > maxServices || o.Devices*o.Size < n {
		return fmt.Errorf("%w: %d services do not go on %d devices of at most %d", errAdvice, n, o.Devices, o.Size)
	}
	names := map[string]bool{}
	for _, s := range p.services {
		switch {
		case s.Name == "" || s.Model == "":
			return fmt.Errorf("%w: a service without a name or a model", errAdvice)
		case names[s.Name]:
			return fmt.Errorf("%w: service %s stands twice", errAdvice, s.Name)
		case !(s.QPS >= 0) || math.IsInf(s.QPS, 0):
			return fmt.Errorf("%w: service %s has a load of %v queries per second", errAdvice, s.Name, s.QPS)
		}
		names[s.Name] = true
	}
	if o.Pools > 0 {
		return p.checkPools()
	}
	return nil
}

// pair returns what two services gain. Where nothing was measured at all, no
// gain is expected, and nothing bad either.
func (p *panel) pair(i, j int) pairGain {
	y, set := p.fit.pair(p.model[i], p.model[j])
	g := pairGain{Gain: math.Pow(2, y), Measured: set != nil, Bad: y <= 0 && len(p.Sets) > 0}
	if set != nil {
		g.Bad = set.Bad()
	}
	g.log = math.Log2(g.Gain)
	return g
}

// set returns the compatibility of services whose models were measured
// together.
func (p *panel) set(members []int) (float64, bool) {
	list := make([]int, 0, maxShare)
	for _, m := range members {
		if p.model[m] < 0 || len(list) == maxShare || slices.Contains(list, p.model[m]) {
			return 0, false
		}
		list = append(list, p.model[m])
	}
	slices.Sort(list)
	s := p.fit.sets[keyOf(list)]
	if s == nil || s.Groups < fewestGroups {
		return 0, false
	}
	return s.compatibility(), true
}

// query returns what one query of a service takes alone, in microseconds, at
// the smallest batch size and sequence length that is known, 0 if none is.
func (p *panel) query(service int) float64 {
	var list []training.SoloTime
	for _, s := range p.Solo {
		list = append(list, training.SoloTime{Model: s.Model, Size: s.Size, SeqLen: s.SeqLen, Micros: s.Micros})
	}
	list = slices.DeleteFunc(append(list, p.options.Solo...), func(s training.SoloTime) bool { return s.Model != p.services[service].Model })
	if len(list) == 0 {
		return 0
	}
	return slices.MinFunc(list, func(a, b training.SoloTime) int {
		return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.SeqLen, b.SeqLen))
	}).Micros
}

// division describes a division.
func (p *panel) division(v *divider, devices [][]int, exact bool) division {
	out := division{Size: v.size, Exact: exact, Bad: [][2]string{}}
	for _, members := range devices {
		share := deviceShare{Gain: v.gain(members), Busy: v.busyTime(members), Basis: p.basis(members)}
		for i, a := range members {
			share.Services = append(share.Services, p.services[a].Name)
			for _, b := range members[:i] {
				if v.pairs[a][b].Bad {
					out.Bad = append(out.Bad, [2]string{p.services[b].Name, p.services[a].Name})
				}
			}
		}
		out.Devices = append(out.Devices, share)
	}
	if len(out.Bad) > 0 {
		out.Enough = v.enough()
	}
	return out
}

// basis returns what the gain of services on one device rests on. A service
// alone gains nothing, for sure.
func (p *panel) basis(members []int) string {
	if _, ok := p.set(members); ok || len(members) == 1 {
		return basisMeasured
	}
	for i, a := range members {
		for _, b := range members[:i] {
			if !p.Pairs[a][b].Measured {
				return basisEstimated
			}
		}
	}
	return basisPairs
}

// enough returns how many devices keep all bad pairs apart, 0 if only many
// more do.
func (v *divider) enough() int {
	wider := *v
	for wider.devices < min(v.devices+moreDevices, len(v.pairs)) {
		wider.devices++
		if devices, _ := wider.divide(); wider.total(devices).bad == 0 {
			return wider.devices
		}
	}
	return 0
}
