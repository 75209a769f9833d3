// Package advice finds which services should share a device (Abacus, section 7.8). From
// measured groups and from the operator costs that package fit infers, it computes the gain of
// overlapping each pair, the division of services among devices that gains most, and what to
// measure next. [Advise] returns an [Advice], which can be written as JSON or as a
// [report.Document]. It is for the command advise; nothing that serves imports it.
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

// Limits and defaults of advice.
const (
	// maxShare limits the services on a device.
	maxShare    = training.MaxSpans
	maxServices = training.MaxModels

	defaultShare = 2
	// defaultRepeats is the number of runs per group for a dataset that does not record it.
	defaultRepeats = 100
	// defaultGroups is the number of groups per pair for a dataset without pairs.
	defaultGroups = 2000
	// moreDevices is how many devices beyond those given are tried to keep bad pairs apart.
	moreDevices = 8
)

// errAdvice is returned when the advice asked for is not possible.
var errAdvice = errors.New("no advice")

// Options say which services advice is for and how they may be divided.
type Options struct {
	// Services is empty for all models of the dataset.
	Services []Service
	// Size is the greatest number of services on a device, or 0 for two.
	Size int
	// Devices is the number of devices, or 0 for as few as hold all services.
	Devices int
	// Solo holds isolated latencies of whole models. They take precedence over inferred ones.
	Solo []training.SoloTime

	// Pools is the number of pools to divide the services into, or 0 for no pools. Memory is the
	// memory of each device in MiB, or 0 for no limit.
	Pools  int
	Memory float64

	// Operators holds isolated latencies of operators by model. They determine how the time of a
	// model is distributed over its operators, and its total if the groups do not show that.
	Operators map[string][]training.OperatorTimes
}

// Service is a service to be assigned to a device.
type Service struct {
	Name string
	// Model is the name in the dataset. A model that is not there has not been measured.
	Model string
	// QPS is the load in queries per second, or 0 if it is unknown.
	QPS float64

	// Target is the QoS target, or 0 if it is unknown.
	Target time.Duration

	// MaxBatch is the largest batch, or 0 for no limit.
	MaxBatch int
	// Memory is the device memory of the service in MiB, or 0 if it is unknown.
	Memory float64
}

// Advice says which services gain by sharing a device.
type Advice struct {
	Device string `json:"device,omitempty"`
	Rows   int    `json:"rows"`
	// Solo holds the isolated latencies from which gains are computed.
	Solo []soloTime `json:"solo"`
	// Sets holds the gains of models measured together, first pairs, and by descending gain.
	Sets     []setGain `json:"sets"`
	Services []string  `json:"services"`
	// Pairs holds the gain of every two services, in the order of Services.
	Pairs [][]pairGain `json:"pairs"`
	// Off is the relative error of estimated gains, where measurements exist.
	Off      float64    `json:"off"`
	Division division   `json:"division"`
	Next     []nextPair `json:"next"`

	// Splits are the best static splits of the devices whose loads and targets are known.
	Splits []*staticSplit `json:"splits,omitempty"`
	Cost   cost           `json:"cost"`

	// Pools is set if pools were asked for.
	Pools *poolPlan `json:"pools,omitempty"`
}

// pairGain is the gain of two services on one device.
type pairGain struct {
	Gain float64 `json:"gain"`
	// Measured is false for a gain that was estimated from the gains of the models with others.
	Measured bool `json:"measured"`
	// Bad means that the services should not share a device.
	Bad bool `json:"bad"`

	// log is the binary logarithm of Gain, which is the compatibility of the pair.
	log float64
}

// division says which services share a device.
type division struct {
	// Size is the greatest number of services on a device.
	Size    int           `json:"size"`
	Devices []deviceShare `json:"devices"`
	// Exact means that no division is better. Otherwise the search found none.
	Exact bool `json:"exact"`
	// Bad lists the bad pairs that share a device nevertheless.
	Bad [][2]string `json:"bad"`
	// Enough is the number of devices that would keep these pairs apart, or 0 if none was found.
	Enough int `json:"enough,omitempty"`
}

// deviceShare holds the services of one device.
type deviceShare struct {
	Services []string `json:"services"`
	// Gain is the expected gain of a group that includes all of them.
	Gain  float64 `json:"gain"`
	Basis string  `json:"basis"`
	// Busy is the fraction of the device's time in use, if loads are known.
	Busy float64 `json:"busy,omitempty"`
}

// The basis of an expected gain, the most reliable first.
const (
	// basisMeasured means groups of exactly these models.
	basisMeasured = "measured"
	// basisPairs means groups of every two of them.
	basisPairs = "pairs"
	// basisEstimated means that some pairs are estimated from the models' gains with others.
	basisEstimated = "estimated"
)

// Advise finds which services gain by sharing a device, how to divide them among devices, and
// what to measure next.
func Advise(ctx context.Context, d *training.Dataset, o Options) (*Advice, error) {
	p, err := newPanel(ctx, d, o)
	if err != nil {
		return nil, err
	}
	// The order matters: splits, pools and the pairs to measure next all depend on the division.
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
		// With pools, the pairs to measure next are those that share a pool.
		if p.Pools, devices, err = p.pools(o.Pools); err != nil {
			return nil, err
		}
	}
	p.Next = p.next(devices)
	p.Cost = p.cost(d, devices)
	return p.Advice, nil
}

// panel holds the state of one call of Advise.
type panel struct {
	*Advice
	services []Service
	// model holds the index in the dataset of each service's model, or -1.
	model   []int
	fit     *compatibility
	times   *soloTimes
	options Options
}

// newPanel validates the options and computes everything that does not depend on the division:
// isolated latencies, the gains of sets and the gains of all pairs.
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
	// The error of the fit is in binary logarithms, because a pair has two models.
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

// check completes the options with defaults and validates them.
func (p *panel) check() error {
	o := &p.options
	o.Size = cmp.Or(o.Size, defaultShare)
	n := len(p.services)
	switch {
	case n == 0:
		return fmt.Errorf("%w: no services; give at least one", errAdvice)
	case n > maxServices:
		return fmt.Errorf("%w: %d services; give at most %d", errAdvice, n, maxServices)
	case o.Size < 1 || o.Size > maxShare:
		return fmt.Errorf("%w: at most %d services for each device; give 1 to %d", errAdvice, o.Size, maxShare)
	}
	// Size must be valid here, because the default number of devices divides by it.
	o.Devices = cmp.Or(o.Devices, (n+o.Size-1)/o.Size)
	if o.Devices < 0 || o.Devices > maxServices || o.Devices*o.Size < n {
		return fmt.Errorf("%w: %d services do not fit on %d devices with at most %d services each; give more devices or a higher limit", errAdvice, n, o.Devices, o.Size)
	}
	names := map[string]bool{}
	for _, s := range p.services {
		switch {
		case s.Name == "" || s.Model == "":
			return fmt.Errorf("%w: a service has no name or no model; give both", errAdvice)
		case names[s.Name]:
			return fmt.Errorf("%w: service %s is listed twice; give each service a name of its own", errAdvice, s.Name)
		case !(s.QPS >= 0) || math.IsInf(s.QPS, 0):
			return fmt.Errorf("%w: service %s has a load of %v queries per second; give a number from 0", errAdvice, s.Name, s.QPS)
		}
		names[s.Name] = true
	}
	if o.Pools > 0 {
		return p.checkPools()
	}
	return nil
}

// pair returns the gain of two services. If nothing was measured at all, it expects no gain,
// but does not call the pair bad.
func (p *panel) pair(i, j int) pairGain {
	y, set := p.fit.pair(p.model[i], p.model[j])
	g := pairGain{Gain: math.Pow(2, y), Measured: set != nil, Bad: y <= 0 && len(p.Sets) > 0}
	if set != nil {
		g.Bad = set.Bad()
	}
	g.log = math.Log2(g.Gain)
	return g
}

// set returns the compatibility of services if their models were measured together often enough.
func (p *panel) set(members []int) (float64, bool) {
	// Two services with one model, or an unknown model, cannot have been measured together.
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

// query returns the isolated latency of one query of a service in microseconds, at the smallest
// known batch size and sequence length, or 0 if none is known.
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

// division converts the result of a divider to its exported form.
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

// basis returns the basis of the expected gain of services on one device. A single service has
// a gain of 1 by definition, which counts as measured.
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

// enough returns the least number of devices with which no bad pair shares a device. It returns
// 0 if that takes more than moreDevices additional devices.
func (v *divider) enough() int {
	// The copy keeps the device count and the fair busy time of v unchanged.
	wider := *v
	for wider.devices < min(v.devices+moreDevices, len(v.pairs)) {
		wider.devices++
		if devices, _ := wider.divide(); wider.total(devices).bad == 0 {
			return wider.devices
		}
	}
	return 0
}
